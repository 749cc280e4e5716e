#include "engine/models/causal_lm.h"

#include <ATen/ATen.h>

#include "engine/functional/cross_entropy.h"
#include "engine/functional/linear_cross_entropy.h"
#include "engine/layers/layer_support.h"
#include "engine/ops/collectives.h"

namespace nxd {
namespace {

CrossEntropyOptions loss_options(int64_t vocabulary) {
  CrossEntropyOptions options;
  options.vocabulary = vocabulary;
  return options;
}

}  // namespace

LanguageHead::LanguageHead(const LayerContext& at, int64_t hidden, int64_t vocabulary,
                           const std::shared_ptr<Parameter>& tied)
    : Module(at.context, "ColumnParallelLinear"), hidden_(hidden), vocabulary_(vocabulary) {
  plan_.context = context();
  plan_.group = at.group();
  plan_.input = at.sequence_parallel ? ParallelLinearPlan::Input::kGatherSequence
                                     : ParallelLinearPlan::Input::kCopy;
  if (tied) {
    add_parameter("weight", tied);
  } else {
    make_parameter(*this, at, "weight", vocabulary_shard({vocabulary, hidden}, *plan_.group),
                   at.init.resolve(Initializer::normal(0, 0.02), hidden));
  }
}

at::Tensor LanguageHead::loss(const at::Tensor& hidden, const at::Tensor& labels) const {
  return linear_cross_entropy(plan_, hidden, weight(), labels, loss_options(vocabulary_));
}

Module::Tensors LanguageHead::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, 1);
  check_features(*plan_.group, class_name(), inputs[0], hidden_, weight().scalar_type());
  const at::Tensor logits = parallel_linear(plan_, inputs[0], weight(), at::Tensor());
  hide_padding(*plan_.group, vocabulary_, logits);
  return {logits};
}

CausalLm::CausalLm(const LayerContext& at, const char* class_name, const ModelSizes& sizes)
    : Model(at.context, class_name),
      group_(at.group()),
      sequence_parallel_(at.sequence_parallel),
      sizes_(sizes) {}

void CausalLm::check_divides(const char* field, int64_t value) const {
  check_argument(value % group_->size() == 0, "config_json: ", field, ": ", value,
                 " does not divide by the ", group_->size(), " ranks of group ", group_->name());
}

void CausalLm::set_body(const LayerContext& at, std::shared_ptr<Module> body,
                        const Module& embedding, const char* head_name) {
  body_ = std::move(body);
  head_ = add_layer<LanguageHead>(*this, at, head_name, sizes_.hidden, sizes_.vocabulary,
                                  sizes_.tied_embeddings ? embedding.parameter("weight") : nullptr);
}

void CausalLm::check_inputs(const Tensors& inputs) const {
  const auto check = [&](bool holds, const std::string& message) {
    check_with_group(*group_, holds, class_name().c_str(), message);
  };
  const at::Tensor& ids = inputs[0];
  check(ids.dim() == 2 && ids.scalar_type() == at::kLong,
        text("ids: expected [batch, sequence] of dtype i64, got ", c10::toString(ids.scalar_type()),
             " of shape ", ids.sizes()));
  check(ids.numel() > 0, text("ids: expected at least one token, got shape ", ids.sizes()));
  const int64_t sequence = ids.size(1);
  check(sizes_.positions == 0 || sequence <= sizes_.positions,
        text("ids: expected at most ", sizes_.positions, " positions, got ", sequence));
  check(!sequence_parallel_ || sequence % group_->size() == 0,
        text("ids: with sequence_parallel the sequence must divide by the ", group_->size(),
             " ranks of group ", group_->name(), ", got ", sequence));
  const at::Tensor labels = input_or_none(inputs, 1);
  check(!labels.defined() || (labels.sizes() == ids.sizes() && labels.scalar_type() == at::kLong),
        labels.defined()
            ? text("labels: expected dtype i64 and the shape of the ids, ", ids.sizes(), ", got ",
                   c10::toString(labels.scalar_type()), " of shape ", labels.sizes())
            : std::string());
}

// A position predicts the next one's label. Moving the labels, not the logits, copies little.
at::Tensor CausalLm::targets(const at::Tensor& labels) const {
  const int64_t sequence = labels.size(1);
  at::Tensor next = at::full_like(labels, CrossEntropyOptions().ignore_index);
  next.narrow(1, 0, sequence - 1).copy_(labels.narrow(1, 1, sequence - 1));
  return sequence_parallel_ ? next.t() : next;
}

Module::Tensors CausalLm::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 3, 2);
  const at::Tensor labels = input_or_none(inputs, 1);
  check_argument(labels.defined() || n_outputs == 1, class_name(),
                 ": gives one output without labels, ", n_outputs, " were asked for");
  check_inputs(inputs);
  const at::Tensor hidden = body_->call({inputs[0], input_or_none(inputs, 2)})[0];
  if (labels.defined() && n_outputs == 1) return {head_->loss(hidden, targets(labels))};
  const at::Tensor logits = (*head_)(hidden);
  Tensors outputs;
  if (labels.defined()) {
    outputs.push_back(parallel_cross_entropy(*context(), group_, logits, targets(labels),
                                             loss_options(sizes_.vocabulary)));
  }
  outputs.push_back(sequence_parallel_ ? logits.transpose(0, 1) : logits);
  return outputs;
}

}  // namespace nxd
