// Random words in vectors, compiled once per Highway target; hence no plain include guard.
#if defined(NXD_PHILOX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NXD_PHILOX_INL_H
#undef NXD_PHILOX_INL_H
#else
#define NXD_PHILOX_INL_H
#endif

#include <hwy/highway.h>

#include "core/base/philox.h"

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Pairs = hn::ScalableTag<uint64_t>;

using PairsVector = hn::Vec<Pairs>;

// The Philox blocks first, first + 1, ... of a site, as many as a vector has 64-bit lanes: front
// has the words 0 and 1 of each, back the words 2 and 3, the earlier word in the lower half.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void philox_blocks(const RandomSite& site, uint64_t first, PairsVector& front,
                              PairsVector& back) {
  const auto low = [](uint64_t value) { return static_cast<uint32_t>(value); };
  const auto words = philox4x32_10(
      {low(first), low(first >> 32), low(site.draw()), low(site.draw() >> 32)}, site.key());
  front = hn::Set(Pairs(), words[0] | uint64_t{words[1]} << 32);
  back = hn::Set(Pairs(), words[2] | uint64_t{words[3]} << 32);
}
#else
HWY_INLINE void philox_blocks(const RandomSite& site, uint64_t first, PairsVector& front,
                              PairsVector& back) {
  const Pairs pairs;
  const hn::Repartition<uint32_t, Pairs> words;
  const auto word = [&](uint32_t value) HWY_ATTR { return hn::Set(pairs, uint64_t{value}); };
  const auto number = hn::Add(hn::Set(pairs, first), hn::Iota(pairs, uint64_t{0}));
  const uint64_t draw = site.draw();
  // Words lie in the lower halves of the lanes; what gathers in the upper ones is never read.
  auto c0 = number;
  auto c1 = hn::ShiftRight<32>(number);
  auto c2 = hn::Set(pairs, draw);
  auto c3 = hn::Set(pairs, draw >> 32);
  auto key = site.key();
  const auto times = [&](auto value, uint32_t factor) HWY_ATTR {
    return hn::MulEven(hn::BitCast(words, value), hn::BitCast(words, word(factor)));
  };
  for (int round = 0; round < 10; ++round) {
    const auto a = times(c0, 0xD2511F53U);
    const auto b = times(c2, 0xCD9E8D57U);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(b), c1), word(key[0]));
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(a), c3), word(key[1]));
    c1 = b;
    c3 = a;
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  const auto low = hn::Set(pairs, uint64_t{0xFFFFFFFFU});
  front = hn::Or(hn::And(c0, low), hn::ShiftLeft<32>(c1));
  back = hn::Or(hn::And(c2, low), hn::ShiftLeft<32>(c3));
}
#endif

// The same in memory order, four 32-bit words a block.
HWY_INLINE void store_philox_blocks(const RandomSite& site, uint64_t first, uint64_t* out) {
  PairsVector front, back;
  philox_blocks(site, first, front, back);
#if HWY_TARGET == HWY_SCALAR
  hn::StoreU(front, Pairs(), out);
  hn::StoreU(back, Pairs(), out + 1);
#else
  hn::StoreInterleaved2(front, back, Pairs(), out);
#endif
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
