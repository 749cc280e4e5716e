#pragma once

#include <type_traits>

#include "core/kernels/bf16.h"

// Elements of the four float dtypes as plain loops read and write them.
namespace nxd::kernels {

// One f16 number as it lies in memory.
struct Half16 {
  uint16_t bits;
};

inline float value_of(float x) { return x; }
inline double value_of(double x) { return x; }
inline float value_of(Bf16 x) { return to_float(x); }
inline float value_of(Half16 x) { return f16_to_f32(x.bits); }

template <class T, class Sum>
T round_to(Sum sum) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return to_bf16(static_cast<float>(sum));
  } else if constexpr (std::is_same_v<T, Half16>) {
    return Half16{f32_to_f16(static_cast<float>(sum))};
  } else {
    return static_cast<T>(sum);
  }
}

}  // namespace nxd::kernels
