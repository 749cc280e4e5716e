// Kept elements are those of RandomSite::fill_bernoulli, in any run of numbers and in vectors of
// every width.
#include "core/kernels/vector_targets.h"

#include <hwy/targets.h>

#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/kernels/dropout.h"

#include "support/check.h"

using namespace nxd;
using namespace nxd::kernels;

namespace {

void check_run(const RandomSite& site, uint64_t first, int64_t count, double keep) {
  const auto size = static_cast<size_t>(count);
  std::vector<uint8_t> want(size + 1, 9), kept = want;
  std::vector<float> factors(size + 1, 9);
  site.fill_bernoulli(want.data(), first, size, keep);
  draw_kept(site, first, count, keep, kept.data());
  assert_true(kept == want);
  if (keep == 0) return;
  draw_kept_factors(site, first, count, keep, factors.data());
  for (size_t i = 0; i < size; ++i) {
    assert_true(factors[i] == (want[i] ? static_cast<float>(1 / keep) : 0.0F));
  }
  assert_true(factors[size] == 9);
}

void check_runs() {
  const RandomSite site = RandomSite(7, "runs").at(5, 3);
  const uint64_t base = (uint64_t{1} << 34) - 6;  // block numbers carry into their second word
  for (const double keep : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    for (uint64_t first = base; first < base + 9; ++first) {
      for (const int64_t count : {0, 1, 3, 4, 7, 16, 33, 508, 509, 512, 700}) {
        check_run(site, first, count, keep);
      }
    }
  }
}

void every_target(void**) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    check_runs();
    hwy::SetSupportedTargetsForTest(0);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// Runs long enough for a team.
void long_runs(void**) {
  const RandomSite site(11, "long");
  check_run(site, 3, 300001, 0.8);
}

void bad_probabilities(void**) {
  const RandomSite site(11, "bad");
  uint8_t out[4];
  for (const double keep : {-0.1, 1.1, double{NAN}}) {
    bool refused = false;
    try {
      draw_kept(site, 0, 4, keep, out);
    } catch (const Error& error) {
      refused = error.status() == NXD_ERROR_INVALID_ARGUMENT;
    }
    assert_true(refused);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(every_target), cmocka_unit_test(long_runs),
                              cmocka_unit_test(bad_probabilities)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
