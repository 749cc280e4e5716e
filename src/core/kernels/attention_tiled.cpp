#include "core/kernels/attention_tiled.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/base/round_up.h"
#include "core/base/thread_own.h"
#include "core/kernels/attention_pack.h"
#include "core/kernels/attention_tiles.h"
#include "core/kernels/attention_turns.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/memory_pool.h"
#include "core/kernels/softmax_rows.h"

namespace nxd::kernels {
namespace {

// Keys of a block of the backward pass: few, so that its scores stay in the second-level cache.
constexpr int64_t kBackwardKeys = kTileKeys;

size_t floats(int64_t n) { return static_cast<size_t>(n) * sizeof(float); }
int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }

// A pair's packed keys and values, on the thread that computes it or leads its team.
struct PairBuffers {
  Workspace key_panels, value_panels, pairs, bias, dk, dv;
};

// One over a row's sum of exponentials, of which the largest is 1, or near it where scores are
// large: from here on one key has nearly all of the row's probability.
constexpr float kPicksOneKey = 0.99F;

// A thread's block of keys or queries.
struct BlockBuffers {
  Workspace key_rows;
  Workspace queries, grads, out_row, query_pairs, grad_pairs, scratch, score_grad_pairs,
      score_grads, kept, rows, sums;
};

BlockBuffers& block_buffers() { return ThreadOwn<BlockBuffers>::get(); }

// Forward and backward share these.
struct PairWork {
  const AttentionPlan& plan;
  nxd_dtype_t tile_dtype;
  HeadView q, k, v, out;

  const AttentionShape& shape() const { return plan.shape(); }
  int64_t width() const { return round_up(shape().head_dim, kTileDims); }
  int64_t pack() const { return words_pack(tile_dtype); }
  int64_t row_words() const { return width() / pack(); }
  int64_t padded_keys() const { return round_up(shape().key_length, kTileKeys); }

  SourceRows source(const HeadView& view, int64_t b, int64_t h, int64_t row, int64_t count) const {
    return {plan.dtype(),    tile_dtype, plan.element(view, b, h, row),
            view.seq_stride, count,      shape().head_dim};
  }

  const float* rows(Workspace& space, const SourceRows& from, int64_t padded_rows) const {
    auto* to = space.get<float>(floats(padded_rows * row_words()));
    pack_rows(from, padded_rows, to);
    return to;
  }

  const float* pairs(Workspace& space, const SourceRows& from, int64_t padded_rows) const {
    auto* to = space.get<float>(floats(padded_rows / pack() * width()));
    pack_row_pairs(from, padded_rows, 0, padded_rows / pack(), to);
    return to;
  }

  AttentionHead head(PairBuffers& buffers, int64_t b) const {
    AttentionHead head{plan.keys(b)};
    head.dtype = tile_dtype;
    head.head_dim = shape().head_dim;
    head.width = width();
    head.scale = static_cast<float>(shape().scale);
    head.exponent_scale = plan.exponent_scale();
    if (shape().dropout) head.dropout = &*shape().dropout;
    auto* bias = buffers.bias.get<float>(floats(padded_keys()));
    std::fill(bias + head.length, bias + padded_keys(), 0.0F);
    head.bias = plan.bias(bias, b);
    return head;
  }

  float* panel_space(Workspace& space, const AttentionHead& head) const {
    return space.get<float>(floats(padded_keys() * head.depth()));
  }
  float* pair_space(Workspace& space, const AttentionHead& head) const {
    return space.get<float>(floats(head.pairs() * width()));
  }

  // Keys or values from row `first` on, a multiple of kTileKeys, to their places of all panels. In
  // f32 they are read where they lie.
  void add_panels(const AttentionHead& head, const SourceRows& part, int64_t first,
                  float* panels) const {
    const bool in_place = plan.dtype() == NXD_DTYPE_F32;
    const float* from = in_place ? static_cast<const float*>(part.data)
                                 : rows(block_buffers().key_rows, part, part.rows);
    pack_panels(from, in_place ? part.row_stride : row_words(), part.rows, head.depth(),
                panels + first * head.depth());
  }
  void add_pairs(const AttentionHead& head, const SourceRows& part, int64_t first,
                 float* to) const {
    pack_row_pairs(part, round_up(part.rows, pack()), first / pack(), head.pairs(), to);
  }

