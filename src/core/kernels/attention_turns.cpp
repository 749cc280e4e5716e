#include "core/kernels/attention_turns.h"

#include <sched.h>

#include <algorithm>
#include <limits>

#include "core/base/cpu_pause.h"

namespace nxd::kernels {
namespace {

// A turn comes within microseconds, unless the system keeps a thread from running.
constexpr int kLooks = 1000;
constexpr int kYields = 200;

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
      added_(new std::atomic<int32_t>[rows_.size()]()) {
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

int32_t AttentionTurns::turn(int64_t task, int64_t key_block) const {
  const Rows& rows = rows_[static_cast<size_t>(key_block)];
  return static_cast<int32_t>(head(task) * (rows.last - rows.first + 1) + rows.last -
                              row_block(task));
}

bool AttentionTurns::is_next(int64_t task, int64_t key_block) const {
  return added_[static_cast<size_t>(key_block)].load(std::memory_order_acquire) ==
         turn(task, key_block);
}

bool AttentionTurns::wait(int64_t task, int64_t key_block) {
  const int32_t mine = turn(task, key_block);
  const std::atomic<int32_t>& added = added_[static_cast<size_t>(key_block)];
  int32_t now = added.load(std::memory_order_acquire);
  for (int look = 0; now >= 0 && now < mine; ++look) {
    if (look < kLooks) {
      cpu_pause();
    } else if (look < kLooks + kYields) {
      ::sched_yield();
    } else {
      added.wait(now, std::memory_order_acquire);
    }
    now = added.load(std::memory_order_acquire);
  }
  return now >= 0;
}

void AttentionTurns::pass(int64_t key_block) noexcept {
  std::atomic<int32_t>& added = added_[static_cast<size_t>(key_block)];
  added.fetch_add(1, std::memory_order_release);
  added.notify_all();
}

// The tasks that still add do not reach 0 from here.
void AttentionTurns::fail() noexcept {
  for (size_t i = 0; i < rows_.size(); ++i) {
    added_[i].store(std::numeric_limits<int32_t>::min(), std::memory_order_release);
    added_[i].notify_all();
  }
}

}  // namespace nxd::kernels
