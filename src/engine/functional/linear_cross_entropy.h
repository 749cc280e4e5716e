#pragma once

#include <ATen/core/Tensor.h>

#include "engine/functional/cross_entropy.h"
#include "engine/functional/parallel_linear_op.h"

namespace nxd {

// Cross entropy of the logits in(x) W^T + b, where the plan's input says how x enters the
// tensor-parallel region (its output is not used) and the vocabulary is split over the group.
//
// In the fused form the logits of one block of tokens exist at a time. If a gradient will be asked
// for, the block's share of the gradients of x, W and b is formed while its softmax is at hand. So
// a step takes three products instead of four, and backward only scales. Without reduction, for f64
// and with plain kernels it is parallel_linear and parallel_cross_entropy.
//
// x [..., features], weight [vocabulary / ranks, features], bias [vocabulary / ranks] or undefined,
// labels [...] of in(x).
at::Tensor linear_cross_entropy(const ParallelLinearPlan& plan, const at::Tensor& x,
                                const at::Tensor& weight, const at::Tensor& bias,
                                const at::Tensor& labels, const LossFormula& formula);

}  // namespace nxd
