#pragma once

#include <bit>
#include <cstdint>

namespace nxd::kernels {

// One bfloat16 number as it lies in memory.
struct Bf16 {
  uint16_t bits;
};

inline float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Rounds to nearest, ties to even; every NaN becomes the quiet NaN 0x7FC0, as in ATen.
inline Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value != value) return {0x7FC0};
  return {static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)};
}

}  // namespace nxd::kernels
