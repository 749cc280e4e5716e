#include "engine/models/language_head.h"

#include <ATen/ATen.h>

#include "engine/functional/cross_entropy.h"
#include "engine/functional/linear_cross_entropy.h"
#include "engine/layers/layer_support.h"

namespace nxd {
namespace {

LossFormula loss_formula(int64_t vocabulary) {
  LossFormula formula;
  formula.vocab_size = vocabulary;
  return formula;
}

}  // namespace

LanguageHead::LanguageHead(const LayerContext& at, int64_t hidden, int64_t vocabulary,
                           const std::shared_ptr<Parameter>& tied,
                           const std::shared_ptr<Parameter>& bias)
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
  if (bias) add_parameter("bias", bias);
}

at::Tensor LanguageHead::loss(const at::Tensor& hidden, const at::Tensor& labels) const {
  check_parameters({hidden});
  return linear_cross_entropy(plan_, hidden, weight(), bias(), labels, loss_formula(vocabulary_));
}

at::Tensor LanguageHead::loss_of_logits(const at::Tensor& logits, const at::Tensor& labels) const {
  return parallel_cross_entropy(*context(), plan_.group, logits, labels, loss_formula(vocabulary_));
}

Module::Tensors LanguageHead::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, 1);
  check_features(*plan_.group, class_name(), inputs[0], hidden_, weight());
  return {
      hide_padding(*plan_.group, vocabulary_, parallel_linear(plan_, inputs[0], weight(), bias()))};
}

}  // namespace nxd
