#include "engine/models/gpt2.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "core/world/long_call.h"
#include "engine/functional/activation_op.h"
#include "engine/functional/attention_op.h"
#include "engine/layers/parallel_conv1d.h"
#include "engine/layers/parallel_embedding.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A node that only holds others, and parameters that its owner uses.
class Holder : public Module {
 public:
  Holder(std::shared_ptr<Context> context, const char* class_name)
      : Module(std::move(context), class_name) {}

 protected:
  Tensors forward(const Tensors&, size_t) override {
    fail(NXD_ERROR_UNSUPPORTED, class_name(), ": runs as part of its model only");
  }
};

// Splits the last dimension in three without a copy; the gradients come back as one tensor.
struct SplitQkv : torch::autograd::Function<SplitQkv> {
  static variable_list forward(AutogradContext*, const at::Tensor& x) {
    return x.unflatten(-1, {3, x.size(-1) / 3}).unbind(-2);
  }

  static variable_list backward(AutogradContext*, const variable_list& grads) {
    const at::Tensor& some = grads[0].defined()   ? grads[0]
                             : grads[1].defined() ? grads[1]
                                                  : grads[2];
    std::vector<int64_t> sizes = some.sizes().vec();
    const int64_t width = sizes.back();
    sizes.back() *= 3;
    at::Tensor out = pooled_empty(sizes, some.scalar_type());
    for (int64_t i = 0; i < 3; ++i) {
      at::Tensor part = out.narrow(-1, i * width, width);
      const at::Tensor& grad = grads[static_cast<size_t>(i)];
      grad.defined() ? part.copy_(grad) : part.zero_();
    }
    return {out};
  }
};

// A dropout whose input lies as activations do between layers.
std::shared_ptr<Dropout> make_dropout(Module& parent, const char* name, double p,
                                      const std::string& path, const nxd_model_options_t& options) {
  const bool slices = options.sequence_parallel != 0;
  auto module = std::make_shared<Dropout>(parent.context(), p, join_path(path, name),
                                          slices ? 1 : -1, /*transposed=*/slices);
  parent.add_child(name, module);
  return module;
}

std::shared_ptr<LayerNorm> make_norm(Module& parent, const char* name, const Gpt2Config& config,
                                     const std::string& path, const nxd_model_options_t& options) {
  const std::string full = join_path(path, name);
  nxd_norm_options_t norm = NXD_NORM_OPTIONS_INIT;
  norm.name = full.c_str();
  norm.dtype = options.dtype;
  norm.device = options.device;
  norm.eps = norm_eps(config.norm_eps);
  norm.sequence_parallel = options.sequence_parallel;
  auto module = std::make_shared<LayerNorm>(parent.context(), config.hidden, norm);
  parent.add_child(name, module);
  return module;
}

ParallelConv1d::Options conv_options(ParallelConv1d::Split split, const Gpt2Config& config,
                                     const nxd_model_options_t& options) {
  ParallelConv1d::Options conv;
  conv.split = split;
  conv.sequence_parallel = options.sequence_parallel != 0;
  conv.place = parameter_place(options.dtype, options.device);
  conv.weight_std = config.initializer_range;
  // What adds to the residual starts smaller, by the number of such additions.
  if (split == ParallelConv1d::Split::kRows) {
    conv.weight_std /= std::sqrt(2.0 * static_cast<double>(config.layers));
  }
  return conv;
}

std::shared_ptr<Module> make_conv(Module& parent, const char* name, int64_t in, int64_t out,
                                  const std::string& path, const ParallelConv1d::Options& options) {
  auto module =
      std::make_shared<ParallelConv1d>(parent.context(), in, out, join_path(path, name), options);
  parent.add_child(name, module);
  return module;
}

