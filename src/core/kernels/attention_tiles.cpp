#include "core/kernels/attention_tiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/round_up.h"
#include "core/kernels/dropout.h"
#include "core/kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/attention_tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/kernels/attention_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

// Rows of a tile, their keys, and which they see: [begin, end) of the first key.
template <int kRows, int kVectors>
struct TileMask {
  const AttentionHead& head;
  int64_t row, key;
  bool whole;   // every row sees every key
  bool hidden;  // the mask keeps none of them

  TileMask(const AttentionHead& h, int64_t first_row, int64_t first_key)
      : head(h), row(first_row), key(first_key) {
    whole = h.end(row) >= key + kVectors * kStep && h.begin(row + kRows - 1) <= key;
    hidden = false;
    if (h.bias) {
      whole = whole && all_are(0.0F);
      hidden = all_are(-HUGE_VALF);
    }
  }
  HWY_INLINE bool all_are(float value) const {
    bool all = true;
    for (int64_t n = 0; n < kVectors; ++n) {
      all = all && hn::AllTrue(kD, hn::Eq(bias(n), hn::Set(kD, value)));
    }
    return all;
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

// A block of queries with the keys of [first, last).
struct ForwardBlock {
  static constexpr int64_t kStride = kForwardKeys + kForwardPadding;
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
    int64_t vectors_end() const { return round_up(end, kStep); }
  };
  Keys keys_of(int64_t strip) const {
    const int64_t row = rows.first_row + strip;
    const int64_t row_end = std::min(row + kTall, rows.first_row + rows.rows) - 1;
    return {std::max(first, head.begin(row)), std::min(last, head.end(row_end))};
  }
  float* scores_of(int64_t row, int64_t key) const { return scores + row * kStride + key - first; }
  // Words of exponentials; key is a multiple of the numbers of a word.
  template <class Words>
  float* words_of(int64_t row, int64_t key) const {
    return scores + row * kStride + (key - first) / Words::kPack;
  }
};

// Scaled scores of a strip with a panel of keys, or its first half; rowmax [kTall, kStep] grows.
template <class Words, int kVectors>
HWY_INLINE void score_tile(const ForwardBlock& block, int64_t strip, int64_t key, float* rowmax) {
  const AttentionHead& head = block.head;
  const int64_t row_words = head.row_words(), depth = head.depth();
  const Left<kTall> queries(block.rows.queries + strip * row_words, row_words, 1);
  const float* panel = head.key_panels + key * depth;
  const TileMask<kTall, kVectors> mask(head, block.rows.first_row + strip, key);
  Tile<Words, kTall, kVectors> tile;
  if (mask.hidden) {
    tile.each([&](auto r, auto n) NXD_INLINE_LAMBDA { tile.sum[r][n] = set(kHidden); });
    tile.store(block.scores_of(strip, key), ForwardBlock::kStride);
    return;
  }
  tile.clear();
  NXD_UNROLL
  for (int64_t d = 0; d < depth; ++d) tile.add(queries, d, panel + d * kPanel);
  const V scale = set(head.exponent_scale);
  tile.each([&](auto r, auto n)
                NXD_INLINE_LAMBDA { tile.sum[r][n] = hn::Mul(tile.sum[r][n], scale); });
  if (!mask.whole) {
    tile.each([&](auto r, auto n) NXD_INLINE_LAMBDA {
      const V score = hn::Add(tile.sum[r][n], mask.bias(n));
      tile.sum[r][n] = hn::IfThenElse(mask.seen(r, n), score, set(kHidden));
    });
  }
  tile.store(block.scores_of(strip, key), ForwardBlock::kStride);
  unroll<kTall>([&](auto r) NXD_INLINE_LAMBDA {
    V largest = load_full(rowmax + r * kStep);
    unroll<kVectors>([&](auto n) NXD_INLINE_LAMBDA { largest = hn::Max(tile.sum[r][n], largest); });
    store_full(largest, rowmax + r * kStep);
  });
}

// The factors of the dropout of a row's probabilities with the keys begin ... end.
HWY_INLINE void draw_kept_row(const AttentionHead& head, const AttentionRows& rows, int64_t row,
                              int64_t begin, int64_t end, float* kept) {
  draw_kept_factors(head.dropout->site,
                    rows.first_weight + static_cast<uint64_t>(row * head.length + begin),
                    end - begin, head.dropout->keep, kept);
}

// Scores to words of exponentials, each row where it was; what was summed before shrinks where a
// row's maximum grows. Words are times the factors of the dropout, and sums are without it.
template <class Words, bool kDropout>
HWY_INLINE void exponentials(const ForwardBlock& block, int64_t strip, const float* rowmax,
                             float* max, float* sum, float* sums) {
  const ForwardBlock::Keys keys = block.keys_of(strip);
  HWY_ALIGN float kept[kDropout ? kForwardKeys + kPanel : 1];
  const int64_t width = block.head.width;
  for (int64_t r = strip; r < strip + kTall; ++r) {
    const V largest = load_full(rowmax + (r - strip) * kStep);
    const float before = max[r];
    const float now = std::max(before, hn::GetLane(hn::MaxOfLanes(kD, largest)));
    if (before != now && before != kHidden) {
      const V shrink = set(std::exp2(before - now));
      sum[r] *= hn::GetLane(shrink);
      for (int64_t d = 0; d < width; d += kStep) {
        float* value = sums + r * width + d;
        store_full(hn::Mul(load_full(value), shrink), value);
      }
    }
    max[r] = now;
    // Without a finite score so far 0 serves as maximum: every exponential is 0 then.
    const V offset = set(now == kHidden ? 0.0F : now);
    const float* x = block.scores_of(r, keys.vectors_begin());
    const float* const end = block.scores_of(r, keys.vectors_end());
    float* to = block.words_of<Words>(r, keys.vectors_begin());
    const auto exponential = [&](const float* score) NXD_INLINE_LAMBDA {
      return Words::exp2(hn::Sub(load_full(score), offset));
    };
    const float* const begin = x;
    if constexpr (kDropout) {
      draw_kept_row(block.head, block.rows, r, keys.vectors_begin(), keys.vectors_end(), kept);
    }
    const auto dropped = [&](V value, const float* score) NXD_INLINE_LAMBDA {
      if constexpr (kDropout) return hn::Mul(value, load_full(kept + (score - begin)));
      return value;
    };
    V even = hn::Zero(kD), odd = hn::Zero(kD);
    HWY_UNROLL(2)
    for (; x + kPanel <= end; x += kPanel, to += kPanel / Words::kPack) {
      const V first = exponential(x), second = exponential(x + kStep);
      Words::store_row(dropped(first, x), dropped(second, x + kStep), to);
      even = hn::Add(even, first);
      odd = hn::Add(odd, second);
    }
    if (x < end) {
      const V first = exponential(x);
      Words::store_row(dropped(first, x), to);
      even = hn::Add(even, first);
    }
    sum[r] += hn::GetLane(hn::SumOfLanes(kD, hn::Add(even, odd)));
  }
}

// sums += exponentials values.
template <class Words>
HWY_INLINE void add_values(const ForwardBlock& block, float* sums) {
  constexpr int64_t kPack = Words::kPack;
  const AttentionHead& head = block.head;
  each_chunk(head.width, [&](int64_t column, auto vectors) HWY_ATTR {
    for (int64_t key = block.first; key < block.last; key += kDepth) {
      for (int64_t strip = 0; strip < block.rows.rows; strip += kTall) {
        const ForwardBlock::Keys keys = block.keys_of(strip);
        const int64_t begin = std::max(key, keys.begin) / kPack * kPack;
        const int64_t end = std::min(key + kDepth, keys.end);
        if (begin >= end) continue;
        add_product<Words, kTall, vectors()>(
            block.words_of<Words>(strip, begin), ForwardBlock::kStride, 1,
            head.value_pairs + place_in_panels(head.pairs(), column, vectors, begin / kPack),
            round_up(end - begin, kPack) / kPack, sums + strip * head.width + column, head.width);
      }
    }
  });
}

template <class Words>
void forward(const AttentionHead& head, const AttentionRows& rows, float* scratch, float* max,
             float* sum, float* sums) {
  const int64_t strips = round_up(rows.rows, kTall);
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
          score_tile<Words, 1>(block, strip, panel, rowmax + strip * kStep);
        } else {
          score_tile<Words, 2>(block, strip, panel, rowmax + strip * kStep);
        }
      }
    }
    for (int64_t strip = 0; strip < rows.rows; strip += kTall) {
      if (block.keys_of(strip).none()) continue;
      if (head.dropout) {
        exponentials<Words, true>(block, strip, rowmax + strip * kStep, max, sum, sums);
      } else {
        exponentials<Words, false>(block, strip, rowmax + strip * kStep, max, sum, sums);
      }
    }
    add_values<Words>(block, sums);
  }
}

