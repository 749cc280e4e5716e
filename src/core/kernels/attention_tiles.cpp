#include "core/kernels/attention_tiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/attention_tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

// 24 of 32 registers hold a tile's sums, or 12 of 16.
constexpr int kTall = kLanes >= 16 ? 12 : 6;
constexpr int kShort = kTall / 2;
constexpr auto kStep = static_cast<int64_t>(kLanes);
constexpr int64_t kPanel = 2 * kStep;
constexpr float kHidden = -HUGE_VALF;
// Rows of an operand that stay in the first-level cache while tiles are summed over them.
constexpr int64_t kDepth = 96;

static_assert(kTileRows % kTall == 0 && kTileKeys % kPanel == 0 && kTileDims % kStep == 0);

#define NXD_INLINE_LAMBDA HWY_ATTR __attribute__((always_inline))

template <class Body, int... kIndex>
HWY_INLINE void unroll(std::integer_sequence<int, kIndex...>, const Body& body) {
  (body(std::integral_constant<int, kIndex>{}), ...);
}

// body(0), ..., body(kCount - 1) with compile-time constants: sums stay in registers.
template <int kCount, class Body>
HWY_INLINE void unroll(const Body& body) {
  unroll(std::make_integer_sequence<int, kCount>{}, body);
}

// The left operand of a tile: element (r, k) lies at r * row + k * column. Three rows share a
// pointer, so that twelve need no more of them than there are.
template <int kRows>
struct Left {
  const float* group[(kRows + 2) / 3];
  int64_t row;
  int64_t column;

  HWY_INLINE Left(const float* first, int64_t row_stride, int64_t column_stride)
      : row(row_stride), column(column_stride) {
    unroll<(kRows + 2) / 3>([&](auto g) NXD_INLINE_LAMBDA { group[g] = first + 3 * g * row; });
  }
  template <int kRow>
  HWY_INLINE float at(int64_t k) const {
    return group[kRow / 3][(kRow % 3) * row + k * column];
  }
};

template <int kRows, int kVectors>
struct Tile {
  V sum[kRows][kVectors];

  template <class Body>
  HWY_INLINE static void each(const Body& body) {
    unroll<kRows>([&](auto r) NXD_INLINE_LAMBDA {
      unroll<kVectors>([&](auto n) NXD_INLINE_LAMBDA { body(r, n); });
    });
  }
  HWY_INLINE void clear() {
    each([&](auto r, auto n) NXD_INLINE_LAMBDA { sum[r][n] = hn::Zero(kD); });
  }
  HWY_INLINE void store(float* to, int64_t stride) const {
    each([&](auto r, auto n)
             NXD_INLINE_LAMBDA { store_full(sum[r][n], to + r * stride + n * kStep); });
  }
  HWY_INLINE void add_to(float* to, int64_t stride) const {
    each([&](auto r, auto n) NXD_INLINE_LAMBDA {
      float* place = to + r * stride + n * kStep;
      store_full(hn::Add(load_full(place), sum[r][n]), place);
    });
  }
  // Adds the outer product of column k of left with a row of right.
  HWY_INLINE void add(const Left<kRows>& left, int64_t k, const float* right) {
    V values[kVectors];
    unroll<kVectors>([&](auto n) NXD_INLINE_LAMBDA { values[n] = load_full(right + n * kStep); });
    unroll<kRows>([&](auto r) NXD_INLINE_LAMBDA {
      const V factor = set(left.template at<r>(k));
      unroll<kVectors>(
          [&](auto n) NXD_INLINE_LAMBDA { sum[r][n] = hn::MulAdd(factor, values[n], sum[r][n]); });
    });
  }
};

// to [kRows, kVectors vectors] += left [kRows, depth] right [depth, ...]. The product is summed by
// itself, since short sums round less than one long one.
template <int kRows, int kVectors>
HWY_INLINE void add_product(const float* left, int64_t row, int64_t column, const float* right,
                            int64_t depth, int64_t width, float* to) {
  const Left<kRows> a(left, row, column);
  Tile<kRows, kVectors> tile;
  tile.clear();
  for (int64_t k = 0; k < depth; ++k) tile.add(a, k, right + k * width);
  tile.add_to(to, width);
}

// body(first column, vectors) over the columns of rows of that width.
template <class Body>
HWY_INLINE void each_chunk(int64_t width, const Body& body) {
  int64_t column = 0;
  for (; column + kPanel <= width; column += kPanel) {
    body(column, std::integral_constant<int, 2>{});
  }
  if (column < width) body(column, std::integral_constant<int, 1>{});
}