class Gpt2Mlp : public Module {
 public:
  Gpt2Mlp(std::shared_ptr<Context> context, const Gpt2Config& config, const std::string& path,
          const nxd_model_options_t& options)
      : Module(std::move(context), "GPT2MLP"), activation_(config.activation) {
    using Split = ParallelConv1d::Split;
    up_ = make_conv(*this, "c_fc", config.hidden, config.intermediate, path,
                    conv_options(Split::kColumns, config, options));
    down_ = make_conv(*this, "c_proj", config.intermediate, config.hidden, path,
                      conv_options(Split::kRows, config, options));
    dropout_ = make_dropout(*this, "dropout", config.residual_dropout, path, options);
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

std::shared_ptr<Module> make_embedding(Module& parent, const Gpt2Config& config,
                                       const std::string& path,
                                       const nxd_model_options_t& options) {
  const std::string full = join_path(path, "wte");
  nxd_embedding_options_t embedding = NXD_EMBEDDING_OPTIONS_INIT;
  embedding.name = full.c_str();
  embedding.dtype = options.dtype;
  embedding.device = options.device;
  embedding.init = NXD_INIT_NORMAL;
  embedding.init_b = config.initializer_range;
  embedding.sequence_parallel = options.sequence_parallel;
  auto module = std::make_shared<ParallelEmbedding>(parent.context(), config.vocabulary,
                                                    config.hidden, embedding, /*pad_rows=*/true);
  parent.add_child("wte", module);
  return module;
}

}  // namespace

Gpt2Attention::Gpt2Attention(std::shared_ptr<Context> context, const Gpt2Config& config,
                             int64_t layer, const std::string& path,
                             const nxd_model_options_t& options)
    : Module(std::move(context), "GPT2Attention"),
      group_(tensor_group(*this->context())),
      head_dim_(config.hidden / config.heads),
      scale_(config.scale_by_head_dim ? 1.0 / std::sqrt(static_cast<double>(head_dim_)) : 1.0),
      sequence_parallel_(options.sequence_parallel != 0) {
  if (config.scale_by_layer_index) scale_ /= static_cast<double>(layer + 1);
  ParallelConv1d::Options qkv = conv_options(ParallelConv1d::Split::kColumns, config, options);
  qkv.fused = 3;
  projection_ = make_conv(*this, "c_attn", config.hidden, 3 * config.hidden, path, qkv);
  output_ = make_conv(*this, "c_proj", config.hidden, config.hidden, path,
                      conv_options(ParallelConv1d::Split::kRows, config, options));
  // Weights are [batch, heads, queries, keys], split by heads.
  weight_dropout_ = std::make_shared<Dropout>(this->context(), config.attention_dropout,
                                              join_path(path, "attn_dropout"), 1);
  add_child("attn_dropout", weight_dropout_);
  output_dropout_ = make_dropout(*this, "resid_dropout", config.residual_dropout, path, options);
}

Module::Tensors Gpt2Attention::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 2, 1);
  const variable_list parts = SplitQkv::apply((*projection_)(inputs[0]));
  const auto heads = [&](const at::Tensor& x) {
    return x.unflatten(-1, {x.size(-1) / head_dim_, head_dim_});
  };
  const at::Tensor q = heads(parts[0]), k = heads(parts[1]), v = heads(parts[2]);
  AttentionArgs args;
  args.layout = sequence_parallel_ ? SequenceLayout::kSequenceFirst : SequenceLayout::kBatchFirst;
  args.scale = scale_;
  args.key_mask = key_mask(*group_, input_or_none(inputs, 1), q.size(sequence_parallel_ ? 1 : 0),
                           q.size(sequence_parallel_ ? 0 : 1));
  if (weight_dropout_->active() && !q.is_meta()) {
    const int64_t sequence = q.size(sequence_parallel_ ? 0 : 1);
    const int64_t batch = q.size(sequence_parallel_ ? 1 : 0);
    const at::ScalarType wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    args.weight_factors = weight_dropout_->factors({batch, q.size(2), sequence, sequence}, wide);
  }
  const at::Tensor out = attention(*context(), args, q, k, v);
  return {(*output_dropout_)((*output_)(out.flatten(2)))};
}

