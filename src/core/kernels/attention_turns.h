#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/futex.h"
#include "core/kernels/attention_plan.h"

namespace nxd::kernels {

// The backward pass of a pair has a task for each query head of the group and block of its queries.
// Gradients of keys are sums over all of these tasks, and a block of keys takes the terms in a
// fixed order: head by head, and from a head's last queries to its first. So the bits depend
// neither on the number of threads nor on their pace. A task goes from block to block of keys, a
// step behind the task before it:
//
//   thread 0   head 0, queries 96...  keys 0...  keys 96...
//   thread 1   head 0, queries 0...              keys 0...   (these see no others)
//   thread 1   head 1, queries 96...                         keys 0...  keys 96...
//
// Later queries have more keys where attention is causal: the long tasks come first, and the short
// ones fill up the end. A task waits only for tasks before it. So they must be taken in order.
class AttentionTurns {
 public:
  // Blocks of so many queries and keys.
  AttentionTurns(const AttentionPlan& plan, int64_t b, int64_t block_rows, int64_t block_keys);

  int64_t tasks() const { return group_ * row_blocks_; }
  int64_t head(int64_t task) const { return task / row_blocks_; }  // of the group
  int64_t first_row(int64_t task) const { return row_block(task) * block_rows_; }

  // Blocks of keys that some query of a task sees: [begin, end).
  struct KeyBlocks {
    int64_t begin, end;
  };
  KeyBlocks key_blocks(int64_t task) const { return seen_by(row_block(task)); }

  // True if all tasks before this one have added to a block of keys that it sees.
  bool is_next(int64_t task, int64_t key_block) const;
  // Waits for it; false if it never will be, since a task has failed.
  bool wait(int64_t task, int64_t key_block);
  // A task has added to a block.
  void pass(int64_t key_block) noexcept;
  // A task does not end as it should: nobody waits any more.
  void fail() noexcept;

 private:
  int64_t row_block(int64_t task) const { return row_blocks_ - 1 - task % row_blocks_; }
  KeyBlocks seen_by(int64_t row_block) const;
  // Tasks that add to a block of keys before this one.
  uint32_t turn(int64_t task, int64_t key_block) const;

  // Blocks of queries that see a block of keys: neighbours, as SeenKeys has it.
  struct Rows {
    int64_t first = 0, last = -1;
  };

  SeenKeys seen_;
  int64_t group_, query_length_, block_rows_, block_keys_, row_blocks_;
  std::vector<Rows> rows_;          // of each block of keys
  std::unique_ptr<Futex[]> added_;  // tasks, by block of keys; from kFailed on: failed
};

}  // namespace nxd::kernels