// Where a tile's results go, by its first row and key.
template <class Words>
struct GradientPlaces {
  float* probability_pairs;
  float* score_grad_pairs;
  float* score_grads;
  int64_t stride;

  GradientPlaces(const AttentionGradients& block, int64_t row, int64_t key) : stride(block.stride) {
    const int64_t column = key - block.first_key;
    const int64_t pairs = row / Words::kPack * stride + column;
    probability_pairs = block.probability_pairs + pairs;
    score_grad_pairs = block.score_grad_pairs + pairs;
    score_grads = block.score_grads + row * stride + column / Words::kPack;
  }

  template <int kVectors>
  HWY_INLINE void store(const Tile<Words, kShort, kVectors>& p,
                        const Tile<Words, kShort, kVectors>& ds) const {
    if constexpr (Words::kPack == 1) {
      p.store(probability_pairs, stride);
      ds.store(score_grad_pairs, stride);
    } else {
      unroll<kShort / 2>([&](auto pair) NXD_INLINE_LAMBDA {
        constexpr int kEven = 2 * pair, kOdd = kEven + 1;
        unroll<kVectors>([&](auto n) NXD_INLINE_LAMBDA {
          const int64_t at = pair * stride + n * kStep;
          store_full(Words::paired(p.sum[kEven][n], p.sum[kOdd][n]), probability_pairs + at);
          store_full(Words::paired(ds.sum[kEven][n], ds.sum[kOdd][n]), score_grad_pairs + at);
        });
      });
      unroll<kShort>([&](auto r) NXD_INLINE_LAMBDA {
        if constexpr (kVectors == 2) {
          Words::store_row(ds.sum[r][0], ds.sum[r][1], score_grads + r * stride);
        } else {
          Words::store_row(ds.sum[r][0], score_grads + r * stride);
        }
      });
    }
  }
  template <int kVectors>
  HWY_INLINE void store_zeros(int64_t column) const {
    GradientPlaces there = *this;
    there.probability_pairs += column;
    there.score_grad_pairs += column;
    there.score_grads += column / Words::kPack;
    Tile<Words, kShort, kVectors> zeros;
    zeros.clear();
    there.store(zeros, zeros);
  }
};

