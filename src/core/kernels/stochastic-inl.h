// Stochastic rounding in vectors, compiled once per Highway target; hence no plain
// include guard.
#if defined(NXD_STOCHASTIC_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NXD_STOCHASTIC_INL_H
#undef NXD_STOCHASTIC_INL_H
#else
#define NXD_STOCHASTIC_INL_H
#endif

#include <algorithm>

#include "core/kernels/philox-inl.h"
#include "core/kernels/stochastic_rounding.h"
#include "core/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

using Words = hn::RebindToUnsigned<D>;

constexpr int64_t kWordsOfBlock = 8;  // of 16 bits
constexpr int64_t kRandomRun = 1024;  // elements whose words are drawn at a time

// The 16-bit words of a run of elements.
class RandomRun {
 public:
  HWY_INLINE void draw(const RandomSite& site, uint64_t first, int64_t count) {
    const uint64_t block = first / kWordsOfBlock;
    skip_ = static_cast<int64_t>(first % kWordsOfBlock);
    const int64_t blocks = (skip_ + count + kWordsOfBlock - 1) / kWordsOfBlock;
    const auto step = static_cast<int64_t>(hn::Lanes(Pairs()));
    for (int64_t i = 0; i < blocks; i += step) {
      store_philox_blocks(site, block + static_cast<uint64_t>(i), buffer_ + 2 * i);
    }
  }
  // Words of the elements i, i + 1, ... of the run; beyond its end any bits.
  HWY_INLINE hn::Vec<Words> at(int64_t i) const {
    const hn::Rebind<uint16_t, D> narrow;
    const auto* words = reinterpret_cast<const uint16_t*>(buffer_) + skip_ + i;
    return hn::PromoteTo(Words(), hn::LoadU(narrow, words));
  }

 private:
  // Room for a run that starts within a block, for the last vector of blocks, and for the last
  // vector of words.
  uint64_t buffer_[2 * (kRandomRun / kWordsOfBlock + 1) + 4 * hn::MaxLanes(Pairs())];
  int64_t skip_ = 0;
};

// body(i, lanes, words) for the elements begin ... end in vector steps, as sweep.
template <class Body>
HWY_INLINE void sweep_random(const RoundingSource& source, int64_t begin, int64_t end,
                             const Body& body) {
  RandomRun run;
  const int64_t cols = source.cols == 0 ? end : source.cols;
  for (int64_t i = begin; i < end;) {
    const int64_t row = i / cols, col = i % cols;
    const int64_t count = std::min({end - i, cols - col, kRandomRun});
    run.draw(source.site, source.first + static_cast<uint64_t>(row * source.row_stride + col),
             count);
    sweep(count, [&](int64_t j, auto lanes) HWY_ATTR { body(i + j, lanes, run.at(j)); });
    i += count;
  }
}

// As round_stochastic, into the first lanes.count() elements at p.
template <class LanesOf>
HWY_INLINE void store_stochastic(V v, hn::Vec<Words> random, LanesOf lanes, Bf16* p) {
  const Words wide;
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::BitCast(wide, v), random));
  const auto nan = hn::RebindMask(wide, hn::IsNaN(v));
  const auto bits = hn::IfThenElse(nan, hn::Set(wide, 0x7FC0U), rounded);
  lanes.store(hn::BitCast(kD, hn::ShiftLeft<16>(bits)), p);
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
