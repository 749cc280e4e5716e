#include "core/kernels/dropout.h"

#include <algorithm>

#include "core/kernels/parallel.h"
#include "core/kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/dropout.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/kernels/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

constexpr int64_t kWordsOfPhilox = 4;  // of 32 bits, in a block
constexpr int64_t kWordsAtATime = 512;

// body(i, words, count) for parts of count elements, from the i-th on, with their words.
template <class Body>
HWY_INLINE void each_words(const RandomSite& site, uint64_t first, int64_t count,
                           const Body& body) {
  const auto step = static_cast<int64_t>(hn::Lanes(Pairs()));
  // Room for words before the first, and for those after the last of a vector of blocks.
  uint64_t buffer[kWordsAtATime / 2 + 2 + 4 * hn::MaxLanes(Pairs())];
  for (int64_t i = 0; i < count;) {
    const uint64_t number = first + static_cast<uint64_t>(i);
    const auto skip = static_cast<int64_t>(number % kWordsOfPhilox);
    const int64_t part = std::min(count - i, kWordsAtATime - skip);
    const int64_t blocks = (skip + part + kWordsOfPhilox - 1) / kWordsOfPhilox;
    for (int64_t b = 0; b < blocks; b += step) {
      store_philox_blocks(site, number / kWordsOfPhilox + static_cast<uint64_t>(b), buffer + 2 * b);
    }
    body(i, reinterpret_cast<const uint32_t*>(buffer) + skip, part);
    i += part;
  }
}

// out[j] = value where the word lies below the bound, else 0.
template <class T>
HWY_INLINE void write_kept(const uint32_t* words, int64_t count, uint64_t bound, T value, T* out) {
  const hn::ScalableTag<uint32_t> wide;
  const hn::Rebind<T, decltype(wide)> narrow;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  const auto last = hn::Set(wide, static_cast<uint32_t>(bound - 1));
  int64_t j = 0;
  for (; bound > 0 && j + step <= count; j += step) {
    const auto word = hn::LoadU(wide, words + j);
    const auto kept = hn::VecFromMask(wide, hn::Eq(hn::Min(word, last), word));
    if constexpr (sizeof(T) == 1) {
      const auto ones = hn::ShiftRight<31>(kept);
      hn::StoreU(hn::TruncateTo(narrow, ones), narrow, out + j);
    } else {
      hn::StoreU(hn::And(hn::BitCast(narrow, kept), hn::Set(narrow, value)), narrow, out + j);
    }
  }
  for (; j < count; ++j) out[j] = words[j] < bound ? value : T{0};
}

void DrawKept(const RandomSite& site, uint64_t first, int64_t count, uint64_t bound, uint8_t* out) {
  each_words(site, first, count, [&](int64_t i, const uint32_t* words, int64_t n) HWY_ATTR {
    write_kept(words, n, bound, uint8_t{1}, out + i);
  });
}

void DrawKeptFactors(const RandomSite& site, uint64_t first, int64_t count, uint64_t bound,
                     float factor, float* out) {
  each_words(site, first, count, [&](int64_t i, const uint32_t* words, int64_t n) HWY_ATTR {
    write_kept(words, n, bound, factor, out + i);
  });
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(DrawKept);
HWY_EXPORT(DrawKeptFactors);

}  // namespace

void draw_kept(const RandomSite& site, uint64_t first, int64_t count, double keep, uint8_t* out) {
  constexpr int64_t kElementsAtATime = 1 << 14, kWorkOfAnElement = 4;
  const uint64_t bound = RandomSite::bernoulli_bound(keep);
  const int64_t parts = (count + kElementsAtATime - 1) / kElementsAtATime;
  parallel_ranges(parts, kElementsAtATime * kWorkOfAnElement, [&](int64_t begin, int64_t end) {
    const int64_t from = begin * kElementsAtATime, to = std::min(end * kElementsAtATime, count);
    HWY_DYNAMIC_DISPATCH(DrawKept)
    (site, first + static_cast<uint64_t>(from), to - from, bound, out + from);
  });
}

void draw_kept_factors(const RandomSite& site, uint64_t first, int64_t count, double keep,
                       float* out) {
  HWY_DYNAMIC_DISPATCH(DrawKeptFactors)
  (site, first, count, RandomSite::bernoulli_bound(keep), static_cast<float>(1.0 / keep), out);
}

}  // namespace nxd::kernels
#endif
