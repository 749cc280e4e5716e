#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

namespace nxd {

// How large the tensors of a trial are.
enum class TrialSizes { kGiven, kLeast };

// Arguments of an operator on the CPU for those on the meta device: each tensor is full of a
// number, and has the sizes and strides of the given one, or 1 for each of the sizes that is not 0.
// Tensors of places that kernels write to unseen have the first place, whatever the number is.
torch::jit::Stack trial_arguments(const c10::FunctionSchema& schema, const torch::jit::Stack& meta,
                                  int number, TrialSizes sizes);

}  // namespace nxd
