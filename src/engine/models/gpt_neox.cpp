#include "engine/models/gpt_neox.h"

#include <ATen/ATen.h>

#include <cmath>

#include "core/world/long_call.h"
#include "engine/functional/activation_op.h"
#include "engine/functional/split_qkv.h"
#include "engine/layers/parallel_embedding.h"
#include "engine/layers/parallel_linear.h"
#include "engine/layers/sequence_padding.h"

namespace nxd {
namespace {

NormOptions norm_of(const GptNeoxConfig& config) { return {.eps = norm_eps(config.norm_eps)}; }

// Features split over the ranks, of which this one has its own, and put together again.
std::shared_ptr<Module> add_columns(Module& parent, const LayerContext& at, const char* name,
                                    int64_t in, int64_t out, ShardSpec::Range own, bool bias) {
  return add_layer<ColumnParallelLinear>(
      parent, at, name, in, out, LinearOptions{.bias = bias, .gather_output = false, .own = own});
}
std::shared_ptr<Module> add_rows(Module& parent, const LayerContext& at, const char* name,
                                 int64_t in, int64_t out, ShardSpec::Range own, bool bias) {
  return add_layer<RowParallelLinear>(
      parent, at, name, in, out,
      LinearOptions{.bias = bias, .input_is_parallel = true, .own = own});
}

class GptNeoxMlp : public Module {
 public:
  GptNeoxMlp(const LayerContext& at, const GptNeoxConfig& config)
      : Module(at.context, "GPTNeoXMLP"), activation_(config.activation) {
    note_options(activation_);
    const ShardSpec::Range own = own_features(*at.group(), config.intermediate);
    up_ = add_columns(*this, at, "dense_h_to_4h", config.hidden, config.intermediate, own, true);
    down_ = add_rows(*this, at, "dense_4h_to_h", config.intermediate, config.hidden, own, true);
  }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override {
    check_arity(inputs, n_outputs, 1, 1, 1);
    return {(*down_)(activate(*context(), activation_, (*up_)(inputs[0])))};
  }

 private:
  nxd_activation_t activation_;
  std::shared_ptr<Module> up_, down_;
};

}  // namespace

GptNeoxAttention::GptNeoxAttention(const LayerContext& at, const GptNeoxConfig& config)
    : Module(at.context, "GPTNeoXAttention"),
      group_(at.group()),
      head_dim_(config.head_dim),
      sequence_parallel_(at.sequence_parallel),
      rotary_(config.rope, config.head_dim) {
  note_options(rotary_.options_digest());
  const HeadSizes sizes = HeadSizes::make(*group_, config.hidden, config.heads, 0, head_dim_);
  const ShardSpec::Range own = sizes.features(sizes.own);
  projection_ = add_columns(*this, at, "query_key_value", config.hidden, 3 * config.hidden,
                            {3 * own.begin, 3 * own.end}, config.attention_bias);
  output_ = add_rows(*this, at, "dense", config.hidden, config.hidden, own, config.output_bias);
  dropout_ =
      add_layer<AttentionDropout>(*this, at, "attention_dropout", config.attention_dropout, sizes);
}

Module::Tensors GptNeoxAttention::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 2, 1);
  const at::Tensor mask = input_or_none(inputs, 1);
  const auto [q, k, v] = split_qkv((*projection_)(inputs[0]), head_dim_, QkvOrder::kByHead);
  const SequencePadding padding(*group_, sequence_parallel_, mask, q);
  AttentionArgs args;
  args.layout = sequence_parallel_ ? SequenceLayout::kSequenceFirst : SequenceLayout::kBatchFirst;
  args.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_));
  args.key_mask = key_mask(*group_, mask, q, q.size(sequence_parallel_ ? 1 : 0), padding.length());
  const RotaryTables::Tables& tables = rotary_.get(padding.length(), q);
  const auto turned = [&](const at::Tensor& x) {
    return rotate(*context(), args.layout, padding.cut(x), tables.cos, tables.sin);
  };
  const at::Tensor out = dropout_->attend(args, turned(q), turned(k), padding.cut(v));
  return {(*output_)(padding.fill(out).flatten(2))};
}

