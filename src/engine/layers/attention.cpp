#include "engine/layers/attention.h"

#include <ATen/ATen.h>

#include <cmath>

#include "engine/layers/sequence_padding.h"
#include "engine/ops/collectives.h"

namespace nxd {

class Attention::Projection : public Module {
 public:
  // heads_total heads of head_dim features, of which this rank holds its share; shared heads are
  // summed over the ranks of gradient_group.
  Projection(const LayerContext& at, int64_t hidden, int64_t heads_total, int64_t head_dim,
             bool has_bias, const GroupRef& gradient_group)
      : Module(at.context, "ColumnParallelLinear") {
    const GroupRef group = at.group();
    const double bound = 1.0 / std::sqrt(static_cast<double>(hidden));
    const Initializer init = at.init.resolve(Initializer::uniform(-bound, bound), hidden);
    const auto add = [&](const char* name, ShardSpec::Shape shape, const Initializer& start) {
      Parameter& p =
          make_parameter(*this, at, name,
                         ShardSpec::heads(std::move(shape), 0, static_cast<int>(heads_total),
                                          group->rank(), group->size()),
                         start);
      if (gradient_group) {
        p.set_gradient_group(gradient_group);
        p.set_counts_in_norm(gradient_group->rank() == 0);
      }
    };
    add("weight", {heads_total * head_dim, hidden}, init);
    if (has_bias) {
      add("bias", {heads_total * head_dim}, at.init.is_default() ? init : Initializer::constant(0));
    }
  }

  at::Tensor weight() const { return parameter_value("weight"); }
  at::Tensor bias() const { return parameter_value("bias"); }

 protected:
  Tensors forward(const Tensors&, size_t) override {
    fail(NXD_ERROR_UNSUPPORTED, "a projection of an attention layer runs as part of it only");
  }
};

namespace {

// Ranks of the tensor-parallel group that hold the same key head, or none when no two do.
// Neighbours share a head: rank r holds head r * num_kv_heads / size.
GroupRef key_sharing_group(Context& context, const GroupRef& group, int64_t num_kv_heads) {
  if (num_kv_heads >= group->size()) return nullptr;
  const auto shared = static_cast<int>(group->size() / num_kv_heads);
  const int first = group->rank() / shared * shared;
  std::vector<int> ranks;
  for (int i = 0; i < shared; ++i) {
    ranks.push_back(group->ranks()[static_cast<size_t>(first + i)]);
  }
  return context.shared_group(ranks, "kv");
}

}  // namespace

Attention::Attention(const LayerContext& at, int64_t hidden, int64_t num_heads,
                     const AttentionOptions& options)
    : Module(at.context, "Attention"),
      group_(at.group()),
      hidden_(hidden),
      causal_(options.causal),
      window_(options.window),
      sequence_parallel_(at.sequence_parallel),
      padded_sequence_(at.sequence_parallel && options.padded_sequence) {
  check_argument(hidden > 0, "hidden_size: expected a positive number, got ", hidden);
  check_argument(num_heads > 0, "num_heads: expected a positive number, got ", num_heads);
  const int64_t num_kv_heads = options.kv_heads == 0 ? num_heads : options.kv_heads;
  check_argument(num_kv_heads > 0 && num_heads % num_kv_heads == 0,
                 "num_kv_heads: expected a divisor of ", num_heads, " heads, got ", num_kv_heads);
  check_argument(options.head_dim > 0 || (options.head_dim == 0 && hidden % num_heads == 0),
                 "head_dim: expected a positive number, or 0 and a hidden size (", hidden,
                 ") that divides by ", num_heads, " heads, got ", options.head_dim);
  head_dim_ = options.head_dim == 0 ? hidden / num_heads : options.head_dim;
  const int size = group_->size();
  check_argument(num_heads % size == 0, "num_heads: ", num_heads, " heads do not divide by the ",
                 size, " ranks of group ", group_->name());
  check_argument(num_kv_heads % size == 0 || size % num_kv_heads == 0, "num_kv_heads: expected ",
                 num_kv_heads, " key heads to divide by the ", size, " ranks of group ",
                 group_->name(), ", or the ranks by them");
  plan_.context = context();
  plan_.group = group_;
  plan_.input = sequence_parallel_ ? ParallelLinearPlan::Input::kGatherSequence
                                   : ParallelLinearPlan::Input::kCopy;
  const GroupRef sharing = key_sharing_group(*context(), group_, num_kv_heads);
  const auto projection = [&](const char* name, int64_t heads, const GroupRef& gradient_group) {
    return add_layer<Projection>(*this, at, name, hidden, heads, head_dim_, options.qkv_bias,
                                 gradient_group);
  };
  q_ = projection("q_proj", num_heads, nullptr);
  k_ = projection("k_proj", num_kv_heads, sharing);
  v_ = projection("v_proj", num_kv_heads, sharing);
  output_ = add_layer<RowParallelLinear>(
      *this, at, "o_proj", num_heads * head_dim_, hidden,
      LinearOptions{.bias = options.output_bias, .input_is_parallel = true});
  if (options.head_norm_eps) {
    // As slices of the sequence do, a rank's heads give a part of the weights' gradients.
    LayerContext parts = at;
    parts.sequence_parallel = true;
    const NormOptions norm{.eps = *options.head_norm_eps};
    q_norm_ = add_layer<RmsNorm>(*this, parts, "q_norm", head_dim_, norm);
    k_norm_ = add_layer<RmsNorm>(*this, parts, "k_norm", head_dim_, norm);
  }
  if (options.rope) rotary_.emplace(*options.rope, head_dim_);
}

Module::Tensors Attention::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 2, 1, group_.get());
  const at::Tensor& x = inputs[0];
  check_with_group(*group_, x.dim() == 3, "Attention",
                   text("input: expected three dimensions, got shape ", x.sizes()));
  check_features(*group_, class_name(), x, hidden_, q_->weight());
  const auto projected = parallel_linears(plan_, x, {q_->weight(), k_->weight(), v_->weight()},
                                          {q_->bias(), k_->bias(), v_->bias()});
  const auto heads = [&](const at::Tensor& y) {
    return y.view({y.size(0), y.size(1), y.size(2) / head_dim_, head_dim_});
  };
  at::Tensor q = heads(projected[0]), k = heads(projected[1]);
  if (q_norm_) {
    q = (*q_norm_)(q);
    k = (*k_norm_)(k);
  }
  AttentionArgs args;
  args.layout = sequence_parallel_ ? SequenceLayout::kSequenceFirst : SequenceLayout::kBatchFirst;
  args.causal = causal_;
  args.window = window_;
  args.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_));
  const at::Tensor mask = inputs.size() > 1 ? inputs[1] : at::Tensor();
  const SequencePadding padding(*group_, sequence_parallel_, padded_sequence_ ? mask : at::Tensor(),
                                q);
  q = padding.cut(q);
  k = padding.cut(k);
  args.key_mask = key_mask(*group_, mask, q.size(sequence_parallel_ ? 1 : 0), padding.length());
  if (rotary_) {
    const RotaryTables::Tables& tables = rotary_->get(padding.length(), q);
    q = rotate(*context(), args.layout, q, tables.cos, tables.sin);
    k = rotate(*context(), args.layout, k, tables.cos, tables.sin);
  }
  const at::Tensor out =
      padding.fill(attention(*context(), args, q, k, padding.cut(heads(projected[2]))));
  return {(*output_)(out.reshape({out.size(0), out.size(1), out.size(2) * head_dim_}))};
}

}  // namespace nxd
