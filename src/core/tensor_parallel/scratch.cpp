#include "core/tensor_parallel/scratch.h"

#include <cstdint>

#include "core/base/buffer_limit.h"
#include "core/base/dtype.h"
#include "core/base/round_up.h"
#include "core/kernels/memory_pool.h"

namespace nxd {

Scratch::~Scratch() {
  for (void* pooled : pooled_) kernels::pool_free(pooled);
}

size_t Scratch::reserve(int64_t count, int64_t times, nxd_dtype_t dtype, Use use) {
  int64_t all = 0;
  const auto most = static_cast<int64_t>(kBufferLimit / dtype_size(dtype));
  check_argument(!__builtin_mul_overflow(count, times, &all) && all <= most,
                 "expected sizes that fit in memory, got ", count, " elements ", times, " times");
  blocks_.push_back({static_cast<size_t>(all) * dtype_size(dtype), use});
  return blocks_.size() - 1;
}

size_t Scratch::workspace_bytes() const {
  size_t sum = 0;
  for (const Block& block : blocks_) sum += round_up(block.bytes, kAlignment);
  return sum == 0 ? 0 : sum + kAlignment - 1;
}

void Scratch::allocate(const ProcessGroup& group, const CallerWorkspace& workspace) {
  if (workspace.given) {
    const size_t needed = workspace_bytes();
    check_argument(workspace.bytes >= needed, "workspace_bytes: expected at least ", needed,
                   ", got ", workspace.bytes);
    auto address = reinterpret_cast<uintptr_t>(workspace.data);
    char* next = static_cast<char*>(workspace.data) + (round_up(address, kAlignment) - address);
    for (Block& block : blocks_) {
      block.data = next;
      next += round_up(block.bytes, kAlignment);
    }
    return;
  }
  exchanged_.reserve(blocks_.size());
  pooled_.reserve(blocks_.size());
  for (Block& block : blocks_) {
    if (block.use == Use::kExchanged) {
      exchanged_.emplace_back(group, block.bytes);
      block.data = exchanged_.back().data();
    } else {
      allocate_own(block);
    }
  }
}

void Scratch::allocate() {
  pooled_.reserve(blocks_.size());
  for (Block& block : blocks_) {
    check_internal(block.use == Use::kOwn, "an exchanged block needs a group");
    allocate_own(block);
  }
}

void Scratch::allocate_own(Block& block) {
  pooled_.push_back(kernels::pool_allocate(block.bytes));
  block.data = static_cast<char*>(pooled_.back());
}

}  // namespace nxd
