#include "core/checkpoint/float_convert.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/base/dtype.h"
#include "core/base/half.h"

namespace nxd {
namespace {

// A format is an element of memory, and how it becomes a double and back.
struct F32 {
  using Memory = float;
  static double load(float value) { return value; }
  static float store(double value) { return static_cast<float>(value); }
};

struct F64 {
  using Memory = double;
  static double load(double value) { return value; }
  static double store(double value) { return value; }
};

// Rounds to a format of the given width: bits of fraction, and the exponent of its least normal
// number. Adding and subtracting a power of two makes the processor round to its grid.
double round_to_grid(double value, int fraction_bits, int least_exponent) {
  int exponent = 0;
  std::frexp(value, &exponent);
  exponent = std::max(exponent - 1, least_exponent);
  const double shift = std::ldexp(1.5, exponent - fraction_bits + 52);
  // Otherwise the compiler may take the sum and difference for the value itself.
  volatile double sum = value + shift;
  return std::copysign(sum - shift, value);
}

struct BF16 {
  using Memory = uint16_t;
  static double load(uint16_t bits) { return bf16_to_f32(bits); }
  static uint16_t store(double value) {
    const auto nearest = static_cast<float>(value);
    // A value that overflows f32 overflows bf16, whose exponents are the same.
    if (nearest == value || !std::isfinite(nearest)) return f32_to_bf16(nearest);
    // Between two f32: rounding to one of them first could round twice.
    return f32_to_bf16(static_cast<float>(round_to_grid(value, 7, -126)));
  }
};

struct F16 {
  using Memory = uint16_t;
  static double load(uint16_t bits) { return f16_to_f32(bits); }
  static uint16_t store(double value) {
    // From 65520 on everything is infinite, and below it the grid's numbers are exact in f32.
    const bool on_grid = value == 0 || !(std::fabs(value) < 65536);
    return f32_to_f16(static_cast<float>(on_grid ? value : round_to_grid(value, 10, -14)));
  }
};

template <class From, class To>
void convert(const void* in, void* out, size_t count) {
  const auto* source = static_cast<const unsigned char*>(in);
  auto* target = static_cast<unsigned char*>(out);
  for (size_t i = 0; i < count; ++i) {
    typename From::Memory value;
    std::memcpy(&value, source + i * sizeof value, sizeof value);
    const typename To::Memory result = To::store(From::load(value));
    std::memcpy(target + i * sizeof result, &result, sizeof result);
  }
}

template <class From>
void convert_from(const void* in, void* out, nxd_dtype_t to, size_t count) {
  switch (to) {
    case NXD_DTYPE_F32: return convert<From, F32>(in, out, count);
    case NXD_DTYPE_F64: return convert<From, F64>(in, out, count);
    case NXD_DTYPE_BF16: return convert<From, BF16>(in, out, count);
    default: return convert<From, F16>(in, out, count);
  }
}

}  // namespace

bool can_convert(nxd_dtype_t from, nxd_dtype_t to) noexcept {
  return from == to || (dtype_is_float(from) && dtype_is_float(to));
}

void convert_elements(const void* in, nxd_dtype_t in_dtype, void* out, nxd_dtype_t out_dtype,
                      size_t count) {
  const size_t size = dtype_size(in_dtype);
  check_argument(can_convert(in_dtype, out_dtype), "dtype: expected floats, or ",
                 dtype_name(in_dtype), " as stored, got ", dtype_name(out_dtype));
  if (count == 0) return;
  if (in_dtype == out_dtype) {
    std::memcpy(out, in, count * size);
    return;
  }
  switch (in_dtype) {
    case NXD_DTYPE_F32: return convert_from<F32>(in, out, out_dtype, count);
    case NXD_DTYPE_F64: return convert_from<F64>(in, out, out_dtype, count);
    case NXD_DTYPE_BF16: return convert_from<BF16>(in, out, out_dtype, count);
    default: return convert_from<F16>(in, out, out_dtype, count);
  }
}

}  // namespace nxd
