// Tiles of registers and the arithmetic of their words, compiled once per Highway target; hence no
// plain include guard.
#if defined(NXD_ATTENTION_WORDS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NXD_ATTENTION_WORDS_INL_H
#undef NXD_ATTENTION_WORDS_INL_H
#else
#define NXD_ATTENTION_WORDS_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cmath>
#include <utility>

#include "core/kernels/attention_tiles.h"
#include "core/kernels/vector-inl.h"

// It is of the target that is compiled.
#undef NXD_BF16_WORDS

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

// 24 of 32 registers hold a tile's sums, or 12 of 16.
constexpr int kTall = kLanes >= 16 ? 12 : 6;
constexpr int kShort = kTall / 2;
constexpr auto kStep = static_cast<int64_t>(kLanes);
constexpr int64_t kPanel = 2 * kStep;
constexpr float kHidden = -HUGE_VALF;
// Rows of an operand that are summed over before tiles go to memory: they stay in the first-level
// cache meanwhile, and longer sums would round more.
constexpr int64_t kDepth = 96;

static_assert(kTileRows % kTall == 0 && kTileKeys % kPanel == 0 && kTileDims % kStep == 0);

// A tile's product is a loop of 64 rounds or so. Unrolled, it needs fewer instructions, which
// counts where the core's other thread has work too.
#define NXD_UNROLL HWY_UNROLL(4)

template <class Body, int... kIndex>
HWY_INLINE void unroll(std::integer_sequence<int, kIndex...>, const Body& body) {
  (body(std::integral_constant<int, kIndex>{}), ...);
}

// body(0), ..., body(kCount - 1) with compile-time constants: sums stay in registers.
template <int kCount, class Body>
HWY_INLINE void unroll(const Body& body) {
  unroll(std::make_integer_sequence<int, kCount>{}, body);
}

// Arithmetic of words that hold a number of f32.
struct F32Words {
  static constexpr int64_t kPack = 1;
  static HWY_INLINE void multiply_add(V a, V b, V& sum) { sum = hn::MulAdd(a, b, sum); }
  static HWY_INLINE V exp2(V x) { return exp2_below<6>(x); }
  // Stores a row's numbers of two vectors as words, or of one.
  static HWY_INLINE void store_row(V first, V second, float* to) {
    store_full(first, to);
    store_full(second, to + kStep);
  }
  static HWY_INLINE void store_row(V first, float* to) { store_full(first, to); }
};

// An assembler takes these from any function, where GCC would inline no built-in that a target does
// not have. Callers have asked the processor (has_attention_tiles).
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3 && HWY_COMPILER_GCC_ACTUAL
#define NXD_BF16_WORDS
struct Bf16Words {
  static constexpr int64_t kPack = 2;
  static HWY_INLINE void multiply_add(V a, V b, V& sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  }
  static HWY_INLINE V exp2(V x) { return exp2_below<4>(x); }
  // The numbers of first, and then those of second.
  static HWY_INLINE V narrowed(V first, V second) {
    V words;
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(words.raw) : "v"(first.raw), "v"(second.raw));
    return words;
  }
  // Words of a number of even and then one of odd.
  static HWY_INLINE V paired(V even, V odd) {
    const hn::ScalableTag<uint16_t> halves;
    alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const auto order = hn::Load(halves, kOrder);
    const V words = narrowed(even, odd);
    V pairs;
    asm("vpermw %1, %2, %0" : "=v"(pairs.raw) : "v"(words.raw), "v"(order.raw));
    return pairs;
  }
  static HWY_INLINE void store_row(V first, V second, float* to) {
    store_full(narrowed(first, second), to);
  }
  static HWY_INLINE void store_row(V first, float* to) {
    const hn::Half<D> half;
    hn::StoreU(hn::LowerHalf(half, narrowed(first, first)), half, to);
  }
};
#endif

// The left operand of a tile: word (r, k) lies at r * row + k * column. Three rows share a
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

template <class Words, int kRows, int kVectors>
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
  // Where results will be added. Vectors of a row share lines, or are one each.
  HWY_INLINE void prefetch(const float* to, int64_t stride) const {
    constexpr int kPerLine = kStep >= 16 ? 1 : kVectors;
    each([&](auto r, auto n) NXD_INLINE_LAMBDA {
      if constexpr (n % kPerLine == 0) hwy::Prefetch(to + r * stride + n * kStep);
    });
  }
  // Adds the outer product of column k of left with a row of right.
  HWY_INLINE void add(const Left<kRows>& left, int64_t k, const float* right) {
    V values[kVectors];
    unroll<kVectors>([&](auto n) NXD_INLINE_LAMBDA { values[n] = load_full(right + n * kStep); });
    unroll<kRows>([&](auto r) NXD_INLINE_LAMBDA {
      const V factor = set(left.template at<r>(k));
      unroll<kVectors>(
          [&](auto n) NXD_INLINE_LAMBDA { Words::multiply_add(factor, values[n], sum[r][n]); });
    });
  }
};

// to [kRows, kVectors vectors] += left [kRows, depth] right [depth, kVectors vectors], with right
// dense. The product is summed by itself, since short sums round less than one long one.
template <class Words, int kRows, int kVectors>
HWY_INLINE void add_product(const float* left, int64_t row, int64_t column, const float* right,
                            int64_t depth, float* to, int64_t to_stride) {
  const Left<kRows> a(left, row, column);
  Tile<Words, kRows, kVectors> tile;
  tile.prefetch(to, to_stride);
  tile.clear();
  NXD_UNROLL
  for (int64_t k = 0; k < depth; ++k) tile.add(a, k, right + k * kVectors * kStep);
  tile.add_to(to, to_stride);
}

// body(first column, vectors) over the columns of rows of that width: whole panels, and what is
// left of them.
template <class Body>
HWY_INLINE void each_chunk(int64_t width, const Body& body) {
  int64_t column = 0;
  for (; column + kPanel <= width; column += kPanel) {
    body(column, std::integral_constant<int, 2>{});
  }
  if (column < width) body(column, std::integral_constant<int, 1>{});
}

// Pairs of rows from this one on in a panel of columns, where there are `all` pairs.
template <class Vectors>
HWY_INLINE int64_t place_in_panels(int64_t all, int64_t column, Vectors vectors, int64_t pair) {
  return column * all + pair * vectors() * kStep;
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
