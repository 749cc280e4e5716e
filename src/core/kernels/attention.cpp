#include "core/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/profiler.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/gemm.h"
#include "core/kernels/memory_pool.h"
#include "core/kernels/parallel.h"
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
  Workspace scores, dscores;        // [kQueryBlock, kKeyBlock] f32
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
  Attention(nxd_dtype_t dtype, const AttentionShape& shape) : dtype_(dtype), shape_(shape) {
    check_argument(dtype == NXD_DTYPE_F32 || dtype == NXD_DTYPE_BF16,
                   "attention: expected dtype f32 or bf16, got ", dtype_name(dtype));
    check_argument(
        shape.batch >= 0 && shape.query_length >= 0 && shape.key_length >= 0 && shape.head_dim > 0,
        "attention: expected batch and lengths >= 0 and head_dim > 0, got ", shape.batch, ", ",
        shape.query_length, ", ", shape.key_length, ", ", shape.head_dim);
    check_argument(
        shape.kv_heads > 0 && shape.query_heads > 0 && shape.query_heads % shape.kv_heads == 0,
        "attention: expected query_heads a multiple of kv_heads, got ", shape.query_heads, " and ",
        shape.kv_heads);
    check_argument(shape.window == 0 || (shape.window > 0 && shape.causal),
                   "attention: expected a window of at least 0, and 0 without causal, got ",
                   shape.window);
    group_ = shape.query_heads / shape.kv_heads;
    offset_ = shape.key_length - shape.query_length;
  }

  // Calls task(batch entry, key/value head) for all, split over the team.
  template <class Task>
  void for_each_head(const Task& task) const {
    const int64_t work = group_ * shape_.query_length * shape_.key_length * shape_.head_dim;
    parallel_ranges(shape_.batch * shape_.kv_heads, std::max<int64_t>(work, 1),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        task(i / shape_.kv_heads, i % shape_.kv_heads);
                      }
                    });
  }

  // Keys that some query of a block sees: those from the first to below the limit.
  int64_t first_key(int64_t first_row) const {
    if (shape_.window == 0) return 0;
    return std::clamp<int64_t>(first_row + offset_ + 1 - shape_.window, 0, shape_.key_length);
  }

  int64_t key_limit(int64_t first_row, int64_t rows) const {
    if (!shape_.causal) return shape_.key_length;
    return std::clamp<int64_t>(first_row + rows + offset_, 0, shape_.key_length);
  }

  int64_t first_visible(int64_t first_row, int64_t first_key, int64_t cols) const {
    return shape_.causal ? first_row + offset_ + 1 - first_key : cols;
  }

  // [rows, head_dim] dense: the view itself or a copy.
  const void* dense(Workspace& space, const HeadView& view, int64_t b, int64_t h, int64_t first,
                    int64_t rows) const {
    const void* start = element(view, b, h, first);
    if (view.seq_stride == shape_.head_dim || rows <= 1) return start;
    void* copy = space.get(bytes(rows * shape_.head_dim));
    cast_rows(dtype_, {start, view.seq_stride}, dtype_, {copy, shape_.head_dim}, rows,
              shape_.head_dim);
    return copy;
  }

  // Pairs of a query and a key that it sees. With causality they are the first keys' triangle
  // without those of earlier queries, and without those that the window leaves behind.
  double seen() const {
    const auto queries = static_cast<double>(shape_.query_length);
    const auto keys = static_cast<double>(shape_.key_length);
    if (!shape_.causal) return queries * keys;
    const auto triangle = [](double n) { return n > 0 ? n * (n + 1) / 2 : 0; };
    const auto window = static_cast<double>(shape_.window > 0 ? shape_.window : shape_.key_length);
    return triangle(keys) - triangle(keys - queries) - triangle(keys - window) +
           triangle(keys - queries - window);
  }

  // Operations of n products of scores or of values.
  double operations(int64_t products) const {
    return 2.0 * static_cast<double>(products * shape_.batch * shape_.query_heads) * seen() *
           static_cast<double>(shape_.head_dim);
  }

  void* element(const HeadView& view, int64_t b, int64_t h, int64_t s) const {
    const int64_t index = b * view.batch_stride + h * view.head_stride + s * view.seq_stride;
    return static_cast<char*>(view.data) + index * static_cast<int64_t>(dtype_size(dtype_));
  }

  const void* skip_rows(const void* dense, int64_t rows) const {
    return static_cast<const char*>(dense) + bytes(rows * shape_.head_dim);
  }

  int64_t statistics_of(int64_t b, int64_t h, int64_t row) const {
    return (b * shape_.query_heads + h) * kAttentionStatistics * shape_.query_length + row;
  }

  // The mask of a batch entry as what is added to scores, or null.
  const float* bias(Workspace& space, int64_t b) const {
    if (!shape_.key_mask) return nullptr;
    auto* out = space.get<float>(static_cast<size_t>(shape_.key_length) * sizeof(float));
    const uint8_t* mask = shape_.key_mask + b * shape_.key_length;
    for (int64_t i = 0; i < shape_.key_length; ++i) out[i] = mask[i] ? 0.0F : -HUGE_VALF;
    return out;
  }

  // c [m, n] f32 = op(a) op(b) with dense operands of in_dtype.
  static void product(nxd_dtype_t in_dtype, Trans trans_a, Trans trans_b, int64_t m, int64_t n,
                      int64_t k, const void* a, const void* b, float* c, bool accumulate) {
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
    args.in_dtype = in_dtype;
    args.accumulate = accumulate;
    gemm(args);
  }

  // Scores of a block: q [rows, head_dim] with keys from first_key on.
  ScoreBlock scores(Buffers& buffers, const void* q, const void* k, const float* bias,
                    int64_t first_row, int64_t rows, int64_t first_key, int64_t cols) const {
    ScoreBlock block;
    block.rows = rows;
    block.cols = cols;
    block.scores = buffers.scores.get<float>(kQueryBlock * kKeyBlock * sizeof(float));
    block.bias = bias ? bias + first_key : nullptr;
    block.first_visible = first_visible(first_row, first_key, cols);
    block.window = shape_.window;
    block.scale = static_cast<float>(shape_.scale);
    block.dtype = dtype_;
    block.probabilities = dtype_ == NXD_DTYPE_F32
                              ? block.scores
                              : buffers.probabilities.get(bytes(kQueryBlock * kKeyBlock));
    product(dtype_, Trans::kNo, Trans::kYes, rows, cols, shape_.head_dim, q,
            skip_rows(k, first_key), block.scores, false);
    return block;
  }

  size_t bytes(int64_t elements) const {
    return static_cast<size_t>(elements) * dtype_size(dtype_);
  }

  nxd_dtype_t dtype_;
  AttentionShape shape_;
  int64_t group_;
  int64_t offset_;
};

