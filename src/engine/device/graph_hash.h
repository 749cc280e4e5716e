#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace nxd {

// 128 bits that two graphs share only if they are the same: a wrong plan would give wrong numbers
// without a word, and 64 bits are too few for that over years of runs. Two lanes that mix in
// different ways; no defence against inputs that are made to collide.
class GraphHash {
 public:
  using Value = std::array<uint64_t, 2>;

  GraphHash& add(uint64_t value) {
    first_ = rotated(first_ ^ value * 0x87c37b91114253d5U, 31) * 0x4cf5ad432745937fU + second_;
    second_ = (rotated(second_ + value, 27) ^ first_) * 0x9e3779b97f4a7c15U + 0x38495ab5U;
    return *this;
  }
  Value value() const { return {mixed(first_), mixed(second_ + first_)}; }

 private:
  static uint64_t rotated(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }
  // The last round of MurmurHash3 (A. Appleby), after which every bit depends on all others.
  static uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdU;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53U;
    return x ^ (x >> 33);
  }

  uint64_t first_ = 0x243f6a8885a308d3U, second_ = 0x13198a2e03707344U;
};

struct HashOfGraphHash {
  size_t operator()(const GraphHash::Value& value) const { return value[0]; }
};

}  // namespace nxd
