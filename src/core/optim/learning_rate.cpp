#include "core/optim/learning_rate.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace nxd {

void check_schedule(const nxd_lr_schedule_options_t& options) {
  const bool constant = options.kind == NXD_LR_SCHEDULE_CONSTANT;
  check_argument(
      constant || options.kind == NXD_LR_SCHEDULE_LINEAR || options.kind == NXD_LR_SCHEDULE_COSINE,
      "kind: expected NXD_LR_SCHEDULE_CONSTANT, _LINEAR or _COSINE, got ", options.kind);
  check_argument(options.reserved == 0, "reserved: expected 0, got ", options.reserved);
  check_argument(options.warmup_steps >= 0, "warmup_steps: expected at least 0, got ",
                 options.warmup_steps);
  check_argument(constant || options.total_steps > options.warmup_steps,
                 "total_steps: expected more than warmup_steps, ", options.warmup_steps, ", got ",
                 options.total_steps);
  check_argument(options.final_factor >= 0 && options.final_factor <= 1,
                 "final_factor: expected a number of [0, 1], got ", options.final_factor);
}

double schedule_factor(const nxd_lr_schedule_options_t& options, int64_t step) {
  check_argument(step >= 0, "step: expected at least 0, got ", step);
  if (step < options.warmup_steps) {
    return (static_cast<double>(step) + 1) / static_cast<double>(options.warmup_steps);
  }
  if (options.kind == NXD_LR_SCHEDULE_CONSTANT) return 1;
  // The part of the way down that is done.
  const double way =
      std::min(1.0, static_cast<double>(step - options.warmup_steps) /
                        static_cast<double>(options.total_steps - options.warmup_steps));
  const double left =
      options.kind == NXD_LR_SCHEDULE_LINEAR ? 1 - way : 0.5 * (1 + std::cos(M_PI * way));
  return options.final_factor + (1 - options.final_factor) * left;
}

}  // namespace nxd
