#include "core/comm/reduction.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/base/half.h"

namespace nxd {
namespace {

// Elements accumulated at a time; they stay in the first-level cache.
constexpr size_t kBlock = 2048;

// How elements are stored, and what they are accumulated in.
template <class Stored, class Accumulated>
struct Direct {
  using stored = Stored;
  using accumulated = Accumulated;
  static Accumulated load(Stored value) { return value; }
  static Stored save(Accumulated value) { return value; }
};
struct Bf16 {
  using stored = uint16_t;
  using accumulated = float;
  static float load(uint16_t bits) { return bf16_to_f32(bits); }
  static uint16_t save(float value) { return f32_to_bf16(value); }
};
struct F16 {
  using stored = uint16_t;
  using accumulated = float;
  static float load(uint16_t bits) { return f16_to_f32(bits); }
  static uint16_t save(float value) { return f32_to_f16(value); }
};

// Integer sums and products wrap around, which signed arithmetic would leave undefined.
template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}
template <class T>
T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  } else {
    return a * b;
  }
}
// A NaN compares false with everything, and is kept or taken.
template <class T>
T maximum(T a, T b) {
  return (a > b || a != a) ? a : b;
}
template <class T>
T minimum(T a, T b) {
  return (a < b || a != a) ? a : b;
}

template <class Format, class Operation>
void accumulate(const std::vector<const void*>& inputs, size_t from, size_t n,
                typename Format::accumulated* __restrict sum, Operation operation) {
  using Stored = typename Format::stored;
  const Stored* first = static_cast<const Stored*>(inputs[0]) + from;
  for (size_t i = 0; i < n; ++i) sum[i] = Format::load(first[i]);
  for (size_t k = 1; k < inputs.size(); ++k) {
    const Stored* __restrict in = static_cast<const Stored*>(inputs[k]) + from;
    for (size_t i = 0; i < n; ++i) sum[i] = operation(sum[i], Format::load(in[i]));
  }
}

template <class Format>
void reduce(const std::vector<const void*>& inputs, void* out, size_t count, nxd_reduce_t kind) {
  using T = typename Format::accumulated;
  alignas(64) T sum[kBlock];
  auto* result = static_cast<typename Format::stored*>(out);
  for (size_t from = 0; from < count; from += kBlock) {
    const size_t n = std::min(kBlock, count - from);
    switch (kind) {
      case NXD_REDUCE_MAX:
        accumulate<Format>(inputs, from, n, sum, [](T a, T b) { return maximum(a, b); });
        break;
      case NXD_REDUCE_MIN:
        accumulate<Format>(inputs, from, n, sum, [](T a, T b) { return minimum(a, b); });
        break;
      case NXD_REDUCE_PROD:
        accumulate<Format>(inputs, from, n, sum, [](T a, T b) { return multiply(a, b); });
        break;
      default: accumulate<Format>(inputs, from, n, sum, [](T a, T b) { return add(a, b); });
    }
    if (kind == NXD_REDUCE_AVG) {
      const T ranks = static_cast<T>(inputs.size());
      for (size_t i = 0; i < n; ++i) sum[i] = sum[i] / ranks;
    }
    for (size_t i = 0; i < n; ++i) result[from + i] = Format::save(sum[i]);
  }
}

}  // namespace

void reduce_in_order(const std::vector<const void*>& inputs, void* out, size_t count,
                     nxd_dtype_t dtype, nxd_reduce_t kind) {
  switch (dtype) {
    case NXD_DTYPE_F32: return reduce<Direct<float, float>>(inputs, out, count, kind);
    case NXD_DTYPE_F64: return reduce<Direct<double, double>>(inputs, out, count, kind);
    case NXD_DTYPE_BF16: return reduce<Bf16>(inputs, out, count, kind);
    case NXD_DTYPE_F16: return reduce<F16>(inputs, out, count, kind);
    case NXD_DTYPE_I32: return reduce<Direct<int32_t, int32_t>>(inputs, out, count, kind);
    case NXD_DTYPE_I64: return reduce<Direct<int64_t, int64_t>>(inputs, out, count, kind);
    default: fail(NXD_ERROR_INTERNAL, "reduce_in_order: dtype ", dtype);
  }
}

const char* reduce_name(nxd_reduce_t reduce) noexcept {
  switch (reduce) {
    case NXD_REDUCE_SUM: return "sum";
    case NXD_REDUCE_AVG: return "avg";
    case NXD_REDUCE_MAX: return "max";
    case NXD_REDUCE_MIN: return "min";
    case NXD_REDUCE_PROD: return "prod";
    default: return "invalid";
  }
}

}  // namespace nxd
