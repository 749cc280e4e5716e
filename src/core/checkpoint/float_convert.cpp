#include "core/checkpoint/float_convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/base/dtype.h"

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
  static double load(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  static uint16_t store(double value) {
    const auto nearest = static_cast<float>(value);
    if (std::isnan(nearest)) return static_cast<uint16_t>((bits_of(nearest) >> 16) | 0x40);
    // What overflows f32 overflows bf16, whose exponents are the same.
    if (nearest == value || std::isinf(nearest)) {
      const uint32_t bits = bits_of(nearest);
      return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    }
    // Between two f32: rounding that first could round twice.
    return static_cast<uint16_t>(bits_of(static_cast<float>(round_to_grid(value, 7, -126))) >> 16);
  }

 private:
  static uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
};

struct F16 {
  using Memory = uint16_t;
  static constexpr int kFractionBits = 10, kBias = 15;

  static double load(uint16_t bits) {
    const int exponent = (bits >> kFractionBits) & 31;
    const int fraction = bits & 1023;
    double value = 0;
    if (exponent == 31) {
      value = fraction ? std::nan("") : HUGE_VAL;
    } else if (exponent == 0) {
      value = std::ldexp(fraction, 1 - kBias - kFractionBits);
    } else {
      value = std::ldexp(1024 + fraction, exponent - kBias - kFractionBits);
    }
    return std::copysign(value, bits & 0x8000 ? -1.0 : 1.0);
  }

  static uint16_t store(double value) {
    const int sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00);
    double magnitude = std::fabs(value);
    if (magnitude > 0 && magnitude < 65536) magnitude = round_to_grid(magnitude, 10, 1 - kBias);
    if (magnitude >= 65536) return static_cast<uint16_t>(sign | 0x7c00);
    if (magnitude == 0) return static_cast<uint16_t>(sign);
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    exponent = std::max(exponent - 1, 1 - kBias);
    // The fraction with its leading one, which carries into the exponent when it is there.
    const int fraction = static_cast<int>(std::ldexp(magnitude, kFractionBits - exponent));
    return static_cast<uint16_t>(sign | (((exponent + kBias - 1) << kFractionBits) + fraction));
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
