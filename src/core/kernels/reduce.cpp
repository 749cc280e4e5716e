#include "core/kernels/reduce.h"

#include <cstring>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/kernels/parallel.h"
#include "core/kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/kernels/two_vectors-inl.h"
#include "core/kernels/vector-inl.h"

#ifndef NXD_REDUCE_TYPES
#define NXD_REDUCE_TYPES
namespace nxd::kernels {

// One IEEE half as it lies in memory.
struct F16 {
  uint16_t bits;
};

// Elements begin ... end of the arrays of one reduction.
struct ReduceStreams {
  const void* const* inputs;
  size_t n_inputs;
  void* const* outputs;
  size_t n_outputs;
  size_t begin, end;
  float divisor;  // 1: nothing is divided
};

}  // namespace nxd::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

// Pairs of bf16 elements, the even ones and the odd ones. A target whose vectors are one word long
// takes elements one by one.
struct PairVec {
  V even, odd;
};
#if HWY_TARGET == HWY_SCALAR
using Bf16Pairs = Bf16;
#else
struct Bf16Pairs {
  uint16_t bits;
};
#endif

// Vectors that elements of a type are accumulated in, and elements in one.
template <class T>
struct Accumulated {
  using Vec = hn::Vec<hn::ScalableTag<T>>;
  static constexpr size_t kStep = hn::MaxLanes(hn::ScalableTag<T>());
};
template <>
struct Accumulated<Bf16> : Accumulated<float> {};
template <>
struct Accumulated<F16> : Accumulated<float> {};
#if HWY_TARGET != HWY_SCALAR
template <>
struct Accumulated<Bf16Pairs> {
  using Vec = PairVec;
  static constexpr size_t kStep = 2 * kLanes;
};
#endif
template <class T>
using VecOf = typename Accumulated<T>::Vec;

// Highway emulates conversions of halves where the processor has none, but truncates instead of
// rounding and knows no infinities.
#if HWY_TARGET <= HWY_AVX2 || (HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64)
constexpr bool kConvertsF16 = true;
#else
constexpr bool kConvertsF16 = false;
#endif

HWY_INLINE V load_vector(const F16* p) {
  if constexpr (kConvertsF16) {
    const hn::Rebind<hwy::float16_t, D> narrow;
    return hn::PromoteTo(kD, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(p)));
  } else {
    float values[kLanes];
    for (size_t i = 0; i < kLanes; ++i) values[i] = f16_to_f32(p[i].bits);
    return hn::LoadU(kD, values);
  }
}
HWY_INLINE V load_vector(const Bf16* p) { return load_full(p); }
#if HWY_TARGET != HWY_SCALAR
HWY_INLINE PairVec load_vector(const Bf16Pairs* p) {
  const Group<2> group = widened(load_halves(reinterpret_cast<const uint16_t*>(p)));
  return {group.v[0], group.v[1]};
}
#endif
template <class T>
HWY_INLINE VecOf<T> load_vector(const T* p) {
  return hn::LoadU(hn::ScalableTag<T>(), p);
}

// The stored form of a vector of accumulated elements: rounded once, stored to every output.
struct F16Part {
  F16 values[kLanes];
};
HWY_INLINE auto pack(V v, const F16*) {
  if constexpr (kConvertsF16) {
    return hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v);
  } else {
    float values[kLanes];
    hn::StoreU(v, kD, values);
    [[maybe_unused]] F16Part part;  // GCC 12 sees no use of it where this branch is discarded
    for (size_t i = 0; i < kLanes; ++i) part.values[i].bits = f32_to_f16(values[i]);
    return part;
  }
}
// The bf16 nearest to each lane in the upper half of its word, as f32_to_bf16 rounds; what the
// lower half holds has no meaning.
HWY_INLINE auto rounded_words(V v) {
  const hn::RebindToUnsigned<D> words;
  const auto bits = hn::BitCast(words, v);
#if HWY_TARGET <= HWY_AVX3
  const auto down = hn::Add(bits, hn::Set(words, 0x7FFFU));
  const auto is_odd = hn::TestBit(bits, hn::Set(words, 0x10000U));
  const auto rounded = hn::IfThenElse(is_odd, hn::Add(down, hn::Set(words, 1U)), down);
#else
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1U));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(words, 0x7FFFU)), odd);
#endif
  return hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(v)), hn::Set(words, 0x7FC00000U), rounded);
}
HWY_INLINE auto pack(V v, const Bf16*) {
  const hn::Rebind<uint16_t, D> narrow;
  return hn::TruncateTo(narrow, hn::ShiftRight<16>(rounded_words(v)));
}
#if HWY_TARGET != HWY_SCALAR
HWY_INLINE Halves pack(const PairVec& v, const Bf16Pairs*) { return narrowed(v.even, v.odd); }
#endif
template <class T>
HWY_INLINE VecOf<T> pack(VecOf<T> v, const T*) {
  return v;
}