// Rows of a tile, their keys, and which they see: [begin, end) of the first key.
template <int kRows, int kVectors>
struct TileMask {
  const AttentionHead& head;
  int64_t row, key;
  bool whole;  // every row sees every key

  TileMask(const AttentionHead& h, int64_t first_row, int64_t first_key)
      : head(h), row(first_row), key(first_key) {
    whole = !h.bias && h.end(row) >= key + kVectors * kStep && h.begin(row + kRows - 1) <= key;
  }
  HWY_INLINE auto seen(int64_t r, int64_t n) const {
    const int64_t first = key + n * kStep;
    const auto below = [&](int64_t limit) NXD_INLINE_LAMBDA {
      return hn::FirstN(kD, static_cast<size_t>(std::clamp<int64_t>(limit - first, 0, kStep)));
    };
    return hn::AndNot(below(head.begin(row + r)), below(head.end(row + r)));
  }
  HWY_INLINE V bias(int64_t n) const {
    return head.bias ? load_full(head.bias + key + n * kStep) : hn::Zero(kD);
  }
};

#if HWY_TARGET != HWY_SCALAR
// Four rows, a vector each, to columns of a panel.
HWY_INLINE void transpose_rows(const float* from, int64_t row_stride, float* to) {
  const V a = load_full(from), b = load_full(from + row_stride);
  const V c = load_full(from + 2 * row_stride), d = load_full(from + 3 * row_stride);
  const V ac = hn::InterleaveLower(kD, a, c), ac_upper = hn::InterleaveUpper(kD, a, c);
  const V bd = hn::InterleaveLower(kD, b, d), bd_upper = hn::InterleaveUpper(kD, b, d);
  HWY_ALIGN float columns[4][kLanes];
  hn::Store(hn::InterleaveLower(kD, ac, bd), kD, columns[0]);
  hn::Store(hn::InterleaveUpper(kD, ac, bd), kD, columns[1]);
  hn::Store(hn::InterleaveLower(kD, ac_upper, bd_upper), kD, columns[2]);
  hn::Store(hn::InterleaveUpper(kD, ac_upper, bd_upper), kD, columns[3]);
  // Each has the column of every fourth position, four rows after another.
  for (size_t i = 0; i < kLanes; ++i) {
    std::memcpy(to + static_cast<int64_t>(i) * kPanel, columns[i % 4] + i / 4 * 4,
                4 * sizeof(float));
  }
}
#endif

void PackPanels(const float* from, int64_t row_stride, int64_t rows, int64_t dims, float* to) {
  const int64_t all = padded(rows, kTileKeys);
  for (int64_t row = 0; row < all; row += kPanel, to += dims * kPanel) {
    const int64_t some = std::clamp<int64_t>(rows - row, 0, kPanel);
    if (some < kPanel) std::fill_n(to, dims * kPanel, 0.0F);
    for (int64_t r = 0; r < some;) {
      const float* source = from + (row + r) * row_stride;
      const int64_t count = some - r >= 4 ? 4 : 1;
      int64_t d = 0;
#if HWY_TARGET != HWY_SCALAR
      for (; count == 4 && d + kStep <= dims; d += kStep) {
        transpose_rows(source + d, row_stride, to + d * kPanel + r);
      }
#endif
      for (; d < dims; ++d) {
        for (int64_t i = 0; i < count; ++i) to[d * kPanel + r + i] = source[i * row_stride + d];
      }
      r += count;
    }
  }
}

// A block of queries with the keys of [first, last).
struct ForwardBlock {
  static constexpr int64_t kStride = kForwardKeys + 2 * kTileDims;
  const AttentionHead& head;
  const AttentionRows& rows;
  float* scores;  // [rows, kStride]
  int64_t first, last;

  // Keys of the block that some row of a strip sees, and the vectors that hold them: whole panels
  // but for half of the last.
  struct Keys {
    int64_t begin, end;
    bool none() const { return begin >= end; }
    int64_t vectors_begin() const { return begin / kPanel * kPanel; }
    int64_t vectors_end() const { return padded(end, kStep); }
  };
  Keys keys_of(int64_t strip) const {
    const int64_t row = rows.first_row + strip;
    const int64_t row_end = std::min(row + kTall, rows.first_row + rows.rows) - 1;
    return {std::max(first, head.begin(row)), std::min(last, head.end(row_end))};
  }
  float* scores_of(int64_t row, int64_t key) const { return scores + row * kStride + key - first; }
};

