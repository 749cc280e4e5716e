#include "core/kernels/attention_pack.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/base/round_up.h"
#include "core/kernels/bf16.h"
#include "core/kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/attention_pack.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/kernels/attention_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

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
  const int64_t all = round_up(rows, kTileKeys);
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

// Columns of a row in words of f32: those that are there, and zeros.
template <class T>
HWY_INLINE void pack_columns(const T* from, int64_t used, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kStep <= used; i += kStep) store_full(load_full(from + i), to + i);
  for (; i < count; ++i) {
    if constexpr (std::is_same_v<T, Bf16>) {
      to[i] = i < used ? to_float(from[i]) : 0;
    } else {
      to[i] = i < used ? from[i] : 0;
    }
  }
}

// Row i of a matrix, or null past its last.
template <class T>
HWY_INLINE const T* source_row(const SourceRows& from, int64_t i) {
  return i < from.rows ? static_cast<const T*>(from.data) + i * from.row_stride : nullptr;
}

// Rows of f32, or of bf16 that is widened, to words of f32.
void pack_float_rows(const SourceRows& from, int64_t padded_rows, float* to) {
  const int64_t width = round_up(from.dims, kTileDims);
  with_dtype(from.dtype, [&](auto element) HWY_ATTR {
    for (int64_t r = 0; r < padded_rows; ++r) {
      const auto* row = source_row<decltype(element)>(from, r);
      pack_columns(row, row ? from.dims : 0, width, to + r * width);
    }
  });
}

// Pairs of bf16, so many words, a multiple of eight.
HWY_INLINE void copy_words(const Bf16* from, int64_t count, float* to) {
  const hn::CappedTag<float, 8> words;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::MaxLanes(words))) {
    hn::StoreU(hn::LoadU(words, reinterpret_cast<const float*>(from) + i), words, to + i);
  }
}

// Rows of bf16 to words of pairs.
void pack_bf16_rows(const SourceRows& from, int64_t padded_rows, float* to) {
  const auto bytes = [](int64_t numbers) { return static_cast<size_t>(numbers) * sizeof(Bf16); };
  const size_t row_bytes = bytes(round_up(from.dims, kTileDims)), used = bytes(from.dims);
  const auto words = static_cast<int64_t>(row_bytes / sizeof(float));
  for (int64_t r = 0; r < padded_rows; ++r, to += words) {
    const Bf16* source = source_row<Bf16>(from, r);
    if (source && used == row_bytes) {
      copy_words(source, words, to);
      continue;
    }
    const size_t count = source ? used : 0;
    if (count > 0) std::memcpy(to, source, count);
    std::memset(reinterpret_cast<char*>(to) + count, 0, row_bytes - count);
  }
}

void PackRows(const SourceRows& from, int64_t padded_rows, float* to) {
  if (from.tile_dtype == NXD_DTYPE_F32) {
    pack_float_rows(from, padded_rows, to);
  } else {
    pack_bf16_rows(from, padded_rows, to);
  }
}

// Pairs of bf16: those of the even row, or null, are the lower halves of words.
HWY_INLINE void pair_columns(const Bf16* even, const Bf16* odd, int64_t used, int64_t count,
                             float* to) {
  const hn::RebindToUnsigned<D> words;
  const auto promoted = [&](const Bf16* from) HWY_ATTR {
    const hn::Rebind<uint16_t, D> halves;
    return hn::PromoteTo(words, hn::LoadU(halves, reinterpret_cast<const uint16_t*>(from)));
  };
  int64_t d = 0;
  if (odd) {
    for (; d + kStep <= used; d += kStep) {
      const auto pairs = hn::Or(promoted(even + d), hn::ShiftLeft<16>(promoted(odd + d)));
      store_full(hn::BitCast(kD, pairs), to + d);
    }
  }
  for (; d < count; ++d) {
    const uint32_t low = even && d < used ? even[d].bits : 0;
    const uint32_t high = odd && d < used ? odd[d].bits : 0;
    const uint32_t word = low | high << 16;
    std::memcpy(to + d, &word, sizeof(word));
  }
}

void PackRowPairs(const SourceRows& from, int64_t padded_rows, int64_t first_pair,
                  int64_t all_pairs, float* to) {
  const int64_t width = round_up(from.dims, kTileDims), pack = words_pack(from.tile_dtype);
  with_dtype(from.dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    for (int64_t r = 0; r < padded_rows; r += pack) {
      const T* first = source_row<T>(from, r);
      const T* second = pack == 2 ? source_row<T>(from, r + 1) : nullptr;
      each_chunk(width, [&](int64_t column, auto vectors) HWY_ATTR {
        const int64_t count = vectors() * kStep;
        const int64_t used = std::clamp<int64_t>(from.dims - column, 0, count);
        float* place = to + place_in_panels(all_pairs, column, vectors, first_pair + r / pack);
        const auto part = [&](const T* row) { return row ? row + column : nullptr; };
        if (pack == 1) {
          pack_columns(part(first), first ? used : 0, count, place);
        } else if constexpr (std::is_same_v<T, Bf16>) {
          pair_columns(part(first), part(second), used, count, place);
        }
      });
    }
  });
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(PackPanels);
HWY_EXPORT(PackRows);
HWY_EXPORT(PackRowPairs);

}  // namespace

void pack_rows(const SourceRows& from, int64_t padded_rows, float* to) {
  HWY_DYNAMIC_DISPATCH(PackRows)(from, padded_rows, to);
}

void pack_row_pairs(const SourceRows& from, int64_t padded_rows, int64_t first_pair,
                    int64_t all_pairs, float* to) {
  HWY_DYNAMIC_DISPATCH(PackRowPairs)(from, padded_rows, first_pair, all_pairs, to);
}

void pack_panels(const float* from, int64_t row_stride, int64_t rows, int64_t depth, float* to) {
  HWY_DYNAMIC_DISPATCH(PackPanels)(from, row_stride, rows, depth, to);
}

}  // namespace nxd::kernels
#endif
