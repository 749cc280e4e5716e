#include "core/kernels/vector_targets.h"

#include <hwy/targets.h>
#include <omp.h>

#include <cmath>
#include <numbers>
#include <thread>

#include "core/base/error.h"
#include "core/kernel_support.h"
#include "core/kernels/attention.h"
#include "core/kernels/attention_blocks.h"
#include "core/kernels/attention_tiled.h"
#include "core/kernels/attention_tiles.h"
#include "core/kernels/memory_pool.h"
#include "support/sanitized.h"

using namespace nxd;
using namespace nxd::kernels;
using test::Buffer;

namespace {

// How heads lie in memory.
enum class Layout { kSeqMajor, kHeadMajor };

struct Case {
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  int64_t batch = 1, queries = 1, keys = 1, heads = 1, kv_heads = 1, dim = 1;
  bool causal = false;
  bool mask = false;
  Layout layout = Layout::kSeqMajor;
  int64_t window = 0;
  double keep = 1;  // of a dropout
};

// Ways to compute it: tiles of the case's dtype, or of bf16 widened to f32, or blocks of bf16.
enum class Way { kTiles, kWidened, kBlocks };

// All that this processor has.
std::vector<Way> ways(nxd_dtype_t dtype) {
  std::vector<Way> all;
  if (has_attention_tiles(dtype)) all.push_back(Way::kTiles);
  if (dtype == NXD_DTYPE_BF16) all.insert(all.end(), {Way::kWidened, Way::kBlocks});
  return all;
}

// One of q, k, v, out and their gradients, with its view.
struct Heads {
  Buffer values;
  HeadView view;

  Heads(const Case& c, int64_t length, int64_t heads, uint64_t seed)
      : values(c.dtype, c.batch * length * heads * c.dim, seed) {
    const int64_t size = length * heads * c.dim;
    if (c.layout == Layout::kSeqMajor) {
      view = {values.data(), size, heads * c.dim, c.dim};
    } else {
      view = {values.data(), size, c.dim, length * c.dim};
    }
  }
  int64_t index(int64_t b, int64_t s, int64_t h, int64_t e) const {
    return b * view.batch_stride + s * view.seq_stride + h * view.head_stride + e;
  }
};

struct Problem {
  Case c;
  Heads q, k, v, out, dout, dq, dk, dv;
  Buffer statistics;
  std::vector<uint8_t> mask;
  std::vector<uint8_t> kept;  // [batch, heads, queries, keys]
  AttentionShape shape;
  static constexpr uint64_t seed_of_dropout = 7;

