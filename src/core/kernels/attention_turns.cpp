#include "core/kernels/attention_turns.h"

#include <algorithm>

#include "core/base/cpu_pause.h"
#include "core/base/yield.h"

namespace nxd::kernels {
namespace {

// A turn comes within microseconds, unless the system keeps a thread from running.
constexpr int kLooks = 1000;
constexpr int kYields = 200;

// More than there are tasks.
constexpr uint32_t kFailed = uint32_t{1} << 31;

int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }

}  // namespace

AttentionTurns::AttentionTurns(const AttentionPlan& plan, int64_t b, int64_t block_rows,
                               int64_t block_keys)
    : seen_(plan.keys(b)),
      group_(plan.group()),
      query_length_(plan.shape().query_length),
      block_rows_(block_rows),
      block_keys_(block_keys),
      row_blocks_(blocks_of(query_length_, block_rows)),
      rows_(static_cast<size_t>(blocks_of(seen_.length, block_keys))),
      added_(new Futex[rows_.size()]) {
  for (int64_t row = 0; row < row_blocks_; ++row) {
    const KeyBlocks keys = seen_by(row);
    for (int64_t key = keys.begin; key < keys.end; ++key) {
      Rows& rows = rows_[static_cast<size_t>(key)];
      if (rows.last < 0) rows.first = row;
      rows.last = row;
    }
  }
}

AttentionTurns::KeyBlocks AttentionTurns::seen_by(int64_t row_block) const {
  const int64_t first = row_block * block_rows_;
  const int64_t last = std::min(first + block_rows_, query_length_) - 1;
  const int64_t begin = seen_.begin(first), end = seen_.end(last);
  if (begin >= end) return {0, 0};
  return {begin / block_keys_, blocks_of(end, block_keys_)};
}

uint32_t AttentionTurns::turn(int64_t task, int64_t key_block) const {
  const Rows& rows = rows_[static_cast<size_t>(key_block)];
  return static_cast<uint32_t>(head(task) * (rows.last - rows.first + 1) + rows.last -
                               row_block(task));
}

bool AttentionTurns::is_next(int64_t task, int64_t key_block) const {
  const Futex& added = added_[static_cast<size_t>(key_block)];
  return added.value.load(std::memory_order_acquire) == turn(task, key_block);
}

bool AttentionTurns::wait(int64_t task, int64_t key_block) {
  const uint32_t mine = turn(task, key_block);
  Futex& added = added_[static_cast<size_t>(key_block)];
  uint32_t now = added.value.load(std::memory_order_acquire);
  for (int look = 0; now < mine; ++look) {
    if (look < kLooks) {
      cpu_pause();
    } else if (look >= kLooks + kYields || !try_yield()) {
      added.sleep(now);
    }
    now = added.value.load(std::memory_order_acquire);
  }
  return now < kFailed;
}

void AttentionTurns::pass(int64_t key_block) noexcept {
  Futex& added = added_[static_cast<size_t>(key_block)];
  added.value.fetch_add(1, std::memory_order_seq_cst);
  added.wake_sleepers();
}

// The tasks that still add do not reach 0 from here.
void AttentionTurns::fail() noexcept {
  for (size_t i = 0; i < rows_.size(); ++i) {
    added_[i].value.store(kFailed, std::memory_order_seq_cst);
    added_[i].wake_sleepers();
  }
}

}  // namespace nxd::kernels
