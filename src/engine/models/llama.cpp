#include "engine/models/llama.h"

#include <ATen/ATen.h>

#include "engine/device/collectives.h"
#include "engine/nn/attention.h"
#include "engine/nn/gated_mlp.h"
#include "engine/nn/linear_cross_entropy.h"
#include "engine/nn/norm_op.h"
#include "engine/nn/parallel_embedding.h"

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
  norm.eps = config.norm_eps;
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

// Refuses a layout that the sizes do not allow, before any layer is made.
void check_divides(const char* field, int64_t value, const ProcessGroup& group) {
  check_argument(value % group.size() == 0, "config_json: ", field, ": ", value,
                 " does not divide by the ", group.size(), " ranks of group ", group.name());
}

at::Tensor input_or_none(const Module::Tensors& inputs, size_t index) {
  return index < inputs.size() ? inputs[index] : at::Tensor();
}

// {sum, norm of the sum}; without a residual the sum is x itself.
std::pair<at::Tensor, at::Tensor> add_norm(const RmsNorm& norm, const at::Tensor& x,
                                           const at::Tensor& residual) {
  return add_rms_norm(*norm.context(), x, residual, norm.weight(), norm.eps());
}

}  // namespace

// Hidden states to logits of this rank's part of the vocabulary. With tied embeddings its weight is
// the embedding's own parameter, which has the same shard.
class LanguageHead : public Module {
 public:
  LanguageHead(std::shared_ptr<Context> context, const LlamaConfig& config, const std::string& path,
               const nxd_model_options_t& options, const std::shared_ptr<Parameter>& tied)
      : Module(std::move(context), "ColumnParallelLinear"), hidden_(config.hidden) {
    const GroupRef group = tensor_group(*this->context());
    if (tied) {
      add_parameter("weight", tied);
    } else {
      make_parameter(
          *this, path, "weight",
          ShardSpec::split({config.vocabulary, config.hidden}, 0, group->rank(), group->size()),
          Initializer::normal(0, config.initializer_range),
          parameter_place(options.dtype, options.device));
    }
    plan_.context = this->context();
    plan_.group = group;
    plan_.input = options.sequence_parallel ? ParallelLinearPlan::Input::kGatherSequence
                                            : ParallelLinearPlan::Input::kCopy;
  }

  // The loss of the logits of hidden, without making them all. labels: those of the whole hidden.
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& labels) const {
    return linear_cross_entropy(plan_, hidden, weight(), labels, CrossEntropyOptions());
  }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override {
    check_arity(inputs, n_outputs, 1, 1, 1);
    check_features(*plan_.group, class_name(), inputs[0], hidden_, weight().scalar_type());
    return {parallel_linear(plan_, inputs[0], weight(), at::Tensor())};
  }

 private:
  at::Tensor weight() const { return parameter_value("weight"); }

  int64_t hidden_;
  ParallelLinearPlan plan_;
};

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
    : Model(std::move(context), "LlamaForCausalLM"),
      config_(config),
      group_(tensor_group(*this->context())),
      sequence_parallel_(options.sequence_parallel != 0) {
  check_divides("vocab_size", config.vocabulary, *group_);
  check_divides("num_attention_heads", config.heads, *group_);
  check_divides("intermediate_size", config.intermediate, *group_);
  auto model = std::make_shared<LlamaModel>(this->context(), config, "model", options);
  model_ = model;
  add_child("model", model_);
  const std::shared_ptr<Parameter> tied =
      config.tie_embeddings ? model->embedding()->parameter("weight") : nullptr;
  head_ = std::make_shared<LanguageHead>(this->context(), config, "lm_head", options, tied);
  add_child("lm_head", head_);
}

void LlamaForCausalLM::check_inputs(const Tensors& inputs) const {
  const auto check = [&](bool holds, const std::string& message) {
    check_with_group(*group_, holds, "LlamaForCausalLM", message);
  };
  const at::Tensor& ids = inputs[0];
  check(ids.dim() == 2 && ids.scalar_type() == at::kLong,
        text("ids: expected [batch, sequence] of dtype i64, got ", c10::toString(ids.scalar_type()),
             " of shape ", ids.sizes()));
  check(ids.numel() > 0, text("ids: expected at least one token, got shape ", ids.sizes()));
  check(!sequence_parallel_ || ids.size(1) % group_->size() == 0,
        text("ids: with sequence_parallel the sequence must divide by the ", group_->size(),
             " ranks of group ", group_->name(), ", got ", ids.size(1)));
  const at::Tensor labels = input_or_none(inputs, 1);
  check(!labels.defined() || (labels.sizes() == ids.sizes() && labels.scalar_type() == at::kLong),
        labels.defined()
            ? text("labels: expected dtype i64 and the shape of the ids, ", ids.sizes(), ", got ",
                   c10::toString(labels.scalar_type()), " of shape ", labels.sizes())
            : std::string());
}

// A position predicts the next one's label. Moving the labels, not the logits, copies little.
at::Tensor LlamaForCausalLM::targets(const at::Tensor& labels) const {
  const int64_t sequence = labels.size(1);
  at::Tensor next = at::full_like(labels, CrossEntropyOptions().ignore_index);
  next.narrow(1, 0, sequence - 1).copy_(labels.narrow(1, 1, sequence - 1));
  return sequence_parallel_ ? next.t() : next;
}

Module::Tensors LlamaForCausalLM::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 3, 2);
  const at::Tensor labels = input_or_none(inputs, 1);
  check_argument(labels.defined() || n_outputs == 1, class_name(),
                 ": gives one output without labels, ", n_outputs, " were asked for");
  check_inputs(inputs);
  const at::Tensor hidden = model_->call({inputs[0], input_or_none(inputs, 2)})[0];
  if (labels.defined() && n_outputs == 1) return {head_->loss(hidden, targets(labels))};
  const at::Tensor logits = (*head_)(hidden);
  Tensors outputs;
  if (labels.defined()) {
    outputs.push_back(parallel_cross_entropy(*context(), group_, logits, targets(labels), {}));
  }
  outputs.push_back(sequence_parallel_ ? logits.transpose(0, 1) : logits);
  return outputs;
}

double LlamaForCausalLM::step_flops(int64_t batch, int64_t sequence) const {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  const double hidden = number(config_.hidden);
  const double width = number(config_.heads) * number(config_.head_dim);
  const double kv_width = number(config_.kv_heads) * number(config_.head_dim);
  const double per_layer =
      hidden * (2 * width + 2 * kv_width) + 3 * hidden * number(config_.intermediate);
  const double matrices = number(config_.layers) * per_layer + hidden * number(config_.vocabulary);
  const double tokens = number(batch) * number(sequence);
  return tokens * (6 * matrices + 6 * number(config_.layers) * number(sequence) * width);
}

}  // namespace nxd