// Probabilities and score gradients of kShort rows with a panel of keys, or its first half.
template <class Words, int kVectors, bool kDropout>
HWY_INLINE void gradient_tile(const AttentionHead& head, const AttentionGradients& block,
                              int64_t row, int64_t key, const GradientPlaces<Words>& places) {
  const int64_t row_words = head.row_words(), depth = head.depth();
  const Left<kShort> queries(block.rows.queries + row * row_words, row_words, 1);
  const Left<kShort> grads(block.grads + row * row_words, row_words, 1);
  const float* keys = head.key_panels + key * depth;
  const float* values = head.value_panels + key * depth;
  const TileMask<kShort, kVectors> mask(head, block.rows.first_row + row, key);
  if (mask.hidden) {
    places.template store_zeros<kVectors>(0);
    return;
  }
  Tile<Words, kShort, kVectors> scores, products;
  scores.clear();
  products.clear();
  NXD_UNROLL
  for (int64_t d = 0; d < depth; ++d) {
    scores.add(queries, d, keys + d * kPanel);
    products.add(grads, d, values + d * kPanel);
  }
  const V scale = set(head.scale), exponent_scale = set(head.exponent_scale);
  // Scores become probabilities, and products score gradients.
  const auto finish = [&](auto r, auto n, V bias, const auto& hide) NXD_INLINE_LAMBDA {
    V& p = scores.sum[r][n];
    V& ds = products.sum[r][n];
    const V shifted = hn::MulAdd(p, exponent_scale, hn::Sub(bias, set(block.maxima[row + r])));
    p = hide(hn::Mul(Words::exp2(shifted), set(block.factors[row + r])));
    if constexpr (kDropout) {
      const V kept =
          load_full(block.kept + (row + r) * block.stride + key - block.first_key + n * kStep);
      ds = hide(hn::Mul(hn::Mul(p, hn::MulSub(ds, kept, set(block.delta[row + r]))), scale));
      p = hide(hn::Mul(p, kept));
    } else {
      ds = hide(hn::Mul(hn::Mul(p, hn::Sub(ds, set(block.delta[row + r]))), scale));
    }
  };
  if (mask.whole) {
    scores.each([&](auto r, auto n) NXD_INLINE_LAMBDA {
      finish(r, n, hn::Zero(kD), [](V v) NXD_INLINE_LAMBDA { return v; });
    });
  } else {
    scores.each([&](auto r, auto n) NXD_INLINE_LAMBDA {
      const auto seen = mask.seen(r, n);
      finish(r, n, mask.bias(n),
             [&](V v) NXD_INLINE_LAMBDA { return hn::IfThenElseZero(seen, v); });
    });
  }
  places.store(scores, products);
}

