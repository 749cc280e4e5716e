#pragma once

#include <ATen/core/Tensor.h>

#include "engine/module/parameter.h"

// Whole parameters from the shards of a tensor-parallel group. Collective over the group.
namespace nxd {

// A new tensor with the parameter's whole value, the same on every rank.
at::Tensor gather_full(const Parameter& parameter);

// The same for the gradient; undefined when no rank of the group has one. A rank without one counts
// as zeros. A gradient that is still partial on this rank's shard stays so.
at::Tensor gather_full_grad(const Parameter& parameter);

}  // namespace nxd
