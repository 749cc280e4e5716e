#include "core/kernels/attention_blocks.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/thread_own.h"
#include "core/kernels/attention_turns.h"
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

// A pair's memory, on the thread that computes it or leads its team.
struct PairBuffers {
  Workspace k, v;    // dense copies of strided views
  Workspace bias;    // [key_length]
  Workspace dk, dv;  // f32
};

// A thread's memory for a block of queries.
struct Buffers {
  Workspace q, dout;                // dense copies of strided views
  Workspace scores, dscores, kept;  // [kQueryBlock, kKeyBlock] f32
  Workspace probabilities, dgrads;  // the same in BF16
  Workspace accumulator;            // f32
  Workspace rows;                   // max and sum, or delta: f32
};

Buffers& thread_buffers() { return ThreadOwn<Buffers>::get(); }

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

  // Dense keys and values of a head, and its batch entry's mask.
  struct Pair {
    int64_t b, kv_head;
    const Bf16* keys;
    const Bf16* values;
    const float* mask;
  };

  Pair pair(PairBuffers& buffers, int64_t i, const HeadView& k, const HeadView& v) const {
    const auto [b, kv_head] = plan_.pair(i);
    auto* bias = buffers.bias.get<float>(static_cast<size_t>(shape_.key_length) * sizeof(float));
    return {b, kv_head, dense(buffers.k, k, b, kv_head, 0, shape_.key_length),
            dense(buffers.v, v, b, kv_head, 0, shape_.key_length), plan_.bias(bias, b)};
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
  ScoreBlock scores(Buffers& buffers, const SeenKeys& seen, const Bf16* q, const Pair& pair,
                    int64_t first_row, int64_t rows, int64_t first_key, int64_t cols) const {
    ScoreBlock block;
    block.rows = rows;
    block.cols = cols;
    block.scores = buffers.scores.get<float>(kQueryBlock * kKeyBlock * sizeof(float));
    block.bias = pair.mask ? pair.mask + first_key : nullptr;
    block.first_visible = shape_.causal ? first_row + seen.offset + 1 - first_key : cols;
    block.window = shape_.window;
    block.scale = static_cast<float>(shape_.scale);
    block.exponent_scale = plan_.exponent_scale();
    block.probabilities = buffers.probabilities.get<Bf16>(bytes(kQueryBlock * kKeyBlock));
    product(Trans::kNo, Trans::kYes, rows, cols, shape_.head_dim, q,
            skip_rows(pair.keys, first_key), block.scores, false);
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

  void operator()(int64_t first, int64_t count) const {
    std::vector<Pair> pairs;
    for (int64_t i = 0; i < count; ++i) {
      pairs.push_back(pair(buffers_of_pair<PairBuffers>(static_cast<size_t>(i)), first + i, k, v));
    }
    const int64_t blocks = (shape_.query_length + kQueryBlock - 1) / kQueryBlock;
    const int64_t of_pair = group_ * blocks;
    parallel_ranges(count * of_pair, plan_.work(kQueryBlock, shape_.key_length) / group_,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        const Pair& pair = pairs[static_cast<size_t>(i / of_pair)];
                        block_row(thread_buffers(), pair,
                                  pair.kv_head * group_ + i % of_pair / blocks,
                                  i % blocks * kQueryBlock);
                      }
                    });
  }

  void block_row(Buffers& buffers, const Pair& pair, int64_t h, int64_t row) const {
    const int64_t b = pair.b, d = shape_.head_dim;
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
      ScoreBlock block = scores(buffers, seen, queries, pair, row, rows, key, cols);
      block.kept = kept(buffers, b, h, row, key, block);
      softmax_step(block, d, max, sum, sums);
      product(Trans::kNo, Trans::kNo, rows, d, cols, block.probabilities,
              skip_rows(pair.values, key), sums, key > first);
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

  // With its gradients' sums.
  struct GradientPair : Pair {
    AttentionTurns turns;
    float* dk;
    float* dv;
  };

  void operator()(int64_t first, int64_t count) const {
    const int64_t size = shape_.key_length * shape_.head_dim;
    const size_t sums = static_cast<size_t>(size) * sizeof(float);
    std::vector<GradientPair> pairs;
    for (int64_t i = 0; i < count; ++i) {
      PairBuffers& buffers = buffers_of_pair<PairBuffers>(static_cast<size_t>(i));
      const Pair plain = pair(buffers, first + i, k, v);
      pairs.push_back({plain, AttentionTurns(plan_, plain.b, kQueryBlock, kKeyBlock),
                       buffers.dk.get<float>(sums), buffers.dv.get<float>(sums)});
      std::fill_n(pairs.back().dk, size, 0.0F);
      std::fill_n(pairs.back().dv, size, 0.0F);
    }
    // Tasks of several pairs by turns, since those of one wait for one another.
    ordered_tasks(count * pairs[0].turns.tasks(),
                  plan_.work(kQueryBlock, shape_.key_length) / group_,
                  [&](int64_t i) { run(pairs[static_cast<size_t>(i % count)], i / count); });
    for (const GradientPair& done : pairs) {
      write(done.dk, dk, done.b, done.kv_head, 0, shape_.key_length);
      write(done.dv, dv, done.b, done.kv_head, 0, shape_.key_length);
    }
  }

  // A task that fails leaves no other waiting.
  void run(GradientPair& pair, int64_t task) const {
    try {
      block_row(thread_buffers(), pair, task);
    } catch (...) {
      pair.turns.fail();
      throw;
    }
  }

  void block_row(Buffers& buffers, GradientPair& pair, int64_t task) const {
    const int64_t b = pair.b, d = shape_.head_dim;
    const int64_t h = pair.kv_head * group_ + pair.turns.head(task);
    const int64_t row = pair.turns.first_row(task);
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
    const AttentionTurns::KeyBlocks blocks = pair.turns.key_blocks(task);
    if (limit <= first) std::fill_n(sums, rows * d, 0.0F);
    for (int64_t i = blocks.begin; i < blocks.end; ++i) {
      const int64_t key = std::max(first, i * kKeyBlock);
      const int64_t cols = std::min((i + 1) * kKeyBlock, limit) - key;
      ScoreBlock block = scores(buffers, seen, queries, pair, row, rows, key, cols);
      block.kept = kept(buffers, b, h, row, key, block);
      product(Trans::kNo, Trans::kYes, rows, cols, d, grads, skip_rows(pair.values, key), dp,
              false);
      softmax_step_backward(block, dp, maxima, maxima + shape_.query_length, delta, ds);
      product(Trans::kNo, Trans::kNo, rows, d, cols, ds, skip_rows(pair.keys, key), sums,
              key > first);
      if (!pair.turns.wait(task, i)) return;
      product(Trans::kYes, Trans::kNo, cols, d, rows, ds, queries, pair.dk + key * d, true);
      product(Trans::kYes, Trans::kNo, cols, d, rows, block.probabilities, grads, pair.dv + key * d,
              true);
      pair.turns.pass(i);
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

void attention_forward_blocks(const AttentionPlan& plan, const HeadView& q, const HeadView& k,
                              const HeadView& v, const HeadView& out, float* statistics) {
  Forward forward(plan);
  forward.q = q;
  forward.k = k;
  forward.v = v;
  forward.out = out;
  forward.statistics = statistics;
  plan.divide_pairs(forward);
}

void attention_backward_blocks(const AttentionPlan& plan, const HeadView& q, const HeadView& k,
                               const HeadView& v, const HeadView& out, const float* statistics,
                               const HeadView& dout, const HeadView& dq, const HeadView& dk,
                               const HeadView& dv) {
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
  plan.divide_pairs(backward);
}

}  // namespace nxd::kernels