template <class Words, bool kDropout>
void gradient_tiles(const AttentionHead& head, const AttentionGradients& block, int64_t begin,
                    int64_t end) {
  const int64_t rows = round_up(block.rows.rows, kTileRows);
  for (int64_t row = 0; kDropout && row < rows; ++row) {
    const int64_t first = std::max(begin, head.begin(block.rows.first_row + row));
    const int64_t last = std::min(end, head.end(block.rows.first_row + row));
    if (first >= last) continue;
    draw_kept_row(head, block.rows, row, first, last,
                  block.kept + row * block.stride + first - block.first_key);
  }
  for (int64_t key = begin; key < end; key += kPanel) {
    for (int64_t row = 0; row < rows; row += kShort) {
      const GradientPlaces<Words> places(block, row, key);
      const int64_t first = block.rows.first_row + row;
      const int64_t seen = head.end(first + kShort - 1) - key;
      if (seen <= 0 || head.begin(first) >= key + kPanel) {
        places.template store_zeros<2>(0);
      } else if (seen <= kStep) {
        gradient_tile<Words, 1, kDropout>(head, block, row, key, places);
        places.template store_zeros<1>(kStep);
      } else {
        gradient_tile<Words, 2, kDropout>(head, block, row, key, places);
      }
    }
  }
}

// Word by word, as a tile sums products of gradients and values.
template <class Words>
float row_delta(const AttentionHead& head, const float* grad, const float* out) {
  V sum = hn::Zero(kD);
  for (int64_t d = 0; d < head.depth(); ++d) Words::multiply_add(set(grad[d]), set(out[d]), sum);
  return hn::GetLane(sum);
}

template <class Words>
void key_tiles(const AttentionHead& head, const AttentionGradients& block, int64_t begin,
               int64_t end, float* dk, float* dv) {
  constexpr int64_t kPack = Words::kPack;
  const int64_t first = block.rows.first_row, rows = block.rows.rows, width = head.width;
  const int64_t all = round_up(rows, kTileRows) / kPack;
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
      const int64_t pair = row / kPack, pairs = round_up(limit, kPack) / kPack - pair;
      add_product<Words, kTall, vectors()>(left + pair * block.stride + key - block.first_key, 1,
                                           block.stride,
                                           right + place_in_panels(all, column, vectors, pair),
                                           pairs, to + key * width + column, width);
    }
  };
  each_chunk(width, [&](int64_t column, auto vectors) HWY_ATTR {
    chunk(column, vectors, block.probability_pairs, block.grad_pairs, dv);
    chunk(column, vectors, block.score_grad_pairs, block.query_pairs, dk);
  });
}

template <class Words>
void query_tiles(const AttentionHead& head, const AttentionGradients& block, int64_t begin,
                 int64_t end, int64_t end_key, float* dq) {
  constexpr int64_t kPack = Words::kPack;
  const int64_t width = head.width;
  each_chunk(width, [&](int64_t column, auto vectors) HWY_ATTR {
    for (int64_t key = block.first_key; key < end_key; key += kDepth) {
      for (int64_t row = begin; row < end; row += kTall) {
        const int64_t first = block.rows.first_row + row;
        const int64_t seen_begin = std::max(key, head.begin(first)) / kPack * kPack;
        const int64_t seen_end = std::min({key + kDepth, end_key, head.end(first + kTall - 1)});
        if (seen_begin >= seen_end) continue;
        const float* left =
            block.score_grads + row * block.stride + (seen_begin - block.first_key) / kPack;
        add_product<Words, kTall, vectors()>(
            left, block.stride, 1,
            head.key_pairs + place_in_panels(head.pairs(), column, vectors, seen_begin / kPack),
            round_up(seen_end - seen_begin, kPack) / kPack, dq + row * width + column, width);
      }
    }
  });
}

