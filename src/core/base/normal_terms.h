#pragma once

#include <array>
#include <cstddef>

// Terms of the series that normal values are computed by. They are a part of the values'
// definition: another order or number of terms would be another model for the same seed.
namespace nxd::normal_terms {

constexpr size_t kTerms = 9;

// Table of function(0), function(1), ..., computed by the compiler.
template <size_t N, class Function>
constexpr std::array<double, N> table(Function function) {
  std::array<double, N> values{};
  for (size_t k = 0; k < N; ++k) values[k] = function(static_cast<double>(k));
  return values;
}

constexpr auto kLog = table<kTerms + 3>([](double k) { return 1 / (2 * k + 1); });
constexpr auto kCosine = table<kTerms>([](double k) { return 1 / ((2 * k + 1) * (2 * k + 2)); });
constexpr auto kSine = table<kTerms>([](double k) { return 1 / ((2 * k + 2) * (2 * k + 3)); });

constexpr double kLn2 = 0.693147180559945309417232121458;
constexpr double kHalfPi = 1.57079632679489661923;
constexpr double kSqrtHalf = 0.70710678118654752440;

}  // namespace nxd::normal_terms
