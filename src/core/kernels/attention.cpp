#include "core/kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "core/base/profiler.h"
#include "core/kernels/attention_plan.h"
#include "core/kernels/attention_tiled.h"
#include "core/kernels/attention_tiles.h"
#include "core/kernels/bf16.h"
#include "core/kernels/dropout.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/gemm.h"
#include "core/kernels/memory_pool.h"
#include "core/kernels/softmax_rows.h"

namespace nxd::kernels {
namespace {

// A block of scores, in f32, stays in the second-level cache.
constexpr int64_t kQueryBlock = 64;
constexpr int64_t kKeyBlock = 512;

// A thread's memory for one pair of a batch entry and a key/value head.
struct Buffers {
  Workspace k, v, q, dout;          // dense copies of strided views
  Workspace bias;                   // [key_length]
  Workspace scores, dscores, kept;  // [kQueryBlock, kKeyBlock] f32
  Workspace probabilities, dgrads;  // the same in BF16
  Workspace accumulator, dk, dv;    // f32
  Workspace rows;                   // max and sum, or delta: f32
};

Buffers& thread_buffers() {
  thread_local Buffers buffers;
  return buffers;
}

class Attention {
 public:
  explicit Attention(const AttentionPlan& plan)
      : plan_(plan), shape_(plan.shape()), group_(plan.group()) {}

  // [rows, head_dim] dense: the view itself or a copy.
  const Bf16* dense(Workspace& space, const HeadView& view, int64_t b, int64_t h, int64_t first,
                    int64_t rows) const {
    const auto* start = static_cast<const Bf16*>(element(view, b, h, first));
    if (view.seq_stride == shape_.head_dim || rows <= 1) return start;
    auto* copy = space.get<Bf16>(bytes(rows * shape_.head_dim));
    cast_rows(NXD_DTYPE_BF16, {start, view.seq_stride}, NXD_DTYPE_BF16, {copy, shape_.head_dim},
              rows, shape_.head_dim);
    return copy;
  }

  void* element(const HeadView& view, int64_t b, int64_t h, int64_t s) const {
    return plan_.element(view, b, h, s);
  }

  const Bf16* skip_rows(const Bf16* dense, int64_t rows) const {
    return dense + rows * shape_.head_dim;
  }

  const float* bias(Workspace& space, int64_t b) const {
    return plan_.bias(space.get<float>(static_cast<size_t>(shape_.key_length) * sizeof(float)), b);
  }

  // c [m, n] f32 = op(a) op(b) with dense operands.
  static void product(Trans trans_a, Trans trans_b, int64_t m, int64_t n, int64_t k, const Bf16* a,
                      const Bf16* b, float* c, bool accumulate) {
    GemmArgs args;
    args.trans_a = trans_a;
    args.trans_b = trans_b;
    args.m = m;
    args.n = n;
    args.k = k;
    args.a = a;
    args.lda = trans_a == Trans::kYes ? m : k;
    args.b = b;
    args.ldb = trans_b == Trans::kYes ? k : n;
    args.c = c;
    args.ldc = n;
    args.in_dtype = NXD_DTYPE_BF16;
    args.accumulate = accumulate;
    gemm(args);
  }

  // Scores of a block: q [rows, head_dim] with keys from first_key on.
  ScoreBlock scores(Buffers& buffers, const SeenKeys& seen, const Bf16* q, const Bf16* k,
                    const float* bias, int64_t first_row, int64_t rows, int64_t first_key,
                    int64_t cols) const {
    ScoreBlock block;
    block.rows = rows;
    block.cols = cols;
    block.scores = buffers.scores.get<float>(kQueryBlock * kKeyBlock * sizeof(float));
    block.bias = bias ? bias + first_key : nullptr;
    block.first_visible = shape_.causal ? first_row + seen.offset + 1 - first_key : cols;
    block.window = shape_.window;
    block.scale = static_cast<float>(shape_.scale);
    block.exponent_scale = plan_.exponent_scale();
    block.probabilities = buffers.probabilities.get<Bf16>(bytes(kQueryBlock * kKeyBlock));
    product(Trans::kNo, Trans::kYes, rows, cols, shape_.head_dim, q, skip_rows(k, first_key),
            block.scores, false);
    return block;
  }

