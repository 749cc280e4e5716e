#pragma once

#include <cstddef>
#include <memory>

#include "core/comm/process_group.h"

namespace nxd {

// Memory for what the ranks of a group are about to sum or gather: in the group's arena where there
// is one with room, so that the collective works on it in place, else in the kernels' pool. It may
// outlive the group and its context. Contents undefined.
class ExchangedBuffer {
 public:
  ExchangedBuffer() = default;
  ExchangedBuffer(const ProcessGroup& group, size_t bytes);
  ExchangedBuffer(ExchangedBuffer&& other) noexcept;
  ExchangedBuffer& operator=(ExchangedBuffer&& other) noexcept;
  ~ExchangedBuffer();

  char* data() const { return static_cast<char*>(data_); }
  size_t bytes() const { return bytes_; }
  // The arena it lies in; null when it is in the pool.
  const std::shared_ptr<Arena>& arena() const { return arena_; }
  // Gives up the memory to a caller who frees it as this class would: by arena(), or to the pool.
  void* release() noexcept;

 private:
  std::shared_ptr<Arena> arena_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace nxd
