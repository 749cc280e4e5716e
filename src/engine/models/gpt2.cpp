#include "engine/models/gpt2.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

#include "engine/device/collectives.h"
#include "engine/device/pooled_tensor.h"
#include "engine/nn/activation_op.h"
#include "engine/nn/attention_op.h"
#include "engine/nn/cross_entropy.h"
#include "engine/nn/parallel_conv1d.h"
#include "engine/nn/parallel_embedding.h"

namespace nxd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor input_or_none(const Module::Tensors& inputs, size_t index) {
  return index < inputs.size() ? inputs[index] : at::Tensor();
}

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
  norm.eps = config.norm_eps;
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

// Hidden states to logits of this rank's part of the vocabulary. With tied embeddings its weight is
// the embedding's own parameter, which has the same shard.
class Gpt2Head : public Module {
 public:
  Gpt2Head(std::shared_ptr<Context> context, const Gpt2Config& config, const std::string& path,
           const nxd_model_options_t& options, const std::shared_ptr<Parameter>& tied)
      : Module(std::move(context), "ColumnParallelLinear"),
        hidden_(config.hidden),
        vocabulary_(config.vocabulary) {
    const GroupRef group = tensor_group(*this->context());
    if (tied) {
      add_parameter("weight", tied);
    } else {
      make_parameter(*this, path, "weight",
                     vocabulary_shard({config.vocabulary, config.hidden}, *group),
                     Initializer::normal(0, config.initializer_range),
                     parameter_place(options.dtype, options.device));
    }
    plan_.context = this->context();
    plan_.group = group;
    plan_.input = options.sequence_parallel ? ParallelLinearPlan::Input::kGatherSequence
                                            : ParallelLinearPlan::Input::kCopy;
  }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override {
    check_arity(inputs, n_outputs, 1, 1, 1);
    const at::Tensor weight = parameter_value("weight");
    check_features(*plan_.group, class_name(), inputs[0], hidden_, weight.scalar_type());
    at::Tensor logits = parallel_linear(plan_, inputs[0], weight, at::Tensor());
    hide_padding(logits);
    return {logits};
  }

 private:
  // Columns of no id become so small that no softmax sees them: it gives them no gradient either,
  // so the graph need not know.
  void hide_padding(const at::Tensor& logits) const {
    const int64_t columns = logits.size(-1);
    const int64_t real =
        std::clamp<int64_t>(vocabulary_ - columns * plan_.group->rank(), 0, columns);
    if (real == columns) return;
    const at::ScalarType dtype = logits.scalar_type();
    const double least =
        dtype == at::kDouble ? std::numeric_limits<double>::lowest() : -0x1p127;  // has a bf16
    // With a version counter of its own: what autograd keeps is not touched.
    logits.variable_data().narrow(-1, real, columns - real).fill_(least);
  }

  int64_t hidden_, vocabulary_;
  ParallelLinearPlan plan_;
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

// Refuses a layout that the sizes do not allow, before any layer is made.
void check_divides(const char* field, int64_t value, const ProcessGroup& group) {
  check_argument(value % group.size() == 0, "config_json: ", field, ": ", value,
                 " does not divide by the ", group.size(), " ranks of group ", group.name());
}

}  // namespace

Gpt2Attention::Gpt2Attention(std::shared_ptr<Context> context, const Gpt2Config& config,
                             int64_t layer, const std::string& path,
                             const nxd_model_options_t& options)
    : Module(std::move(context), "GPT2Attention"),
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
  const at::Tensor mask = input_or_none(inputs, 1);
  if (mask.defined()) args.key_mask = mask.ne(0).to(at::kByte).contiguous();
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
  check_arity(inputs, n_outputs, 1, 2, 1);
  const at::Tensor& x = inputs[0];
  const at::Tensor normed = (*attention_norm_)(x);
  const at::Tensor between = x + attention_->call({normed, input_or_none(inputs, 1)})[0];
  return {between + (*mlp_)((*mlp_norm_)(between))};
}

