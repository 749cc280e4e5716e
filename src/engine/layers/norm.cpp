#include "engine/layers/norm.h"

#include <ATen/ATen.h>

#include <cmath>

#include "engine/functional/norm_op.h"
#include "engine/ops/autocast.h"

namespace nxd {

Norm::Norm(std::shared_ptr<Context> context, const char* class_name, int64_t size,
           const nxd_norm_options_t& options, bool has_bias)
    : Module(std::move(context), class_name),
      group_(tensor_group(*this->context())),
      size_(size),
      eps_(options.eps == 0 ? 1e-5 : options.eps),
      place_(parameter_place(options.dtype, options.device)) {
  check_argument(size > 0, "size: expected a positive number, got ", size);
  check_argument(std::isfinite(eps_) && eps_ > 0, "eps: expected a positive number, got ",
                 options.eps);
  if (!toggle(options.affine, true, "affine")) return;
  const bool sequence_parallel = options.sequence_parallel != 0;
  const std::string path = options.name ? options.name : "";
  const auto add = [&](const char* name, double start) {
    mark_replicated(make_parameter(*this, path, name, ShardSpec::replicated({size}),
                                   Initializer::constant(start), place_),
                    group_, sequence_parallel);
  };
  add("weight", 1);
  if (has_bias) add("bias", 0);
}

void Norm::check_inputs(const Tensors& inputs, size_t n_outputs) const {
  check_arity(inputs, n_outputs, 1, 2, 2);
  const at::Tensor& x = inputs[0];
  check_argument(x.dim() >= 1 && x.size(-1) == size_, class_name(), ": input: expected ", size_,
                 " features in the last dimension, got shape ", x.sizes());
  check_argument(takes_input(place_.dtype, x.scalar_type()), class_name(),
                 ": input: expected dtype ", c10::toString(place_.dtype), ", got ",
                 c10::toString(x.scalar_type()));
  const at::Tensor added = residual(inputs);
  if (!added.defined()) return;
  check_argument(added.sizes() == x.sizes() && takes_input(x.scalar_type(), added.scalar_type()),
                 class_name(), ": residual: expected ", c10::toString(x.scalar_type()),
                 " of the input's shape ", x.sizes(), ", got ", c10::toString(added.scalar_type()),
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

LayerNorm::LayerNorm(std::shared_ptr<Context> context, int64_t size,
                     const nxd_norm_options_t& options)
    : Norm(std::move(context), "LayerNorm", size, options, toggle(options.bias, true, "bias")) {}

Module::Tensors LayerNorm::forward(const Tensors& inputs, size_t n_outputs) {
  check_inputs(inputs, n_outputs);
  return results(add_layer_norm(*context(), inputs[0], residual(inputs), weight(), bias(), eps()),
                 n_outputs);
}

RmsNorm::RmsNorm(std::shared_ptr<Context> context, int64_t size, const nxd_norm_options_t& options)
    : Norm(std::move(context), "RMSNorm", size, options, false) {}

Module::Tensors RmsNorm::forward(const Tensors& inputs, size_t n_outputs) {
  check_inputs(inputs, n_outputs);
  const at::Tensor added = residual(inputs);
  if (!added.defined() && n_outputs == 1) return {rms_norm(*context(), inputs[0], weight(), eps())};
  return results(add_rms_norm(*context(), inputs[0], added, weight(), eps()), n_outputs);
}

}  // namespace nxd