  explicit Problem(const Case& given, uint64_t seed = 1)
      : c(given),
        q(c, c.queries, c.heads, seed),
        k(c, c.keys, c.kv_heads, seed + 1),
        v(c, c.keys, c.kv_heads, seed + 2),
        out(c, c.queries, c.heads, 0),
        dout(c, c.queries, c.heads, seed + 3),
        dq(c, c.queries, c.heads, 0),
        dk(c, c.keys, c.kv_heads, 0),
        dv(c, c.keys, c.kv_heads, 0),
        statistics(NXD_DTYPE_F32, kAttentionStatistics * c.batch * c.heads * c.queries) {
    for (auto* result : {&out, &dq, &dk, &dv}) result->values.fill(NAN);
    shape = {c.batch,
             c.queries,
             c.keys,
             c.heads,
             c.kv_heads,
             c.dim,
             1.0 / std::sqrt(static_cast<double>(c.dim)),
             c.causal,
             nullptr,
             c.window};
    if (c.keep < 1) draw_weights();
    if (!c.mask) return;
    test::Random random(seed + 4);
    // Batch entry 0 keeps no key at all, the others all but some.
    for (int64_t i = 0; i < c.batch * c.keys; ++i) {
      mask.push_back(i >= c.keys && random.next() < 0.4);
    }
    shape.key_mask = mask.data();
  }
  // Heads are the first but one of some more.
  void draw_weights() {
    const RandomSite site = RandomSite(seed_of_dropout, "weights").at(3, 1);
    const int64_t weights = c.queries * c.keys, all = c.heads + 3;
    shape.dropout = {site, c.keep, all, 1};
    kept.resize(static_cast<size_t>(c.batch * c.heads * weights));
    for (int64_t b = 0; b < c.batch; ++b) {
      const auto first = static_cast<uint64_t>((b * all + 1) * weights);
      site.fill_bernoulli(&kept[static_cast<size_t>(b * c.heads * weights)], first,
                          static_cast<size_t>(c.heads * weights), c.keep);
    }
  }
  double factor(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (kept.empty()) return 1;
    const int64_t at = ((b * c.heads + h) * c.queries + i) * c.keys + j;
    return kept[static_cast<size_t>(at)] / c.keep;
  }
  void run(Way way) {
    const AttentionPlan plan(c.dtype, shape);
    float* const saved = statistics.f32();
    if (way == Way::kBlocks) {
      attention_forward_blocks(plan, q.view, k.view, v.view, out.view, saved);
      attention_backward_blocks(plan, q.view, k.view, v.view, out.view, saved, dout.view, dq.view,
                                dk.view, dv.view);
      return;
    }
    const nxd_dtype_t tiles = way == Way::kTiles ? c.dtype : NXD_DTYPE_F32;
    attention_forward_tiled(plan, tiles, q.view, k.view, v.view, out.view, saved);
    attention_backward_tiled(plan, tiles, q.view, k.view, v.view, out.view, saved, dout.view,
                             dq.view, dk.view, dv.view);
  }
  void run() {
    attention_forward(c.dtype, shape, q.view, k.view, v.view, out.view, statistics.f32());
    attention_backward(c.dtype, shape, q.view, k.view, v.view, out.view, statistics.f32(),
                       dout.view, dq.view, dk.view, dv.view);
  }
  // The maxima and the factors, [batch, heads, queries] each.
  std::pair<Buffer, Buffer> saved() const {
    const int64_t rows = c.batch * c.heads * c.queries;
    std::pair<Buffer, Buffer> out{Buffer(NXD_DTYPE_F32, rows), Buffer(NXD_DTYPE_F32, rows)};
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = i / c.queries * kAttentionStatistics * c.queries + i % c.queries;
      out.first.set(i, statistics[at]);
      out.second.set(i, statistics[at + c.queries]);
    }
    return out;
  }
  bool sees(int64_t b, int64_t i, int64_t j) const {
    if (!mask.empty() && !mask[static_cast<size_t>(b * c.keys + j)]) return false;
    const int64_t own = i + c.keys - c.queries;
    return !c.causal || (j <= own && (c.window == 0 || j > own - c.window));
  }
};

size_t place(int64_t i) { return static_cast<size_t>(i); }

struct Reference {
  std::vector<double> q, k, v, dout;
  std::vector<double> out, maxima, factors, dq, dk, dv;

  explicit Reference(const Problem& p)
      : q(p.q.values.doubles()),
        k(p.k.values.doubles()),
        v(p.v.values.doubles()),
        dout(p.dout.values.doubles()),
        out(q.size()),
        dq(q.size()),
        dk(k.size()),
        dv(k.size()) {}
};

// One query row of the reference: probabilities, output and its share of the gradients.
void reference_row(const Problem& p, Reference& r, int64_t b, int64_t h, int64_t i) {
  const Case& c = p.c;
  const int64_t g = h / (c.heads / c.kv_heads);
  const auto row = [](const Heads& heads, int64_t b, int64_t s, int64_t h) {
    return place(heads.index(b, s, h, 0));
  };
  const double *q = &r.q[row(p.q, b, i, h)], *dout = &r.dout[row(p.dout, b, i, h)];
  double *out = &r.out[row(p.out, b, i, h)], *dq = &r.dq[row(p.dq, b, i, h)];
  std::vector<double> w(place(c.keys), 0.0);
  double max = -INFINITY;
  for (int64_t j = 0; j < c.keys; ++j) {
    w[place(j)] = -INFINITY;
    if (!p.sees(b, i, j)) continue;
    const double* k = &r.k[row(p.k, b, j, g)];
    double s = 0;
    for (int64_t e = 0; e < c.dim; ++e) s += q[e] * k[e];
    w[place(j)] = s * p.shape.scale;
    max = std::max(max, w[place(j)]);
  }
  double sum = 0;
  for (double& x : w) sum += x = x == -INFINITY ? 0 : std::exp(x - max);
  r.maxima.push_back(sum > 0 ? max * std::numbers::log2e : INFINITY);
  r.factors.push_back(sum > 0 ? 1 / sum : 0);
  for (double& x : w) x = sum > 0 ? x / sum : 0;
  double delta = 0;
  std::vector<double> dp(place(c.keys), 0.0);
  for (int64_t j = 0; j < c.keys; ++j) {
    if (w[place(j)] == 0) continue;
    const double factor = p.factor(b, h, i, j), weight = w[place(j)] * factor;
    const double* v = &r.v[row(p.v, b, j, g)];
    double* dv = &r.dv[row(p.dv, b, j, g)];
    for (int64_t e = 0; e < c.dim; ++e) {
      out[e] += weight * v[e];
      dp[place(j)] += factor * dout[e] * v[e];
      dv[e] += weight * dout[e];
    }
  }
  for (int64_t e = 0; e < c.dim; ++e) delta += out[e] * dout[e];
  for (int64_t j = 0; j < c.keys; ++j) {
    const double ds = w[place(j)] * (dp[place(j)] - delta) * p.shape.scale;
    if (ds == 0) continue;
    const double* k = &r.k[row(p.k, b, j, g)];
    double* dk = &r.dk[row(p.dk, b, j, g)];
    for (int64_t e = 0; e < c.dim; ++e) {
      dq[e] += ds * k[e];
      dk[e] += ds * q[e];
    }
  }
}

