#include "engine/layers/parallel_conv1d.h"

namespace nxd {

ParallelConv1d::ParallelConv1d(const LayerContext& at, Split split, int64_t in_features,
                               int64_t out_features, ShardSpec::Range own, int fused)
    : Module(at.context, "ParallelConv1D"), group_(at.group()), local_in_(in_features) {
  const bool columns = split == Split::kColumns;
  if (!columns) local_in_ = own.end - own.begin;
  const auto part_of = [&](ShardSpec::Shape shape, int dim) {
    const int64_t extent = shape[static_cast<size_t>(dim)];
    std::vector<ShardSpec::Range> ranges;
    for (int64_t begin = 0; begin < extent; begin += extent / fused) {
      ranges.push_back({begin + own.begin, begin + own.end});
    }
    return ShardSpec::ranges(std::move(shape), dim, ranges, extent);
  };
  make_parameter(*this, at, "weight", part_of({in_features, out_features}, columns ? 1 : 0),
                 at.init.resolve(Initializer::normal(0, 0.02), in_features));
  Parameter& bias =
      make_parameter(*this, at, "bias",
                     columns ? part_of({out_features}, 0) : ShardSpec::replicated({out_features}),
                     Initializer::constant(0));
  if (!columns) mark_replicated(bias, group_, at.sequence_parallel);

  plan_.context = context();
  plan_.group = group_;
  plan_.weights_in_out = true;
  using Plan = ParallelLinearPlan;
  if (columns) {
    plan_.input = at.sequence_parallel ? Plan::Input::kGatherSequence : Plan::Input::kCopy;
  } else {
    plan_.output =
        at.sequence_parallel ? Plan::Output::kReduceScatterSequence : Plan::Output::kReduce;
  }
}

Module::Tensors ParallelConv1d::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, 1, group_.get());
  const at::Tensor weight = parameter_value("weight");
  check_features(*group_, class_name(), inputs[0], local_in_, weight);
  return {parallel_linear(plan_, inputs[0], weight, parameter_value("bias"))};
}

}  // namespace nxd
