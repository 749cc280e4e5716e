#include "engine/models/llama.h"

#include <ATen/ATen.h>

#include "core/world/long_call.h"
#include "engine/functional/norm_op.h"
#include "engine/layers/attention.h"
#include "engine/layers/gated_mlp.h"
#include "engine/layers/parallel_embedding.h"

namespace nxd {
namespace {

NormOptions norm_of(const LlamaConfig& config) { return {.eps = norm_eps(config.norm_eps)}; }

// {sum, norm of the sum}; without a residual the sum is x itself.
std::pair<at::Tensor, at::Tensor> add_norm(const RmsNorm& norm, const at::Tensor& x,
                                           const at::Tensor& residual) {
  norm.check_parameters({x});
  norm.check_inputs({x, residual}, 2);
  if (!residual.defined()) {
    return rms_norm_and_input(*norm.context(), x, norm.weight(), norm.eps());
  }
  return add_rms_norm(*norm.context(), x, residual, norm.weight(), norm.eps());
}

}  // namespace

LlamaDecoderLayer::LlamaDecoderLayer(const LayerContext& at, const LlamaConfig& config,
                                     int64_t index)
    : Module(at.context, "LlamaDecoderLayer") {
  AttentionOptions attention{.kv_heads = config.kv_heads,
                             .head_dim = config.head_dim,
                             .rope = config.rope,
                             .window = config.windows[static_cast<size_t>(index)],
                             .qkv_bias = config.attention_bias,
                             .output_bias = config.output_bias,
                             .padded_sequence = true};
  if (config.head_norms) attention.head_norm_eps = norm_eps(config.norm_eps);
  const MlpOptions mlp{.activation = config.activation, .bias = config.mlp_bias};
  attention_ = add_layer<Attention>(*this, at, "self_attn", config.hidden, config.heads, attention);
  mlp_ = add_layer<GatedMlp>(*this, at, "mlp", config.hidden, config.intermediate, mlp);
  input_norm_ = add_layer<RmsNorm>(*this, at, "input_layernorm", config.hidden, norm_of(config));
  post_attention_norm_ =
      add_layer<RmsNorm>(*this, at, "post_attention_layernorm", config.hidden, norm_of(config));
}

Module::Tensors LlamaDecoderLayer::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 3, 2);
  const auto [before, normed] = add_norm(*input_norm_, inputs[0], input_or_none(inputs, 2));
  const at::Tensor attended = attention_->call({normed, input_or_none(inputs, 1)})[0];
  const auto [residual, renormed] = add_norm(*post_attention_norm_, attended, before);
  const at::Tensor out = (*mlp_)(renormed);
  if (n_outputs == 1) return {out + residual};
  return {out, residual};
}

LlamaModel::LlamaModel(const LayerContext& at, const LlamaConfig& config)
    : Module(at.context, "LlamaModel"), sequence_parallel_(at.sequence_parallel) {
  embedding_ = add_layer<ParallelEmbedding>(
      *this, at, "embed_tokens", config.vocabulary, config.hidden,
      EmbeddingOptions{.padding_idx = config.padding_idx, .pad_rows = true});
  auto list = add_layer<Container>(*this, at, "layers", "ModuleList");
  for (int64_t i = 0; i < config.layers; ++i) {
    check_interrupt(*context(), "nxd_model_create");
    layers_.push_back(
        add_layer<LlamaDecoderLayer>(*list, at.child("layers"), std::to_string(i), config, i));
  }
  norm_ = add_layer<RmsNorm>(*this, at, "norm", config.hidden, norm_of(config));
}

Module::Tensors LlamaModel::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 2, 1);
  check_token_ids(*this, inputs[0]);
  const at::Tensor mask = input_or_none(inputs, 1);
  at::Tensor x = (*embedding_)(sequence_parallel_ ? inputs[0].t().contiguous() : inputs[0]);
  at::Tensor residual;
  for (const auto& layer : layers_) {
    Tensors out = layer->call({x, mask, residual}, 2);
    x = std::move(out[0]);
    residual = std::move(out[1]);
  }
  return {add_norm(*norm_, x, residual).second};
}

LlamaForCausalLM::LlamaForCausalLM(const LayerContext& given, const LlamaConfig& config)
    : CausalLm(given, "LlamaForCausalLM", config) {
  check_heads("num_attention_heads");
  check_enough("intermediate_size", config.intermediate);
  const LayerContext at = given.with(WeightInit::normal(config.initializer_range));
  auto model = add_layer<LlamaModel>(*this, at, "model", config);
  set_body(at, model, *model->embedding());
}

}  // namespace nxd