  // The factors of the dropout of a block of scores; null: there is none.
  const float* kept(Buffers& buffers, int64_t b, int64_t h, int64_t first_row, int64_t first_key,
                    const ScoreBlock& block) const {
    if (!shape_.dropout) return nullptr;
    auto* factors = buffers.kept.get<float>(kQueryBlock * kKeyBlock * sizeof(float));
    for (int64_t r = 0; r < block.rows; ++r) {
      const uint64_t first = plan_.first_weight(b, h, first_row + r);
      draw_kept_factors(shape_.dropout->site, first + static_cast<uint64_t>(first_key), block.cols,
                        shape_.dropout->keep, factors + r * block.cols);
    }
    return factors;
  }

  static size_t bytes(int64_t elements) { return static_cast<size_t>(elements) * sizeof(Bf16); }

  const AttentionPlan& plan_;
  const AttentionShape& shape_;
  int64_t group_;
};

struct Forward : Attention {
  using Attention::Attention;
  HeadView q, k, v, out;
  float* statistics = nullptr;

  void operator()(int64_t b, int64_t kv_head) const {
    Buffers& buffers = thread_buffers();
    const Bf16* keys = dense(buffers.k, k, b, kv_head, 0, shape_.key_length);
    const Bf16* values = dense(buffers.v, v, b, kv_head, 0, shape_.key_length);
    const float* mask = bias(buffers.bias, b);
    for (int64_t h = kv_head * group_; h < (kv_head + 1) * group_; ++h) {
      for (int64_t row = 0; row < shape_.query_length; row += kQueryBlock) {
        block_row(buffers, b, h, row, keys, values, mask);
      }
    }
  }

  void block_row(Buffers& buffers, int64_t b, int64_t h, int64_t row, const Bf16* keys,
                 const Bf16* values, const float* mask) const {
    const int64_t d = shape_.head_dim;
    const int64_t rows = std::min(kQueryBlock, shape_.query_length - row);
    const Bf16* queries = dense(buffers.q, q, b, h, row, rows);
    auto* max = buffers.rows.get<float>(2 * kQueryBlock * sizeof(float));
    float* sum = max + kQueryBlock;
    std::fill_n(max, rows, -HUGE_VALF);
    std::fill_n(sum, rows, 0.0F);
    auto* sums =
        buffers.accumulator.get<float>(static_cast<size_t>(kQueryBlock * d) * sizeof(float));
    const SeenKeys& seen = plan_.keys(b);
    const int64_t first = seen.begin(row), limit = seen.end(row + rows - 1);
    for (int64_t key = first; key < limit; key += kKeyBlock) {
      const int64_t cols = std::min(kKeyBlock, limit - key);
      ScoreBlock block = scores(buffers, seen, queries, keys, mask, row, rows, key, cols);
      block.kept = kept(buffers, b, h, row, key, block);
      softmax_step(block, d, max, sum, sums);
      product(Trans::kNo, Trans::kNo, rows, d, cols, block.probabilities, skip_rows(values, key),
              sums, key > first);
    }
    float* maxima = statistics + plan_.statistics_of(b, h, row);
    softmax_finish(NXD_DTYPE_BF16, rows, d, max, sum, sums, d, element(out, b, h, row),
                   out.seq_stride, maxima, maxima + shape_.query_length);
  }
};

struct Backward : Attention {
  using Attention::Attention;
  HeadView q, k, v, out, dout, dq, dk, dv;
  const float* statistics = nullptr;

  // Dense keys and values of the current head, and their gradients' sums.
  struct Head {
    const Bf16* keys;
    const Bf16* values;
    const float* mask;
    float* dk;
    float* dv;
  };

  void operator()(int64_t b, int64_t kv_head) const {
    Buffers& buffers = thread_buffers();
    const int64_t size = shape_.key_length * shape_.head_dim;
    const size_t sums = static_cast<size_t>(size) * sizeof(float);
    const Head head{dense(buffers.k, k, b, kv_head, 0, shape_.key_length),
                    dense(buffers.v, v, b, kv_head, 0, shape_.key_length), bias(buffers.bias, b),
                    buffers.dk.get<float>(sums), buffers.dv.get<float>(sums)};
    std::fill_n(head.dk, size, 0.0F);
    std::fill_n(head.dv, size, 0.0F);
    for (int64_t h = kv_head * group_; h < (kv_head + 1) * group_; ++h) {
      for (int64_t row = 0; row < shape_.query_length; row += kQueryBlock) {
        block_row(buffers, b, h, row, head);
      }
    }
    write(head.dk, dk, b, kv_head, 0, shape_.key_length);
    write(head.dv, dv, b, kv_head, 0, shape_.key_length);
  }

