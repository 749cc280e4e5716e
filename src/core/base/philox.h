#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/base/error.h"

namespace nxd {

// Philox4x32-10, the counter-based generator of J. Salmon, M. Moraes, R. Dror and D. Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A place that random bits are drawn for: a parameter, a dropout layer. Values are a pure function
// of (seed, canonical name, step, microbatch, global element index) and of nothing else: no layout,
// thread, vector width or libm changes a bit of them. A normal f32 value is the f64 value of the
// same index, rounded, and a uniform one takes the upper 24 of its 53 bits, so that runs in both
// types start from the same model but for rounding.
class RandomSite {
 public:
  RandomSite(uint64_t seed, std::string_view name);
  // The site that has this key() and this draw().
  RandomSite(std::array<uint32_t, 2> key, uint64_t draw) : key_(key), draw_(draw) {}

  // The draws of this site in a training step and microbatch; a fresh site draws for (0, 0).
  RandomSite at(int64_t step, int64_t microbatch) const;

  double uniform(uint64_t index) const;   // [0, 1), 53 bits
  double normal(uint64_t index) const;    // mean 0, standard deviation 1
  uint16_t word16(uint64_t index) const;  // 16 random bits, for stochastic rounding

  // INVALID_ARGUMENT where values of the distribution are not finite in a float dtype.
  static void check_uniform(nxd_dtype_t dtype, double low, double high);
  static void check_normal(nxd_dtype_t dtype, double mean, double deviation);
  // Values of the global indices first, first + 1, ..., first + count - 1. dtype is F32 or F64.
  // Uniform values lie in [low, high), as the dtype rounds these.
  void fill_uniform(nxd_dtype_t dtype, void* out, uint64_t first, size_t count, double low,
                    double high) const;
  void fill_normal(nxd_dtype_t dtype, void* out, uint64_t first, size_t count, double mean,
                   double deviation) const;
  // 1 with the probability, else 0.
  void fill_bernoulli(uint8_t* out, uint64_t first, size_t count, double probability) const;

  // fill_bernoulli gives 1 where an element's 32-bit word lies below this.
  static uint64_t bernoulli_bound(double probability);

  // For kernels that compute blocks themselves: block number b of the site is philox4x32_10 of the
  // counter (low, high word of b; low, high word of draw) and the key, and word16(i) is the i %
  // 8-th 16 bits of block i / 8, lower half of each word first; the 32-bit word of element i is the
  // i % 4-th of block i / 4.
  std::array<uint32_t, 2> key() const { return key_; }
  uint64_t draw() const { return draw_; }

 private:
  std::array<uint32_t, 4> block(uint64_t number) const;
  // Both normal values of a Box-Muller pair: those of the indices 2 * pair and 2 * pair + 1.
  std::array<double, 2> normal_pair(uint64_t pair) const;

  std::array<uint32_t, 2> key_;
  uint64_t draw_ = 0;
};

}  // namespace nxd
