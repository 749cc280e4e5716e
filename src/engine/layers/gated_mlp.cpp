#include "engine/layers/gated_mlp.h"

#include <ATen/ATen.h>

#include "engine/functional/activation_op.h"
#include "engine/ops/collectives.h"

namespace nxd {

GatedMlp::GatedMlp(std::shared_ptr<Context> context, int64_t hidden, int64_t intermediate,
                   const nxd_mlp_options_t& options)
    : Module(std::move(context), "GatedMLP"),
      group_(tensor_group(*this->context())),
      activation_(options.activation),
      hidden_(hidden) {
  check_activation(activation_);
  const bool sequence_parallel = options.sequence_parallel != 0;
  plan_.context = this->context();
  plan_.group = group_;
  plan_.input = sequence_parallel ? ParallelLinearPlan::Input::kGatherSequence
                                  : ParallelLinearPlan::Input::kCopy;
  const std::string path = options.name ? options.name : "";
  const auto linear_options = [&](const std::string& full_name) {
    nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
    linear.name = full_name.c_str();
    linear.dtype = options.dtype;
    linear.device = options.device;
    linear.bias = toggle(options.bias, false, "bias") ? NXD_TOGGLE_ON : NXD_TOGGLE_OFF;
    linear.gather_output = NXD_TOGGLE_OFF;
    linear.input_is_parallel = 1;
    linear.sequence_parallel = options.sequence_parallel;
    linear.init = options.init;
    linear.init_a = options.init_a;
    linear.init_b = options.init_b;
    return linear;
  };
  const auto column = [&](const std::string& name) {
    const std::string full_name = join_path(path, name);
    add_child(name, std::make_shared<ColumnParallelLinear>(this->context(), hidden, intermediate,
                                                           linear_options(full_name)));
    return children().back().second;
  };
  gate_ = column("gate_proj");
  up_ = column("up_proj");
  const std::string full_name = join_path(path, "down_proj");
  add_child("down_proj", std::make_shared<RowParallelLinear>(this->context(), intermediate, hidden,
                                                             linear_options(full_name)));
  down_ = children().back().second;
}

Module::Tensors GatedMlp::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, 1, group_.get());
  const auto& gate = dynamic_cast<const ParallelLinearLayer&>(*gate_);
  const auto& up = dynamic_cast<const ParallelLinearLayer&>(*up_);
  check_features(*group_, class_name(), inputs[0], hidden_, gate.weight().scalar_type());
  // The two projections share one exchange of their input.
  const auto projected =
      parallel_linears(plan_, inputs[0], {gate.weight(), up.weight()}, {gate.bias(), up.bias()});
  return {(*down_)(gated_activation(*context(), activation_, projected[0], projected[1]))};
}

}  // namespace nxd
