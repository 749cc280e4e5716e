#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/comm/process_group.h"
#include "core/pipeline/pipeline_stages.h"

namespace nxd {

// Buffers that are lent out and come back, and are kept for the next task that wants one of that
// size. They lie where a group's messages are sent from without another copy.
class BufferPool {
 public:
  explicit BufferPool(std::shared_ptr<ProcessGroup> group);
  ~BufferPool();  // those still lent out are freed when they come back
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Contents undefined. The buffer comes back when its last owner lets go, on any thread.
  PipelineBuffer take(size_t bytes);
  // Has so many of this size in all.
  void reserve(size_t bytes, size_t count);
  // Frees those that are not lent out.
  void clear();
  uint64_t bytes() const;  // of all, lent out or not

 private:
  struct State;

  const std::shared_ptr<ProcessGroup> group_;
  const std::shared_ptr<State> state_;
};

}  // namespace nxd
