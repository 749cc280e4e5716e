// Support for kernel tests: random data, bf16 values, and comparing with a reference in double.
#ifndef NXD_TESTS_CORE_KERNEL_SUPPORT_H
#define NXD_TESTS_CORE_KERNEL_SUPPORT_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

#include "core/base/dtype.h"
#include "core/kernels/bf16.h"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
// CMocka needs the above first.
#include <cmocka.h>
}

namespace nxd::test {

using kernels::Bf16;

// Values in -1 ... 1, the same for a seed everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U + 0x1234567U) {}
  double next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<double>(state_ >> 11) / 4503599627370496.0 - 1.0;
  }
  // 0 ... bound - 1
  int64_t below(int64_t bound) {
    next();
    return static_cast<int64_t>((state_ >> 20) % static_cast<uint64_t>(bound));
  }

 private:
  uint64_t state_;
};

// A buffer of F32, F64 or BF16 values. Its first element is off the alignment of vectors, and
// canaries lie on both sides.
class Buffer {
 public:
  Buffer(nxd_dtype_t dtype, int64_t n) : dtype_(dtype), width_(dtype_size(dtype)), n_(n) {
    bytes_.assign(static_cast<size_t>(n + 2 * kPad) * width_, kCanary);
    for (int64_t i = 0; i < n; ++i) set(i, 0);
  }
  Buffer(nxd_dtype_t dtype, int64_t n, uint64_t seed, double scale = 1) : Buffer(dtype, n) {
    Random random(seed);
    for (int64_t i = 0; i < n; ++i) set(i, scale * random.next());
  }

  nxd_dtype_t dtype() const { return dtype_; }
  int64_t size() const { return n_; }
  void* data() { return at(0); }
  float* f32() { return static_cast<float*>(data()); }

  double operator[](int64_t i) const {
    const void* p = const_cast<Buffer*>(this)->at(i);
    if (dtype_ == NXD_DTYPE_F64) return read<double>(p);
    if (dtype_ == NXD_DTYPE_F32) return static_cast<double>(read<float>(p));
    return static_cast<double>(kernels::to_float(read<Bf16>(p)));
  }
  void set(int64_t i, double value) {
    void* p = at(i);
    if (dtype_ == NXD_DTYPE_F64) {
      std::memcpy(p, &value, sizeof(value));
    } else if (dtype_ == NXD_DTYPE_F32) {
      const auto narrow = static_cast<float>(value);
      std::memcpy(p, &narrow, sizeof(narrow));
    } else {
      const Bf16 narrow = kernels::to_bf16(static_cast<float>(value));
      std::memcpy(p, &narrow, sizeof(narrow));
    }
  }
  void fill(double value) {
    for (int64_t i = 0; i < n_; ++i) set(i, value);
  }
  bool canaries_live() const {
    const size_t pad = static_cast<size_t>(kPad) * width_;
    const auto live = [](unsigned char byte) { return byte == kCanary; };
    return std::all_of(bytes_.begin(), bytes_.begin() + static_cast<int64_t>(pad), live) &&
           std::all_of(bytes_.end() - static_cast<int64_t>(pad), bytes_.end(), live);
  }
  bool operator==(const Buffer& other) const { return bytes_ == other.bytes_; }

 private:
  static constexpr int64_t kPad = 3;
  static constexpr unsigned char kCanary = 0xA5;

  void* at(int64_t i) { return bytes_.data() + static_cast<size_t>(i + kPad) * width_; }
  template <class T>
  static T read(const void* p) {
    T value;
    std::memcpy(&value, p, sizeof(value));
    return value;
  }

  nxd_dtype_t dtype_;
  size_t width_;  // of a value: dtype_size at each would be much of a test's time
  int64_t n_;
  std::vector<unsigned char> bytes_;
};

// The tolerance of check_close: f32's as given; for bf16 twice the largest error of rounding a
// result, which is 2^-8 of the power of two below the largest value.
inline double tolerance(nxd_dtype_t dtype, double f32) {
  return dtype == NXD_DTYPE_BF16 ? 2.0 / 256 : f32;
}

// Fails unless |got - want| <= tol * max|want| everywhere (bf16: the power of two below max|want|),
// and nothing was written outside.
inline void check_close(const char* what, const Buffer& got, const std::vector<double>& want,
                        double tol) {
  double largest = 0;
  for (const double value : want) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  if (got.dtype() == NXD_DTYPE_BF16 && largest > 0) {
    largest = std::exp2(std::floor(std::log2(largest)));
  }
  for (int64_t i = 0; i < got.size(); ++i) {
    const double expected = want[static_cast<size_t>(i)];
    if (std::isnan(expected) && std::isnan(got[i])) continue;
    if (got[i] == expected || std::fabs(got[i] - expected) <= tol * largest) continue;
    fail_msg("%s[%lld]: expected %.9g, got %.9g (largest %.3g, tolerance %.1e)", what,
             static_cast<long long>(i), expected, got[i], largest, tol);
  }
  if (!got.canaries_live()) fail_msg("%s: written outside the buffer", what);
}

// The same with absolute and relative tolerances per element.
inline void check_near(const char* what, double got, double want, double tol) {
  if (std::isnan(want) && std::isnan(got)) return;
  if (got == want || std::fabs(got - want) <= tol * std::max(1.0, std::fabs(want))) return;
  fail_msg("%s: expected %.12g, got %.12g", what, want, got);
}

}  // namespace nxd::test

#endif
