// Helpers of the vector kernels, compiled once per Highway target; hence no plain include guard.
#if defined(NXD_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NXD_VECTOR_INL_H
#undef NXD_VECTOR_INL_H
#else
#define NXD_VECTOR_INL_H
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/base/dtype.h"
#include "core/kernels/bf16.h"

// For lambdas that a loop calls more than once, which GCC would not inline by itself: each call
// would load the constants again.
#undef NXD_INLINE_LAMBDA
#define NXD_INLINE_LAMBDA HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr D kD{};
constexpr size_t kLanes = hn::MaxLanes(kD);

HWY_INLINE V set(float value) { return hn::Set(kD, value); }

HWY_INLINE V load_full(const float* p) { return hn::LoadU(kD, p); }

HWY_INLINE V load_full(const Bf16* p) {
  const hn::Rebind<uint16_t, D> narrow;
  const hn::RebindToUnsigned<D> wide;
  const auto bits = hn::PromoteTo(wide, hn::LoadU(narrow, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(kD, hn::ShiftLeft<16>(bits));
}

HWY_INLINE void store_full(V v, float* p) { hn::StoreU(v, kD, p); }

// Rounds as to_bf16 does.
HWY_INLINE void store_full(V v, Bf16* p) {
  const hn::Rebind<uint16_t, D> narrow;
  const hn::RebindToUnsigned<D> wide;
  const auto bits = hn::BitCast(wide, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1U));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(wide, 0x7FFFU)), odd));
  const auto result =
      hn::IfThenElse(hn::RebindMask(wide, hn::IsNaN(v)), hn::Set(wide, 0x7FC0U), rounded);
  hn::StoreU(hn::TruncateTo(narrow, result), narrow, reinterpret_cast<uint16_t*>(p));
}

// Ways to load and store one vector of elements: all lanes, or the first count of them. The latter
// touches no memory past them, and further lanes load as 0.
struct FullLanes {
  static constexpr bool kFull = true;
  size_t count() const { return kLanes; }
  template <class T>
  HWY_INLINE V load(const T* p) const {
    return load_full(p);
  }
  template <class T>
  HWY_INLINE void store(V v, T* p) const {
    store_full(v, p);
  }
  // Lanes that are not there become value.
  HWY_INLINE V fill(V v, float) const { return v; }
};

struct FirstLanes {
  static constexpr bool kFull = false;
  size_t lanes;
  size_t count() const { return lanes; }
  template <class T>
  HWY_INLINE V load(const T* p) const {
    T buffer[kLanes] = {};
    std::memcpy(buffer, p, lanes * sizeof(T));
    return load_full(buffer);
  }
  template <class T>
  HWY_INLINE void store(V v, T* p) const {
    T buffer[kLanes];
    store_full(v, buffer);
    std::memcpy(p, buffer, lanes * sizeof(T));
  }
  HWY_INLINE V fill(V v, float value) const {
    return hn::IfThenElse(hn::FirstN(kD, lanes), v, set(value));
  }
};

// body(index, lanes) for 0 ... n in vector steps, the last with FirstLanes.
template <class Body>
HWY_INLINE void sweep(int64_t n, const Body& body) {
  constexpr auto kStep = static_cast<int64_t>(kLanes);
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) body(i, FullLanes{});
  if (i < n) body(i, FirstLanes{static_cast<size_t>(n - i)});
}

// The same with four accumulators, for reductions: body(accumulator, index, lanes).
struct Accumulators {
  V v[4];
  HWY_INLINE explicit Accumulators(float value)
      : v{set(value), set(value), set(value), set(value)} {}
  HWY_INLINE float sum() const {
    const V all = hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3]));
    return hn::GetLane(hn::SumOfLanes(kD, all));
  }
  HWY_INLINE float max() const {
    const V all = hn::Max(hn::Max(v[0], v[1]), hn::Max(v[2], v[3]));
    return hn::GetLane(hn::MaxOfLanes(kD, all));
  }
};

// body(part, index, lanes): part 0 ... 3 says which accumulator to use, a compile-time constant.
template <class Body>
HWY_INLINE void sweep4(int64_t n, const Body& body) {
  constexpr auto kStep = static_cast<int64_t>(kLanes);
  int64_t i = 0;
  for (; i + 4 * kStep <= n; i += 4 * kStep) {
    body(std::integral_constant<int, 0>{}, i, FullLanes{});
    body(std::integral_constant<int, 1>{}, i + kStep, FullLanes{});
    body(std::integral_constant<int, 2>{}, i + 2 * kStep, FullLanes{});
    body(std::integral_constant<int, 3>{}, i + 3 * kStep, FullLanes{});
  }
  for (; i + kStep <= n; i += kStep) body(std::integral_constant<int, 0>{}, i, FullLanes{});
  if (i < n) {
    body(std::integral_constant<int, 1>{}, i, FirstLanes{static_cast<size_t>(n - i)});
  }
}

