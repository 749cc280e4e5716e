#include "core/comm/exchanged_buffer.h"

#include <utility>

#include "core/comm/memory/arena.h"
#include "core/kernels/memory_pool.h"

namespace nxd {
namespace {

// Collectives copy what is smaller, wherever it lies.
constexpr size_t kWorthAnArena = 4096;

}  // namespace

ExchangedBuffer::ExchangedBuffer(const ProcessGroup& group, size_t bytes) : bytes_(bytes) {
  if (bytes > kWorthAnArena) arena_ = group.arena();
  if (arena_) data_ = arena_->try_allocate(bytes);
  if (data_) return;
  arena_.reset();
  data_ = kernels::pool_allocate(bytes);
}

ExchangedBuffer::ExchangedBuffer(ExchangedBuffer&& other) noexcept { *this = std::move(other); }

ExchangedBuffer& ExchangedBuffer::operator=(ExchangedBuffer&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

ExchangedBuffer::~ExchangedBuffer() {
  if (!data_) return;
  if (arena_) {
    arena_->free(data_);
  } else {
    kernels::pool_free(data_);
  }
}

void* ExchangedBuffer::release() noexcept {
  arena_.reset();
  bytes_ = 0;
  return std::exchange(data_, nullptr);
}

}  // namespace nxd