  // Calls body(pair, first key, keys) for parts of the keys of so many pairs.
  template <class Body>
  void for_key_parts(int64_t pairs, const Body& body) const {
    const int64_t parts = blocks_of(shape().key_length, kTileKeys);
    parallel_ranges(pairs * parts, 8 * kTileKeys * width(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % parts * kTileKeys;
        body(i / parts, first, std::min(kTileKeys, shape().key_length - first));
      }
    });
  }
};

struct Forward : PairWork {
  float* statistics = nullptr;

  struct Pair {
    int64_t b, kv_head;
    AttentionHead keys;
    float *panels, *values;
  };

  void operator()(int64_t first, int64_t count) const {
    std::vector<Pair> pairs;
    for (int64_t i = 0; i < count; ++i) {
      PairBuffers& buffers = buffers_of_pair<PairBuffers>(static_cast<size_t>(i));
      const auto [b, kv_head] = plan.pair(first + i);
      Pair pair{b, kv_head, head(buffers, b), nullptr, nullptr};
      pair.keys.key_panels = pair.panels = panel_space(buffers.key_panels, pair.keys);
      pair.keys.value_pairs = pair.values = pair_space(buffers.pairs, pair.keys);
      pairs.push_back(pair);
    }
    for_key_parts(count, [&](int64_t i, int64_t key, int64_t keys) {
      const Pair& pair = pairs[static_cast<size_t>(i)];
      add_panels(pair.keys, source(k, pair.b, pair.kv_head, key, keys), key, pair.panels);
      add_pairs(pair.keys, source(v, pair.b, pair.kv_head, key, keys), key, pair.values);
    });
    const int64_t blocks = blocks_of(shape().query_length, kForwardRows);
    const int64_t of_pair = plan.group() * blocks;
    parallel_ranges(count * of_pair, plan.work(kForwardRows, shape().key_length) / plan.group(),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        const Pair& pair = pairs[static_cast<size_t>(i / of_pair)];
                        block(pair.keys, pair.b, pair.kv_head * plan.group() + i % of_pair / blocks,
                              i % blocks * kForwardRows);
                      }
                    });
  }

  void block(const AttentionHead& keys, int64_t b, int64_t h, int64_t row) const {
    BlockBuffers& buffers = block_buffers();
    AttentionRows queries;
    queries.first_row = row;
    queries.rows = std::min(kForwardRows, shape().query_length - row);
    if (keys.dropout) queries.first_weight = plan.first_weight(b, h, row);
    queries.queries = rows(buffers.queries, source(q, b, h, row, queries.rows),
                           round_up(queries.rows, kTileRows));
    auto* max = buffers.rows.get<float>(floats(2 * kForwardRows));
    auto* sums = buffers.sums.get<float>(floats(kForwardRows * keys.width));
    attention_tiles_forward(keys, queries, buffers.scratch.get<float>(floats(kForwardScratch)), max,
                            max + kForwardRows, sums);
    float* maxima = statistics + plan.statistics_of(b, h, row);
    softmax_finish(plan.dtype(), queries.rows, keys.head_dim, max, max + kForwardRows, sums,
                   keys.width, plan.element(out, b, h, row), out.seq_stride, maxima,
                   maxima + shape().query_length);
  }
};

struct Backward : PairWork {
  HeadView dout, dq, dk, dv;
  const float* statistics = nullptr;

  struct Pair {
    int64_t b, kv_head;
    AttentionHead keys;
    AttentionTurns turns;
    float *key_panels, *value_panels, *key_pairs, *key_grads, *value_grads;
  };

