#pragma once

#include <ATen/core/Tensor.h>

#include "engine/device/recording.h"

// Nodes of recorded graphs that differ in a number alone, such as that of a rank or of a
// microbatch. The number is an input of the graph, so that all ranks and all microbatches record
// one graph.
namespace nxd {

// The part of x of this number, among parts of one size along dim, from the beginning on.
DeviceValuePtr record_part_at(const DeviceValuePtr& x, int64_t dim, int64_t number, int64_t size);
// Zeros of this extent along dim, with part in the place of this number.
DeviceValuePtr record_placed_part(const DeviceValuePtr& part, int64_t dim, int64_t number,
                                  int64_t extent);

// x on the recorded device, with a value in place of all but the first elements of the last
// dimension, so many of them. No gradient passes there.
at::Tensor filled_behind(const at::Tensor& x, int64_t first, double value);

}  // namespace nxd