Gpt2Block::Gpt2Block(std::shared_ptr<Context> context, const Gpt2Config& config, int64_t layer,
                     const std::string& path, const nxd_model_options_t& options)
    : Module(std::move(context), "GPT2Block") {
  attention_norm_ = make_norm(*this, "ln_1", config, path, options);
  attention_ = std::make_shared<Gpt2Attention>(this->context(), config, layer,
                                               join_path(path, "attn"), options);
  add_child("attn", attention_);
  mlp_norm_ = make_norm(*this, "ln_2", config, path, options);
  mlp_ = std::make_shared<Gpt2Mlp>(this->context(), config, join_path(path, "mlp"), options);
  add_child("mlp", mlp_);
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

Gpt2Model::Gpt2Model(std::shared_ptr<Context> context, const Gpt2Config& config,
                     const std::string& path, const nxd_model_options_t& options)
    : Module(std::move(context), "GPT2Model"),
      group_(tensor_group(*this->context())),
      sequence_parallel_(options.sequence_parallel != 0) {
  embedding_ = make_embedding(*this, config, path, options);
  positions_ = std::make_shared<Holder>(this->context(), "Embedding");
  mark_replicated(make_parameter(*positions_, join_path(path, "wpe"), "weight",
                                 ShardSpec::replicated({config.positions, config.hidden}),
                                 Initializer::normal(0, config.initializer_range),
                                 parameter_place(options.dtype, options.device)),
                  group_, sequence_parallel_);
  add_child("wpe", positions_);
  dropout_ = make_dropout(*this, "drop", config.embedding_dropout, path, options);
  auto list = std::make_shared<Holder>(this->context(), "ModuleList");
  add_child("h", list);
  for (int64_t i = 0; i < config.layers; ++i) {
    check_interrupt(*this->context(), "nxd_model_create");
    const std::string name = std::to_string(i);
    blocks_.push_back(std::make_shared<Gpt2Block>(this->context(), config, i,
                                                  join_path(join_path(path, "h"), name), options));
    list->add_child(name, blocks_.back());
  }
  norm_ = make_norm(*this, "ln_f", config, path, options);
}

at::Tensor Gpt2Model::positions(int64_t sequence) const {
  const at::Tensor table = positions_->parameter_value("weight");
  if (!sequence_parallel_) return table.narrow(0, 0, sequence);
  const int64_t own = sequence / group_->size();
  return table.narrow(0, own * group_->rank(), own).unsqueeze(1);
}

Module::Tensors Gpt2Model::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 2, 1);
  const at::Tensor mask = input_or_none(inputs, 1);
  at::Tensor x = (*embedding_)(sequence_parallel_ ? inputs[0].t().contiguous() : inputs[0]);
  x = (*dropout_)(x + positions(inputs[0].size(1)));
  at::Tensor residual;
  for (const auto& block : blocks_) {
    Tensors out = block->call({x, mask, residual}, 2);
    x = std::move(out[0]);
    residual = std::move(out[1]);
  }
  return norm_->call({x, residual});
}

Gpt2LmHeadModel::Gpt2LmHeadModel(std::shared_ptr<Context> context, const Gpt2Config& config,
                                 const nxd_model_options_t& options)
    : CausalLm(std::move(context), "GPT2LMHeadModel", options, config.vocabulary, config.positions),
      config_(config) {
  check_divides("n_head", config.heads);
  check_divides("n_inner", config.intermediate);
  auto model = std::make_shared<Gpt2Model>(this->context(), config, "transformer", options);
  set_body("transformer", model);
  const std::shared_ptr<Parameter> tied =
      config.tied_embeddings ? model->embedding()->parameter("weight") : nullptr;
  const LanguageHead::Sizes sizes{config.hidden, config.vocabulary, config.initializer_range};
  set_head(std::make_shared<LanguageHead>(this->context(), sizes, "lm_head", options, tied));
}

double Gpt2LmHeadModel::step_flops(int64_t batch, int64_t sequence) const {
  return config_.step_operations(number(batch), sequence);
}

}  // namespace nxd