  Pair pair(int64_t i, PairBuffers& buffers) const {
    const auto [b, kv_head] = plan.pair(i);
    const AttentionHead keys = head(buffers, b);
    const size_t sums = floats(padded_keys() * width());
    Pair pair{b,
              kv_head,
              keys,
              AttentionTurns(plan, b, kBackwardRows, kBackwardKeys),
              panel_space(buffers.key_panels, keys),
              panel_space(buffers.value_panels, keys),
              pair_space(buffers.pairs, keys),
              buffers.dk.get<float>(sums),
              buffers.dv.get<float>(sums)};
    pair.keys.key_panels = pair.key_panels;
    pair.keys.value_panels = pair.value_panels;
    pair.keys.key_pairs = pair.key_pairs;
    return pair;
  }

  void operator()(int64_t first, int64_t count) const {
    std::vector<Pair> pairs;
    for (int64_t i = 0; i < count; ++i) {
      pairs.push_back(pair(first + i, buffers_of_pair<PairBuffers>(static_cast<size_t>(i))));
    }
    for_key_parts(count, [&](int64_t i, int64_t key, int64_t keys) {
      const Pair& pair = pairs[static_cast<size_t>(i)];
      const SourceRows part = source(k, pair.b, pair.kv_head, key, keys);
      add_panels(pair.keys, part, key, pair.key_panels);
      add_panels(pair.keys, source(v, pair.b, pair.kv_head, key, keys), key, pair.value_panels);
      add_pairs(pair.keys, part, key, pair.key_pairs);
      for (float* sums : {pair.key_grads, pair.value_grads}) {
        std::fill_n(sums + key * width(), kTileKeys * width(), 0.0F);
      }
    });
    // Tasks of several pairs by turns, since those of one wait for one another.
    const int64_t tasks = count * pairs[0].turns.tasks();
    ordered_tasks(tasks, plan.work(kBackwardRows, shape().key_length) / plan.group(),
                  [&](int64_t i) { run(pairs[static_cast<size_t>(i % count)], i / count); });
    for_key_parts(count, [&](int64_t i, int64_t key, int64_t keys) {
      const Pair& pair = pairs[static_cast<size_t>(i)];
      write(pair.key_grads + key * width(), dk, pair.b, pair.kv_head, key, keys);
      write(pair.value_grads + key * width(), dv, pair.b, pair.kv_head, key, keys);
    });
  }

  // A task that fails leaves no other waiting.
  void run(Pair& pair, int64_t task) const {
    try {
      add_queries(pair, task);
    } catch (...) {
      pair.turns.fail();
      throw;
    }
  }

  void add_queries(Pair& pair, int64_t task) const {
    BlockBuffers& buffers = block_buffers();
    const AttentionHead& keys = pair.keys;
    const int64_t h = pair.kv_head * plan.group() + pair.turns.head(task);
    const int64_t row = pair.turns.first_row(task);
    AttentionGradients block = queries(buffers, keys, pair.b, h, row);
    const int64_t count = block.rows.rows, padded_count = round_up(count, kTileRows);
    auto* sums = buffers.sums.get<float>(floats(padded_count * keys.width));
    std::fill_n(sums, padded_count * keys.width, 0.0F);
    const int64_t limit = keys.end(row + count - 1);
    const AttentionTurns::KeyBlocks seen = pair.turns.key_blocks(task);
    for (int64_t i = seen.begin; i < seen.end; ++i) {
      block.first_key = i * kBackwardKeys;
      const int64_t end = std::min(block.first_key + kBackwardKeys, limit);
      attention_tiles_scores(keys, block, block.first_key, block.first_key + kBackwardKeys);
      // Another's turn is time for the sums of the task's own.
      const bool is_next = pair.turns.is_next(task, i);
      if (!is_next) attention_tiles_queries(keys, block, 0, padded_count, end, sums);
      if (!pair.turns.wait(task, i)) return;
      attention_tiles_keys(keys, block, block.first_key, end, pair.key_grads, pair.value_grads);
      pair.turns.pass(i);
      if (is_next) attention_tiles_queries(keys, block, 0, padded_count, end, sums);
    }
    write(sums, dq, pair.b, h, row, count);
  }

