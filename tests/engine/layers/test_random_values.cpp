// Random values in 16-bit floats: those of core in F32, rounded, and within their bounds; zeros and
// ones in all.
#include "engine/layers/random_values.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/half.h"

#include "support/check.h"

namespace {

constexpr int64_t kCount = 200000;
constexpr at::ScalarType kDtypes[] = {at::kHalf, at::kBFloat16};

uint16_t rounded(float value, at::ScalarType dtype) {
  return dtype == at::kHalf ? nxd::f32_to_f16(value) : nxd::f32_to_bf16(value);
}
float widened(uint16_t bits, at::ScalarType dtype) {
  return dtype == at::kHalf ? nxd::f16_to_f32(bits) : nxd::bf16_to_f32(bits);
}

// The largest value of the dtype below another, by all of them.
float below(float bound, at::ScalarType dtype) {
  float best = -std::numeric_limits<float>::infinity();
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = widened(static_cast<uint16_t>(bits), dtype);
    if (value < bound) best = std::max(best, value);
  }
  return best;
}

void test_uniform(void**) {
  const nxd::RandomSite site(11, "uniform");
  const std::pair<double, double> bounds[] = {{0, 1}, {-2, -1}, {-1, 0}, {3, 5}, {0, 0.9999}};
  for (const at::ScalarType dtype : kDtypes) {
    for (const auto& [low, high] : bounds) {
      std::vector<float> wide(kCount);
      site.fill_uniform(NXD_DTYPE_F32, wide.data(), 0, wide.size(), low, high);
      const at::Tensor values = nxd::uniform_values(site, {kCount}, dtype, low, high);
      assert_true(values.scalar_type() == dtype);
      const auto* bits = static_cast<const uint16_t*>(values.data_ptr());
      const float bound = widened(rounded(static_cast<float>(high), dtype), dtype);
      const float last = below(bound, dtype);
      int clamped = 0;
      for (size_t i = 0; i < wide.size(); ++i) {
        const float near = widened(rounded(wide[i], dtype), dtype);
        const float got = widened(bits[i], dtype), want = near < bound ? near : last;
        if (got != want) fail_msg("%g to %g: %zu is %a, expected %a", low, high, i, got, want);
        clamped += near >= bound;
      }
      assert_true(clamped > 0 || high == 0);
    }
    const at::Tensor same = nxd::uniform_values(site, {4}, dtype, 3, 3);
    assert_true(same.eq(3).all().item<bool>());
  }
}

template <class Call>
void refused(const Call& call) {
  try {
    call();
  } catch (const nxd::Error& error) {
    assert_int_equal(error.status(), NXD_ERROR_INVALID_ARGUMENT);
    return;
  }
  fail_msg("not refused");
}

// Values that the dtype does not have, though F32 does.
void test_range(void**) {
  const nxd::RandomSite site(11, "range");
  refused([&] { nxd::uniform_values(site, {4}, at::kHalf, 0, 70000); });
  refused([&] { nxd::uniform_values(site, {4}, at::kHalf, -70000, 0); });
  refused([&] { nxd::uniform_values(site, {4}, at::kBFloat16, 0, 3.4e38); });
  refused([&] { nxd::normal_values(site, {4}, at::kHalf, 0, 8000); });
  refused([&] { nxd::normal_values(site, {4}, at::kBFloat16, 3.3895e38, 1e36); });
  assert_true(nxd::uniform_values(site, {4}, at::kHalf, 0, 65504).lt(65504).all().item<bool>());
  assert_true(nxd::normal_values(site, {4}, at::kHalf, 0, 7000).isfinite().all().item<bool>());
}

void test_bernoulli(void**) {
  const nxd::RandomSite site(11, "bernoulli");
  for (const double probability : {0.0, 1e-300, 1e-5, 0.5, 1.0}) {
    std::vector<uint8_t> wanted(kCount);
    site.fill_bernoulli(wanted.data(), 0, wanted.size(), probability);
    const at::Tensor want = at::from_blob(wanted.data(), {kCount}, at::kByte);
    for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
      const at::Tensor values = nxd::bernoulli_values(site, {kCount}, dtype, probability);
      assert_true(values.scalar_type() == dtype);
      assert_true(values.equal(want.to(dtype)));
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_uniform), cmocka_unit_test(test_range),
                              cmocka_unit_test(test_bernoulli)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