template <class Packed, class T>
HWY_INLINE void store_packed(const Packed& packed, T* p) {
  if constexpr (std::is_same_v<Packed, F16Part>) {
    std::memcpy(p, &packed, sizeof(packed));
  } else {
    const hn::DFromV<Packed> tag;
    hn::StoreU(packed, tag, reinterpret_cast<hn::TFromV<Packed>*>(p));
  }
}

struct Sum {
  template <class Vec>
  static HWY_INLINE Vec apply(Vec a, Vec b) {
    return hn::Add(a, b);
  }
};
struct Product {
  template <class Vec>
  static HWY_INLINE Vec apply(Vec a, Vec b) {
    return hn::Mul(a, b);
  }
};
// A NaN compares false with everything, and is kept or taken.
struct Maximum {
  template <class Vec>
  static HWY_INLINE Vec apply(Vec a, Vec b) {
    if constexpr (std::is_floating_point_v<hn::TFromV<Vec>>) {
      return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
    } else {
      return hn::Max(a, b);
    }
  }
};
struct Minimum {
  template <class Vec>
  static HWY_INLINE Vec apply(Vec a, Vec b) {
    if constexpr (std::is_floating_point_v<hn::TFromV<Vec>>) {
      return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
    } else {
      return hn::Min(a, b);
    }
  }
};
template <class Operation, class Vec>
HWY_INLINE Vec combine(const Vec& a, const Vec& b) {
  if constexpr (std::is_same_v<Vec, PairVec>) {
    return {Operation::apply(a.even, b.even), Operation::apply(a.odd, b.odd)};
  } else {
    return Operation::apply(a, b);
  }
}

template <class Vec>
HWY_INLINE Vec divide(const Vec& v, float divisor) {
  if constexpr (std::is_same_v<Vec, PairVec>) {
    return {hn::Div(v.even, set(divisor)), hn::Div(v.odd, set(divisor))};
  } else if constexpr (std::is_floating_point_v<hn::TFromV<Vec>>) {
    return hn::Div(v, hn::Set(hn::DFromV<Vec>(), static_cast<hn::TFromV<Vec>>(divisor)));
  } else {
    return v;
  }
}

// kVectors vectors from element i on. All inputs are read before an output is written, which may
// be one of them.
template <class In, class Out, class Operation, size_t kVectors>
HWY_INLINE void reduce_step(const ReduceStreams& s, size_t i) {
  constexpr size_t kStep = Accumulated<In>::kStep;
  VecOf<In> sum[kVectors];
  const In* first = static_cast<const In*>(s.inputs[0]) + i;
  for (size_t v = 0; v < kVectors; ++v) sum[v] = load_vector(first + v * kStep);
  for (size_t k = 1; k < s.n_inputs; ++k) {
    const In* next = static_cast<const In*>(s.inputs[k]) + i;
    for (size_t v = 0; v < kVectors; ++v) {
      sum[v] = combine<Operation>(sum[v], load_vector(next + v * kStep));
    }
  }
  if (s.divisor != 1.0F) {
    for (size_t v = 0; v < kVectors; ++v) sum[v] = divide(sum[v], s.divisor);
  }
  using Packed = decltype(pack(sum[0], static_cast<const Out*>(nullptr)));
  Packed packed[kVectors];
  for (size_t v = 0; v < kVectors; ++v) packed[v] = pack(sum[v], static_cast<const Out*>(nullptr));
  for (size_t k = 0; k < s.n_outputs; ++k) {
    Out* out = static_cast<Out*>(s.outputs[k]) + i;
    for (size_t v = 0; v < kVectors; ++v) store_packed(packed[v], out + v * kStep);
  }
}