// body(words) with the arithmetic of a dtype.
template <class Body>
HWY_INLINE void with_words(nxd_dtype_t dtype, const Body& body) {
#ifdef NXD_BF16_WORDS
  if (dtype == NXD_DTYPE_BF16) {
    body(Bf16Words{});
    return;
  }
#endif
  check_internal(dtype == NXD_DTYPE_F32, "attention: no tiles of ", dtype_name(dtype));
  body(F32Words{});
}

bool HasTiles(nxd_dtype_t dtype) {
#ifdef NXD_BF16_WORDS
  if (dtype == NXD_DTYPE_BF16) return __builtin_cpu_supports("avx512bf16") != 0;
#endif
  return dtype == NXD_DTYPE_F32;
}

void TilesForward(const AttentionHead& head, const AttentionRows& rows, float* scratch, float* max,
                  float* sum, float* sums) {
  with_words(head.dtype, [&](auto words) HWY_ATTR {
    forward<decltype(words)>(head, rows, scratch, max, sum, sums);
  });
}

float TilesDelta(const AttentionHead& head, const float* grad, const float* out) {
  float delta = 0;
  with_words(head.dtype,
             [&](auto words) HWY_ATTR { delta = row_delta<decltype(words)>(head, grad, out); });
  return delta;
}

void TilesScores(const AttentionHead& head, const AttentionGradients& block, int64_t begin,
                 int64_t end) {
  with_words(head.dtype, [&](auto words) HWY_ATTR {
    if (head.dropout) {
      gradient_tiles<decltype(words), true>(head, block, begin, end);
    } else {
      gradient_tiles<decltype(words), false>(head, block, begin, end);
    }
  });
}

void TilesKeys(const AttentionHead& head, const AttentionGradients& block, int64_t begin,
               int64_t end, float* dk, float* dv) {
  with_words(head.dtype, [&](auto words) HWY_ATTR {
    key_tiles<decltype(words)>(head, block, begin, end, dk, dv);
  });
}

void TilesQueries(const AttentionHead& head, const AttentionGradients& block, int64_t begin,
                  int64_t end, int64_t end_key, float* dq) {
  with_words(head.dtype, [&](auto words) HWY_ATTR {
    query_tiles<decltype(words)>(head, block, begin, end, end_key, dq);
  });
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(HasTiles);
HWY_EXPORT(TilesForward);
HWY_EXPORT(TilesDelta);
HWY_EXPORT(TilesScores);
HWY_EXPORT(TilesKeys);
HWY_EXPORT(TilesQueries);

}  // namespace

bool has_attention_tiles(nxd_dtype_t dtype) { return HWY_DYNAMIC_DISPATCH(HasTiles)(dtype); }

nxd_dtype_t attention_tile_dtype(nxd_dtype_t dtype) {
  return has_attention_tiles(dtype) ? dtype : NXD_DTYPE_F32;
}

bool prefers_attention_tiles(nxd_dtype_t dtype) {
  if (dtype != NXD_DTYPE_BF16) return true;
#if HWY_ARCH_X86
  if (__builtin_cpu_supports("avx512bf16") && !has_attention_tiles(dtype)) return false;
#endif
#if HWY_ARCH_X86 && HWY_COMPILER_GCC_ACTUAL
  if (__builtin_cpu_supports("amx-bf16")) return false;
#endif
  return true;
}

void attention_tiles_forward(const AttentionHead& head, const AttentionRows& rows, float* scratch,
                             float* max, float* sum, float* sums) {
  HWY_DYNAMIC_DISPATCH(TilesForward)(head, rows, scratch, max, sum, sums);
}

float attention_tiles_delta(const AttentionHead& head, const float* grad, const float* out) {
  return HWY_DYNAMIC_DISPATCH(TilesDelta)(head, grad, out);
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
