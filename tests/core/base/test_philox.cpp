// The random generator: known answers, statistics, and independence of how values are asked for.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "support/check.h"

using nxd::RandomSite;

namespace {

// Random123's tests/kat_vectors, lines "philox4x32 10": counter, key, result.
void test_known_answers(void**) {
  using Words = std::array<uint32_t, 4>;
  const auto check = [](Words counter, std::array<uint32_t, 2> key, Words expected) {
    assert_true(nxd::philox4x32_10(counter, key) == expected);
  };
  check({0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  check({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  check({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

// Values may never change between releases or machines: a model's initial weights are their seed.
void test_pinned_values(void**) {
  const RandomSite site(1234, "layers.0.weight");
  const double uniform[] = {0x1.8166fb2a2fbc0p-3, 0x1.6822ceaca3272p-1, 0x1.d5d774240de38p-1,
                            0x1.fb39d5c60f900p-5};
  const double normal[] = {-0x1.0e27e4d5f0927p-1, -0x1.bffb524d8f1a0p+0, 0x1.88c9143d37fcdp-2,
                           0x1.420778c369339p-3};
  for (uint64_t i = 0; i < 4; ++i) {
    if (site.uniform(i) != uniform[i]) fail_msg("uniform %d: %a", (int)i, site.uniform(i));
    if (site.normal(i) != normal[i]) fail_msg("normal %d: %a", (int)i, site.normal(i));
  }
}

void test_elementary_functions(void**) {
  // Box-Muller backwards: radius and angle of a pair against libm.
  const RandomSite site(5, "pairs");
  for (uint64_t pair = 0; pair < 20000; ++pair) {
    const double a = site.normal(2 * pair), b = site.normal(2 * pair + 1);
    const double u = site.uniform(2 * pair) + 0x1p-53, v = site.uniform(2 * pair + 1);
    const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * M_PI * v;
    assert_true(std::abs(a - radius * std::cos(angle)) <= 4e-15 * std::max(1.0, radius));
    assert_true(std::abs(b - radius * std::sin(angle)) <= 4e-15 * std::max(1.0, radius));
  }
}

void test_statistics(void**) {
  constexpr size_t n = 1 << 20;
  const RandomSite site(42, "statistics");
  std::vector<double> x(n);
  site.fill_uniform(NXD_DTYPE_F64, x.data(), 0, n, 0, 1);
  double mean = 0, square = 0, lag = 0;
  for (size_t i = 0; i < n; ++i) {
    assert_true(x[i] >= 0 && x[i] < 1);
    mean += x[i] / n;
    square += (x[i] - 0.5) * (x[i] - 0.5) / n;
    if (i) lag += (x[i] - 0.5) * (x[i - 1] - 0.5) / n;
  }
  // Five standard errors of each estimate.
  assert_true(std::abs(mean - 0.5) < 5 * std::sqrt(1 / 12.0 / n));
  assert_true(std::abs(square - 1 / 12.0) < 5 * std::sqrt(1 / 180.0 / n));
  assert_true(std::abs(lag) < 5 / 12.0 / std::sqrt(n));
  // Kolmogorov and Smirnov's distance; 1.95 / sqrt(n) is exceeded with probability 0.001.
  std::sort(x.begin(), x.end());
  double distance = 0;
  for (size_t i = 0; i < n; ++i)
    distance = std::max(distance, std::abs(x[i] - (static_cast<double>(i) + 0.5) / n));
  assert_true(distance < 1.95 / std::sqrt(n));

  site.fill_normal(NXD_DTYPE_F64, x.data(), 0, n, 0, 1);
  double third = 0, fourth = 0;
  mean = square = lag = 0;
  for (size_t i = 0; i < n; ++i) {
    mean += x[i] / n;
    square += x[i] * x[i] / n;
    third += std::pow(x[i], 3) / n;
    fourth += std::pow(x[i], 4) / n;
    if (i) lag += x[i] * x[i - 1] / n;
  }
  assert_true(std::abs(mean) < 5 / std::sqrt(n));
  assert_true(std::abs(square - 1) < 5 * std::sqrt(2.0 / n));
  assert_true(std::abs(third) < 5 * std::sqrt(15.0 / n));
  assert_true(std::abs(fourth - 3) < 5 * std::sqrt(96.0 / n));
  assert_true(std::abs(lag) < 5 / std::sqrt(n));
  std::sort(x.begin(), x.end());
  distance = 0;
  for (size_t i = 0; i < n; ++i) {
    const double below = 0.5 * std::erfc(-x[i] / std::sqrt(2));
    distance = std::max(distance, std::abs(below - (static_cast<double>(i) + 0.5) / n));
  }
  assert_true(distance < 1.95 / std::sqrt(n));

  std::vector<uint8_t> kept(n);
  for (const double p : {0.1, 0.5, 0.9}) {
    site.fill_bernoulli(kept.data(), 0, n, p);
    double ones = 0;
    for (const uint8_t k : kept) ones += k;
    assert_true(std::abs(ones / n - p) < 5 * std::sqrt(p * (1 - p) / n));
  }
  site.fill_bernoulli(kept.data(), 0, n, 1);
  assert_int_equal(std::count(kept.begin(), kept.end(), 1), n);
  site.fill_bernoulli(kept.data(), 0, n, 0);
  assert_int_equal(std::count(kept.begin(), kept.end(), 0), n);
}

// Any run of indices gives the values that single questions give.
template <class T>
void check_runs(nxd_dtype_t dtype) {
  const RandomSite site = RandomSite(7, "runs").at(3, 2);
  const uint64_t base = (uint64_t{1} << 33) - 5;  // crosses a carry into the second counter word
  for (uint64_t first = base; first < base + 9; ++first) {
    for (size_t count = 0; count < 9; ++count) {
      std::vector<T> uniform(count + 1, T(-9)), normal(count + 1, T(-9));
      std::vector<uint8_t> kept(count + 1, 9);
      site.fill_uniform(dtype, uniform.data(), first, count, 0, 1);
      site.fill_normal(dtype, normal.data(), first, count, 0, 1);
      site.fill_bernoulli(kept.data(), first, count, 0.3);
      for (size_t i = 0; i < count; ++i) {
        T one_uniform;
        uint8_t one_kept;
        site.fill_uniform(dtype, &one_uniform, first + i, 1, 0, 1);
        site.fill_bernoulli(&one_kept, first + i, 1, 0.3);
        assert_true(uniform[i] == one_uniform);
        assert_true(normal[i] == static_cast<T>(site.normal(first + i)));
        assert_int_equal(kept[i], one_kept);
      }
      assert_true(uniform[count] == T(-9) && normal[count] == T(-9) && kept[count] == 9);
    }
  }
}

void test_runs(void**) {
  check_runs<float>(NXD_DTYPE_F32);
  check_runs<double>(NXD_DTYPE_F64);
}

void test_bounds(void**) {
  const RandomSite site(1, "bounds");
  constexpr size_t n = 100000;
  std::vector<float> f(n);
  std::vector<double> d(n);
  site.fill_uniform(NXD_DTYPE_F32, f.data(), 0, n, -0.1, 0.1);
  site.fill_uniform(NXD_DTYPE_F64, d.data(), 0, n, -0.1, 0.1);
  for (size_t i = 0; i < n; ++i) {
    assert_true(f[i] >= -0.1f && f[i] < 0.1f);
    assert_true(std::abs(f[i] - d[i]) < 3e-8);
  }
  // The upper 24 bits of a value.
  site.fill_uniform(NXD_DTYPE_F32, f.data(), 0, n, 0, 1);
  site.fill_uniform(NXD_DTYPE_F64, d.data(), 0, n, 0, 1);
  for (size_t i = 0; i < n; ++i) {
    assert_true(static_cast<double>(f[i]) == std::floor(d[i] * 0x1p24) * 0x1p-24);
  }
  // Rounding 1 - 2^-24 of this range to a float would reach the bound.
  site.fill_uniform(NXD_DTYPE_F32, f.data(), 0, n, 1, std::nextafter(1.0f, 2.0f));
  for (size_t i = 0; i < n; ++i) assert_true(f[i] == 1.0f);
  site.fill_uniform(NXD_DTYPE_F32, f.data(), 0, 4, 3, 3);
  assert_true(f[0] == 3 && f[3] == 3);
}

void test_sites_differ(void**) {
  const RandomSite site(1, "w");
  const auto differ = [&](const RandomSite& other) {
    int same = 0;
    for (uint64_t i = 0; i < 64; ++i) same += other.uniform(i) == site.uniform(i);
    assert_int_equal(same, 0);
  };
  differ(RandomSite(2, "w"));
  differ(RandomSite(1, "v"));
  differ(RandomSite(1, ""));
  differ(RandomSite(uint64_t{1} << 63, "w"));
  differ(site.at(1, 0));
  differ(site.at(0, 1));
  differ(site.at((int64_t{1} << 40) - 1, (1 << 24) - 1));
  assert_true(site.at(0, 0).uniform(3) == site.uniform(3));
}

template <class Call>
void refused(const Call& call, const char* part) {
  try {
    call();
  } catch (const nxd::Error& e) {
    assert_int_equal(e.status(), NXD_ERROR_INVALID_ARGUMENT);
    if (!strstr(e.what(), part)) fail_msg("\"%s\" lacks \"%s\"", e.what(), part);
    return;
  }
  fail_msg("not refused: %s", part);
}

void test_bad_arguments(void**) {
  const RandomSite site(1, "w");
  float f[2];
  uint8_t b[2];
  refused([&] { site.at(-1, 0); }, "step");
  refused([&] { site.at(int64_t{1} << 40, 0); }, "step");
  refused([&] { site.at(0, -1); }, "microbatch");
  refused([&] { site.at(0, 1 << 24); }, "microbatch");
  refused([&] { site.fill_uniform(NXD_DTYPE_BF16, f, 0, 2, 0, 1); }, "dtype");
  refused([&] { site.fill_uniform(NXD_DTYPE_F32, nullptr, 0, 2, 0, 1); }, "out");
  refused([&] { site.fill_uniform(NXD_DTYPE_F32, f, 0, 2, 1, 0); }, "low, high");
  refused([&] { site.fill_uniform(NXD_DTYPE_F32, f, 0, 2, 0, NAN); }, "low, high");
  refused([&] { site.fill_uniform(NXD_DTYPE_F32, f, 0, 2, NAN, 1); }, "low, high");
  // Values that no float has, and a distance that no double has.
  double d[2];
  refused([&] { site.fill_uniform(NXD_DTYPE_F32, f, 0, 2, 0, 1e39); }, "low, high");
  refused([&] { site.fill_uniform(NXD_DTYPE_F32, f, 0, 2, -1e39, 0); }, "low, high");
  refused([&] { site.fill_uniform(NXD_DTYPE_F64, d, 0, 2, -1.7e308, 1.7e308); }, "low, high");
  site.fill_uniform(NXD_DTYPE_F32, f, 0, 2, -3e38, 3e38);
  site.fill_uniform(NXD_DTYPE_F64, d, 0, 2, 0, 1.7e308);
  refused([&] { site.fill_normal(NXD_DTYPE_F32, f, 0, 2, 0, -1); }, "deviation");
  refused([&] { site.fill_normal(NXD_DTYPE_I32, f, 0, 2, 0, 1); }, "dtype");
  refused([&] { site.fill_normal(NXD_DTYPE_F32, f, 0, 2, NAN, 1); }, "mean");
  refused([&] { site.fill_normal(NXD_DTYPE_F32, f, 0, 2, 0, INFINITY); }, "deviation");
  // Draws far from the mean would be infinite.
  refused([&] { site.fill_normal(NXD_DTYPE_F32, f, 0, 2, -1e39, 1); }, "mean");
  refused([&] { site.fill_normal(NXD_DTYPE_F32, f, 0, 2, 0, 1e38); }, "deviation");
  refused([&] { site.fill_normal(NXD_DTYPE_F64, d, 0, 2, 1e308, 1e308); }, "deviation");
  site.fill_normal(NXD_DTYPE_F32, f, 0, 2, 0, 3.9e37);
  refused([&] { site.fill_bernoulli(b, 0, 2, 1.5); }, "probability");
  refused([&] { site.fill_bernoulli(b, 0, 2, NAN); }, "probability");
  refused([&] { site.fill_bernoulli(nullptr, 0, 2, 0.5); }, "out");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_known_answers),
                              cmocka_unit_test(test_pinned_values),
                              cmocka_unit_test(test_elementary_functions),
                              cmocka_unit_test(test_statistics),
                              cmocka_unit_test(test_runs),
                              cmocka_unit_test(test_bounds),
                              cmocka_unit_test(test_sites_differ),
                              cmocka_unit_test(test_bad_arguments)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