// The last elements, fewer than a vector, by the same instructions as the others.
template <class In, class Out, class Operation>
HWY_INLINE void reduce_rest(const ReduceStreams& s, size_t i) {
  constexpr size_t kStep = Accumulated<In>::kStep;
  const size_t left = s.end - i;
  const auto load_part = [&](size_t k) HWY_ATTR {
    In part[kStep] = {};
    std::memcpy(part, static_cast<const In*>(s.inputs[k]) + i, left * sizeof(In));
    return load_vector(part);
  };
  VecOf<In> sum = load_part(0);
  for (size_t k = 1; k < s.n_inputs; ++k) sum = combine<Operation>(sum, load_part(k));
  if (s.divisor != 1.0F) sum = divide(sum, s.divisor);
  Out part[kStep];
  store_packed(pack(sum, static_cast<const Out*>(nullptr)), part);
  for (size_t k = 0; k < s.n_outputs; ++k) {
    std::memcpy(static_cast<Out*>(s.outputs[k]) + i, part, left * sizeof(Out));
  }
}

// All elements but the last, as many as fill vectors; gives the first that is left.
template <class In, class Out, class Operation>
HWY_INLINE size_t reduce_vectors(const ReduceStreams& s) {
  constexpr size_t kStep = Accumulated<In>::kStep;
  size_t i = s.begin;
  for (; i + 2 * kStep <= s.end; i += 2 * kStep) reduce_step<In, Out, Operation, 2>(s, i);
  for (; i + kStep <= s.end; i += kStep) reduce_step<In, Out, Operation, 1>(s, i);
  return i;
}

// The sum of kCount buffers where they lie, the commonest: with all of it known and the pointers in
// registers the loop takes less time, for two buffers by a quarter.
template <class T, size_t kCount>
HWY_INLINE size_t sum_in_place(const ReduceStreams& s) {
  const void* inputs[kCount];
  void* outputs[kCount];
  for (size_t k = 0; k < kCount; ++k) {
    inputs[k] = s.inputs[k];
    outputs[k] = s.outputs[k];
  }
  return reduce_vectors<T, T, Sum>({inputs, kCount, outputs, kCount, s.begin, s.end, 1.0F});
}

template <class In, class Out, class Operation>
HWY_INLINE size_t reduce_all_vectors(const ReduceStreams& s) {
  if constexpr (std::is_same_v<Operation, Sum> && std::is_same_v<In, Out>) {
    if (s.n_inputs == s.n_outputs && s.divisor == 1.0F) {
      if (s.n_inputs == 2) return sum_in_place<In, 2>(s);
      if (s.n_inputs == 3) return sum_in_place<In, 3>(s);
      if (s.n_inputs == 4) return sum_in_place<In, 4>(s);
    }
  }
  return reduce_vectors<In, Out, Operation>(s);
}

template <class In, class Out, class Operation>
HWY_NOINLINE void reduce_streams(const ReduceStreams& s) {
  const size_t rest = reduce_all_vectors<In, Out, Operation>(s);
  if (rest < s.end) reduce_rest<In, Out, Operation>(s, rest);
}

template <class In, class Out>
void reduce_as(nxd_reduce_t reduce, const ReduceStreams& s) {
  switch (reduce) {
    case NXD_REDUCE_MAX: return reduce_streams<In, Out, Maximum>(s);
    case NXD_REDUCE_MIN: return reduce_streams<In, Out, Minimum>(s);
    case NXD_REDUCE_PROD: return reduce_streams<In, Out, Product>(s);
    default: return reduce_streams<In, Out, Sum>(s);
  }
}

void ReduceToAll(nxd_dtype_t dtype, nxd_reduce_t reduce, const ReduceStreams& s) {
  switch (dtype) {
    case NXD_DTYPE_F32: return reduce_as<float, float>(reduce, s);
    case NXD_DTYPE_F64: return reduce_as<double, double>(reduce, s);
    case NXD_DTYPE_BF16: return reduce_as<Bf16Pairs, Bf16Pairs>(reduce, s);
    case NXD_DTYPE_F16: return reduce_as<F16, F16>(reduce, s);
    case NXD_DTYPE_I32: return reduce_as<int32_t, int32_t>(reduce, s);
    default: return reduce_as<int64_t, int64_t>(reduce, s);
  }
}

