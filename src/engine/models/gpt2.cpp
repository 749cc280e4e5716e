#include "engine/models/gpt2.h"

#include <ATen/ATen.h>

#include <cmath>

#include "core/world/long_call.h"
#include "engine/functional/activation_op.h"
#include "engine/functional/split_qkv.h"
#include "engine/layers/parallel_conv1d.h"
#include "engine/layers/parallel_embedding.h"
#include "engine/layers/sequence_padding.h"

namespace nxd {
namespace {

using Split = ParallelConv1d::Split;

NormOptions norm_of(const Gpt2Config& config) { return {.eps = norm_eps(config.norm_eps)}; }

// A product that adds to the residual starts smaller, by the number of such additions.
LayerContext for_residual(const LayerContext& at, const Gpt2Config& config) {
  return at.with(WeightInit::normal(config.initializer_range /
                                    std::sqrt(2.0 * static_cast<double>(config.layers))));
}

class Gpt2Mlp : public Module {
 public:
  Gpt2Mlp(const LayerContext& at, const Gpt2Config& config)
      : Module(at.context, "GPT2MLP"), activation_(config.activation) {
    const ShardSpec::Range own = own_features(*at.group(), config.intermediate);
    up_ = add_layer<ParallelConv1d>(*this, at, "c_fc", Split::kColumns, config.hidden,
                                    config.intermediate, own);
    down_ = add_layer<ParallelConv1d>(*this, for_residual(at, config), "c_proj", Split::kRows,
                                      config.intermediate, config.hidden, own);
    dropout_ = add_activation_dropout(*this, at, "dropout", config.residual_dropout);
    note_options(activation_);
  }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override {
    check_arity(inputs, n_outputs, 1, 1, 1);
    const at::Tensor hidden = activate(*context(), activation_, (*up_)(inputs[0]));
    return {(*dropout_)((*down_)(hidden))};
  }

 private:
  nxd_activation_t activation_;
  std::shared_ptr<Module> up_, down_, dropout_;
};

}  // namespace

Gpt2Attention::Gpt2Attention(const LayerContext& at, const Gpt2Config& config, int64_t layer)
    : Module(at.context, "GPT2Attention"),
      group_(at.group()),
      head_dim_(config.head_dim),
      scale_(config.scale_by_head_dim ? 1.0 / std::sqrt(static_cast<double>(head_dim_)) : 1.0),
      sequence_parallel_(at.sequence_parallel) {
  if (config.scale_by_layer_index) scale_ /= static_cast<double>(layer + 1);
  note_options(scale_);
  const HeadSizes sizes = HeadSizes::make(*group_, config.hidden, config.heads, 0, head_dim_);
  const ShardSpec::Range own = sizes.features(sizes.own);
  projection_ = add_layer<ParallelConv1d>(*this, at, "c_attn", Split::kColumns, config.hidden,
                                          3 * config.hidden, own, /*fused=*/3);
  output_ = add_layer<ParallelConv1d>(*this, for_residual(at, config), "c_proj", Split::kRows,
                                      config.hidden, config.hidden, own);
  weight_dropout_ =
      add_layer<AttentionDropout>(*this, at, "attn_dropout", config.attention_dropout, sizes);
  output_dropout_ = add_activation_dropout(*this, at, "resid_dropout", config.residual_dropout);
}

Module::Tensors Gpt2Attention::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 2, 1);
  const at::Tensor mask = input_or_none(inputs, 1);
  const auto [q, k, v] = split_qkv((*projection_)(inputs[0]), head_dim_, QkvOrder::kByPart);
  const SequencePadding padding(*group_, sequence_parallel_, mask, q);
  AttentionArgs args;
  args.layout = sequence_parallel_ ? SequenceLayout::kSequenceFirst : SequenceLayout::kBatchFirst;
  args.scale = scale_;
  args.key_mask = key_mask(*group_, mask, q, q.size(sequence_parallel_ ? 1 : 0), padding.length());
  const at::Tensor out =
      weight_dropout_->attend(args, padding.cut(q), padding.cut(k), padding.cut(v));
  return {(*output_dropout_)((*output_)(padding.fill(out).flatten(2)))};
}

Gpt2Block::Gpt2Block(const LayerContext& at, const Gpt2Config& config, int64_t layer)
    : Module(at.context, "GPT2Block") {
  attention_norm_ = add_layer<LayerNorm>(*this, at, "ln_1", config.hidden, norm_of(config));
  attention_ = add_layer<Gpt2Attention>(*this, at, "attn", config, layer);
  mlp_norm_ = add_layer<LayerNorm>(*this, at, "ln_2", config.hidden, norm_of(config));
  mlp_ = add_layer<Gpt2Mlp>(*this, at, "mlp", config);
}

Module::Tensors Gpt2Block::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 3, 2);
  const Tensors normed = attention_norm_->call({inputs[0], input_or_none(inputs, 2)}, 2);
  const at::Tensor attended = attention_->call({normed[0], input_or_none(inputs, 1)})[0];
  const Tensors renormed = mlp_norm_->call({attended, normed[1]}, 2);
  const at::Tensor out = (*mlp_)(renormed[0]);
  if (n_outputs == 1) return {out + renormed[1]};
  return {out, renormed[1]};
}

Gpt2Model::Gpt2Model(const LayerContext& at, const Gpt2Config& config)
    : Module(at.context, "GPT2Model"), sequence_parallel_(at.sequence_parallel) {
  embedding_ = add_layer<ParallelEmbedding>(*this, at, "wte", config.vocabulary, config.hidden,
                                            EmbeddingOptions{.pad_rows = true});
  positions_ = add_layer<PositionTable>(*this, at, "wpe", config.positions, config.hidden);
  dropout_ = add_activation_dropout(*this, at, "drop", config.embedding_dropout);
  auto list = add_layer<Container>(*this, at, "h", "ModuleList");
  for (int64_t i = 0; i < config.layers; ++i) {
    check_interrupt(*context(), "nxd_model_create");
    blocks_.push_back(add_layer<Gpt2Block>(*list, at.child("h"), std::to_string(i), config, i));
  }
  norm_ = add_layer<LayerNorm>(*this, at, "ln_f", config.hidden, norm_of(config));
}

Module::Tensors Gpt2Model::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 2, 1);
  check_token_ids(*this, inputs[0]);
  const at::Tensor mask = input_or_none(inputs, 1);
  at::Tensor x = (*embedding_)(sequence_parallel_ ? inputs[0].t().contiguous() : inputs[0]);
  positions_->check_parameters(inputs);
  x = (*dropout_)(x + positions_->rows(inputs[0].size(1)));
  at::Tensor residual;
  for (const auto& block : blocks_) {
    Tensors out = block->call({x, mask, residual}, 2);
    x = std::move(out[0]);
    residual = std::move(out[1]);
  }
  return norm_->call({x, residual});
}

Gpt2LmHeadModel::Gpt2LmHeadModel(const LayerContext& given, const Gpt2Config& config)
    : CausalLm(given, "GPT2LMHeadModel", config) {
  check_heads("n_head");
  check_enough("n_inner", config.intermediate);
  const LayerContext at = given.with(WeightInit::normal(config.initializer_range));
  auto model = add_layer<Gpt2Model>(*this, at, "transformer", config);
  set_body(at, model, *model->embedding());
}

}  // namespace nxd