  AttentionGradients queries(BlockBuffers& buffers, const AttentionHead& keys, int64_t b, int64_t h,
                             int64_t row) const {
    AttentionGradients block;
    const int64_t count = std::min(kBackwardRows, shape().query_length - row);
    const int64_t padded_count = round_up(count, kTileRows);
    block.rows.first_row = row;
    block.rows.rows = count;
    if (shape().dropout) block.rows.first_weight = plan.first_weight(b, h, row);
    const SourceRows some_queries = source(q, b, h, row, count);
    const SourceRows some_grads = source(dout, b, h, row, count);
    block.rows.queries = rows(buffers.queries, some_queries, padded_count);
    block.grads = rows(buffers.grads, some_grads, padded_count);
    block.query_pairs = pairs(buffers.query_pairs, some_queries, padded_count);
    block.grad_pairs = pairs(buffers.grad_pairs, some_grads, padded_count);
    auto* maxima = buffers.rows.get<float>(floats(3 * kBackwardRows));
    float* factors = maxima + kBackwardRows;
    float* delta = factors + kBackwardRows;
    const float* saved = statistics + plan.statistics_of(b, h, row);
    std::fill(std::copy_n(saved, count, maxima), maxima + padded_count, HUGE_VALF);
    std::fill(std::copy_n(saved + shape().query_length, count, factors), factors + padded_count,
              0.0F);
    row_dots(plan.dtype(), count, shape().head_dim, plan.element(out, b, h, row), out.seq_stride,
             some_grads.data, some_grads.row_stride, delta);
    std::fill(delta + count, delta + padded_count, 0.0F);
    for (int64_t i = 0; i < count; ++i) {
      if (factors[i] < kPicksOneKey) continue;
      const float* out_row = rows(buffers.out_row, source(out, b, h, row + i, 1), 1);
      delta[i] = attention_tiles_delta(keys, block.grads + i * keys.row_words(), out_row);
    }
    block.maxima = maxima;
    block.factors = factors;
    block.delta = delta;
    add_scratch(buffers, keys, block);
    return block;
  }

  void add_scratch(BlockBuffers& buffers, const AttentionHead& keys,
                   AttentionGradients& block) const {
    block.stride = kBackwardKeys + kTileDims;
    const size_t words = floats(kBackwardRows * block.stride);
    block.probability_pairs = buffers.scratch.get<float>(words);
    block.score_grad_pairs = buffers.score_grad_pairs.get<float>(words);
    block.score_grads =
        pack() == 1 ? block.score_grad_pairs : buffers.score_grads.get<float>(words);
    if (keys.dropout) block.kept = buffers.kept.get<float>(words);
  }

  void write(const float* sums, const HeadView& view, int64_t b, int64_t h, int64_t row,
             int64_t count) const {
    cast_rows(NXD_DTYPE_F32, {sums, width()}, plan.dtype(),
              {plan.element(view, b, h, row), view.seq_stride}, count, shape().head_dim);
  }
};

}  // namespace

void attention_forward_tiled(const AttentionPlan& plan, nxd_dtype_t tile_dtype, const HeadView& q,
                             const HeadView& k, const HeadView& v, const HeadView& out,
                             float* statistics) {
  plan.divide_pairs(Forward{{plan, tile_dtype, q, k, v, out}, statistics});
}

void attention_backward_tiled(const AttentionPlan& plan, nxd_dtype_t tile_dtype, const HeadView& q,
                              const HeadView& k, const HeadView& v, const HeadView& out,
                              const float* statistics, const HeadView& dout, const HeadView& dq,
                              const HeadView& dk, const HeadView& dv) {
  plan.divide_pairs(Backward{{plan, tile_dtype, q, k, v, out}, dout, dq, dk, dv, statistics});
}

}  // namespace nxd::kernels
