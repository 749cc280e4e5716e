#include "engine/layers/norm.h"

#include <ATen/ATen.h>

#include <cmath>

#include "engine/functional/norm_op.h"
#include "engine/ops/autocast.h"
#include "engine/ops/compute.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

// By the value itself: one that is tied is cast and moved with other modules, too.
void check_parameter(const std::string& layer, const std::string& name, const at::Tensor& value,
                     const at::Tensor& x) {
  check_argument(takes_input(value.scalar_type(), x.scalar_type()), layer,
                 ": input: expected dtype ", dtype_text(value.scalar_type()), ", that of the ",
                 name, ", got ", dtype_text(x.scalar_type()));
  check_argument(on_same_device(value, x), layer, ": input: expected device ", value.device(),
                 ", where the parameters are, got ", x.device());
}

}  // namespace

Norm::Norm(const LayerContext& at, const char* class_name, int64_t size, const NormOptions& options,
           bool has_bias)
    : Module(at.context, class_name), size_(size), eps_(options.eps), dtype_(at.dtype) {
  const GroupRef group = at.group();
  check_argument(size > 0, "size: expected a positive number, got ", size);
  check_argument(std::isfinite(eps_) && eps_ > 0, "eps: expected a positive number, got ", eps_);
  check_argument(!options.bias.value_or(false) || (has_bias && options.affine),
                 "bias: expected off ", has_bias ? "without affine" : "for a norm that has none",
                 ", got on");
  note_options(eps_);
  if (!options.affine) return;
  const auto add = [&](const char* name, double start) {
    mark_replicated(make_parameter(*this, at, name, ShardSpec::replicated({size}),
                                   Initializer::constant(start)),
                    group, at.sequence_parallel);
  };
  add("weight", 1);
  if (has_bias && options.bias.value_or(true)) add("bias", 0);
}

void Norm::check_inputs(const Tensors& inputs, size_t n_outputs) const {
  check_arity(inputs, n_outputs, 1, 2, 2);
  const at::Tensor& x = inputs[0];
  check_argument(x.dim() >= 1 && x.size(-1) == size_, class_name(), ": input: expected ", size_,
                 " features in the last dimension, got shape ", x.sizes());
  if (parameters().empty()) {
    check_argument(takes_input(dtype_, x.scalar_type()), class_name(), ": input: expected dtype ",
                   dtype_text(dtype_), ", got ", dtype_text(x.scalar_type()));
  }
  for (const auto& [name, parameter] : parameters()) {
    check_parameter(class_name(), name, parameter->tensor(), x);
  }
  const at::Tensor added = residual(inputs);
  if (!added.defined()) return;
  check_argument(on_same_device(added, x), class_name(), ": residual: expected device ", x.device(),
                 ", where the input is, got ", added.device());
  check_argument(added.sizes() == x.sizes() && takes_input(x.scalar_type(), added.scalar_type()),
                 class_name(), ": residual: expected ", dtype_text(x.scalar_type()),
                 " of the input's shape ", x.sizes(), ", got ", dtype_text(added.scalar_type()),
                 " of shape ", added.sizes());
}

at::Tensor Norm::residual(const Tensors& inputs) {
  return inputs.size() > 1 ? inputs[1] : at::Tensor();
}

Module::Tensors Norm::results(const std::pair<at::Tensor, at::Tensor>& sum_and_norm,
                              size_t n_outputs) {
  if (n_outputs == 1) return {sum_and_norm.second};
  return {sum_and_norm.second, sum_and_norm.first};
}

LayerNorm::LayerNorm(const LayerContext& at, int64_t size, const NormOptions& options)
    : Norm(at, "LayerNorm", size, options, true) {}

Module::Tensors LayerNorm::forward(const Tensors& inputs, size_t n_outputs) {
  check_inputs(inputs, n_outputs);
  return results(add_layer_norm(*context(), inputs[0], residual(inputs), weight(), bias(), eps()),
                 n_outputs);
}

RmsNorm::RmsNorm(const LayerContext& at, int64_t size, const NormOptions& options)
    : Norm(at, "RMSNorm", size, options, false) {}

Module::Tensors RmsNorm::forward(const Tensors& inputs, size_t n_outputs) {
  check_inputs(inputs, n_outputs);
  const at::Tensor added = residual(inputs);
  if (!added.defined() && n_outputs == 1) return {rms_norm(*context(), inputs[0], weight(), eps())};
  return results(add_rms_norm(*context(), inputs[0], added, weight(), eps()), n_outputs);
}

}  // namespace nxd
