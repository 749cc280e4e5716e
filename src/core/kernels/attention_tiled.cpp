#include "core/kernels/attention_tiled.h"

#include <algorithm>
#include <cmath>

#include "core/base/round_up.h"
#include "core/kernels/attention_pack.h"
#include "core/kernels/attention_tiles.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/memory_pool.h"
#include "core/kernels/softmax_rows.h"

namespace nxd::kernels {
namespace {

// Keys of a block of the backward pass: few where a thread works alone and its scores shall stay in
// the second-level cache, more where a team divides them.
constexpr int64_t kLoneKeys = kTileKeys;
constexpr int64_t kTeamKeys = 16 * kTileKeys;

size_t floats(int64_t n) { return static_cast<size_t>(n) * sizeof(float); }

// A head's packed keys and values, on the thread that computes it or leads its team.
struct HeadBuffers {
  Workspace key_panels, value_panels, rows, pairs, bias, dk, dv;
};

// A thread's block of queries.
struct RowBuffers {
  Workspace queries, grads, query_pairs, grad_pairs, scratch, score_grad_pairs, score_grads, kept,
      rows, sums;
};

HeadBuffers& head_buffers() {
  thread_local HeadBuffers buffers;
  return buffers;
}

RowBuffers& row_buffers() {
  thread_local RowBuffers buffers;
  return buffers;
}

// Forward and backward share these.
struct HeadWork {
  const AttentionPlan& plan;
  HeadView q, k, v, out;

  const AttentionShape& shape() const { return plan.shape(); }
  int64_t width() const { return round_up(shape().head_dim, kTileDims); }

  SourceRows source(const HeadView& view, int64_t b, int64_t h, int64_t row, int64_t count) const {
    return {plan.dtype(), plan.element(view, b, h, row), view.seq_stride, count, shape().head_dim};
  }

  int64_t row_words() const { return width() / words_pack(plan.dtype()); }

  const float* rows(Workspace& space, const SourceRows& from, int64_t padded_rows) const {
    auto* to = space.get<float>(floats(padded_rows * row_words()));
    pack_rows(from, padded_rows, to);
    return to;
  }

  // Rows in pairs; in f32 they are rows that may have been packed already.
  const float* pairs(Workspace& space, const SourceRows& from, int64_t padded_rows,
                     const float* packed = nullptr) const {
    const int64_t pack = words_pack(plan.dtype());
    if (pack == 1 && packed) return packed;
    padded_rows = round_up(padded_rows, pack);
    auto* to = space.get<float>(floats(padded_rows / pack * width()));
    pack_row_pairs(from, padded_rows, to);
    return to;
  }

  const float* panels(Workspace& space, const AttentionHead& head, const float* packed) const {
    auto* to = space.get<float>(floats(round_up(head.length, kTileKeys) * head.depth()));
    pack_panels(packed, head.row_words(), head.length, head.depth(), to);
    return to;
  }

  AttentionHead head(HeadBuffers& buffers, int64_t b) const {
    AttentionHead head{plan.keys(b)};
    head.dtype = plan.dtype();
    head.head_dim = shape().head_dim;
    head.width = width();
    head.scale = static_cast<float>(shape().scale);
    head.exponent_scale = plan.exponent_scale();
    if (shape().dropout) head.dropout = &*shape().dropout;
    const int64_t padded_keys = round_up(head.length, kTileKeys);
    auto* bias = buffers.bias.get<float>(floats(padded_keys));
    std::fill(bias + head.length, bias + padded_keys, 0.0F);
    head.bias = plan.bias(bias, b);
    return head;
  }
};

struct Forward : HeadWork {
  float* statistics = nullptr;

  void operator()(int64_t b, int64_t kv_head) const {
    HeadBuffers& buffers = head_buffers();
    AttentionHead keys = head(buffers, b);
    const float* packed = rows(buffers.rows, source(k, b, kv_head, 0, keys.length), keys.length);
    keys.key_panels = panels(buffers.key_panels, keys, packed);
    keys.value_pairs = pairs(buffers.pairs, source(v, b, kv_head, 0, keys.length), keys.length);
    const int64_t blocks = (shape().query_length + kForwardRows - 1) / kForwardRows;
    parallel_ranges(plan.group() * blocks, plan.work(kForwardRows, keys.length) / plan.group(),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        block(keys, b, kv_head * plan.group() + i / blocks,
                              i % blocks * kForwardRows);
                      }
                    });
  }

