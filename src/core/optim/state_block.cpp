#include "core/optim/state_block.h"

#include <cstring>
#include <utility>

namespace nxd {

StateBlock::StateBlock(size_t bytes)
    : memory_(new Memory{bytes, kernels::PoolBlock(kernels::pool_allocate(bytes))}) {}

StateBlock::StateBlock(StateBlock&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)) {}

StateBlock& StateBlock::operator=(StateBlock&& other) noexcept {
  std::swap(memory_, other.memory_);
  return *this;
}

StateBlock StateBlock::share() const {
  StateBlock other;
  other.memory_ = memory_;
  if (memory_) memory_->owners.fetch_add(1, std::memory_order_relaxed);
  return other;
}

// The other owner has read the content before its release: hence acquire and release.
void StateBlock::make_own() {
  if (!is_shared()) return;
  StateBlock own(memory_->bytes);
  std::memcpy(own.get(), get(), memory_->bytes);
  *this = std::move(own);
}

void StateBlock::release() noexcept {
  if (memory_ && memory_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete memory_;
}

}  // namespace nxd
