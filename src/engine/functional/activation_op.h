#pragma once

#include <ATen/core/Tensor.h>

#include "core/world/context.h"

namespace nxd {

// INVALID_ARGUMENT for a value that is no activation.
void check_activation(nxd_activation_t activation);

// activation(x), differentiable.
at::Tensor activate(const Context& context, nxd_activation_t activation, const at::Tensor& x);

// activation(gate) * up, differentiable; one pass where use_fused holds and the activation is SiLU.
at::Tensor gated_activation(const Context& context, nxd_activation_t activation,
                            const at::Tensor& gate, const at::Tensor& up);

}  // namespace nxd