// Scaled scores of a strip with a panel of keys, or its first half; rowmax [kTall, kStep] grows.
template <int kVectors>
HWY_INLINE void score_tile(const ForwardBlock& block, int64_t strip, int64_t key, float* rowmax) {
  const AttentionHead& head = block.head;
  const Left<kTall> queries(block.rows.queries + strip * head.width, head.width, 1);
  const float* panel = head.key_panels + key * head.head_dim;
  Tile<kTall, kVectors> tile;
  tile.clear();
  for (int64_t d = 0; d < head.head_dim; ++d) tile.add(queries, d, panel + d * kPanel);
  const TileMask<kTall, kVectors> mask(head, block.rows.first_row + strip, key);
  const V scale = set(head.scale);
  tile.each([&](auto r, auto n)
                NXD_INLINE_LAMBDA { tile.sum[r][n] = hn::Mul(tile.sum[r][n], scale); });
  if (!mask.whole) {
    tile.each([&](auto r, auto n) NXD_INLINE_LAMBDA {
      const V score = hn::Add(tile.sum[r][n], mask.bias(n));
      tile.sum[r][n] = hn::IfThenElse(mask.seen(r, n), score, set(kHidden));
    });
  }
  tile.store(block.scores_of(strip, key), ForwardBlock::kStride);
  tile.each([&](auto r, auto n) NXD_INLINE_LAMBDA {
    store_full(hn::Max(tile.sum[r][n], load_full(rowmax + r * kStep)), rowmax + r * kStep);
  });
}

// Scores to exponentials; what was summed before shrinks where a row's maximum grows.
HWY_INLINE void exponentials(const ForwardBlock& block, int64_t strip, const float* rowmax,
                             float* max, float* sum, float* sums) {
  const ForwardBlock::Keys keys = block.keys_of(strip);
  const int64_t width = block.head.width;
  for (int64_t r = strip; r < strip + kTall; ++r) {
    const V largest = load_full(rowmax + (r - strip) * kStep);
    const float before = max[r];
    const float now = std::max(before, hn::GetLane(hn::MaxOfLanes(kD, largest)));
    if (before != now && before != kHidden) {
      const V shrink = set(std::exp(before - now));
      sum[r] *= hn::GetLane(shrink);
      for (int64_t d = 0; d < width; d += kStep) {
        float* value = sums + r * width + d;
        store_full(hn::Mul(load_full(value), shrink), value);
      }
    }
    max[r] = now;
    // Without a finite score so far 0 serves as maximum: every exponential is 0 then.
    const V offset = set(now == kHidden ? 0.0F : now);
    float* x = block.scores_of(r, keys.vectors_begin());
    float* const end = block.scores_of(r, keys.vectors_end());
    const auto exponential = [&](float* score) NXD_INLINE_LAMBDA {
      const V value = exp_below(hn::Sub(load_full(score), offset));
      store_full(value, score);
      return value;
    };
    V even = hn::Zero(kD), odd = hn::Zero(kD);
    for (; x + kPanel <= end; x += kPanel) {
      even = hn::Add(even, exponential(x));
      odd = hn::Add(odd, exponential(x + kStep));
    }
    if (x < end) even = hn::Add(even, exponential(x));
    sum[r] += hn::GetLane(hn::SumOfLanes(kD, hn::Add(even, odd)));
  }
}

// sums += exponentials values.
HWY_INLINE void add_values(const ForwardBlock& block, float* sums) {
  const AttentionHead& head = block.head;
  each_chunk(head.width, [&](int64_t column, auto vectors) HWY_ATTR {
    for (int64_t key = block.first; key < block.last; key += kDepth) {
      for (int64_t strip = 0; strip < block.rows.rows; strip += kTall) {
        const ForwardBlock::Keys keys = block.keys_of(strip);
        const int64_t begin = std::max(key, keys.begin), end = std::min(key + kDepth, keys.end);
        if (begin >= end) continue;
        add_product<kTall, vectors()>(block.scores_of(strip, begin), ForwardBlock::kStride, 1,
                                      head.values + begin * head.width + column, end - begin,
                                      head.width, sums + strip * head.width + column);
      }
    }
  });
}

