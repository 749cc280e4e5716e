#include "engine/layers/replicated_linear.h"

#include <cmath>

namespace nxd {

ReplicatedLinear::ReplicatedLinear(const LayerContext& at, int64_t in_features,
                                   int64_t out_features)
    : Module(at.context, "Linear"), in_features_(in_features) {
  plan_.context = context();
  plan_.group = at.group();
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_features));
  const Initializer uniform = Initializer::uniform(-bound, bound);
  const auto add = [&](const char* name, ShardSpec::Shape shape, const Initializer& start) {
    mark_replicated(make_parameter(*this, at, name, ShardSpec::replicated(std::move(shape)), start),
                    plan_.group, at.sequence_parallel);
  };
  add("weight", {out_features, in_features}, at.init.resolve(uniform, in_features));
  add("bias", {out_features}, at.init.is_default() ? uniform : Initializer::constant(0));
}

Module::Tensors ReplicatedLinear::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, 1);
  const at::Tensor weight = parameter_value("weight");
  check_features(*plan_.group, class_name(), inputs[0], in_features_, weight);
  return {parallel_linear(plan_, inputs[0], weight, parameter_value("bias"))};
}

}  // namespace nxd
