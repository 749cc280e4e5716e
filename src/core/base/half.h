#pragma once

#include <bit>
#include <cstdint>

namespace nxd {

// 16-bit floats to f32 and back, rounding to nearest even. Branch-free where it pays, so that loops
// over them vectorise. Every NaN becomes the same bf16, as in ATen.

inline float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

inline float f16_to_f32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  // Subnormals are scaled exactly by 2^-24; the others move their exponent.
  const uint32_t subnormal = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t special = (magnitude << 13) | 0x7f800000u;
  const uint32_t bits = magnitude >= 0x7c00u ? special : magnitude < 0x400u ? subnormal : normal;
  return std::bit_cast<float>(sign | bits);
}

inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Below 2^-14 the addition of 0.5 lets the processor round to the 2^-24 grid of subnormals.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t large = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : 0x7c00u;
  const uint32_t half = magnitude >= 0x477ff000u  ? large
                        : magnitude < 0x38800000u ? subnormal
                                                  : normal;
  return static_cast<uint16_t>(sign | half);
}

}  // namespace nxd