// The polynomials of 2^x that have the least relative error for |x| <= 1/2 among those of their
// degree (by Remez' exchange): 2e-9 and 3e-6.
template <int kDegree>
HWY_INLINE V exp2_polynomial(V x) {
  static_assert(kDegree == 6 || kDegree == 4);
  V p;
  if constexpr (kDegree == 6) {
    p = hn::MulAdd(set(1.534581243e-04F), x, set(1.339993090e-03F));
    p = hn::MulAdd(p, x, set(9.618489072e-03F));
    p = hn::MulAdd(p, x, set(5.550328642e-02F));
    p = hn::MulAdd(p, x, set(2.402264625e-01F));
    p = hn::MulAdd(p, x, set(6.931471825e-01F));
    return hn::MulAdd(p, x, set(1.0F));
  }
  p = hn::MulAdd(set(9.570102207e-03F), x, set(5.591786280e-02F));
  p = hn::MulAdd(p, x, set(2.402474433e-01F));
  p = hn::MulAdd(p, x, set(6.931217909e-01F));
  return hn::MulAdd(p, x, set(9.999992847e-01F));
}

// 2^x for x of at most 127: with degree 6 within two units in the last place, with degree 4 within
// 3e-6, which is what bf16 needs; 0 below the smallest normal number, NaN for NaN.
template <int kDegree>
HWY_INLINE V exp2_below(V x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  V rest, power;
  rest.raw = _mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEAREST_INT);
  const V p = exp2_polynomial<kDegree>(rest);
  const __mmask16 normal = _mm512_cmp_ps_mask(x.raw, set(-126.0F).raw, _CMP_NLT_UQ);
  power.raw = _mm512_maskz_scalef_ps(normal, p.raw, hn::Sub(x, rest).raw);
  return power;
#else
  // Adding 1.5 * 2^23 rounds to an integer, and the 127 added with it is the exponent's bias.
  const V magic = set(12582912.0F + 127.0F);
  const V shifted = hn::Add(x, magic);
  const V p = exp2_polynomial<kDegree>(hn::Sub(x, hn::Sub(shifted, magic)));
  const hn::RebindToUnsigned<D> words;
  const V power = hn::BitCast(kD, hn::ShiftLeft<23>(hn::BitCast(words, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, set(-126.0F)), hn::Mul(p, power));
#endif
}

// A whole number near x in f32, n, and bits that are 2^n's exponent when moved up by 23. Adding
// 1.5 * 2^23 rounds, and the 127 added with it is the exponent's bias.
struct Rounded {
  V n, shifted;
  HWY_INLINE Rounded(V x, float factor) {
    const V magic = set(12582912.0F + 127.0F);
    shifted = hn::MulAdd(x, set(factor), magic);
    n = hn::Sub(shifted, magic);
  }
  HWY_INLINE V power() const {
    const hn::RebindToUnsigned<D> words;
    return hn::BitCast(kD, hn::ShiftLeft<23>(hn::BitCast(words, shifted)));
  }
};

// exp(x), or exp(-x) if kNegated, for exponents from -87.336 to 88.37; infinity for exponents from
// 88.38 to 89, NaN for NaN. Other results have no meaning. For results of type T: with float within
// one unit in the last place where multiply-adds are fused, else 2e-7; with Bf16 within 4e-6.
template <class T, bool kNegated = false>
HWY_INLINE V exp_within(V x) {
  const float per_x = kNegated ? -1.44269504F : 1.44269504F;
  const Rounded rounded(x, per_x);
  if constexpr (std::is_same_v<T, Bf16>) {
    const V p = exp2_polynomial<4>(hn::MulSub(x, set(per_x), rounded.n));
    return hn::Mul(p, rounded.power());
  }
  // Reduction to |r| <= log(2)/2 as in Cephes' expf (Moshier, netlib.org/cephes), and the
  // polynomial 1 + r + r^2 q(r) of least relative error, 3e-9 (by Remez' exchange).
  const V large = set(0.693359375F);
  V r = kNegated ? hn::NegMulSub(rounded.n, large, x) : hn::NegMulAdd(rounded.n, large, x);
  r = hn::NegMulAdd(rounded.n, set(-2.12194440e-4F), r);
  V p = hn::MulAdd(set(1.381454008e-3F), r, set(8.368745108e-3F));
  p = hn::MulAdd(p, r, set(4.166839079e-2F));
  p = hn::MulAdd(p, r, set(1.666652040e-1F));
  p = hn::MulAdd(p, r, set(4.999999343e-1F));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), set(1.0F));
  return hn::Mul(p, rounded.power());
}

// exp(x) for x of at most 88.37; 0 below the smallest normal number, NaN for NaN.
template <class T>
HWY_INLINE V exp_below(V x) {
  return hn::IfThenZeroElse(hn::Lt(x, set(-87.336F)), exp_within<T>(x));
}

// 1 / x, and y / x; for results of type Bf16 within 6.2e-5 of them, where a processor is so quick.
template <class T>
HWY_INLINE V inverse(V x) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<T, Bf16>) return hn::ApproximateReciprocal(x);
#endif
  return hn::Div(set(1.0F), x);
}
template <class T>
HWY_INLINE V quotient(V y, V x) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<T, Bf16>) return hn::Mul(y, inverse<T>(x));
#endif
  return hn::Div(y, x);
}

// Calls body with a value of the element type of an F32 or BF16 dtype.
template <class Body>
HWY_INLINE void with_dtype(nxd_dtype_t dtype, const Body& body) {
  if (dtype == NXD_DTYPE_F32) {
    body(float{});
  } else if (dtype == NXD_DTYPE_BF16) {
    body(Bf16{});
  } else {
    fail(NXD_ERROR_INVALID_ARGUMENT, "dtype: expected f32 or bf16, got ", dtype_name(dtype));
  }
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
