#include "engine/models/llama.h"

#include <ATen/ATen.h>

#include "core/world/long_call.h"
#include "engine/functional/norm_op.h"
#include "engine/layers/attention.h"
#include "engine/layers/gated_mlp.h"
#include "engine/layers/parallel_embedding.h"

namespace nxd {
namespace {

// A node that only holds others.
class Container : public Module {
 public:
  Container(std::shared_ptr<Context> context, const char* class_name)
      : Module(std::move(context), class_name) {}

 protected:
  Tensors forward(const Tensors&, size_t) override {
    fail(NXD_ERROR_UNSUPPORTED, class_name(), ": holds modules and cannot be run itself");
  }
};

std::shared_ptr<RmsNorm> make_norm(Module& parent, const char* name, const LlamaConfig& config,
                                   const std::string& path, const nxd_model_options_t& options) {
  const std::string full = join_path(path, name);
  nxd_norm_options_t norm = NXD_NORM_OPTIONS_INIT;
  norm.name = full.c_str();
  norm.dtype = options.dtype;
  norm.device = options.device;
  norm.eps = norm_eps(config.norm_eps);
  norm.sequence_parallel = options.sequence_parallel;
  auto module = std::make_shared<RmsNorm>(parent.context(), config.hidden, norm);
  parent.add_child(name, module);
  return module;
}

std::shared_ptr<Module> make_attention(Module& parent, const LlamaConfig& config,
                                       const std::string& path,
                                       const nxd_model_options_t& options) {
  const std::string full = join_path(path, "self_attn");
  const nxd_toggle_t bias = config.attention_bias ? NXD_TOGGLE_ON : NXD_TOGGLE_OFF;
  nxd_attention_options_t attention = NXD_ATTENTION_OPTIONS_INIT;
  attention.name = full.c_str();
  attention.dtype = options.dtype;
  attention.device = options.device;
  attention.n_kv_heads = config.kv_heads;
  attention.head_dim = config.head_dim;
  attention.rope = &config.rope;
  attention.qkv_bias = bias;
  attention.output_bias = bias;
  attention.sequence_parallel = options.sequence_parallel;
  attention.init = NXD_INIT_NORMAL;
  attention.init_b = config.initializer_range;
  auto module =
      std::make_shared<Attention>(parent.context(), config.hidden, config.heads, attention);
  parent.add_child("self_attn", module);
  return module;
}

std::shared_ptr<Module> make_mlp(Module& parent, const LlamaConfig& config, const std::string& path,
                                 const nxd_model_options_t& options) {
  const std::string full = join_path(path, "mlp");
  nxd_mlp_options_t mlp = NXD_MLP_OPTIONS_INIT;
  mlp.name = full.c_str();
  mlp.dtype = options.dtype;
  mlp.device = options.device;
  mlp.activation = config.activation;
  mlp.bias = config.mlp_bias ? NXD_TOGGLE_ON : NXD_TOGGLE_OFF;
  mlp.sequence_parallel = options.sequence_parallel;
  mlp.init = NXD_INIT_NORMAL;
  mlp.init_b = config.initializer_range;
  auto module =
      std::make_shared<GatedMlp>(parent.context(), config.hidden, config.intermediate, mlp);
  parent.add_child("mlp", module);
  return module;
}

std::shared_ptr<Module> make_embedding(Module& parent, const LlamaConfig& config,
                                       const std::string& path,
                                       const nxd_model_options_t& options) {
  const std::string full = join_path(path, "embed_tokens");
  nxd_embedding_options_t embedding = NXD_EMBEDDING_OPTIONS_INIT;
  embedding.name = full.c_str();
  embedding.dtype = options.dtype;
  embedding.device = options.device;
  embedding.init = NXD_INIT_NORMAL;
  embedding.init_b = config.initializer_range;
  embedding.has_padding_idx = config.padding_idx.has_value();
  embedding.padding_idx = config.padding_idx.value_or(0);
  embedding.sequence_parallel = options.sequence_parallel;
  auto module = std::make_shared<ParallelEmbedding>(parent.context(), config.vocabulary,
                                                    config.hidden, embedding);
  parent.add_child("embed_tokens", module);
  return module;
}

// {sum, norm of the sum}; without a residual the sum is x itself.
std::pair<at::Tensor, at::Tensor> add_norm(const RmsNorm& norm, const at::Tensor& x,
                                           const at::Tensor& residual) {
  return add_rms_norm(*norm.context(), x, residual, norm.weight(), norm.eps());
}

}  // namespace

LlamaDecoderLayer::LlamaDecoderLayer(std::shared_ptr<Context> context, const LlamaConfig& config,
                                     const std::string& path, const nxd_model_options_t& options)
    : Module(std::move(context), "LlamaDecoderLayer") {
  attention_ = make_attention(*this, config, path, options);
  mlp_ = make_mlp(*this, config, path, options);
  input_norm_ = make_norm(*this, "input_layernorm", config, path, options);
  post_attention_norm_ = make_norm(*this, "post_attention_layernorm", config, path, options);
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

LlamaModel::LlamaModel(std::shared_ptr<Context> context, const LlamaConfig& config,
                       const std::string& path, const nxd_model_options_t& options)
    : Module(std::move(context), "LlamaModel"), sequence_parallel_(options.sequence_parallel != 0) {
  embedding_ = make_embedding(*this, config, path, options);
  auto list = std::make_shared<Container>(this->context(), "ModuleList");
  add_child("layers", list);
  for (int64_t i = 0; i < config.layers; ++i) {
    check_interrupt(*this->context(), "nxd_model_create");
    const std::string name = std::to_string(i);
    layers_.push_back(std::make_shared<LlamaDecoderLayer>(
        this->context(), config, join_path(join_path(path, "layers"), name), options));
    list->add_child(name, layers_.back());
  }
  norm_ = make_norm(*this, "norm", config, path, options);
}

Module::Tensors LlamaModel::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 2, 1);
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

LlamaForCausalLM::LlamaForCausalLM(std::shared_ptr<Context> context, const LlamaConfig& config,
                                   const nxd_model_options_t& options)
    : CausalLm(std::move(context), "LlamaForCausalLM", options, config.vocabulary),
      config_(config) {
  check_divides("vocab_size", config.vocabulary);
  check_divides("num_attention_heads", config.heads);
  check_divides("intermediate_size", config.intermediate);
  const int ranks = group()->size();
  check_argument(config.kv_heads % ranks == 0 || ranks % config.kv_heads == 0,
                 "config_json: num_key_value_heads: expected ", config.kv_heads,
                 " key heads to divide by the ", ranks, " ranks of group ", group()->name(),
                 ", or the ranks by them");
  auto model = std::make_shared<LlamaModel>(this->context(), config, "model", options);
  set_body("model", model);
  const std::shared_ptr<Parameter> tied =
      config.tied_embeddings ? model->embedding()->parameter("weight") : nullptr;
  const LanguageHead::Sizes sizes{config.hidden, config.vocabulary, config.initializer_range};
  set_head(std::make_shared<LanguageHead>(this->context(), sizes, "lm_head", options, tied));
}

double LlamaForCausalLM::step_flops(int64_t batch, int64_t sequence) const {
  return config_.step_operations(number(batch), sequence);
}

}  // namespace nxd