Reference reference(const Problem& p) {
  Reference r(p);
  for (int64_t b = 0; b < p.c.batch; ++b) {
    for (int64_t h = 0; h < p.c.heads; ++h) {
      for (int64_t i = 0; i < p.c.queries; ++i) reference_row(p, r, b, h, i);
    }
  }
  return r;
}

void check_results(const Problem& p, const Reference& want) {
  const Case& c = p.c;
  check_close("out", p.out.values, want.out, test::tolerance(c.dtype, 3e-6));
  const auto [maxima, factors] = p.saved();
  check_close("maxima", maxima, want.maxima, 2e-6);
  check_close("factors", factors, want.factors, 2e-6);
  // In bf16 gradients pass three rounded values: out, the probabilities and their gradients.
  const double tol = c.dtype == NXD_DTYPE_BF16 ? 3.0 / 256 : 1e-5;
  // Gradients that are zero but for rounding are compared with the size of their terms.
  const double floor = c.keys == 1 ? 1 : 0;
  if (floor > 0) {
    for (int64_t i = 0; i < p.dq.values.size(); ++i) assert_true(std::fabs(p.dq.values[i]) < tol);
    for (int64_t i = 0; i < p.dk.values.size(); ++i) assert_true(std::fabs(p.dk.values[i]) < tol);
  } else {
    check_close("dq", p.dq.values, want.dq, tol);
    check_close("dk", p.dk.values, want.dk, tol);
  }
  check_close("dv", p.dv.values, want.dv, tol);
}

// With the mask given, or with the case's own.
void check_case(const Case& c, uint64_t seed = 1, const std::vector<uint8_t>& mask = {}) {
  const auto problem = [&] {
    Problem p(c, seed);
    if (!mask.empty()) {
      p.mask = mask;
      p.shape.key_mask = p.mask.data();
    }
    return p;
  };
  const Reference want = reference(problem());
  for (const Way way : ways(c.dtype)) {
    Problem p = problem();
    p.run(way);
    check_results(p, want);
  }
}

void ragged_lengths(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const bool causal : {false, true}) {
      uint64_t seed = 1;
      for (const int64_t length : {1, 2, 7, 17, 128, 129, 200}) {
        check_case({dtype, 2, length, length, 2, 2, 16, causal, false, Layout::kSeqMajor}, seed++);
      }
    }
  }
}

void any_head_dim(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const int64_t dim : {1, 3, 8, 33, 64, 80, 96, 128, 200}) {
      check_case({dtype, 1, 20, 20, 2, 1, dim, true, false, Layout::kSeqMajor});
    }
  }
}

void grouped_queries_and_layouts(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const Layout layout : {Layout::kSeqMajor, Layout::kHeadMajor}) {
      check_case({dtype, 2, 140, 140, 8, 4, 32, true, false, layout});
      check_case({dtype, 2, 33, 33, 6, 2, 32, false, false, layout});
      check_case({dtype, 1, 33, 33, 4, 1, 32, true, false, layout});
    }
  }
}