Gpt2Model::Gpt2Model(std::shared_ptr<Context> context, const Gpt2Config& config,
                     const std::string& path, const nxd_model_options_t& options)
    : Module(std::move(context), "GPT2Model"),
      group_(tensor_group(*this->context())),
      sequence_parallel_(options.sequence_parallel != 0) {
  embedding_ = make_embedding(*this, config, path, options);
  positions_ = std::make_shared<Holder>(this->context(), "Embedding");
  mark_replicated(make_parameter(*positions_, join_path(path, "wpe"), "weight",
                                 ShardSpec::replicated({config.max_positions, config.hidden}),
                                 Initializer::normal(0, config.initializer_range),
                                 parameter_place(options.dtype, options.device)),
                  group_, sequence_parallel_);
  add_child("wpe", positions_);
  dropout_ = make_dropout(*this, "drop", config.embedding_dropout, path, options);
  auto list = std::make_shared<Holder>(this->context(), "ModuleList");
  add_child("h", list);
  for (int64_t i = 0; i < config.layers; ++i) {
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
  for (const auto& block : blocks_) x = block->call({x, mask})[0];
  return {(*norm_)(x)};
}

Gpt2LmHeadModel::Gpt2LmHeadModel(std::shared_ptr<Context> context, const Gpt2Config& config,
                                 const nxd_model_options_t& options)
    : Model(std::move(context), "GPT2LMHeadModel"),
      config_(config),
      group_(tensor_group(*this->context())),
      sequence_parallel_(options.sequence_parallel != 0) {
  check_divides("n_head", config.heads, *group_);
  check_divides("n_inner", config.intermediate, *group_);
  auto model = std::make_shared<Gpt2Model>(this->context(), config, "transformer", options);
  model_ = model;
  add_child("transformer", model_);
  const std::shared_ptr<Parameter> tied =
      config.tie_embeddings ? model->embedding()->parameter("weight") : nullptr;
  head_ = std::make_shared<Gpt2Head>(this->context(), config, "lm_head", options, tied);
  add_child("lm_head", head_);
}

void Gpt2LmHeadModel::check_inputs(const Tensors& inputs) const {
  const auto check = [&](bool holds, const std::string& message) {
    check_with_group(*group_, holds, "GPT2LMHeadModel", message);
  };
  const at::Tensor& ids = inputs[0];
  check(ids.dim() == 2 && ids.scalar_type() == at::kLong && ids.numel() > 0,
        text("ids: expected [batch, sequence] of dtype i64 with at least one token, got ",
             c10::toString(ids.scalar_type()), " of shape ", ids.sizes()));
  const int64_t sequence = ids.size(1);
  check(sequence <= config_.max_positions,
        text("ids: expected at most ", config_.max_positions, " positions, got ", sequence));
  check(!sequence_parallel_ || sequence % group_->size() == 0,
        text("ids: with sequence_parallel the sequence must divide by the ", group_->size(),
             " ranks of group ", group_->name(), ", got ", sequence));
  const at::Tensor labels = input_or_none(inputs, 1);
  check(!labels.defined() || (labels.sizes() == ids.sizes() && labels.scalar_type() == at::kLong),
        labels.defined()
            ? text("labels: expected dtype i64 and the shape of the ids, ", ids.sizes(), ", got ",
                   c10::toString(labels.scalar_type()), " of shape ", labels.sizes())
            : std::string());
  // The loss knows the padded vocabulary only.
  check(!labels.defined() || labels.is_meta() || labels.max().item<int64_t>() < config_.vocabulary,
        text("labels: expected ids below ", config_.vocabulary, ", got another value"));
  const at::Tensor mask = input_or_none(inputs, 2);
  check(!mask.defined() || (mask.sizes() == ids.sizes() &&
                            at::isIntegralType(mask.scalar_type(), /*includeBool=*/true)),
        mask.defined()
            ? text("key mask: expected dtype i64 or bool and the shape of the ids, ", ids.sizes(),
                   ", got ", c10::toString(mask.scalar_type()), " of shape ", mask.sizes())
            : std::string());
}

// A position predicts the next one's label. Moving the labels, not the logits, copies little.
at::Tensor Gpt2LmHeadModel::targets(const at::Tensor& labels) const {
  const int64_t sequence = labels.size(1);
  at::Tensor next = at::full_like(labels, CrossEntropyOptions().ignore_index);
  next.narrow(1, 0, sequence - 1).copy_(labels.narrow(1, 1, sequence - 1));
  return sequence_parallel_ ? next.t() : next;
}

Module::Tensors Gpt2LmHeadModel::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 3, 2);
  const at::Tensor labels = input_or_none(inputs, 1);
  check_argument(labels.defined() || n_outputs == 1, class_name(),
                 ": gives one output without labels, ", n_outputs, " were asked for");
  check_inputs(inputs);
  const at::Tensor hidden = model_->call({inputs[0], input_or_none(inputs, 2)})[0];
  const at::Tensor logits = (*head_)(hidden);
  Tensors outputs;
  if (labels.defined()) {
    outputs.push_back(parallel_cross_entropy(*context(), group_, logits, targets(labels), {}));
  }
  if (outputs.size() < n_outputs) {
    outputs.push_back(sequence_parallel_ ? logits.transpose(0, 1) : logits);
  }
  return outputs;
}

double Gpt2LmHeadModel::step_flops(int64_t batch, int64_t sequence) const {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  const double hidden = number(config_.hidden), layers = number(config_.layers);
  const double per_layer = 4 * hidden * hidden + 2 * hidden * number(config_.intermediate);
  const double matrices = layers * per_layer + hidden * number(config_.vocabulary);
  const double tokens = number(batch) * number(sequence);
  return tokens * (6 * matrices + 6 * layers * number(sequence) * hidden);
}

}  // namespace nxd
