#include "core/optim/learning_rate.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace nxd {

void check_schedule(const LearningRateSchedule& schedule) {
  const bool constant = schedule.kind == NXD_LR_SCHEDULE_CONSTANT;
  check_argument(constant || schedule.kind == NXD_LR_SCHEDULE_LINEAR ||
                     schedule.kind == NXD_LR_SCHEDULE_COSINE,
                 "kind: expected NXD_LR_SCHEDULE_CONSTANT, _LINEAR or _COSINE, got ",
                 schedule.kind);
  check_argument(schedule.warmup_steps >= 0, "warmup_steps: expected at least 0, got ",
                 schedule.warmup_steps);
  check_argument(constant || schedule.total_steps > schedule.warmup_steps,
                 "total_steps: expected more than warmup_steps, ", schedule.warmup_steps, ", got ",
                 schedule.total_steps);
  check_argument(schedule.final_factor >= 0 && schedule.final_factor <= 1,
                 "final_factor: expected a number of [0, 1], got ", schedule.final_factor);
}

double schedule_factor(const LearningRateSchedule& schedule, int64_t step) {
  check_argument(step >= 0, "step: expected at least 0, got ", step);
  if (step < schedule.warmup_steps) {
    return (static_cast<double>(step) + 1) / static_cast<double>(schedule.warmup_steps);
  }
  if (schedule.kind == NXD_LR_SCHEDULE_CONSTANT) return 1;
  // The part of the way down that is done.
  const double way =
      std::min(1.0, static_cast<double>(step - schedule.warmup_steps) /
                        static_cast<double>(schedule.total_steps - schedule.warmup_steps));
  const double left =
      schedule.kind == NXD_LR_SCHEDULE_LINEAR ? 1 - way : 0.5 * (1 + std::cos(M_PI * way));
  return schedule.final_factor + (1 - schedule.final_factor) * left;
}

}  // namespace nxd
