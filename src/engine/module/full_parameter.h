#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "engine/module/parameter.h"

// Whole parameters from the shards of a tensor-parallel group. Collective over the group.
namespace nxd {

// A check of this rank's own arguments: when it throws, the ranks that gather with it are told.
using OwnCheck = std::function<void()>;

// A new tensor with the parameter's whole value, the same on every rank.
at::Tensor gather_full(const Parameter& parameter, const OwnCheck& check = {});

// The same for the gradient; undefined when no rank of the group has one. A rank without one counts
// as zeros. A gradient that is still partial on this rank's shard stays so.
at::Tensor gather_full_grad(const Parameter& parameter, const OwnCheck& check = {});

}  // namespace nxd
