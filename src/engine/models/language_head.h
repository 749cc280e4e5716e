#pragma once

#include <memory>

#include "engine/functional/parallel_linear_op.h"
#include "engine/layers/layer_context.h"

namespace nxd {

// Hidden states to logits of this rank's part of the vocabulary, which is padded where it does not
// divide by the ranks. With tied embeddings its weight is the embedding's own parameter, which has
// the same shard.
class LanguageHead : public Module {
 public:
  // Initial values are drawn as the context's init says. bias: a parameter of the same shard; it
  // may be null.
  LanguageHead(const LayerContext& at, int64_t hidden, int64_t vocabulary,
               const std::shared_ptr<Parameter>& tied,
               const std::shared_ptr<Parameter>& bias = nullptr);

  // The mean loss of the logits of hidden, without making them all. labels: those of the whole
  // hidden.
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& labels) const;
  // The same of logits that are there.
  at::Tensor loss_of_logits(const at::Tensor& logits, const at::Tensor& labels) const;

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  at::Tensor weight() const { return parameter_value("weight"); }
  at::Tensor bias() const { return parameter_value("bias"); }

  int64_t hidden_, vocabulary_;
  ParallelLinearPlan plan_;
};

}  // namespace nxd