struct Forward : Attention {
  using Attention::Attention;
  HeadView q, k, v, out;
  float* statistics = nullptr;

  void operator()(int64_t b, int64_t kv_head) const {
    Buffers& buffers = thread_buffers();
    const void* keys = dense(buffers.k, k, b, kv_head, 0, shape_.key_length);
    const void* values = dense(buffers.v, v, b, kv_head, 0, shape_.key_length);
    const float* mask = bias(buffers.bias, b);
    for (int64_t h = kv_head * group_; h < (kv_head + 1) * group_; ++h) {
      for (int64_t row = 0; row < shape_.query_length; row += kQueryBlock) {
        block_row(buffers, b, h, row, keys, values, mask);
      }
    }
  }

  void block_row(Buffers& buffers, int64_t b, int64_t h, int64_t row, const void* keys,
                 const void* values, const float* mask) const {
    const int64_t d = shape_.head_dim;
    const int64_t rows = std::min(kQueryBlock, shape_.query_length - row);
    const void* queries = dense(buffers.q, q, b, h, row, rows);
    auto* max = buffers.rows.get<float>(2 * kQueryBlock * sizeof(float));
    float* sum = max + kQueryBlock;
    std::fill_n(max, rows, -HUGE_VALF);
    std::fill_n(sum, rows, 0.0F);
    auto* sums =
        buffers.accumulator.get<float>(static_cast<size_t>(kQueryBlock * d) * sizeof(float));
    const int64_t first = first_key(row), limit = key_limit(row, rows);
    for (int64_t key = first; key < limit; key += kKeyBlock) {
      const int64_t cols = std::min(kKeyBlock, limit - key);
      const ScoreBlock block = scores(buffers, queries, keys, mask, row, rows, key, cols);
      softmax_step(block, d, max, sum, sums);
      product(dtype_, Trans::kNo, Trans::kNo, rows, d, cols, block.probabilities,
              skip_rows(values, key), sums, key > first);
    }
    float* maxima = statistics + statistics_of(b, h, row);
    softmax_finish(dtype_, rows, d, max, sum, sums, element(out, b, h, row), out.seq_stride, maxima,
                   maxima + shape_.query_length);
  }
};

