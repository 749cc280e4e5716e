// Values are those of RandomSite, to the bit, in any run of numbers and in vectors of every width.
#include "core/kernels/vector_targets.h"

#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "core/kernels/random_fill.h"

#include "support/check.h"
#include "support/sanitized.h"

using namespace nxd;

namespace {

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
void check_run(const RandomSite& site, nxd_dtype_t dtype, uint64_t first, int64_t count) {
  const auto size = static_cast<size_t>(count);
  const auto check = [&](double a, double b) {
    std::vector<T> want(size + 1, T(-9)), got = want;
    site.fill_uniform(dtype, want.data(), first, size, a, b);
    kernels::fill_uniform(site, dtype, got.data(), first, count, a, b);
    assert_true(same_bits(got, want));
    site.fill_normal(dtype, want.data(), first, size, a, b);
    kernels::fill_normal(site, dtype, got.data(), first, count, a, b);
    assert_true(same_bits(got, want));
  };
  check(0, 1);
  check(-0.03, 0.02);
  check(0.25, 0.25);
}

template <class T>
void check_runs(nxd_dtype_t dtype) {
  const RandomSite site = RandomSite(7, "runs").at(5, 3);
  const uint64_t base = (uint64_t{1} << 33) - 5;  // block numbers carry into their second word
  for (uint64_t first = base; first < base + 5; ++first) {
    for (const int64_t count : {0, 1, 2, 3, 7, 16, 33, 510, 511, 512, 513, 1500}) {
      check_run<T>(site, dtype, first, count);
    }
  }
}

void every_target(void**) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    check_runs<float>(NXD_DTYPE_F32);
    check_runs<double>(NXD_DTYPE_F64);
    hwy::SetSupportedTargetsForTest(0);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// Runs long enough for a team, with rare values among them: all quadrants, draws next to 0 and 1,
// uniform values that are rounded up to the bound.
void long_runs(void**) {
  const RandomSite site(11, "long");
  constexpr int64_t kCount = kSanitized ? 200001 : 3000001;
  check_run<float>(site, NXD_DTYPE_F32, 3, kCount);
  check_run<double>(site, NXD_DTYPE_F64, 4, kCount);
}

// Where the bound is the next number after the lowest, a half of all values would round to it.
template <class T>
void check_narrow(nxd_dtype_t dtype) {
  const T high = std::nextafter(T{1}, T{2});
  std::vector<T> values(1000);
  kernels::fill_uniform(RandomSite(11, "narrow"), dtype, values.data(), 0, 1000, 1, double{high});
  for (const T value : values) assert_true(value == 1);
}

void bounds_are_not_reached(void**) {
  check_narrow<float>(NXD_DTYPE_F32);
  check_narrow<double>(NXD_DTYPE_F64);
}

void bad_arguments(void**) {
  const RandomSite site(11, "bad");
  float out[4];
  const auto is_refused = [&](auto&& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.status() == NXD_ERROR_INVALID_ARGUMENT;
    }
    return false;
  };
  const double nan = NAN;
  assert_true(is_refused([&] { kernels::fill_normal(site, NXD_DTYPE_F32, out, 0, 4, 0, -1); }));
  assert_true(is_refused([&] { kernels::fill_normal(site, NXD_DTYPE_F32, out, 0, 4, nan, 1); }));
  assert_true(is_refused([&] { kernels::fill_normal(site, NXD_DTYPE_BF16, out, 0, 4, 0, 1); }));
  assert_true(is_refused([&] { kernels::fill_uniform(site, NXD_DTYPE_F32, out, 0, 4, 1, 0); }));
  assert_true(is_refused([&] { kernels::fill_uniform(site, NXD_DTYPE_I64, out, 0, 4, 0, 1); }));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(every_target), cmocka_unit_test(long_runs),
                              cmocka_unit_test(bounds_are_not_reached),
                              cmocka_unit_test(bad_arguments)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