GptNeoxLayer::GptNeoxLayer(const LayerContext& at, const GptNeoxConfig& config)
    : Module(at.context, "GPTNeoXLayer"), parallel_residual_(config.parallel_residual) {
  note_options(parallel_residual_);
  attention_norm_ =
      add_layer<LayerNorm>(*this, at, "input_layernorm", config.hidden, norm_of(config));
  mlp_norm_ =
      add_layer<LayerNorm>(*this, at, "post_attention_layernorm", config.hidden, norm_of(config));
  const double dropout = config.hidden_dropout;
  attention_dropout_ = add_activation_dropout(*this, at, "post_attention_dropout", dropout);
  mlp_dropout_ = add_activation_dropout(*this, at, "post_mlp_dropout", dropout);
  attention_ = add_layer<GptNeoxAttention>(*this, at, "attention", config);
  mlp_ = add_layer<GptNeoxMlp>(*this, at, "mlp", config);
}

Module::Tensors GptNeoxLayer::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 3, 2);
  const Tensors normed = attention_norm_->call({inputs[0], input_or_none(inputs, 2)}, 2);
  at::Tensor residual = normed[1];
  at::Tensor out = attention_->call({normed[0], input_or_none(inputs, 1)})[0];
  out = (*attention_dropout_)(out);
  if (parallel_residual_) {
    out = out + (*mlp_dropout_)((*mlp_)((*mlp_norm_)(residual)));
  } else {
    const Tensors renormed = mlp_norm_->call({out, residual}, 2);
    out = (*mlp_dropout_)((*mlp_)(renormed[0]));
    residual = renormed[1];
  }
  if (n_outputs == 1) return {out + residual};
  return {out, residual};
}

GptNeoxModel::GptNeoxModel(const LayerContext& at, const GptNeoxConfig& config)
    : Module(at.context, "GPTNeoXModel"), sequence_parallel_(at.sequence_parallel) {
  embedding_ = add_layer<ParallelEmbedding>(*this, at, "embed_in", config.vocabulary, config.hidden,
                                            EmbeddingOptions{.pad_rows = true});
  dropout_ = add_activation_dropout(*this, at, "emb_dropout", config.hidden_dropout);
  auto list = add_layer<Container>(*this, at, "layers", "ModuleList");
  for (int64_t i = 0; i < config.layers; ++i) {
    check_interrupt(*context(), "nxd_model_create");
    layers_.push_back(
        add_layer<GptNeoxLayer>(*list, at.child("layers"), std::to_string(i), config));
  }
  norm_ = add_layer<LayerNorm>(*this, at, "final_layer_norm", config.hidden, norm_of(config));
}

Module::Tensors GptNeoxModel::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 2, 1);
  check_token_ids(*this, inputs[0]);
  const at::Tensor mask = input_or_none(inputs, 1);
  at::Tensor x = (*embedding_)(sequence_parallel_ ? inputs[0].t().contiguous() : inputs[0]);
  x = (*dropout_)(x);
  at::Tensor residual;
  for (const auto& layer : layers_) {
    Tensors out = layer->call({x, mask, residual}, 2);
    x = std::move(out[0]);
    residual = std::move(out[1]);
  }
  return norm_->call({x, residual});
}

GptNeoxForCausalLM::GptNeoxForCausalLM(const LayerContext& given, const GptNeoxConfig& config)
    : CausalLm(given, "GPTNeoXForCausalLM", config) {
  check_heads("num_attention_heads");
  check_enough("intermediate_size", config.intermediate);
  const LayerContext at = given.with(WeightInit::normal(config.initializer_range));
  auto model = add_layer<GptNeoxModel>(*this, at, "gpt_neox", config);
  set_body(at, model, *model->embedding(), "embed_out");
}

}  // namespace nxd
