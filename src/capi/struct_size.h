#pragma once

#include <cstddef>

#include "nxd.h"

namespace nxd {

// Bytes of a sized struct in the first release that had it: where it has grown since, up to the
// field it first ended before.
template <class Struct>
constexpr size_t kFirstSize = sizeof(Struct);
template <>
inline constexpr size_t kFirstSize<nxd_error_info_t> = offsetof(nxd_error_info_t, step);
template <>
inline constexpr size_t kFirstSize<nxd_memory_stats_t> = offsetof(nxd_memory_stats_t, cap_bytes);
template <>
inline constexpr size_t kFirstSize<nxd_phase_stats_t> = offsetof(nxd_phase_stats_t,
                                                                 waiting_seconds);
template <>
inline constexpr size_t kFirstSize<nxd_adamw_options_t> = offsetof(nxd_adamw_options_t, formula);
template <>
inline constexpr size_t kFirstSize<nxd_pp_options_t> = offsetof(nxd_pp_options_t, loss_path);
template <>
inline constexpr size_t kFirstSize<nxd_linear_options_t> = offsetof(nxd_linear_options_t, pad);
template <>
inline constexpr size_t kFirstSize<nxd_device_metrics_t> = offsetof(nxd_device_metrics_t, loads);
template <>
inline constexpr size_t kFirstSize<nxd_plan_model_t> = offsetof(nxd_plan_model_t, sliding_window);

// A size beyond this is a struct_size that was never set, not a newer header.
constexpr size_t kLargestStruct = 4096;

}  // namespace nxd
