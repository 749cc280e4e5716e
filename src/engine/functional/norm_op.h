#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "core/world/context.h"

// Differentiable normalisations over the last dimension, fused where use_fused holds, in F32 under
// automatic casts; else all tensors are of one dtype.
namespace nxd {

// x / rms(x) * weight. The weight may be undefined.
at::Tensor rms_norm(const Context& context, const at::Tensor& x, const at::Tensor& weight,
                    double eps);

// {x + residual, rms_norm(x + residual)}: one pass, and no sum of gradients in the backward. The
// residual may be undefined; then x takes the place of the sum.
std::pair<at::Tensor, at::Tensor> add_rms_norm(const Context& context, const at::Tensor& x,
                                               const at::Tensor& residual, const at::Tensor& weight,
                                               double eps);

// {x, rms_norm(x)} for a residual that begins with x: the norm's backward adds the gradients by
// both. The first is a view that nobody may write to.
std::pair<at::Tensor, at::Tensor> rms_norm_and_input(const Context& context, const at::Tensor& x,
                                                     const at::Tensor& weight, double eps);

// (x - mean) / std * weight + bias. Weight and bias may be undefined.
at::Tensor layer_norm(const Context& context, const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& bias, double eps);

// {x + residual, layer_norm(x + residual)}, as add_rms_norm; without a residual x comes back as the
// sum.
std::pair<at::Tensor, at::Tensor> add_layer_norm(const Context& context, const at::Tensor& x,
                                                 const at::Tensor& residual,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 double eps);

}  // namespace nxd
