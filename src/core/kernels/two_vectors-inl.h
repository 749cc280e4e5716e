// Sweeps that take two vectors of elements at a time, compiled once per Highway target; hence no
// plain include guard.
#if defined(NXD_TWO_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NXD_TWO_VECTORS_INL_H
#undef NXD_TWO_VECTORS_INL_H
#else
#define NXD_TWO_VECTORS_INL_H
#endif

#include <hwy/highway.h>

#include "core/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

// Vectors of the elements that one load takes.
template <int kCount>
struct Group {
  V v[kCount];
};

#if HWY_TARGET != HWY_SCALAR
// bf16 elements taken two by two: a vector of them holds the even ones in the lower halves of its
// words and the odd ones in the upper halves, which is where f32 has them. Widening and narrowing
// so needs no shuffles across lanes. (Vectors of the scalar target are one word long.)
constexpr hn::RebindToUnsigned<D> kWords{};
constexpr hn::Repartition<uint16_t, D> kHalves{};
using Words = hn::Vec<hn::RebindToUnsigned<D>>;
using Halves = hn::Vec<hn::Repartition<uint16_t, D>>;

// The even elements and the odd ones.
HWY_INLINE Group<2> widened(Halves halves) {
  const auto bits = hn::BitCast(kWords, halves);
  return {{hn::BitCast(kD, hn::ShiftLeft<16>(bits)),
           hn::BitCast(kD, hn::And(bits, hn::Set(kWords, 0xFFFF0000U)))}};
}
HWY_INLINE Halves load_halves(const uint16_t* p) { return hn::LoadU(kHalves, p); }

// The upper, or the lower, halves of all words of both, those of odd in the upper halves.
#if HWY_TARGET <= HWY_AVX3
// One masked shuffle each; GCC 12 makes none of Highway's shuffle and blend.
HWY_INLINE __m512i swapped_where(__mmask64 is_moved, Words moved, Words kept) {
  const __m512i swap = _mm512_set4_epi32(0x0D0C0F0E, 0x09080B0A, 0x05040706, 0x01000302);
  return _mm512_mask_shuffle_epi8(kept.raw, is_moved, moved.raw, swap);
}
HWY_INLINE Halves upper_halves(Words odd, Words even) {
  return Halves{swapped_where(0x3333333333333333U, even, odd)};
}
HWY_INLINE Halves lower_halves(Words odd, Words even) {
  return Halves{swapped_where(0xCCCCCCCCCCCCCCCCU, odd, even)};
}
#else
HWY_INLINE Halves upper_halves(Words odd, Words even) {
  return hn::OddEven(hn::BitCast(kHalves, odd), hn::BitCast(kHalves, hn::ShiftRight<16>(even)));
}
HWY_INLINE Halves lower_halves(Words odd, Words even) {
  return hn::OddEven(hn::BitCast(kHalves, hn::ShiftLeft<16>(odd)), hn::BitCast(kHalves, even));
}
#endif

// Rounds all upper halves at once: up, where the lower half is more than the middle, or is the
// middle and the upper half is odd. NaNs whose lower halves are 0 stay as they are: those that come
// from bf16, and those that arithmetic makes.
HWY_INLINE Halves narrowed(V even_values, V odd_values) {
  const auto even = hn::BitCast(kWords, even_values);
  const auto odd = hn::BitCast(kWords, odd_values);
  const auto upper = upper_halves(odd, even);
  const auto lower = lower_halves(odd, even);
  const auto one = hn::Set(kHalves, uint16_t{1});
  const auto up = hn::Gt(hn::OrAnd(lower, upper, one), hn::Set(kHalves, uint16_t{0x8000}));
#if HWY_TARGET <= HWY_AVX3
  return hn::IfThenElse(up, hn::Add(upper, one), upper);
#else
  return hn::Sub(upper, hn::VecFromMask(kHalves, up));
#endif
}

HWY_INLINE bool has_nan(V a, V b) {
#if HWY_TARGET <= HWY_AVX3
  return _mm512_cmp_ps_mask(a.raw, b.raw, _CMP_UNORD_Q) != 0;
#else
  return !hn::AllFalse(kD, hn::Or(hn::IsNaN(a), hn::IsNaN(b)));
#endif
}
// With every NaN the one that to_bf16 gives.
HWY_INLINE V with_one_nan(V v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(kD, hn::Set(kWords, 0x7FC00000U)), v);
}

