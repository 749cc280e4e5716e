#include "core/base/philox.h"

#include <cfloat>
#include <cmath>
#include <type_traits>

#include "core/base/dtype.h"
#include "core/base/hash.h"
#include "core/base/normal_terms.h"

namespace nxd {
namespace {

// Compiled with -ffp-contract=off: a fused multiply-add would round differently.

constexpr int kMicrobatchBits = 24;
constexpr double kTwoToMinus53 = 0x1p-53;

constexpr uint32_t low_word(uint64_t value) { return static_cast<uint32_t>(value); }
constexpr uint32_t high_word(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

// Over the seed's bytes from the lowest and then the name's, with the finalizer of A. Appleby's
// MurmurHash3 so that close names differ in every bit of the key.
uint64_t hash_site(uint64_t seed, std::string_view name) {
  Hash bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes.add((seed >> shift) & 0xff);
  uint64_t hash = bytes.add(name).value();
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdu;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53u;
  return hash ^ (hash >> 33);
}

// The elementary functions are written out, since the bits of libm's differ between its versions
// and processors. They use only operations that IEEE 754 rounds exactly.

// Natural logarithm of (0, 1]: x = 2^e m with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(s).
double log_unit(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < normal_terms::kSqrtHalf) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double series = 0;
  for (size_t k = normal_terms::kLog.size(); k-- > 0;) series = series * s2 + normal_terms::kLog[k];
  return exponent * normal_terms::kLn2 + 2 * s * series;
}

// Cosine and sine of 2 pi u for u in [0, 1): Taylor's series on an eighth of the circle.
std::array<double, 2> circle(double u) {
  const double quarters = u * 4;
  const int quadrant = static_cast<int>(quarters + 0.5);
  const double x = (quarters - quadrant) * normal_terms::kHalfPi;
  const double x2 = x * x;
  double sine = 1, cosine = 1;
  for (size_t k = normal_terms::kTerms; k-- > 0;) {
    cosine = 1 - cosine * (x2 * normal_terms::kCosine[k]);
    sine = 1 - sine * (x2 * normal_terms::kSine[k]);
  }
  sine *= x;
  switch (quadrant & 3) {
    case 0: return {cosine, sine};
    case 1: return {-sine, cosine};
    case 2: return {-cosine, -sine};
    default: return {sine, -cosine};
  }
}

uint64_t top_53(uint32_t high, uint32_t low) { return ((uint64_t{high} << 32) | low) >> 11; }

template <class T>
T scaled_uniform(uint64_t bits, double low, double high) {
  // A float keeps the top 24 bits, so that [0, 1) stays [0, 1).
  const double unit = std::is_same_v<T, float> ? static_cast<double>(bits >> 29) * 0x1p-24
                                               : static_cast<double>(bits) * kTwoToMinus53;
  const T value = static_cast<T>(low + (high - low) * unit);
  const T bound = static_cast<T>(high);
  return value < bound || low == high ? value : std::nextafter(bound, static_cast<T>(low));
}

template <class Function>
void dispatch(nxd_dtype_t dtype, void* out, size_t count, const Function& fill) {
  check_argument(out || count == 0, "out: expected room for ", count, " elements, got NULL");
  switch (dtype) {
    case NXD_DTYPE_F32: return fill(static_cast<float*>(out));
    case NXD_DTYPE_F64: return fill(static_cast<double*>(out));
    default: fail(NXD_ERROR_INVALID_ARGUMENT, "dtype: expected F32 or F64, got ", dtype);
  }
}

}  // namespace

std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter,
                                      std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {high_word(b) ^ counter[1] ^ key[0], low_word(b), high_word(a) ^ counter[3] ^ key[1],
               low_word(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

RandomSite::RandomSite(uint64_t seed, std::string_view name) {
  const uint64_t hash = hash_site(seed, name);
  key_ = {low_word(hash), high_word(hash)};
}

RandomSite RandomSite::at(int64_t step, int64_t microbatch) const {
  check_argument(step >= 0 && step < int64_t{1} << (64 - kMicrobatchBits),
                 "step: expected 0 to 2^40 - 1, got ", step);
  check_argument(microbatch >= 0 && microbatch < int64_t{1} << kMicrobatchBits,
                 "microbatch: expected 0 to 2^24 - 1, got ", microbatch);
  RandomSite site = *this;
  site.draw_ = (static_cast<uint64_t>(step) << kMicrobatchBits) | static_cast<uint64_t>(microbatch);
  return site;
}

std::array<uint32_t, 4> RandomSite::block(uint64_t number) const {
  return philox4x32_10({low_word(number), high_word(number), low_word(draw_), high_word(draw_)},
                       key_);
}

double RandomSite::uniform(uint64_t index) const {
  double value;
  fill_uniform(NXD_DTYPE_F64, &value, index, 1, 0, 1);
  return value;
}

// G. Box and M. Muller, "A note on the generation of random normal deviates", 1958.
std::array<double, 2> RandomSite::normal_pair(uint64_t pair) const {
  const std::array<uint32_t, 4> words = block(pair);
  // (0, 1]: the logarithm of 0 is left out.
  const double radius_draw = static_cast<double>(top_53(words[0], words[1]) + 1) * kTwoToMinus53;
  const double radius = std::sqrt(-2 * log_unit(radius_draw));
  const auto [cosine, sine] =
      circle(static_cast<double>(top_53(words[2], words[3])) * kTwoToMinus53);
  return {radius * cosine, radius * sine};
}

double RandomSite::normal(uint64_t index) const { return normal_pair(index / 2)[index % 2]; }

uint16_t RandomSite::word16(uint64_t index) const {
  const uint32_t word = block(index / 8)[index / 2 % 4];
  return static_cast<uint16_t>(index % 2 == 0 ? word : word >> 16);
}

void RandomSite::check_uniform(nxd_dtype_t dtype, double low, double high) {
  // Their distance, too: beyond it values are those of no interval.
  const double most = dtype_largest(dtype);
  check_argument(
      std::abs(low) <= most && std::abs(high) <= most && low <= high && high - low <= DBL_MAX,
      "low, high: expected bounds in order that ", dtype_name(dtype),
      " has, no more apart than an f64 can say, got ", low, " and ", high);
}

void RandomSite::check_normal(nxd_dtype_t dtype, double mean, double deviation) {
  constexpr double kFarthest = 8.572;  // of all draws: sqrt(-2 log 2^-53)
  check_argument(deviation >= 0 && std::abs(mean) + kFarthest * deviation <= dtype_largest(dtype),
                 "mean, deviation: expected a deviation of at least 0, and values that ",
                 dtype_name(dtype), " has up to ", kFarthest, " deviations from the mean, got ",
                 mean, " and ", deviation);
}

void RandomSite::fill_uniform(nxd_dtype_t dtype, void* out, uint64_t first, size_t count,
                              double low, double high) const {
  check_uniform(dtype, low, high);
  dispatch(dtype, out, count, [&]<class T>(T* values) {
    for (size_t i = 0; i < count;) {
      const uint64_t index = first + i;
      const std::array<uint32_t, 4> words = block(index / 2);
      for (size_t half = index % 2; half < 2 && i < count; ++half, ++i)
        values[i] = scaled_uniform<T>(top_53(words[2 * half], words[2 * half + 1]), low, high);
    }
  });
}

void RandomSite::fill_normal(nxd_dtype_t dtype, void* out, uint64_t first, size_t count,
                             double mean, double deviation) const {
  check_normal(dtype, mean, deviation);
  dispatch(dtype, out, count, [&]<class T>(T* values) {
    for (size_t i = 0; i < count;) {
      const uint64_t index = first + i;
      const std::array<double, 2> pair = normal_pair(index / 2);
      for (size_t half = index % 2; half < 2 && i < count; ++half, ++i)
        values[i] = static_cast<T>(mean + deviation * pair[half]);
    }
  });
}

uint64_t RandomSite::bernoulli_bound(double probability) {
  check_argument(probability >= 0 && probability <= 1, "probability: expected 0 to 1, got ",
                 probability);
  return static_cast<uint64_t>(probability * 0x1p32);
}

void RandomSite::fill_bernoulli(uint8_t* out, uint64_t first, size_t count,
                                double probability) const {
  check_argument(out || count == 0, "out: expected room for ", count, " elements, got NULL");
  const uint64_t bound = bernoulli_bound(probability);
  for (size_t i = 0; i < count;) {
    const uint64_t index = first + i;
    const std::array<uint32_t, 4> words = block(index / 4);
    for (size_t word = index % 4; word < 4 && i < count; ++word, ++i) out[i] = words[word] < bound;
  }
}

}  // namespace nxd
