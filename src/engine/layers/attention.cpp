#include "engine/layers/attention.h"

#include <ATen/ATen.h>

#include <cmath>

#include "engine/layers/sequence_padding.h"
#include "engine/ops/collectives.h"

namespace nxd {

Attention::Attention(const LayerContext& at, int64_t hidden, int64_t num_heads,
                     const AttentionOptions& options)
    : Module(at.context, "Attention"),
      group_(at.group()),
      sizes_(HeadSizes::make(*group_, hidden, num_heads, options.kv_heads, options.head_dim)),
      causal_(options.causal),
      window_(options.window),
      sequence_parallel_(at.sequence_parallel),
      padded_sequence_(at.sequence_parallel && options.padded_sequence) {
  plan_.context = context();
  plan_.group = group_;
  plan_.input = sequence_parallel_ ? ParallelLinearPlan::Input::kGatherSequence
                                   : ParallelLinearPlan::Input::kCopy;
  const GroupRef sharing = key_sharing_group(*context(), group_, sizes_);
  q_ = add_layer<HeadProjection>(*this, at, "q_proj", sizes_, num_heads, sizes_.own,
                                 options.qkv_bias, nullptr);
  const auto add_keys = [&](const char* name) {
    return add_layer<HeadProjection>(*this, at, name, sizes_, sizes_.kv_heads, sizes_.own_keys,
                                     options.qkv_bias, sharing);
  };
  k_ = add_keys("k_proj");
  v_ = add_keys("v_proj");
  output_ = add_layer<RowParallelLinear>(*this, at, "o_proj", num_heads * sizes_.head_dim, hidden,
                                         LinearOptions{.bias = options.output_bias,
                                                       .input_is_parallel = true,
                                                       .own = sizes_.features(sizes_.own)});
  if (options.head_norm_eps) {
    // As slices of the sequence do, a rank's heads give a part of the weights' gradients.
    LayerContext parts = at;
    parts.sequence_parallel = true;
    const NormOptions norm{.eps = *options.head_norm_eps};
    q_norm_ = add_layer<RmsNorm>(*this, parts, "q_norm", sizes_.head_dim, norm);
    k_norm_ = add_layer<RmsNorm>(*this, parts, "k_norm", sizes_.head_dim, norm);
  }
  if (options.rope) rotary_.emplace(*options.rope, sizes_.head_dim);
  note_options(causal_, window_, rotary_ ? rotary_->options_digest() : 0);
}

Module::Tensors Attention::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 2, 1, group_.get());
  const at::Tensor& x = inputs[0];
  check_with_group(*group_, x.dim() == 3, "Attention",
                   "input: expected three dimensions, got shape ", x.sizes());
  for (const auto& part : {q_, k_, v_}) part->check_parameters(inputs);
  check_features(*group_, class_name(), x, sizes_.hidden, q_->weight());
  const auto projected = parallel_linears(plan_, x, {q_->weight(), k_->weight(), v_->weight()},
                                          {q_->bias(), k_->bias(), v_->bias()});
  const auto heads = [&](const at::Tensor& y) {
    return y.view({y.size(0), y.size(1), y.size(2) / sizes_.head_dim, sizes_.head_dim});
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
  args.scale = 1.0 / std::sqrt(static_cast<double>(sizes_.head_dim));
  const at::Tensor mask = inputs.size() > 1 ? inputs[1] : at::Tensor();
  const SequencePadding padding(*group_, sequence_parallel_, padded_sequence_ ? mask : at::Tensor(),
                                q);
  q = padding.cut(q);
  k = padding.cut(k);
  args.key_mask = key_mask(*group_, mask, q, q.size(sequence_parallel_ ? 1 : 0), padding.length());
  if (rotary_) {
    const RotaryTables::Tables& tables = rotary_->get(padding.length(), q);
    q = rotate(*context(), args.layout, q, tables.cos, tables.sin);
    k = rotate(*context(), args.layout, k, tables.cos, tables.sin);
  }
  const at::Tensor out =
      padding.fill(attention(*context(), args, q, k, padding.cut(heads(projected[2]))));
  return {(*output_)(out.reshape({out.size(0), out.size(1), out.size(2) * sizes_.head_dim}))};
}

}  // namespace nxd