struct Backward : Attention {
  using Attention::Attention;
  HeadView q, k, v, out, dout, dq, dk, dv;
  const float* statistics = nullptr;

  // Dense keys and values of the current head, and their gradients' sums.
  struct Head {
    const void* keys;
    const void* values;
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
    const void* queries = dense(buffers.q, q, b, h, row, rows);
    const void* grads = dense(buffers.dout, dout, b, h, row, rows);
    auto* delta = buffers.rows.get<float>(2 * kQueryBlock * sizeof(float));
    row_dots(dtype_, rows, d, element(out, b, h, row), out.seq_stride, grads, d, delta);
    const float* maxima = statistics + statistics_of(b, h, row);
    const size_t block_bytes = kQueryBlock * kKeyBlock * sizeof(float);
    auto* sums =
        buffers.accumulator.get<float>(static_cast<size_t>(kQueryBlock * d) * sizeof(float));
    auto* dp = buffers.dscores.get<float>(block_bytes);
    void* ds = dtype_ == NXD_DTYPE_F32 ? dp : buffers.dgrads.get(bytes(kQueryBlock * kKeyBlock));
    const int64_t first = first_key(row), limit = key_limit(row, rows);
    if (limit <= first) std::fill_n(sums, rows * d, 0.0F);
    for (int64_t key = first; key < limit; key += kKeyBlock) {
      const int64_t cols = std::min(kKeyBlock, limit - key);
      const ScoreBlock block = scores(buffers, queries, head.keys, head.mask, row, rows, key, cols);
      product(dtype_, Trans::kNo, Trans::kYes, rows, cols, d, grads, skip_rows(head.values, key),
              dp, false);
      softmax_step_backward(block, dp, maxima, maxima + shape_.query_length, delta, ds);
      product(dtype_, Trans::kNo, Trans::kNo, rows, d, cols, ds, skip_rows(head.keys, key), sums,
              key > first);
      product(dtype_, Trans::kYes, Trans::kNo, cols, d, rows, ds, queries, head.dk + key * d, true);
      product(dtype_, Trans::kYes, Trans::kNo, cols, d, rows, block.probabilities, grads,
              head.dv + key * d, true);
    }
    write(sums, dq, b, h, row, rows);
  }

  void write(const float* sums, const HeadView& view, int64_t b, int64_t h, int64_t first,
             int64_t rows) const {
    cast_rows(NXD_DTYPE_F32, {sums, shape_.head_dim}, dtype_,
              {element(view, b, h, first), view.seq_stride}, rows, shape_.head_dim);
  }
};

}  // namespace

void attention_forward(nxd_dtype_t dtype, const AttentionShape& shape, const HeadView& q,
                       const HeadView& k, const HeadView& v, const HeadView& out,
                       float* statistics) {
  Forward forward(dtype, shape);
  const PhaseScope phase(NXD_PHASE_ATTENTION, forward.operations(2));
  forward.q = q;
  forward.k = k;
  forward.v = v;
  forward.out = out;
  forward.statistics = statistics;
  forward.for_each_head(forward);
}

void attention_backward(nxd_dtype_t dtype, const AttentionShape& shape, const HeadView& q,
                        const HeadView& k, const HeadView& v, const HeadView& out,
                        const float* statistics, const HeadView& dout, const HeadView& dq,
                        const HeadView& dk, const HeadView& dv) {
  Backward backward(dtype, shape);
  const PhaseScope phase(NXD_PHASE_ATTENTION, backward.operations(4));
  backward.q = q;
  backward.k = k;
  backward.v = v;
  backward.out = out;
  backward.dout = dout;
  backward.dq = dq;
  backward.dk = dk;
  backward.dv = dv;
  backward.statistics = statistics;
  backward.for_each_head(backward);
}

}  // namespace nxd::kernels