void TilesForward(const AttentionHead& head, const AttentionRows& rows, float* scratch, float* max,
                  float* sum, float* sums) {
  const int64_t strips = padded(rows.rows, kTall);
  std::fill_n(max, strips, kHidden);
  std::fill_n(sum, strips, 0.0F);
  std::fill_n(sums, strips * head.width, 0.0F);
  const int64_t begin = head.begin(rows.first_row) / kTileKeys * kTileKeys;
  const int64_t end = head.end(rows.first_row + rows.rows - 1);
  HWY_ALIGN float rowmax[kForwardRows * kLanes];
  for (int64_t key = begin; key < end; key += kForwardKeys) {
    const ForwardBlock block{head, rows, scratch, key, std::min(key + kForwardKeys, end)};
    std::fill_n(rowmax, strips * kStep, kHidden);
    for (int64_t panel = key; panel < block.last; panel += kPanel) {
      for (int64_t strip = 0; strip < rows.rows; strip += kTall) {
        const ForwardBlock::Keys keys = block.keys_of(strip);
        if (keys.none() || panel < keys.vectors_begin() || panel >= keys.end) continue;
        if (keys.end - panel <= kStep) {
          score_tile<1>(block, strip, panel, rowmax + strip * kStep);
        } else {
          score_tile<2>(block, strip, panel, rowmax + strip * kStep);
        }
      }
    }
    for (int64_t strip = 0; strip < rows.rows; strip += kTall) {
      if (block.keys_of(strip).none()) continue;
      exponentials(block, strip, rowmax + strip * kStep, max, sum, sums);
    }
    add_values(block, sums);
  }
}

// Probabilities and score gradients of kShort rows with a panel of keys, or its first half.
template <int kVectors>
HWY_INLINE void gradient_tile(const AttentionHead& head, const AttentionGradients& block,
                              int64_t row, int64_t key, float* p_out, float* ds_out) {
  const Left<kShort> queries(block.rows.queries + row * head.width, head.width, 1);
  const Left<kShort> grads(block.grads + row * head.width, head.width, 1);
  const float* keys = head.key_panels + key * head.head_dim;
  const float* values = head.value_panels + key * head.head_dim;
  Tile<kShort, kVectors> scores, products;
  scores.clear();
  products.clear();
  for (int64_t d = 0; d < head.head_dim; ++d) {
    scores.add(queries, d, keys + d * kPanel);
    products.add(grads, d, values + d * kPanel);
  }
  const TileMask<kShort, kVectors> mask(head, block.rows.first_row + row, key);
  const V scale = set(head.scale);
  const auto finish = [&](auto r, auto n, V bias, const auto& hide) NXD_INLINE_LAMBDA {
    const V shifted =
        hn::MulAdd(scores.sum[r][n], scale, hn::Sub(bias, set(block.maxima[row + r])));
    const V p = hide(hn::Mul(exp_below(shifted), set(block.factors[row + r])));
    const V difference = hn::Sub(products.sum[r][n], set(block.delta[row + r]));
    const int64_t at = r * block.stride + n * kStep;
    store_full(p, p_out + at);
    store_full(hide(hn::Mul(hn::Mul(p, difference), scale)), ds_out + at);
  };
  if (mask.whole) {
    scores.each([&](auto r, auto n) NXD_INLINE_LAMBDA {
      finish(r, n, hn::Zero(kD), [](V v) NXD_INLINE_LAMBDA { return v; });
    });
    return;
  }
  scores.each([&](auto r, auto n) NXD_INLINE_LAMBDA {
    const auto seen = mask.seen(r, n);
    finish(r, n, mask.bias(n), [&](V v) NXD_INLINE_LAMBDA { return hn::IfThenElseZero(seen, v); });
  });
}

template <int kVectors>
HWY_INLINE void hidden_tile(int64_t stride, float* p_out, float* ds_out) {
  Tile<kShort, kVectors> zeros;
  zeros.clear();
  zeros.store(p_out, stride);
  zeros.store(ds_out, stride);
}

void TilesScores(const AttentionHead& head, const AttentionGradients& block, int64_t begin,
                 int64_t end) {
  for (int64_t key = begin; key < end; key += kPanel) {
    for (int64_t row = 0; row < padded(block.rows.rows, kTileRows); row += kShort) {
      const int64_t at = row * block.stride + key - block.first_key;
      float* p = block.probabilities + at;
      float* ds = block.score_grads + at;
      const int64_t first = block.rows.first_row + row;
      const int64_t seen = head.end(first + kShort - 1) - key;
      if (seen <= 0 || head.begin(first) >= key + kPanel) {
        hidden_tile<2>(block.stride, p, ds);
      } else if (seen <= kStep) {
        gradient_tile<1>(head, block, row, key, p, ds);
        hidden_tile<1>(block.stride, p + kStep, ds + kStep);
      } else {
        gradient_tile<2>(head, block, row, key, p, ds);
      }
    }
  }
}