// The even and the odd elements of two vectors.
struct EvenAndOdd {
  static HWY_INLINE Group<2> load(const float* p) {
    Group<2> group;
    hn::LoadInterleaved2(kD, p, group.v[0], group.v[1]);
    return group;
  }
  static HWY_INLINE Group<2> load(const Bf16* p) {
    return widened(load_halves(reinterpret_cast<const uint16_t*>(p)));
  }
  static HWY_INLINE void store(const Group<2>& group, float* p) {
    hn::StoreInterleaved2(group.v[0], group.v[1], kD, p);
  }
  // Rounds as to_bf16 does.
  static HWY_INLINE void store(Group<2> group, Bf16* p) {
    if (HWY_UNLIKELY(has_nan(group.v[0], group.v[1]))) {
      group = {{with_one_nan(group.v[0]), with_one_nan(group.v[1])}};
    }
    hn::StoreU(narrowed(group.v[0], group.v[1]), kHalves, reinterpret_cast<uint16_t*>(p));
  }
};
#endif

// One vector and the next.
struct Neighbours {
  template <class T>
  static HWY_INLINE Group<2> load(const T* p) {
    return {{load_full(p), load_full(p + kLanes)}};
  }
  template <class T>
  static HWY_INLINE void store(const Group<2>& group, T* p) {
    store_full(group.v[0], p);
    store_full(group.v[1], p + kLanes);
  }
};

// Loads and stores the elements of two vectors, of any array of a sweep in the same order.
template <class Order>
struct TwoVectors {
  static constexpr int kVectors = 2;
  template <class T>
  HWY_INLINE Group<2> load(const T* p) const {
    return Order::load(p);
  }
  template <class T>
  HWY_INLINE void store(const Group<2>& group, T* p) const {
    Order::store(group, p);
  }
  HWY_INLINE V fill(V v, float) const { return v; }
};

#if HWY_TARGET == HWY_SCALAR
template <class T>
using TwoVectorsOf = TwoVectors<Neighbours>;
#else
template <class T>
using TwoVectorsOf =
    TwoVectors<std::conditional_t<std::is_same_v<T, Bf16>, EvenAndOdd, Neighbours>>;
#endif

// The same for one vector, through FullLanes or FirstLanes.
template <class Lanes>
struct OneVector {
  static constexpr int kVectors = 1;
  Lanes lanes;
  template <class T>
  HWY_INLINE Group<1> load(const T* p) const {
    return {{lanes.load(p)}};
  }
  template <class T>
  HWY_INLINE void store(const Group<1>& group, T* p) const {
    lanes.store(group.v[0], p);
  }
  HWY_INLINE V fill(V v, float value) const { return lanes.fill(v, value); }
};

// function(a vector of each group), as a group.
template <class Function, int kCount, class... Other>
HWY_INLINE Group<kCount> each(const Function& function, const Group<kCount>& first,
                              const Other&... others) {
  if constexpr (kCount == 1) {
    return {{function(first.v[0], others.v[0]...)}};
  } else {
    return {{function(first.v[0], others.v[0]...), function(first.v[1], others.v[1]...)}};
  }
}

// body(index, lanes) for 0 ... n, two vectors at a time while there are as many. T: the elements of
// most arrays, by which two vectors are ordered.
template <class T, class Body>
HWY_INLINE void sweep_two(int64_t n, const Body& body) {
  constexpr auto kStep = static_cast<int64_t>(kLanes);
  int64_t i = 0;
  for (; i + 2 * kStep <= n; i += 2 * kStep) body(i, TwoVectorsOf<T>{});
  for (; i + kStep <= n; i += kStep) body(i, OneVector<FullLanes>{});
  if (i < n) body(i, OneVector<FirstLanes>{{static_cast<size_t>(n - i)}});
}

// The same for reductions: body(part, index, lanes), where accumulators part and part + 1 are those
// of a group's vectors.
template <class T, class Body>
HWY_INLINE void sweep_two_sums(int64_t n, const Body& body) {
  constexpr auto kStep = static_cast<int64_t>(kLanes);
  int64_t i = 0;
  for (; i + 4 * kStep <= n; i += 4 * kStep) {
    body(std::integral_constant<int, 0>{}, i, TwoVectorsOf<T>{});
    body(std::integral_constant<int, 2>{}, i + 2 * kStep, TwoVectorsOf<T>{});
  }
  for (; i + kStep <= n; i += kStep) {
    body(std::integral_constant<int, 0>{}, i, OneVector<FullLanes>{});
  }
  if (i < n) {
    body(std::integral_constant<int, 1>{}, i, OneVector<FirstLanes>{{static_cast<size_t>(n - i)}});
  }
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