void ReduceToF32(nxd_dtype_t dtype, nxd_reduce_t reduce, const ReduceStreams& s) {
  switch (dtype) {
    case NXD_DTYPE_BF16: return reduce_as<Bf16, float>(reduce, s);
    case NXD_DTYPE_F16: return reduce_as<F16, float>(reduce, s);
    default: return reduce_as<float, float>(reduce, s);
  }
}

void RoundFromF32(nxd_dtype_t dtype, const ReduceStreams& s) {
  switch (dtype) {
    case NXD_DTYPE_BF16: return reduce_streams<float, Bf16, Sum>(s);
    case NXD_DTYPE_F16: return reduce_streams<float, F16, Sum>(s);
    default: return reduce_streams<float, float, Sum>(s);
  }
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(ReduceToAll);
HWY_EXPORT(ReduceToF32);
HWY_EXPORT(RoundFromF32);

template <class Body>
void for_ranges(size_t count, ReduceStreams streams, const Body& body) {
  const auto work = static_cast<int64_t>(streams.n_inputs + streams.n_outputs);
  parallel_ranges(static_cast<int64_t>(count), work, [&](int64_t begin, int64_t end) {
    ReduceStreams part = streams;
    part.begin = static_cast<size_t>(begin);
    part.end = static_cast<size_t>(end);
    body(part);
  });
}

void check_f32_form(nxd_dtype_t dtype) {
  check_argument(dtype == NXD_DTYPE_F32 || dtype_is_16_bit_float(dtype),
                 "dtype: expected f32, bf16 or f16 for a result in f32, got ", dtype_name(dtype));
}

}  // namespace

void reduce_to_all(const void* const* inputs, size_t n_inputs, void* const* outputs,
                   size_t n_outputs, size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce) {
  check_argument(dtype_is_float(dtype) || dtype == NXD_DTYPE_I32 || dtype == NXD_DTYPE_I64,
                 "dtype: expected f32, f64, bf16, f16, i32 or i64 for a reduction, got ",
                 dtype_name(dtype));
  check_argument(reduce >= NXD_REDUCE_SUM && reduce <= NXD_REDUCE_PROD,
                 "reduce: expected a reduction, got ", reduce);
  check_argument(reduce != NXD_REDUCE_AVG || dtype_is_float(dtype),
                 "reduce: expected floats for NXD_REDUCE_AVG, got ", dtype_name(dtype));
  check_argument(n_inputs > 0, "n_inputs: expected at least 1, got 0");
  const float divisor = reduce == NXD_REDUCE_AVG ? static_cast<float>(n_inputs) : 1.0F;
  for_ranges(count, {inputs, n_inputs, outputs, n_outputs, 0, 0, divisor},
             [&](const ReduceStreams& part) {
               HWY_DYNAMIC_DISPATCH(ReduceToAll)(dtype, reduce, part);
             });
}

void reduce_to_f32(const void* const* inputs, size_t n_inputs, float* out, size_t count,
                   nxd_dtype_t dtype, nxd_reduce_t reduce) {
  check_f32_form(dtype);
  check_argument(reduce >= NXD_REDUCE_SUM && reduce <= NXD_REDUCE_PROD && reduce != NXD_REDUCE_AVG,
                 "reduce: expected sum, max, min or prod for a result in f32, got ", reduce);
  check_argument(n_inputs > 0, "n_inputs: expected at least 1, got 0");
  void* const outputs[] = {out};
  for_ranges(count, {inputs, n_inputs, outputs, 1, 0, 0, 1.0F}, [&](const ReduceStreams& part) {
    HWY_DYNAMIC_DISPATCH(ReduceToF32)(dtype, reduce, part);
  });
}

void round_from_f32(const float* in, void* out, size_t count, nxd_dtype_t dtype, float divisor) {
  check_f32_form(dtype);
  const void* const inputs[] = {in};
  void* const outputs[] = {out};
  for_ranges(count, {inputs, 1, outputs, 1, 0, 0, divisor}, [&](const ReduceStreams& part) {
    HWY_DYNAMIC_DISPATCH(RoundFromF32)(dtype, part);
  });
}

}  // namespace nxd::kernels
#endif
