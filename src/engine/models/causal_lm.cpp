#include "engine/models/causal_lm.h"

#include <ATen/ATen.h>

#include "engine/functional/cross_entropy.h"
#include "engine/layers/sequence_padding.h"

namespace nxd {
namespace {

// A position predicts the next one's label. Moving the labels, not the logits, copies little.
at::Tensor next_labels(const at::Tensor& labels) {
  const int64_t sequence = labels.size(1);
  at::Tensor next = at::full_like(labels, LossFormula().ignore_index);
  next.narrow(1, 0, sequence - 1).copy_(labels.narrow(1, 1, sequence - 1));
  return next;
}

}  // namespace

void CausalLm::set_body(const LayerContext& at, std::shared_ptr<Module> body,
                        const Module& embedding, const char* head_name) {
  body_ = std::move(body);
  head_ =
      add_layer<LanguageHead>(*this, at, head_name, sizes().hidden, sizes().vocabulary,
                              sizes().tied_embeddings ? embedding.parameter("weight") : nullptr);
}

Module::Tensors CausalLm::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 3, 2, group().get());
  const at::Tensor labels = input_or_none(inputs, 1);
  check(labels.defined() || n_outputs == 1,
        text("gives one output without labels, ", n_outputs, " were asked for"));
  check_ids(inputs[0]);
  check_like_ids("labels", labels, inputs[0]);
  const at::Tensor& ids = inputs[0];
  check_mask(input_or_none(inputs, 2), ids);
  name_outputs(labels.defined() ? std::vector<std::string>{"loss", "logits"}
                                : std::vector<std::string>{"logits"});
  const int64_t places = padding_of(ids);
  const at::Tensor hidden = body_->call(
      {SequencePadding::repeat_last(ids, places), mask_of(input_or_none(inputs, 2), ids)})[0];
  const at::Tensor targets =
      labels.defined() ? padded_labels(next_labels(labels), places) : at::Tensor();
  if (labels.defined() && n_outputs == 1) return {head_->loss(hidden, targets)};
  const at::Tensor logits = (*head_)(hidden);
  Tensors outputs;
  if (labels.defined()) outputs.push_back(head_->loss_of_logits(logits, targets));
  outputs.push_back(real_logits(logits, places));
  return outputs;
}

}  // namespace nxd