// Windows of one key, of less and more than a block, and longer than the sequence.
void windows(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const int64_t window : {2, 7, 64, 130, 199, 200, 1000}) {
      check_case({dtype, 2, 200, 200, 4, 2, 16, true, false, Layout::kSeqMajor, window});
      check_case({dtype, 2, 90, 90, 2, 1, 16, true, true, Layout::kHeadMajor, window});
    }
    check_case({dtype, 1, 130, 1100, 2, 1, 8, true, false, Layout::kSeqMajor, 600});
    check_case({dtype, 1, 300, 20, 2, 2, 16, true, false, Layout::kSeqMajor, 5});
  }
  // Each query sees its own key alone.
  Problem own({NXD_DTYPE_F32, 1, 70, 70, 2, 2, 8, true, false, Layout::kSeqMajor, 1});
  own.run();
  assert_true(own.out.values == own.v.values);
}

// More keys than one block holds: maxima grow between blocks.
void several_key_blocks(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const bool causal : {false, true}) {
      check_case({dtype, 1, 130, 1100, 2, 1, 8, causal, false, Layout::kSeqMajor});
    }
  }
}

// Fewer keys than queries: with causal the first rows see nothing.
void lengths_that_differ(void**) {
  for (const bool causal : {false, true}) {
    check_case({NXD_DTYPE_F32, 2, 5, 40, 2, 2, 16, causal, false, Layout::kSeqMajor});
    check_case({NXD_DTYPE_F32, 2, 300, 20, 2, 2, 16, causal, false, Layout::kSeqMajor});
  }
}

// Weights that are dropped, of all forms of scores.
void dropout(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const double keep : {0.9, 0.5}) {
      for (const bool causal : {false, true}) {
        check_case({dtype, 2, 45, 45, 4, 2, 16, causal, false, Layout::kSeqMajor, 0, keep});
        check_case({dtype, 3, 61, 61, 4, 2, 16, causal, true, Layout::kHeadMajor, 0, keep});
        check_case({dtype, 1, 130, 1100, 2, 1, 8, causal, false, Layout::kSeqMajor, 0, keep});
      }
      check_case({dtype, 2, 200, 200, 4, 2, 16, true, false, Layout::kSeqMajor, 64, keep});
    }
  }
}

void masked_keys(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const bool causal : {false, true}) {
      check_case({dtype, 3, 45, 45, 4, 2, 16, causal, true, Layout::kSeqMajor});
      check_case({dtype, 2, 20, 700, 2, 2, 16, causal, true, Layout::kHeadMajor});
    }
  }
}

// Batch entries with padding on the left, on the right and on both sides; with holes of one key and
// of whole tiles; with five keys, none and all.
std::vector<uint8_t> paddings(int64_t keys) {
  std::vector<uint8_t> mask;
  for (int64_t entry = 0; entry < 7; ++entry) {
    for (int64_t i = 0; i < keys; ++i) {
      const bool left = i >= 2 * keys / 5, right = i < 3 * keys / 5 + 1;
      const bool holes = i % 7 != 3 && (i < keys / 3 || i > keys / 3 + 100) && i > 40;
      const bool kept[] = {left, right, left && right, holes, i / 5 == keys / 10, false, true};
      mask.push_back(kept[entry]);
    }
  }
  return mask;
}

void padded_keys(void**) {
  const std::vector<uint8_t> mask = paddings(333), many = paddings(1100);
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const bool causal : {false, true}) {
      check_case({dtype, 7, 333, 333, 2, 1, 24, causal, false, Layout::kSeqMajor}, 1, mask);
      check_case({dtype, 7, 40, 1100, 1, 1, 8, causal, false, Layout::kSeqMajor}, 2, many);
      check_case({dtype, 7, 350, 333, 1, 1, 8, causal, false, Layout::kSeqMajor, 0, 0.8}, 3, mask);
    }
    check_case({dtype, 7, 333, 333, 2, 1, 16, true, false, Layout::kSeqMajor, 50}, 4, mask);
    check_case({dtype, 7, 100, 333, 2, 2, 16, true, false, Layout::kHeadMajor, 150}, 5, mask);
  }
}

