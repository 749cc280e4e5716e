#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numbers>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/thread_own.h"
#include "core/kernels/attention.h"
#include "core/kernels/parallel.h"

namespace nxd::kernels {

// Query row r sees no keys but those of [begin(r), end(r)); a mask may hide some of these too.
struct SeenKeys {
  int64_t length = 0;  // keys
  bool causal = false;
  int64_t offset = 0;  // of the last key that query 0 sees
  int64_t window = 0;
  // The mask keeps no key outside of these, and all within unless it has holes.
  int64_t first_kept = 0, kept_end = 0;
  bool holes = false;

  // Neither decreases from row to row; a row without keys may have begin above end.
  int64_t end(int64_t row) const {
    return causal ? std::clamp<int64_t>(row + offset + 1, 0, kept_end) : kept_end;
  }
  int64_t begin(int64_t row) const {
    return window == 0 ? first_kept
                       : std::clamp<int64_t>(row + offset + 1 - window, first_kept, length);
  }
};

// A checked shape, and what both ways to compute it need to know.
class AttentionPlan {
 public:
  AttentionPlan(nxd_dtype_t dtype, const AttentionShape& shape);

  nxd_dtype_t dtype() const { return dtype_; }
  const AttentionShape& shape() const { return shape_; }
  int64_t group() const { return group_; }  // query heads of a key/value head
  // The keys that a batch entry's queries see.
  const SeenKeys& keys(int64_t b) const {
    return keys_[shape_.key_mask ? static_cast<size_t>(b) : 0];
  }

  // Pairs of a batch entry and a key/value head are numbered, heads of an entry after another.
  struct Pair {
    int64_t b, kv_head;
  };
  Pair pair(int64_t i) const { return {i / shape_.kv_heads, i % shape_.kv_heads}; }

  // Calls run(first, count) for ranges of pairs that cover all: for single ones, as many on each
  // thread of the team, and for those that are left over, fewer than there are threads. Run finds a
  // team of one for the former, and for the latter the whole team, which it divides the work among.
  template <class Run>
  void divide_pairs(const Run& run) const {
    const int64_t pairs = shape_.batch * shape_.kv_heads, threads = team_size();
    const int64_t alone = pairs / threads * threads;
    parallel_ranges(alone, std::max<int64_t>(work(shape_.query_length, shape_.key_length), 1),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) run(i, 1);
                    });
    if (alone < pairs) run(alone, pairs - alone);
  }

  // The work of a pair's queries with keys, as parallel_ranges counts it.
  int64_t work(int64_t queries, int64_t keys) const {
    return group_ * queries * keys * shape_.head_dim;
  }

  // Operations of n products of scores or of values, over the pairs of a query and a key that it
  // sees.
  double operations(int64_t products) const;

  void* element(const HeadView& view, int64_t b, int64_t h, int64_t s) const {
    const int64_t index = b * view.batch_stride + h * view.head_stride + s * view.seq_stride;
    return static_cast<char*>(view.data) + index * static_cast<int64_t>(dtype_size(dtype_));
  }

  int64_t statistics_of(int64_t b, int64_t h, int64_t row) const {
    return (b * shape_.query_heads + h) * kAttentionStatistics * shape_.query_length + row;
  }

  // The number of the first weight of a query, where there is a dropout.
  uint64_t first_weight(int64_t b, int64_t h, int64_t row) const {
    const int64_t head = b * shape_.dropout->heads + shape_.dropout->first_head + h;
    return static_cast<uint64_t>((head * shape_.query_length + row) * shape_.key_length);
  }

  // Scores times this are exponents of 2.
  float exponent_scale() const { return static_cast<float>(shape_.scale * std::numbers::log2e); }

  // The mask of a batch entry as what is added to scores [key_length], or null where begin() and
  // end() say all.
  const float* bias(float* space, int64_t b) const;

 private:
  SeenKeys keys_of(int64_t b) const;
  double seen() const;
  double seen_unmasked() const;

  nxd_dtype_t dtype_;
  AttentionShape shape_;
  int64_t group_;
  std::vector<SeenKeys> keys_;  // by batch entry with a mask, else one
};

// The memory that this thread keeps for the i-th of the pairs that it computes or leads a team for.
template <class Buffers>
Buffers& buffers_of_pair(size_t i) {
  auto& of_pairs = ThreadOwn<std::deque<Buffers>>::get();
  while (of_pairs.size() <= i) of_pairs.emplace_back();
  return of_pairs[i];
}

}  // namespace nxd::kernels
