#include "engine/layers/parallel_conv1d.h"

namespace nxd {

ParallelConv1d::ParallelConv1d(std::shared_ptr<Context> context, int64_t in_features,
                               int64_t out_features, const std::string& path,
                               const Options& options)
    : Module(std::move(context), "ParallelConv1D"),
      group_(tensor_group(*this->context())),
      local_in_(in_features) {
  const bool columns = options.split == Split::kColumns;
  const int rank = group_->rank(), size = group_->size();
  if (!columns) local_in_ /= size;
  make_parameter(
      *this, path, "weight",
      ShardSpec::strided({in_features, out_features}, columns ? 1 : 0, rank, size, options.fused),
      Initializer::normal(0, options.weight_std), options.place);
  Parameter& bias =
      make_parameter(*this, path, "bias",
                     columns ? ShardSpec::strided({out_features}, 0, rank, size, options.fused)
                             : ShardSpec::replicated({out_features}),
                     Initializer::constant(0), options.place);
  if (!columns) mark_replicated(bias, group_, options.sequence_parallel);

  plan_.context = this->context();
  plan_.group = group_;
  plan_.weights_in_out = true;
  if (columns) {
    plan_.input = options.sequence_parallel ? ParallelLinearPlan::Input::kGatherSequence
                                            : ParallelLinearPlan::Input::kCopy;
  } else {
    plan_.output = options.sequence_parallel ? ParallelLinearPlan::Output::kReduceScatterSequence
                                             : ParallelLinearPlan::Output::kReduce;
  }
}

Module::Tensors ParallelConv1d::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, 1, group_.get());
  const at::Tensor weight = parameter_value("weight");
  check_features(*group_, class_name(), inputs[0], local_in_, weight.scalar_type());
  return {parallel_linear(plan_, inputs[0], weight, parameter_value("bias"))};
}

}  // namespace nxd
