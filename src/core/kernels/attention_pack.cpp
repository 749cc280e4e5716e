#include "core/kernels/attention_pack.h"

#include <algorithm>
#include <cstring>

#include "core/base/dtype.h"
#include "core/base/round_up.h"
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

// count numbers of f32's size, a multiple of eight.
HWY_INLINE void copy_words(const float* from, int64_t count, float* to) {
  const hn::CappedTag<float, 8> words;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::MaxLanes(words))) {
    hn::StoreU(hn::LoadU(words, from + i), words, to + i);
  }
}

void PackRows(const SourceRows& from, int64_t padded_rows, float* to) {
  const size_t size = dtype_size(from.dtype);
  const auto bytes = [size](int64_t numbers) { return static_cast<size_t>(numbers) * size; };
  const size_t row_bytes = bytes(round_up(from.dims, kTileDims)), used = bytes(from.dims);
  const auto words = static_cast<int64_t>(row_bytes / sizeof(float));
  for (int64_t r = 0; r < padded_rows; ++r, to += words) {
    const char* source = static_cast<const char*>(from.data) + bytes(r * from.row_stride);
    if (r < from.rows && used == row_bytes) {
      copy_words(reinterpret_cast<const float*>(source), words, to);
      continue;
    }
    const size_t count = r < from.rows ? used : 0;
    if (count > 0) std::memcpy(to, source, count);
    std::memset(reinterpret_cast<char*>(to) + count, 0, row_bytes - count);
  }
}

// Columns of a row of f32.
HWY_INLINE void pack_columns(const float* from, int64_t used, int64_t count, float* to) {
  if (used == count) {
    copy_words(from, count, to);
    return;
  }
  for (int64_t i = 0; i < count; ++i) to[i] = i < used ? from[i] : 0;
}

// Pairs of bf16: those of the even row, or null, are the lower halves of words.
HWY_INLINE void pair_columns(const uint16_t* even, const uint16_t* odd, int64_t used, int64_t count,
                             float* to) {
  const hn::RebindToUnsigned<D> words;
  const hn::Rebind<uint16_t, D> halves;
  int64_t d = 0;
  if (odd) {
    for (; d + kStep <= used; d += kStep) {
      const auto low = hn::PromoteTo(words, hn::LoadU(halves, even + d));
      const auto high = hn::PromoteTo(words, hn::LoadU(halves, odd + d));
      store_full(hn::BitCast(kD, hn::Or(low, hn::ShiftLeft<16>(high))), to + d);
    }
  }
  for (; d < count; ++d) {
    const uint32_t low = even && d < used ? even[d] : 0;
    const uint32_t high = odd && d < used ? odd[d] : 0;
    const uint32_t word = low | high << 16;
    std::memcpy(to + d, &word, sizeof(word));
  }
}

void PackRowPairs(const SourceRows& from, int64_t padded_rows, int64_t first_pair,
                  int64_t all_pairs, float* to) {
  const int64_t width = round_up(from.dims, kTileDims), pack = words_pack(from.dtype);
  for (int64_t r = 0; r < padded_rows; r += pack) {
    each_chunk(width, [&](int64_t column, auto vectors) HWY_ATTR {
      const int64_t count = vectors() * kStep;
      const int64_t used = std::clamp<int64_t>(from.dims - column, 0, count);
      float* place = to + place_in_panels(all_pairs, column, vectors, first_pair + r / pack);
      const auto row = [&](auto element, int64_t i) -> const decltype(element)* {
        if (i >= from.rows) return nullptr;
        return static_cast<const decltype(element)*>(from.data) + i * from.row_stride + column;
      };
      if (pack == 1) {
        const float* source = row(float{}, r);
        pack_columns(source, source ? used : 0, count, place);
      } else {
        pair_columns(row(uint16_t{}, r), row(uint16_t{}, r + 1), used, count, place);
      }
    });
  }
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
