#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "core/kernels/memory_pool.h"

namespace nxd {

// Memory of one state of an optimizer. A snapshot shares it, so that taking one costs nothing: who
// writes next takes a copy first, and where the snapshot has been written by then, not even that.
class StateBlock {
 public:
  StateBlock() = default;
  // Contents are undefined.
  explicit StateBlock(size_t bytes);
  StateBlock(StateBlock&& other) noexcept;
  StateBlock& operator=(StateBlock&& other) noexcept;
  ~StateBlock() { release(); }

  explicit operator bool() const { return memory_ != nullptr; }
  void* get() const { return memory_ ? memory_->data.get() : nullptr; }

  // Another owner of the same memory, which may end on any thread. Neither may write while both
  // live.
  StateBlock share() const;
  bool is_shared() const { return memory_ && memory_->owners.load(std::memory_order_acquire) != 1; }
  // Afterwards the memory has no other owner; the content is as before. Throws OUT_OF_MEMORY, and
  // then leaves it shared.
  void make_own();

 private:
  struct Memory {
    size_t bytes;
    kernels::PoolBlock data;
    std::atomic<int> owners{1};
  };

  void release() noexcept;

  Memory* memory_ = nullptr;
};

}  // namespace nxd
