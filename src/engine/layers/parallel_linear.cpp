#include "engine/layers/parallel_linear.h"

#include <ATen/ATen.h>

#include <cmath>

#include "engine/ops/autocast.h"
#include "engine/ops/collectives.h"

namespace nxd {
namespace {

// torch.nn.Linear's default: kaiming_uniform with a = sqrt(5), which is this bound, and the same
// for the bias. fan_in is that of the whole weight, so no layout changes the model.
Initializer default_initializer(int64_t fan_in) {
  const double bound = fan_in > 0 ? 1.0 / std::sqrt(static_cast<double>(fan_in)) : 0.0;
  return Initializer::uniform(-bound, bound);
}

}  // namespace

ParallelLinearLayer::ParallelLinearLayer(const LayerContext& at, const char* class_name,
                                         int64_t in_features, int64_t out_features,
                                         const LinearOptions& options)
    : Module(at.context, class_name),
      group_(at.group()),
      in_features_(in_features),
      out_features_(out_features),
      skip_bias_add_(options.skip_bias_add),
      sequence_parallel_(at.sequence_parallel),
      sequence_dim_(options.sequence_dim) {
  check_argument(in_features > 0, "in_features: expected a positive number, got ", in_features);
  check_argument(out_features > 0, "out_features: expected a positive number, got ", out_features);
  check_argument(options.stride > 0, "stride: expected at least 0, got ", options.stride);
}

void ParallelLinearLayer::make_weight(const LayerContext& at, ShardSpec shard,
                                      bool keeps_master_weight) {
  const Initializer init = at.init.resolve(default_initializer(in_features_), in_features_);
  Parameter& weight = make_parameter(*this, at, "weight", std::move(shard), init);
  keeps_master_weight_ = keeps_master_weight;
  if (keeps_master_weight_ && weight.has_value()) make_master_weight();
}

Parameter& ParallelLinearLayer::make_bias(const LayerContext& at, ShardSpec shard) {
  return make_parameter(
      *this, at, "bias", std::move(shard),
      at.init.is_default() ? default_initializer(in_features_) : Initializer::constant(0));
}

void ParallelLinearLayer::make_master_weight() {
  master_weight_ = parameter("weight")->initial_full(context()->seed());
}

const at::Tensor& ParallelLinearLayer::master_weight() {
  check_state(keeps_master_weight_, class_name(),
              ": the master weight was not kept; make the layer with keep_master_weight");
  if (!master_weight_.defined()) make_master_weight();
  return master_weight_;
}

at::Tensor ParallelLinearLayer::bias_to_add() const {
  return skip_bias_add_ ? at::Tensor() : bias();
}

Module::Tensors ParallelLinearLayer::result(at::Tensor y, size_t n_outputs) const {
  Tensors outputs{std::move(y)};
  if (n_outputs == 2) outputs.push_back(bias());
  return outputs;
}

ColumnParallelLinear::ColumnParallelLinear(const LayerContext& at, int64_t in_features,
                                           int64_t out_features, const LinearOptions& options)
    : ParallelLinearLayer(at, "ColumnParallelLinear", in_features, out_features, options),
      gather_output_(options.gather_output.value_or(!sequence_parallel_)) {
  check_argument(!(gather_output_ && sequence_parallel_),
                 "gather_output: cannot be on together with sequence_parallel");
  const int stride = options.stride;
  check_argument(!(gather_output_ && stride > 1), "gather_output: cannot be on with a stride of ",
                 stride, ", whose parts are not in order");
  const auto shard = [&](ShardSpec::Shape shape) {
    return ShardSpec::strided(std::move(shape), 0, group_->rank(), group_->size(), stride);
  };
  make_weight(at, shard({out_features, in_features}), options.keep_master_weight);
  if (!options.bias) return;
  if (!gather_output_) {
    make_bias(at, shard({out_features}));
    return;
  }
  // After gathering, the bias is added to whole rows: every rank holds all of it.
  mark_replicated(make_bias(at, ShardSpec::replicated({out_features})), group_, false);
}

Module::Tensors ColumnParallelLinear::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, skip_bias_add_ ? 2 : 1, group_.get());
  check_features(*group_, class_name(), inputs[0], in_features_, weight());
  ParallelLinearPlan plan;
  plan.context = context();
  plan.group = group_;
  plan.input = sequence_parallel_ ? ParallelLinearPlan::Input::kGatherSequence
                                  : ParallelLinearPlan::Input::kCopy;
  if (sequence_parallel_) plan.dim = check_dim(*group_, "all_gather", inputs[0], sequence_dim_);
  if (!gather_output_) {
    return result(parallel_linear(plan, inputs[0], weight(), bias_to_add()), n_outputs);
  }
  at::Tensor y = parallel_linear(plan, inputs[0], weight(), at::Tensor());
  y = gather_from_region(group_, y, -1);
  const at::Tensor bias = bias_to_add();
  return result(bias.defined() ? y + cast_lower(bias) : y, n_outputs);
}

RowParallelLinear::RowParallelLinear(const LayerContext& at, int64_t in_features,
                                     int64_t out_features, const LinearOptions& options)
    : ParallelLinearLayer(at, "RowParallelLinear", in_features, out_features, options),
      input_is_parallel_(options.input_is_parallel),
      reduce_output_(options.reduce_output) {
  check_argument(!sequence_parallel_ || input_is_parallel_,
                 "sequence_parallel: needs input_is_parallel");
  check_argument(!sequence_parallel_ || reduce_output_,
                 "reduce_output: cannot be off together with sequence_parallel");
  make_weight(at,
              ShardSpec::strided({out_features, in_features}, 1, group_->rank(), group_->size(),
                                 options.stride),
              options.keep_master_weight);
  if (!options.bias) return;
  mark_replicated(make_bias(at, ShardSpec::replicated({out_features})), group_, sequence_parallel_);
}

Module::Tensors RowParallelLinear::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, skip_bias_add_ ? 2 : 1, group_.get());
  const int64_t features = input_is_parallel_ ? in_features_ / group_->size() : in_features_;
  check_features(*group_, class_name(), inputs[0], features, weight());
  const at::Tensor x = input_is_parallel_ ? inputs[0] : scatter_to_region(group_, inputs[0], -1);
  ParallelLinearPlan plan;
  plan.context = context();
  plan.group = group_;
  if (sequence_parallel_) {
    plan.output = ParallelLinearPlan::Output::kReduceScatterSequence;
    plan.dim = check_dim(*group_, "reduce_scatter", x, sequence_dim_);
  } else if (reduce_output_) {
    plan.output = ParallelLinearPlan::Output::kReduce;
  }
  // Partial sums get the bias once they are summed; without a sum here the caller adds it.
  const at::Tensor bias = reduce_output_ ? bias_to_add() : at::Tensor();
  return result(parallel_linear(plan, x, weight(), bias), n_outputs);
}

}  // namespace nxd
