#pragma once

#include <cstdint>

#include "core/base/half.h"

namespace nxd::kernels {

// One bfloat16 number as it lies in memory.
struct Bf16 {
  uint16_t bits;
};

inline float to_float(Bf16 value) { return bf16_to_f32(value.bits); }

inline Bf16 to_bf16(float value) { return {f32_to_bf16(value)}; }

}  // namespace nxd::kernels
