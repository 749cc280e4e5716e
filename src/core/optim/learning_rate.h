#pragma once

#include <cstdint>

#include "nxd.h"

namespace nxd {

// A learning rate's course over the steps; see nxd_lr_schedule_get_factor.
struct LearningRateSchedule {
  nxd_lr_schedule_t kind = NXD_LR_SCHEDULE_CONSTANT;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;  // LINEAR and COSINE: more than warmup_steps
  double final_factor = 0;
};

// INVALID_ARGUMENT for a schedule that has a field out of range.
void check_schedule(const LearningRateSchedule& schedule);

// The factor on the learning rate at a step, counted from 0; see nxd_lr_schedule_get_factor. Pure.
double schedule_factor(const LearningRateSchedule& schedule, int64_t step);

}  // namespace nxd