// Operations are those of the pairs of a query and a key that it sees.
void operations_count_kept_keys(void**) {
  for (const int64_t window : {-1, 0, 50}) {
    for (const int64_t queries : {333, 40, 400}) {
      Problem p({NXD_DTYPE_F32, 7, queries, 333, 4, 2, 8, window >= 0, false, Layout::kSeqMajor,
                 std::max<int64_t>(window, 0)});
      p.mask = paddings(333);
      p.shape.key_mask = p.mask.data();
      double pairs = 0;
      for (int64_t b = 0; b < 7; ++b) {
        for (int64_t i = 0; i < queries; ++i) {
          for (int64_t j = 0; j < 333; ++j) pairs += p.sees(b, i, j);
        }
      }
      assert_true(AttentionPlan(NXD_DTYPE_F32, p.shape).operations(2) == 2.0 * 2 * 4 * 8 * pairs);
    }
  }
}

void rows_that_see_nothing_are_zero(void**) {
  Problem p({NXD_DTYPE_F32, 2, 30, 30, 2, 2, 16, false, true, Layout::kSeqMajor});
  p.run();
  for (int64_t i = 0; i < 30 * 2 * 16; ++i) {
    assert_true(p.out.values[i] == 0 && p.dq.values[i] == 0);
    assert_true(p.dk.values[i] == 0 && p.dv.values[i] == 0);
  }
  const auto [maxima, factors] = p.saved();
  for (int64_t i = 0; i < 60; ++i) assert_true(maxima[i] == INFINITY && factors[i] == 0);
}

// Scores far beyond what exp can hold.
void large_scores(void**) {
  const Case c{NXD_DTYPE_F32, 1, 40, 600, 1, 1, 8, false, false, Layout::kSeqMajor};
  Problem p(c);
  for (int64_t i = 0; i < p.q.values.size(); ++i) p.q.values.set(i, 200 * p.q.values[i]);
  p.run();
  const Reference want = reference(p);
  check_close("out", p.out.values, want.out, 1e-4);
  check_close("dv", p.dv.values, want.dv, 1e-4);
}

// Queries that pick one of many keys by its score have no gradient of scores.
void rows_that_pick_a_key(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const Way way : ways(dtype)) {
      if (way == Way::kBlocks) continue;  // the order of its products' sums is oneDNN's
      Problem p({dtype, 1, 130, 130, 2, 1, 40, true, false, Layout::kSeqMajor});
      p.q.values.fill(1);
      // From key to key scores grow by 150.
      for (int64_t i = 0; i < 130 * 40; ++i) p.k.values.set(i, static_cast<double>(i / 40 * 24));
      p.run(way);
      for (int64_t i = 0; i < p.dq.values.size(); ++i) assert_true(p.dq.values[i] == 0);
      for (int64_t i = 0; i < p.dk.values.size(); ++i) assert_true(p.dk.values[i] == 0);
      // Exponents that large have steps of 2^-9.
      check_close("dv", p.dv.values, reference(p).dv, test::tolerance(dtype, 1e-3));
    }
  }
}

void nan_reaches_its_rows_only(void**) {
  Problem p({NXD_DTYPE_F32, 1, 20, 20, 1, 1, 8, true, false, Layout::kSeqMajor});
  p.q.values.set(5 * 8, NAN);
  attention_forward(p.c.dtype, p.shape, p.q.view, p.k.view, p.v.view, p.out.view,
                    p.statistics.f32());
  for (int64_t i = 0; i < 20; ++i) assert_true(std::isnan(p.out.values[i * 8]) == (i == 5));
}

void out_may_be_q(void**) {
  const Case c{NXD_DTYPE_F32, 2, 140, 140, 4, 2, 16, true, false, Layout::kHeadMajor};
  Problem apart(c);
  apart.run();
  Problem same(c);
  attention_forward(c.dtype, same.shape, same.q.view, same.k.view, same.v.view, same.q.view,
                    same.statistics.f32());
  assert_true(same.q.values == apart.out.values);
}

bool same_results(const Problem& a, const Problem& b) {
  return a.out.values == b.out.values && a.statistics == b.statistics &&
         a.dq.values == b.dq.values && a.dk.values == b.dk.values && a.dv.values == b.dv.values;
}