  void block(const AttentionHead& keys, int64_t b, int64_t h, int64_t row) const {
    RowBuffers& buffers = row_buffers();
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

struct Backward : HeadWork {
  HeadView dout, dq, dk, dv;
  const float* statistics = nullptr;

  void operator()(int64_t b, int64_t kv_head) const {
    HeadBuffers& buffers = head_buffers();
    AttentionHead keys = head(buffers, b);
    const SourceRows all_keys = source(k, b, kv_head, 0, keys.length);
    const SourceRows all_values = source(v, b, kv_head, 0, keys.length);
    keys.value_panels =
        panels(buffers.value_panels, keys, rows(buffers.rows, all_values, keys.length));
    const float* packed = rows(buffers.rows, all_keys, keys.length);
    keys.key_panels = panels(buffers.key_panels, keys, packed);
    keys.key_pairs = pairs(buffers.pairs, all_keys, keys.length, packed);
    const int64_t sums = round_up(keys.length, kTileKeys) * keys.width;
    auto* key_grads = buffers.dk.get<float>(floats(sums));
    auto* value_grads = buffers.dv.get<float>(floats(sums));
    std::fill_n(key_grads, sums, 0.0F);
    std::fill_n(value_grads, sums, 0.0F);
    for (int64_t h = kv_head * plan.group(); h < (kv_head + 1) * plan.group(); ++h) {
      for (int64_t row = 0; row < shape().query_length; row += kBackwardRows) {
        block(keys, b, h, row, key_grads, value_grads);
      }
    }
    write(key_grads, dk, b, kv_head, 0, keys.length);
    write(value_grads, dv, b, kv_head, 0, keys.length);
  }

  void block(const AttentionHead& keys, int64_t b, int64_t h, int64_t row, float* key_grads,
             float* value_grads) const {
    RowBuffers& buffers = row_buffers();
    const int64_t most_keys = team_size() > 1 ? kTeamKeys : kLoneKeys;
    AttentionGradients block = queries(buffers, b, h, row);
    block.stride = most_keys + kTileDims;
    const int64_t words = kBackwardRows * block.stride;
    block.probability_pairs = buffers.scratch.get<float>(floats(words));
    block.score_grad_pairs = buffers.score_grad_pairs.get<float>(floats(words));
    block.score_grads = words_pack(keys.dtype) == 1 ? block.score_grad_pairs
                                                    : buffers.score_grads.get<float>(floats(words));
    if (keys.dropout) block.kept = buffers.kept.get<float>(floats(words));
    const int64_t count = block.rows.rows, padded_count = round_up(count, kTileRows);
    auto* sums = buffers.sums.get<float>(floats(padded_count * keys.width));
    std::fill_n(sums, padded_count * keys.width, 0.0F);
    const int64_t limit = keys.end(row + count - 1);
    block.first_key = keys.begin(row) / kTileKeys * kTileKeys;
    for (; block.first_key < limit; block.first_key += most_keys) {
      add_block(keys, block, std::min(block.first_key + most_keys, limit), key_grads, value_grads,
                sums);
    }
    write(sums, dq, b, h, row, count);
  }

  AttentionGradients queries(RowBuffers& buffers, int64_t b, int64_t h, int64_t row) const {
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
    block.query_pairs = pairs(buffers.query_pairs, some_queries, padded_count, block.rows.queries);
    block.grad_pairs = pairs(buffers.grad_pairs, some_grads, padded_count, block.grads);
    auto* maxima = buffers.rows.get<float>(floats(3 * kBackwardRows));
    float* factors = maxima + kBackwardRows;
    float* delta = factors + kBackwardRows;
    const float* saved = statistics + plan.statistics_of(b, h, row);
    std::fill(std::copy_n(saved, count, maxima), maxima + padded_count, HUGE_VALF);
    std::fill(std::copy_n(saved + shape().query_length, count, factors), factors + padded_count,
              0.0F);
    row_dots(plan.dtype(), count, shape().head_dim, plan.element(out, b, h, row), out.seq_stride,
             block.grads, width(), delta);
    std::fill(delta + count, delta + padded_count, 0.0F);
    block.maxima = maxima;
    block.factors = factors;
    block.delta = delta;
    return block;
  }

  // Adds the part of the keys from the block's first to below limit to all gradients.
  void add_block(const AttentionHead& keys, const AttentionGradients& block, int64_t limit,
                 float* key_grads, float* value_grads, float* sums) const {
    const int64_t first = block.first_key, count = limit - first;
    const int64_t rows = round_up(block.rows.rows, kTileRows);
    const auto tiles = [&](int64_t items, int64_t tile, int64_t other, const auto& body) {
      parallel_ranges((items + tile - 1) / tile, tile * other * keys.head_dim,
                      [&](int64_t begin, int64_t end) { body(begin * tile, end * tile); });
    };
    tiles(count, kTileKeys, rows, [&](int64_t begin, int64_t end) {
      attention_tiles_scores(keys, block, first + begin, first + end);
    });
    tiles(count, kTileRows, rows, [&](int64_t begin, int64_t end) {
      attention_tiles_keys(keys, block, first + begin, first + end, key_grads, value_grads);
    });
    tiles(rows, kTileRows, count, [&](int64_t begin, int64_t end) {
      attention_tiles_queries(keys, block, begin, end, limit, sums);
    });
  }

  void write(const float* sums, const HeadView& view, int64_t b, int64_t h, int64_t row,
             int64_t count) const {
    cast_rows(NXD_DTYPE_F32, {sums, width()}, plan.dtype(),
              {plan.element(view, b, h, row), view.seq_stride}, count, shape().head_dim);
  }
};

}  // namespace

void attention_forward_tiled(const AttentionPlan& plan, const HeadView& q, const HeadView& k,
                             const HeadView& v, const HeadView& out, float* statistics) {
  Forward forward{{plan, q, k, v, out}, statistics};
  plan.for_each_head(forward);
}

void attention_backward_tiled(const AttentionPlan& plan, const HeadView& q, const HeadView& k,
                              const HeadView& v, const HeadView& out, const float* statistics,
                              const HeadView& dout, const HeadView& dq, const HeadView& dk,
                              const HeadView& dv) {
  Backward backward{{plan, q, k, v, out}, dout, dq, dk, dv, statistics};
  plan.for_each_head(backward);
}

}  // namespace nxd::kernels