void TilesKeys(const AttentionHead& head, const AttentionGradients& block, int64_t begin,
               int64_t end, float* dk, float* dv) {
  const int64_t first = block.rows.first_row, rows = block.rows.rows, width = head.width;
  const auto chunk = [&](int64_t column, auto vectors, const float* left, const float* right,
                         float* to) HWY_ATTR {
    for (int64_t key = begin; key < end; key += kTall) {
      // Rows that see some key of the tile.
      int64_t row = 0, limit = rows;
      if (head.causal) row = std::clamp<int64_t>(key - head.offset - first, 0, rows);
      if (head.window > 0) {
        limit = std::clamp<int64_t>(key + kTall - 1 - head.offset + head.window - first, row, rows);
      }
      if (row >= limit) continue;
      add_product<kTall, vectors()>(left + row * block.stride + key - block.first_key, 1,
                                    block.stride, right + row * width + column, limit - row, width,
                                    to + key * width + column);
    }
  };
  each_chunk(width, [&](int64_t column, auto vectors) HWY_ATTR {
    chunk(column, vectors, block.probabilities, block.grads, dv);
    chunk(column, vectors, block.score_grads, block.rows.queries, dk);
  });
}

void TilesQueries(const AttentionHead& head, const AttentionGradients& block, int64_t begin,
                  int64_t end, int64_t end_key, float* dq) {
  const int64_t width = head.width;
  each_chunk(width, [&](int64_t column, auto vectors) HWY_ATTR {
    for (int64_t key = block.first_key; key < end_key; key += kDepth) {
      for (int64_t row = begin; row < end; row += kTall) {
        const int64_t first = block.rows.first_row + row;
        const int64_t seen_begin = std::max(key, head.begin(first));
        const int64_t seen_end = std::min({key + kDepth, end_key, head.end(first + kTall - 1)});
        if (seen_begin >= seen_end) continue;
        add_product<kTall, vectors()>(
            block.score_grads + row * block.stride + seen_begin - block.first_key, block.stride, 1,
            head.keys + seen_begin * width + column, seen_end - seen_begin, width,
            dq + row * width + column);
      }
    }
  });
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(PackPanels);
HWY_EXPORT(TilesForward);
HWY_EXPORT(TilesScores);
HWY_EXPORT(TilesKeys);
HWY_EXPORT(TilesQueries);

}  // namespace

void pack_panels(const float* from, int64_t row_stride, int64_t rows, int64_t dims, float* to) {
  HWY_DYNAMIC_DISPATCH(PackPanels)(from, row_stride, rows, dims, to);
}

void pack_rows(const float* from, int64_t row_stride, int64_t rows, int64_t dims,
               int64_t padded_rows, float* to) {
  const int64_t width = padded(dims, kTileDims);
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(from + r * row_stride, dims, to + r * width);
    std::fill(to + r * width + dims, to + (r + 1) * width, 0.0F);
  }
  std::fill(to + rows * width, to + padded_rows * width, 0.0F);
}

void attention_tiles_forward(const AttentionHead& head, const AttentionRows& rows, float* scratch,
                             float* max, float* sum, float* sums) {
  HWY_DYNAMIC_DISPATCH(TilesForward)(head, rows, scratch, max, sum, sums);
}

void attention_tiles_scores(const AttentionHead& head, const AttentionGradients& block,
                            int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(TilesScores)(head, block, begin, end);
}

void attention_tiles_keys(const AttentionHead& head, const AttentionGradients& block, int64_t begin,
                          int64_t end, float* dk, float* dv) {
  HWY_DYNAMIC_DISPATCH(TilesKeys)(head, block, begin, end, dk, dv);
}

void attention_tiles_queries(const AttentionHead& head, const AttentionGradients& block,
                             int64_t begin, int64_t end, int64_t end_key, float* dq) {
  HWY_DYNAMIC_DISPATCH(TilesQueries)(head, block, begin, end, end_key, dq);
}

}  // namespace nxd::kernels
#endif
