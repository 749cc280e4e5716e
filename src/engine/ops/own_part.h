#pragma once

#include <ATen/core/Tensor.h>

#include "core/comm/process_group.h"
#include "engine/device/recording.h"

// Nodes of recorded graphs in which ranks differ by a number alone. The number is an input of the
// graph, so that all ranks of a group record one graph.
namespace nxd {

// This rank's part of x along dim, where each rank of the group has one of this size, in rank order
// from the beginning.
DeviceValuePtr record_own_part(const ProcessGroup& group, const DeviceValuePtr& x, int64_t dim,
                               int64_t size);
// Zeros of this extent along dim, with part in the place of this rank's.
DeviceValuePtr record_placed_part(const ProcessGroup& group, const DeviceValuePtr& part,
                                  int64_t dim, int64_t extent);

// x on the recorded device, with a value in place of all but the first elements of the last
// dimension, so many of them as this rank has. No gradient passes there.
at::Tensor filled_behind(const at::Tensor& x, int64_t first, double value);

}  // namespace nxd
