#include "engine/layers/gated_mlp.h"

#include <ATen/ATen.h>

#include "engine/functional/activation_op.h"
#include "engine/ops/collectives.h"

namespace nxd {

GatedMlp::GatedMlp(const LayerContext& at, int64_t hidden, int64_t intermediate,
                   const MlpOptions& options)
    : Module(at.context, "GatedMLP"),
      group_(at.group()),
      activation_(options.activation),
      hidden_(hidden) {
  check_activation(activation_);
  note_options(activation_);
  plan_.context = context();
  plan_.group = group_;
  plan_.input = at.sequence_parallel ? ParallelLinearPlan::Input::kGatherSequence
                                     : ParallelLinearPlan::Input::kCopy;
  check_argument(intermediate > 0, "intermediate_size: expected a positive number, got ",
                 intermediate);
  const LinearOptions linear{.bias = options.bias,
                             .gather_output = false,
                             .input_is_parallel = true,
                             .own = own_features(*group_, intermediate)};
  gate_ = add_layer<ColumnParallelLinear>(*this, at, "gate_proj", hidden, intermediate, linear);
  up_ = add_layer<ColumnParallelLinear>(*this, at, "up_proj", hidden, intermediate, linear);
  down_ = add_layer<RowParallelLinear>(*this, at, "down_proj", intermediate, hidden, linear);
}

Module::Tensors GatedMlp::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, 1, group_.get());
  for (const auto& part : {gate_, up_}) part->check_parameters(inputs);
  check_features(*group_, class_name(), inputs[0], hidden_, gate_->weight());
  // The two projections share one exchange of their input.
  const auto projected = parallel_linears(plan_, inputs[0], {gate_->weight(), up_->weight()},
                                          {gate_->bias(), up_->bias()});
  return {(*down_)(gated_activation(*context(), activation_, projected[0], projected[1]))};
}

}  // namespace nxd
