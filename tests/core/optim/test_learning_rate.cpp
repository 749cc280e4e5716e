// Schedules of learning rates against their formulas, and what is no schedule.
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "core/optim/learning_rate.h"
#include "support/ranks.h"

#include "support/check.h"

namespace {

double factor(const nxd_lr_schedule_options_t& options, int64_t step) {
  double out = -1;
  assert_int_equal(nxd_lr_schedule_get_factor(&options, step, &out), NXD_OK);
  return out;
}

nxd_lr_schedule_options_t schedule(nxd_lr_schedule_t kind, int64_t warmup, int64_t total,
                                   double last) {
  nxd_lr_schedule_options_t options = NXD_LR_SCHEDULE_OPTIONS_INIT;
  options.kind = kind;
  options.warmup_steps = warmup;
  options.total_steps = total;
  options.final_factor = last;
  return options;
}

void near(double got, double want) {
  if (!(std::fabs(got - want) <= 1e-15)) fail_msg("expected %.17g, got %.17g", want, got);
}

void by_formula(void**) {
  constexpr int64_t kWarmup = 4, kTotal = 24;
  const auto constant = schedule(NXD_LR_SCHEDULE_CONSTANT, kWarmup, 0, 0);
  const auto linear = schedule(NXD_LR_SCHEDULE_LINEAR, kWarmup, kTotal, 0.1);
  const auto cosine = schedule(NXD_LR_SCHEDULE_COSINE, kWarmup, kTotal, 0.1);
  for (int64_t step = 0; step < kWarmup; ++step) {
    for (const auto& each : {constant, linear, cosine}) {
      near(factor(each, step), static_cast<double>(step + 1) / 4);
    }
  }
  for (int64_t step = kWarmup; step <= kTotal; ++step) {
    const double way = static_cast<double>(step - kWarmup) / 20;
    near(factor(constant, step), 1);
    near(factor(linear, step), 1 - 0.9 * way);
    near(factor(cosine, step), 0.1 + 0.45 * (1 + std::cos(3.14159265358979323846 * way)));
  }
  for (const int64_t step : {kTotal, kTotal + 1, std::numeric_limits<int64_t>::max()}) {
    near(factor(constant, step), 1);
    near(factor(linear, step), 0.1);
    near(factor(cosine, step), 0.1);
  }
}

// Values by hand: a quarter, half and three quarters of the way down.
void known_values(void**) {
  const auto cosine = schedule(NXD_LR_SCHEDULE_COSINE, 0, 8, 0);
  near(factor(cosine, 0), 1);
  near(factor(cosine, 2), 0.5 + 0.5 * std::sqrt(0.5));
  near(factor(cosine, 4), 0.5);
  near(factor(cosine, 6), 0.5 - 0.5 * std::sqrt(0.5));
  near(factor(cosine, 8), 0);
  const auto linear = schedule(NXD_LR_SCHEDULE_LINEAR, 0, 8, 0);
  near(factor(linear, 2), 0.75);
  near(factor(linear, 8), 0);
  near(factor(schedule(NXD_LR_SCHEDULE_LINEAR, 2, 3, 1), 2), 1);
  double out = 0;
  assert_int_equal(nxd_lr_schedule_get_factor(nullptr, 7, &out), NXD_OK);
  near(out, 1);
}

void refused(const nxd_lr_schedule_options_t& options, int64_t step, const char* part) {
  double out = 5;
  NXD_TEST_REFUSED(nxd_lr_schedule_get_factor(&options, step, &out), NXD_ERROR_INVALID_ARGUMENT,
                   part);
  assert_true(out == 0);
}

void bad_values(void**) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused(schedule(NXD_LR_SCHEDULE_INVALID, 0, 1, 0), 0, "kind: expected NXD_LR_SCHEDULE_CONSTANT");
  refused(schedule(3, 0, 1, 0), 0, "got 3");
  refused(schedule(NXD_LR_SCHEDULE_CONSTANT, -1, 1, 0), 0,
          "warmup_steps: expected at least 0, got -1");
  refused(schedule(NXD_LR_SCHEDULE_LINEAR, 5, 5, 0), 0, "total_steps: expected more than");
  refused(schedule(NXD_LR_SCHEDULE_COSINE, 0, 0, 0), 0, "total_steps");
  refused(schedule(NXD_LR_SCHEDULE_COSINE, 0, 9, -0.1), 0,
          "final_factor: expected a number of [0, 1]");
  refused(schedule(NXD_LR_SCHEDULE_COSINE, 0, 9, 1.1), 0, "got 1.1");
  refused(schedule(NXD_LR_SCHEDULE_COSINE, 0, 9, nan), 0, "final_factor");
  refused(schedule(NXD_LR_SCHEDULE_LINEAR, 0, 9, 0), -1, "step: expected at least 0, got -1");
  auto set = schedule(NXD_LR_SCHEDULE_LINEAR, 0, 9, 0);
  set.reserved = 1;
  refused(set, 0, "reserved");
  NXD_TEST_REFUSED(nxd_lr_schedule_get_factor(&set, 0, nullptr), NXD_ERROR_INVALID_ARGUMENT,
                   "out_factor");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(by_formula), cmocka_unit_test(known_values),
                              cmocka_unit_test(bad_values)};
  return cmocka_run_group_tests(tests, nullptr, nullptr) + nxd_test_failures();
}
