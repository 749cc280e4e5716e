#pragma once

#include <limits>
#include <memory>
#include <string>

#include "core/model/model_sizes.h"
#include "engine/functional/parallel_linear_op.h"
#include "engine/layers/layer_context.h"
#include "engine/module/model.h"

namespace nxd {

// Hidden states to logits of this rank's part of the vocabulary, which is padded where it does not
// divide by the ranks. With tied embeddings its weight is the embedding's own parameter, which has
// the same shard.
class LanguageHead : public Module {
 public:
  // Initial values are drawn as the context's init says.
  LanguageHead(const LayerContext& at, int64_t hidden, int64_t vocabulary,
               const std::shared_ptr<Parameter>& tied);

  // The loss of the logits of hidden, without making them all. labels: those of the whole hidden.
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& labels) const;

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  at::Tensor weight() const { return parameter_value("weight"); }

  int64_t hidden_, vocabulary_;
  ParallelLinearPlan plan_;
};

// A model that predicts the next token: a body, which turns ids and an optional key mask into
// hidden states, and a language head. See nxd_model_create.
class CausalLm : public Model {
 public:
  std::vector<std::string> input_names() const override {
    return {"input_ids", "labels", "attention_mask"};
  }
  bool is_leaf() const override { return false; }
  double step_flops(int64_t batch, int64_t sequence) const override {
    return sizes_.step_operations(number(batch), sequence);
  }

 protected:
  CausalLm(const LayerContext& at, const char* class_name, const ModelSizes& sizes);

  const GroupRef& group() const { return group_; }
  // Rejects a layout that a size does not allow, to be called before any layer is made.
  void check_divides(const char* field, int64_t value) const;
  // The body, which is a child already, and a head of that name, which may share the embedding's
  // weight.
  void set_body(const LayerContext& at, std::shared_ptr<Module> body, const Module& embedding,
                const char* head_name = "lm_head");

  Tensors forward(const Tensors& inputs, size_t n_outputs) final;

 private:
  void check_inputs(const Tensors& inputs) const;
  at::Tensor targets(const at::Tensor& labels) const;

  GroupRef group_;
  bool sequence_parallel_;
  ModelSizes sizes_;
  std::shared_ptr<Module> body_;
  std::shared_ptr<LanguageHead> head_;
};

// An eps as a norm takes it, which wants more than 0. The smallest of all numbers is nothing beside
// any sum.
inline double norm_eps(double eps) {
  return eps == 0 ? std::numeric_limits<double>::denorm_min() : eps;
}

// A module's input, undefined where it was left out.
inline at::Tensor input_or_none(const Module::Tensors& inputs, size_t index) {
  return index < inputs.size() ? inputs[index] : at::Tensor();
}

}  // namespace nxd
