// Support for kernel tests: random data, bf16 values, and comparing with a reference in double.
#ifndef NXD_TESTS_CORE_KERNEL_SUPPORT_H
#define NXD_TESTS_CORE_KERNEL_SUPPORT_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>
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
    std::memset(data(), 0, static_cast<size_t>(n) * width_);
  }
  Buffer(nxd_dtype_t dtype, int64_t n, uint64_t seed, double scale = 1) : Buffer(dtype, n) {
    Random random(seed);
    set_all([&] { return scale * random.next(); });
  }

  nxd_dtype_t dtype() const { return dtype_; }
  int64_t size() const { return n_; }
  void* data() { return at(0); }
  float* f32() { return static_cast<float*>(data()); }

  double operator[](int64_t i) const {
    const unsigned char* p = at(i);
    if (dtype_ == NXD_DTYPE_F64) return read<double>(p);
    if (dtype_ == NXD_DTYPE_F32) return read<float>(p);
    return read<Bf16>(p);
  }
  // All values: reading them one by one asks for the dtype at each.
  std::vector<double> doubles() const {
    std::vector<double> out(static_cast<size_t>(n_));
    const unsigned char* from = at(0);
    const auto each = [&](auto read_one) {
      for (double& value : out) value = read_one(from), from += width_;
    };
    if (dtype_ == NXD_DTYPE_F64) {
      each([](const unsigned char* p) { return read<double>(p); });
    } else if (dtype_ == NXD_DTYPE_F32) {
      each([](const unsigned char* p) { return read<float>(p); });
    } else {
      each([](const unsigned char* p) { return read<Bf16>(p); });
    }
    return out;
  }
  void set(int64_t i, double value) {
    set_range(i, 1, [value] { return value; });
  }
  void fill(double value) {
    set_all([value] { return value; });
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

  size_t offset(int64_t i) const { return static_cast<size_t>(i + kPad) * width_; }
  unsigned char* at(int64_t i) { return bytes_.data() + offset(i); }
  const unsigned char* at(int64_t i) const { return bytes_.data() + offset(i); }
  template <class T>
  static double read(const unsigned char* p) {
    T value;
    std::memcpy(&value, p, sizeof(value));
    if constexpr (std::is_same_v<T, Bf16>) {
      return static_cast<double>(kernels::to_float(value));
    } else {
      return static_cast<double>(value);
    }
  }
  template <class T>
  static void write(unsigned char* p, double value) {
    T narrow;
    if constexpr (std::is_same_v<T, Bf16>) {
      narrow = kernels::to_bf16(static_cast<float>(value));
    } else {
      narrow = static_cast<T>(value);
    }
    std::memcpy(p, &narrow, sizeof(narrow));
  }
  template <class Next>
  void set_range(int64_t first, int64_t count, Next next) {
    unsigned char* to = at(first);
    const auto each = [&](auto write_one) {
      for (int64_t i = 0; i < count; ++i) write_one(to, next()), to += width_;
    };
    if (dtype_ == NXD_DTYPE_F64) {
      each([](unsigned char* p, double value) { write<double>(p, value); });
    } else if (dtype_ == NXD_DTYPE_F32) {
      each([](unsigned char* p, double value) { write<float>(p, value); });
    } else {
      each([](unsigned char* p, double value) { write<Bf16>(p, value); });
    }
  }
  template <class Next>
  void set_all(Next next) {
    set_range(0, n_, next);
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
