#include "engine/layers/replicated_linear.h"

#include <cmath>

namespace nxd {

ReplicatedLinear::ReplicatedLinear(const LayerContext& at, int64_t in_features,
                                   int64_t out_features, const LinearOptions& options)
    : Module(at.context, "Linear"),
      in_features_(in_features),
      skip_bias_add_(options.skip_bias_add) {
  check_argument(in_features > 0, "in_features: expected a positive number, got ", in_features);
  check_argument(out_features > 0, "out_features: expected a positive number, got ", out_features);
  check_argument(!options.keep_master_weight,
                 "keep_master_weight: expected 0, a Linear's own weight is whole");
  plan_.context = context();
  plan_.group = at.group();
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_features));
  const Initializer uniform = Initializer::uniform(-bound, bound);
  const auto add = [&](const char* name, ShardSpec::Shape shape, const Initializer& start) {
    mark_replicated(make_parameter(*this, at, name, ShardSpec::replicated(std::move(shape)), start),
                    plan_.group, at.sequence_parallel);
  };
  add("weight", {out_features, in_features}, at.init.resolve(uniform, in_features));
  if (!options.bias) return;
  add("bias", {out_features}, at.init.is_default() ? uniform : Initializer::constant(0));
}

Module::Tensors ReplicatedLinear::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, skip_bias_add_ ? 2 : 1);
  const at::Tensor weight = parameter_value("weight"), bias = parameter_value("bias");
  check_features(*plan_.group, class_name(), inputs[0], in_features_, weight);
  Tensors outputs{parallel_linear(plan_, inputs[0], weight, skip_bias_add_ ? at::Tensor() : bias)};
  if (n_outputs == 2) outputs.push_back(bias);
  return outputs;
}

}  // namespace nxd
