#include "core/kernels/random_fill.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/base/normal_terms.h"
#include "core/kernels/parallel.h"
#include "core/kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/random_fill.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/kernels/philox-inl.h"

// Operations are those of core/base/philox.cpp in the same order. Each rounds exactly, so that the
// width of a vector changes no bit.
HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

constexpr int64_t kValuesAtATime = 512;

using Doubles = hn::RebindToFloat<Pairs>;
using DoublesVector = hn::Vec<Doubles>;

// Whole numbers below 2^53: each half becomes a number by the exponent of 2^52 in front of it.
HWY_INLINE DoublesVector to_doubles(PairsVector whole) {
  const Doubles d;
  const Pairs pairs;
  const auto exponent = hn::Set(pairs, uint64_t{0x4330000000000000});
  const auto number = [&](auto bits) HWY_ATTR {
    return hn::Sub(hn::BitCast(d, hn::Or(bits, exponent)), hn::Set(d, 0x1p52));
  };
  const auto low = hn::And(whole, hn::Set(pairs, uint64_t{0xFFFFFFFF}));
  return hn::Add(hn::Mul(number(hn::ShiftRight<32>(whole)), hn::Set(d, 0x1p32)), number(low));
}

// The top 53 of the 64 bits whose earlier word is the higher one.
HWY_INLINE PairsVector top_bits(PairsVector words) {
  return hn::ShiftRight<11>(hn::Or(hn::ShiftLeft<32>(words), hn::ShiftRight<32>(words)));
}

HWY_INLINE DoublesVector log_of_unit(DoublesVector x) {
  const Doubles d;
  const Pairs pairs;
  const auto one = hn::Set(d, 1.0), two = hn::Set(d, 2.0);
  const auto bits = hn::BitCast(pairs, x);
  const auto fraction = hn::And(bits, hn::Set(pairs, uint64_t{0xFFFFFFFFFFFFF}));
  auto m = hn::BitCast(d, hn::Or(fraction, hn::Set(pairs, uint64_t{0x3FE0000000000000})));
  auto exponent = hn::Sub(to_doubles(hn::ShiftRight<52>(bits)), hn::Set(d, 1022.0));
  const auto small = hn::Lt(m, hn::Set(d, normal_terms::kSqrtHalf));
  m = hn::IfThenElse(small, hn::Mul(m, two), m);
  exponent = hn::IfThenElse(small, hn::Sub(exponent, one), exponent);
  const auto s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const auto s2 = hn::Mul(s, s);
  auto series = hn::Zero(d);
  for (size_t k = normal_terms::kLog.size(); k-- > 0;) {
    series = hn::Add(hn::Mul(series, s2), hn::Set(d, normal_terms::kLog[k]));
  }
  return hn::Add(hn::Mul(exponent, hn::Set(d, normal_terms::kLn2)),
                 hn::Mul(hn::Mul(two, s), series));
}

// Cosines and sines of 2 pi u.
HWY_INLINE void circle_of(DoublesVector u, DoublesVector& cosines, DoublesVector& sines) {
  const Doubles d;
  const auto one = hn::Set(d, 1.0);
  const auto quarters = hn::Mul(u, hn::Set(d, 4.0));
  const auto quadrant = hn::Floor(hn::Add(quarters, hn::Set(d, 0.5)));
  const auto x = hn::Mul(hn::Sub(quarters, quadrant), hn::Set(d, normal_terms::kHalfPi));
  const auto x2 = hn::Mul(x, x);
  auto sine = one, cosine = one;
  for (size_t k = normal_terms::kTerms; k-- > 0;) {
    cosine = hn::Sub(one, hn::Mul(cosine, hn::Mul(x2, hn::Set(d, normal_terms::kCosine[k]))));
    sine = hn::Sub(one, hn::Mul(sine, hn::Mul(x2, hn::Set(d, normal_terms::kSine[k]))));
  }
  sine = hn::Mul(sine, x);
  const auto is = [&](double number) HWY_ATTR { return hn::Eq(quadrant, hn::Set(d, number)); };
  const auto odd = hn::Or(is(1), is(3));
  cosines = hn::IfThenElse(odd, sine, cosine);
  sines = hn::IfThenElse(odd, cosine, sine);
  cosines = hn::IfThenElse(hn::Or(is(1), is(2)), hn::Neg(cosines), cosines);
  sines = hn::IfThenElse(hn::Or(is(2), is(3)), hn::Neg(sines), sines);
}

// make(front, back) turns words of blocks into the even and the odd values; write(i, values, n) has
// the n values from the i-th on.
template <class Make, class Write>
HWY_INLINE void each_values(const RandomSite& site, uint64_t first, int64_t count, const Make& make,
                            const Write& write) {
  const Doubles d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  // Room for a value before the first, and for those after the last of a vector of blocks.
  double buffer[kValuesAtATime + 2 + 2 * hn::MaxLanes(Doubles())];
  for (int64_t i = 0; i < count;) {
    const uint64_t number = first + static_cast<uint64_t>(i);
    const auto skip = static_cast<int64_t>(number % 2);
    const int64_t part = std::min(count - i, kValuesAtATime - skip);
    const int64_t blocks = (skip + part + 1) / 2;
    for (int64_t b = 0; b < blocks; b += step) {
      PairsVector front, back;
      philox_blocks(site, number / 2 + static_cast<uint64_t>(b), front, back);
      DoublesVector even, odd;
      make(front, back, even, odd);
#if HWY_TARGET == HWY_SCALAR
      hn::StoreU(even, d, buffer + 2 * b);
      hn::StoreU(odd, d, buffer + 2 * b + 1);
#else
      hn::StoreInterleaved2(even, odd, d, buffer + 2 * b);
#endif
    }
    write(i, buffer + skip, part);
    i += part;
  }
}

