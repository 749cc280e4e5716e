#include "engine/nn/norm.h"

#include <ATen/ATen.h>

#include <cmath>

#include "engine/nn/norm_op.h"

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
  const auto add = [&](const char* name, double start, std::shared_ptr<Parameter>& member) {
    mark_replicated(make_parameter(*this, path, name, ShardSpec::replicated({size}),
                                   Initializer::constant(start), place_),
                    group_, sequence_parallel);
    follow(name, member);
  };
  add("weight", 1, weight_);
  if (has_bias) add("bias", 0, bias_);
}

void Norm::check_input(const Tensors& inputs, size_t n_outputs) const {
  check_arity(inputs, n_outputs, 1, 1, 1);
  check_argument(inputs[0].dim() >= 1 && inputs[0].size(-1) == size_, class_name(),
                 ": input: expected ", size_, " features in the last dimension, got shape ",
                 inputs[0].sizes());
  check_argument(inputs[0].scalar_type() == place_.dtype, class_name(), ": input: expected dtype ",
                 c10::toString(place_.dtype), ", got ", c10::toString(inputs[0].scalar_type()));
}

LayerNorm::LayerNorm(std::shared_ptr<Context> context, int64_t size,
                     const nxd_norm_options_t& options)
    : Norm(std::move(context), "LayerNorm", size, options, toggle(options.bias, true, "bias")) {}

Module::Tensors LayerNorm::forward(const Tensors& inputs, size_t n_outputs) {
  check_input(inputs, n_outputs);
  return {layer_norm(*context(), inputs[0], weight(), bias(), eps())};
}

RmsNorm::RmsNorm(std::shared_ptr<Context> context, int64_t size, const nxd_norm_options_t& options)
    : Norm(std::move(context), "RMSNorm", size, options, false) {}

Module::Tensors RmsNorm::forward(const Tensors& inputs, size_t n_outputs) {
  check_input(inputs, n_outputs);
  return {rms_norm(*context(), inputs[0], weight(), eps())};
}

}  // namespace nxd
