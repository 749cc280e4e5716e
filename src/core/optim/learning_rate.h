#pragma once

#include "nxd.h"

namespace nxd {

// INVALID_ARGUMENT for a schedule that has a field out of range.
void check_schedule(const nxd_lr_schedule_options_t& options);

// The factor on the learning rate at a step, counted from 0; see nxd_lr_schedule_get_factor. Pure.
double schedule_factor(const nxd_lr_schedule_options_t& options, int64_t step);

}  // namespace nxd