template <class T>
HWY_INLINE void normal_values(const RandomSite& site, uint64_t first, int64_t count, double mean,
                              double deviation, T* out) {
  const Doubles d;
  each_values(
      site, first, count,
      [&](PairsVector front, PairsVector back, DoublesVector& even, DoublesVector& odd) HWY_ATTR {
        const auto unit = hn::Set(d, 0x1p-53);
        const auto draw =
            hn::Mul(to_doubles(hn::Add(top_bits(front), hn::Set(Pairs(), uint64_t{1}))), unit);
        const auto radius = hn::Sqrt(hn::Mul(hn::Set(d, -2.0), log_of_unit(draw)));
        circle_of(hn::Mul(to_doubles(top_bits(back)), unit), even, odd);
        const auto scaled = [&](DoublesVector value) HWY_ATTR {
          return hn::Add(hn::Set(d, mean), hn::Mul(hn::Set(d, deviation), hn::Mul(radius, value)));
        };
        even = scaled(even);
        odd = scaled(odd);
      },
      [&](int64_t i, const double* values, int64_t n) HWY_ATTR {
        for (int64_t j = 0; j < n; ++j) out[i + j] = static_cast<T>(values[j]);
      });
}

// A value that is rounded up to the bound becomes the one below it.
template <class T>
HWY_INLINE void uniform_values(const RandomSite& site, uint64_t first, int64_t count, double low,
                               double high, T* out) {
  constexpr bool kIsFloat = std::is_same_v<T, float>;
  const Doubles d;
  const T bound = static_cast<T>(high);
  const T last = low == high ? bound : std::nextafter(bound, static_cast<T>(low));
  each_values(
      site, first, count,
      [&](PairsVector front, PairsVector back, DoublesVector& even, DoublesVector& odd) HWY_ATTR {
        const auto scaled = [&](PairsVector words) HWY_ATTR {
          const auto bits = top_bits(words);
          const auto whole = to_doubles(kIsFloat ? hn::ShiftRight<29>(bits) : bits);
          const auto unit = hn::Mul(whole, hn::Set(d, kIsFloat ? 0x1p-24 : 0x1p-53));
          return hn::Add(hn::Set(d, low), hn::Mul(hn::Set(d, high - low), unit));
        };
        even = scaled(front);
        odd = scaled(back);
      },
      [&](int64_t i, const double* values, int64_t n) HWY_ATTR {
        for (int64_t j = 0; j < n; ++j) {
          const T value = static_cast<T>(values[j]);
          out[i + j] = value < bound ? value : last;
        }
      });
}

void NormalF32(const RandomSite& site, uint64_t first, int64_t count, double mean, double deviation,
               float* out) {
  normal_values(site, first, count, mean, deviation, out);
}
void NormalF64(const RandomSite& site, uint64_t first, int64_t count, double mean, double deviation,
               double* out) {
  normal_values(site, first, count, mean, deviation, out);
}
void UniformF32(const RandomSite& site, uint64_t first, int64_t count, double low, double high,
                float* out) {
  uniform_values(site, first, count, low, high, out);
}
void UniformF64(const RandomSite& site, uint64_t first, int64_t count, double low, double high,
                double* out) {
  uniform_values(site, first, count, low, high, out);
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(NormalF32);
HWY_EXPORT(NormalF64);
HWY_EXPORT(UniformF32);
HWY_EXPORT(UniformF64);

// part(out, first, count) for parts of all numbers.
template <class T, class Part>
void on_team(void* out, uint64_t first, int64_t count, const Part& part) {
  constexpr int64_t kValuesOfAPart = 1 << 13, kWorkOfAValue = 32;
  const int64_t parts = (count + kValuesOfAPart - 1) / kValuesOfAPart;
  parallel_ranges(parts, kValuesOfAPart * kWorkOfAValue, [&](int64_t begin, int64_t end) {
    const int64_t from = begin * kValuesOfAPart, to = std::min(end * kValuesOfAPart, count);
    part(static_cast<T*>(out) + from, first + static_cast<uint64_t>(from), to - from);
  });
}

}  // namespace

void fill_uniform(const RandomSite& site, nxd_dtype_t dtype, void* out, uint64_t first,
                  int64_t count, double low, double high) {
  site.fill_uniform(dtype, out, first, 0, low, high);  // rejects what it would
  if (dtype == NXD_DTYPE_F32) {
    on_team<float>(out, first, count, [&](float* to, uint64_t from, int64_t n) {
      HWY_DYNAMIC_DISPATCH(UniformF32)(site, from, n, low, high, to);
    });
  } else {
    on_team<double>(out, first, count, [&](double* to, uint64_t from, int64_t n) {
      HWY_DYNAMIC_DISPATCH(UniformF64)(site, from, n, low, high, to);
    });
  }
}

void fill_normal(const RandomSite& site, nxd_dtype_t dtype, void* out, uint64_t first,
                 int64_t count, double mean, double deviation) {
  site.fill_normal(dtype, out, first, 0, mean, deviation);
  if (dtype == NXD_DTYPE_F32) {
    on_team<float>(out, first, count, [&](float* to, uint64_t from, int64_t n) {
      HWY_DYNAMIC_DISPATCH(NormalF32)(site, from, n, mean, deviation, to);
    });
  } else {
    on_team<double>(out, first, count, [&](double* to, uint64_t from, int64_t n) {
      HWY_DYNAMIC_DISPATCH(NormalF64)(site, from, n, mean, deviation, to);
    });
  }
}

}  // namespace nxd::kernels
#endif