// One, two, three, four and five pairs of a batch entry and a key/value head: all threads have as
// many, or share those that are left over.
void threads_change_no_bit(void**) {
  const Case cases[] = {
      {NXD_DTYPE_F32, 2, 150, 150, 4, 2, 32, true, false, Layout::kSeqMajor},
      {NXD_DTYPE_F32, 1, 230, 1800, 2, 1, 24, true, true, Layout::kSeqMajor},
      {NXD_DTYPE_F32, 1, 500, 500, 2, 1, 24, true, false, Layout::kSeqMajor, 130},
      {NXD_DTYPE_F32, 1, 400, 400, 4, 2, 40, true, false, Layout::kHeadMajor},
      {NXD_DTYPE_F32, 3, 210, 210, 3, 1, 16, true, false, Layout::kSeqMajor, 70, 0.8},
      {NXD_DTYPE_F32, 5, 200, 200, 2, 1, 32, false, true, Layout::kHeadMajor},
      {NXD_DTYPE_F32, 1, 231, 1801, 2, 1, 25, true, true, Layout::kSeqMajor, 0, 0.8},
      {NXD_DTYPE_F32, 1, 700, 40, 2, 1, 24, true, false, Layout::kSeqMajor, 7},
      {NXD_DTYPE_BF16, 1, 231, 1801, 2, 1, 25, true, true, Layout::kSeqMajor},
      {NXD_DTYPE_BF16, 1, 501, 501, 2, 1, 24, true, false, Layout::kSeqMajor, 131},
      {NXD_DTYPE_BF16, 1, 1301, 1301, 2, 1, 24, true, false, Layout::kSeqMajor, 131},
      {NXD_DTYPE_BF16, 5, 160, 160, 4, 1, 32, true, true, Layout::kHeadMajor, 0, 0.7},
  };
  const int before = omp_get_max_threads();
  for (const Case& c : cases) {
    for (const Way way : ways(c.dtype)) {
      const auto run = [&](int threads) {
        omp_set_num_threads(threads);
        Problem p(c);
        p.run(way);
        return p;
      };
      const Problem one = run(1);
      for (const int threads : {3, 2, 4}) {
        const int passes = kSanitized ? 1 : 3;
        for (int pass = 0; pass < passes; ++pass) assert_true(same_results(run(threads), one));
        if (kSanitized) break;
      }
    }
  }
  omp_set_num_threads(before);
}

// A thread that gets no memory ends the call with an error, and leaves no other waiting for it.
void threads_without_memory(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    Problem p({dtype, 1, 400, 400, 3, 1, 64, true, false, Layout::kSeqMajor});
    nxd_status_t status = NXD_ERROR_INTERNAL;
    int failures = 0;
    for (uint64_t room = 0; status != NXD_OK; room += 1 << 15) {
      // The caller and its team are new, and have no memory yet.
      std::thread([&] {
        omp_set_num_threads(3);
        pool_set_cap(pool_stats().bytes_in_use + room);
        try {
          p.run();
          status = NXD_OK;
        } catch (const Error& error) {
          status = error.status();
        }
      }).join();
      pool_set_cap(0);
      if (status == NXD_OK) break;
      assert_int_equal(status, NXD_ERROR_OUT_OF_MEMORY);
      ++failures;
    }
    assert_true(failures > 1);
    check_results(p, reference(p));
  }
}

// Tiles of every width of vectors that this processor has.
void every_target(void**) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    check_case({NXD_DTYPE_F32, 2, 110, 110, 4, 2, 40, true, false, Layout::kSeqMajor});
    check_case({NXD_DTYPE_F32, 1, 70, 530, 2, 1, 16, true, true, Layout::kHeadMajor, 37});
    check_case({NXD_DTYPE_F32, 1, 30, 101, 2, 1, 33, false, false, Layout::kSeqMajor});
    check_case({NXD_DTYPE_F32, 1, 30, 101, 2, 1, 33, true, false, Layout::kSeqMajor, 0, 0.7});
    hwy::SetSupportedTargetsForTest(0);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(ragged_lengths),
      cmocka_unit_test(any_head_dim),
      cmocka_unit_test(grouped_queries_and_layouts),
      cmocka_unit_test(windows),
      cmocka_unit_test(several_key_blocks),
      cmocka_unit_test(lengths_that_differ),
      cmocka_unit_test(masked_keys),
      cmocka_unit_test(padded_keys),
      cmocka_unit_test(operations_count_kept_keys),
      cmocka_unit_test(dropout),
      cmocka_unit_test(rows_that_see_nothing_are_zero),
      cmocka_unit_test(large_scores),
      cmocka_unit_test(rows_that_pick_a_key),
      cmocka_unit_test(nan_reaches_its_rows_only),
      cmocka_unit_test(out_may_be_q),
      cmocka_unit_test(threads_change_no_bit),
      cmocka_unit_test(threads_without_memory),
      cmocka_unit_test(every_target),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
