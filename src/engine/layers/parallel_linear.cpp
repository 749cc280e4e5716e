#include "engine/layers/parallel_linear.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "engine/device/device_tensor.h"
#include "engine/ops/autocast.h"
#include "engine/ops/collectives.h"
#include "engine/ops/part_at.h"

namespace nxd {
namespace {

// torch.nn.Linear's default: kaiming_uniform with a = sqrt(5), which is this bound, and the same
// for the bias. fan_in is that of the whole weight, so no layout changes the model.
Initializer default_initializer(int64_t fan_in) {
  const double bound = fan_in > 0 ? 1.0 / std::sqrt(static_cast<double>(fan_in)) : 0.0;
  return Initializer::uniform(-bound, bound);
}

// The last dimension is so many blocks: of each the first features stay, and zeros fill it up to a
// size.
at::Tensor fill_blocks(const at::Tensor& x, int64_t blocks, int64_t kept, int64_t size) {
  const at::Tensor parts = x.unflatten(-1, {blocks, x.size(-1) / blocks}).narrow(-1, 0, kept);
  std::vector<int64_t> sizes = parts.sizes().vec();
  sizes.back() = size - kept;
  return at::cat({parts, at::zeros(sizes, x.options())}, -1).flatten(-2, -1);
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
      sequence_dim_(options.sequence_dim),
      stride_(options.stride),
      has_own_range_(options.own.has_value()) {
  check_argument(in_features > 0, "in_features: expected a positive number, got ", in_features);
  check_argument(out_features > 0, "out_features: expected a positive number, got ", out_features);
  check_argument(options.stride > 0, "stride: expected at least 0, got ", options.stride);
}

void ParallelLinearLayer::make_weight(const LayerContext& at, ShardSpec shard,
                                      bool keeps_master_weight) {
  const Initializer init = at.init.resolve(default_initializer(in_features_), in_features_);
  Parameter& weight = make_parameter(*this, at, "weight", std::move(shard), init);
  keeps_master_weight_ = keeps_master_weight;
  if (keeps_master_weight_) weight.keep_initial_full();
}

Parameter& ParallelLinearLayer::make_bias(const LayerContext& at, ShardSpec shard) {
  return make_parameter(
      *this, at, "bias", std::move(shard),
      at.init.is_default() ? default_initializer(in_features_) : Initializer::constant(0));
}

const at::Tensor& ParallelLinearLayer::master_weight() {
  check_state(keeps_master_weight_, class_name(),
              ": the master weight was not kept; make the layer with keep_master_weight");
  return parameter("weight")->initial_full();
}

at::Tensor ParallelLinearLayer::bias_to_add() const {
  return skip_bias_add_ ? at::Tensor() : bias();
}

Module::Tensors ParallelLinearLayer::result(at::Tensor y, size_t n_outputs) const {
  Tensors outputs{std::move(y)};
  if (n_outputs == 2) outputs.push_back(bias());
  return outputs;
}

ShardSpec ParallelLinearLayer::part_of(ShardSpec::Shape shape, int dim,
                                       const LinearOptions& options) const {
  const int64_t extent = shape[static_cast<size_t>(dim)];
  const int64_t parts = int64_t{group_->size()} * options.stride;
  if (options.pad) {
    int64_t padded = 0;
    const int64_t lacking = (parts - extent % parts) % parts;
    check_argument(!__builtin_add_overflow(extent, lacking, &padded), "features: ", extent, " and ",
                   lacking, " of padding are beyond INT64_MAX");
    return ShardSpec::padded(std::move(shape), dim, padded, group_->rank(), group_->size(),
                             options.stride);
  }
  if (!options.own) {
    return ShardSpec::strided(std::move(shape), dim, group_->rank(), group_->size(),
                              options.stride);
  }
  return ShardSpec::ranges(std::move(shape), dim, {*options.own}, extent);
}

const Parameter& ParallelLinearLayer::own_parameter(std::string_view name) const {
  const auto found = std::find_if(parameters().begin(), parameters().end(),
                                  [&](const auto& entry) { return entry.first == name; });
  check_internal(found != parameters().end(), class_name(), " without a parameter ", name);
  return *found->second;
}

std::vector<ParallelLinearLayer::PaddedParameter> ParallelLinearLayer::padded_parameters(
    const HeadPadding& heads, const std::string& path) const {
  std::vector<PaddedParameter> padded;
  for (const auto& [name, parameter] : parameters()) {
    const ShardSpec& shard = parameter->shard();
    if (shard.dim() < 0) continue;
    const std::string what = join_path(path, name);
    const int64_t extent = shard.shape()[static_cast<size_t>(shard.dim())];
    const int64_t grown = heads.padded(extent, what);
    const int64_t parts = int64_t{group_->size()} * stride_;
    check_argument(grown % parts == 0, what, ": the ", extent, " features of ", heads.heads,
                   " heads become ", grown, " of ", heads.padded_heads, ", which ", parts,
                   " parts on the ranks of group ", group_->name(), " do not divide");
    padded.push_back({parameter, ShardSpec::padded(shard.shape(), shard.dim(), grown,
                                                   group_->rank(), group_->size(), stride_)});
  }
  return padded;
}

at::Tensor ParallelLinearLayer::without_padding(const at::Tensor& x) const {
  const ShardSpec& shard = weight_shard();
  const int64_t size = x.size(-1) / stride_, kept = size - shard.padding() / stride_;
  if (!is_recorded(x)) return kept == size ? x : fill_blocks(x, stride_, kept, size);
  // Ranks without padding record the same graph.
  const int64_t extent = shard.shape()[static_cast<size_t>(shard.dim())];
  if (has_own_range_ || x.size(-1) * group_->size() == extent) return x;
  return filled_behind(x.unflatten(-1, {stride_, size}), kept, 0).flatten(-2, -1);
}

at::Tensor ParallelLinearLayer::with_padding(const at::Tensor& x, int64_t local_features) const {
  const int64_t all = local_features * group_->size(), real = x.size(-1);
  return all == real ? x : fill_blocks(x, stride_, real / stride_, all / stride_);
}

int64_t ParallelLinearLayer::sequence_dim_of(const char* operation, const at::Tensor& x) const {
  const int64_t dim = check_dim(*group_, operation, x, sequence_dim_);
  check_with_group(*group_, dim < x.dim() - 1, class_name().c_str(),
                   "sequence_dim: expected a dimension before the features, of a tensor with ",
                   x.dim(), " dimensions, got ", sequence_dim_);
  return dim;
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
  make_weight(at, part_of({out_features, in_features}, 0, options), options.keep_master_weight);
  if (!options.bias) return;
  if (!gather_output_) {
    make_bias(at, part_of({out_features}, 0, options));
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
  if (sequence_parallel_) plan.dim = sequence_dim_of("all_gather", inputs[0]);
  if (!gather_output_) {
    Tensors outputs = result(parallel_linear(plan, inputs[0], weight(), bias_to_add()), n_outputs);
    for (at::Tensor& output : outputs) {
      if (output.defined()) output = without_padding(output);
    }
    return outputs;
  }
  at::Tensor y = parallel_linear(plan, inputs[0], weight(), at::Tensor());
  y = gather_from_region(group_, y, -1);
  if (y.size(-1) > out_features_) y = y.narrow(-1, 0, out_features_);
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
  check_argument(input_is_parallel_ || options.stride == 1,
                 "input_is_parallel: expected 1 with a stride of ", options.stride,
                 ", whose parts are not in order");
  make_weight(at, part_of({out_features, in_features}, 1, options), options.keep_master_weight);
  if (!options.bias) return;
  mark_replicated(make_bias(at, ShardSpec::replicated({out_features})), group_, sequence_parallel_);
}

Module::Tensors RowParallelLinear::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, skip_bias_add_ ? 2 : 1, group_.get());
  const int64_t local = weight_shard().local_shape()[1];
  const int64_t features = input_is_parallel_ ? local : in_features_;
  check_features(*group_, class_name(), inputs[0], features, weight());
  const at::Tensor x = input_is_parallel_
                           ? without_padding(inputs[0])
                           : scatter_to_region(group_, with_padding(inputs[0], local), -1);
  ParallelLinearPlan plan;
  plan.context = context();
  plan.group = group_;
  if (sequence_parallel_) {
    plan.output = ParallelLinearPlan::Output::kReduceScatterSequence;
    plan.dim = sequence_dim_of("reduce_scatter", x);
  } else if (reduce_output_) {
    plan.output = ParallelLinearPlan::Output::kReduce;
  }
  // Partial sums get the bias once they are summed; without a sum here the caller adds it.
  const at::Tensor bias = reduce_output_ ? bias_to_add() : at::Tensor();
  return result(parallel_linear(plan, x, weight(), bias), n_outputs);
}

}  // namespace nxd