  void block_row(Buffers& buffers, int64_t b, int64_t h, int64_t row, const Head& head) const {
    const int64_t d = shape_.head_dim;
    const int64_t rows = std::min(kQueryBlock, shape_.query_length - row);
    const Bf16* queries = dense(buffers.q, q, b, h, row, rows);
    const Bf16* grads = dense(buffers.dout, dout, b, h, row, rows);
    auto* delta = buffers.rows.get<float>(2 * kQueryBlock * sizeof(float));
    row_dots(NXD_DTYPE_BF16, rows, d, element(out, b, h, row), out.seq_stride, grads, d, delta);
    const float* maxima = statistics + plan_.statistics_of(b, h, row);
    const size_t block_bytes = kQueryBlock * kKeyBlock * sizeof(float);
    auto* sums =
        buffers.accumulator.get<float>(static_cast<size_t>(kQueryBlock * d) * sizeof(float));
    auto* dp = buffers.dscores.get<float>(block_bytes);
    auto* ds = buffers.dgrads.get<Bf16>(bytes(kQueryBlock * kKeyBlock));
    const SeenKeys& seen = plan_.keys(b);
    const int64_t first = seen.begin(row), limit = seen.end(row + rows - 1);
    if (limit <= first) std::fill_n(sums, rows * d, 0.0F);
    for (int64_t key = first; key < limit; key += kKeyBlock) {
      const int64_t cols = std::min(kKeyBlock, limit - key);
      ScoreBlock block = scores(buffers, seen, queries, head.keys, head.mask, row, rows, key, cols);
      block.kept = kept(buffers, b, h, row, key, block);
      product(Trans::kNo, Trans::kYes, rows, cols, d, grads, skip_rows(head.values, key), dp,
              false);
      softmax_step_backward(block, dp, maxima, maxima + shape_.query_length, delta, ds);
      product(Trans::kNo, Trans::kNo, rows, d, cols, ds, skip_rows(head.keys, key), sums,
              key > first);
      product(Trans::kYes, Trans::kNo, cols, d, rows, ds, queries, head.dk + key * d, true);
      product(Trans::kYes, Trans::kNo, cols, d, rows, block.probabilities, grads, head.dv + key * d,
              true);
    }
    write(sums, dq, b, h, row, rows);
  }

  void write(const float* sums, const HeadView& view, int64_t b, int64_t h, int64_t first,
             int64_t rows) const {
    cast_rows(NXD_DTYPE_F32, {sums, shape_.head_dim}, NXD_DTYPE_BF16,
              {element(view, b, h, first), view.seq_stride}, rows, shape_.head_dim);
  }
};

}  // namespace

void attention_forward(nxd_dtype_t dtype, const AttentionShape& shape, const HeadView& q,
                       const HeadView& k, const HeadView& v, const HeadView& out,
                       float* statistics) {
  const AttentionPlan plan(dtype, shape);
  const PhaseScope phase(NXD_PHASE_ATTENTION, plan.operations(2));
  if (prefers_attention_tiles(dtype)) {
    attention_forward_tiled(plan, q, k, v, out, statistics);
    return;
  }
  Forward forward(plan);
  forward.q = q;
  forward.k = k;
  forward.v = v;
  forward.out = out;
  forward.statistics = statistics;
  plan.for_each_head(forward);
}

void attention_backward(nxd_dtype_t dtype, const AttentionShape& shape, const HeadView& q,
                        const HeadView& k, const HeadView& v, const HeadView& out,
                        const float* statistics, const HeadView& dout, const HeadView& dq,
                        const HeadView& dk, const HeadView& dv) {
  const AttentionPlan plan(dtype, shape);
  const PhaseScope phase(NXD_PHASE_ATTENTION, plan.operations(4));
  if (prefers_attention_tiles(dtype)) {
    attention_backward_tiled(plan, q, k, v, out, statistics, dout, dq, dk, dv);
    return;
  }
  Backward backward(plan);
  backward.q = q;
  backward.k = k;
  backward.v = v;
  backward.out = out;
  backward.dout = dout;
  backward.dq = dq;
  backward.dk = dk;
  backward.dv = dv;
  backward.statistics = statistics;
  plan.for_each_head(backward);
}

}  // namespace nxd::kernels
