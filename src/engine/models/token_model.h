#pragma once

#include <limits>

#include "core/model/model_sizes.h"
#include "engine/functional/mappings.h"
#include "engine/layers/layer_context.h"
#include "engine/module/model.h"

namespace nxd {

// A model of tokens, ids [batch, sequence], whose sizes a config.json gives.
class TokenModel : public Model {
 public:
  bool is_leaf() const override { return false; }
  double step_flops(int64_t batch, int64_t sequence) const override {
    return sizes_.step_operations(number(batch), sequence);
  }

 protected:
  TokenModel(const LayerContext& at, const char* class_name, const ModelSizes& sizes);

  const GroupRef& group() const { return group_; }
  bool sequence_parallel() const { return sequence_parallel_; }
  const ModelSizes& sizes() const { return sizes_; }

  // Reject a layout in which a rank would have no feature, or no head, to be called before any
  // layer is made.
  void check_enough(const char* field, int64_t value) const;
  void check_heads(const char* field) const;
  // Reject inputs on all ranks of the group alike.
  void check(bool holds, const std::string& message) const;
  void check_ids(const at::Tensor& ids) const;
  // An input of the ids' shape, such as the labels; undefined is none.
  void check_like_ids(const char* name, const at::Tensor& input, const at::Tensor& ids) const;
  void check_mask(const at::Tensor& mask, const at::Tensor& ids) const;

  // Places that the body's sequence has more than the ids: with sequence parallelism it divides by
  // the ranks. See SequencePadding.
  int64_t padding_of(const at::Tensor& ids) const;
  // The mask that attention wants: where there is padding, always one.
  at::Tensor mask_of(const at::Tensor& given, const at::Tensor& ids) const;
  // Labels in the order of the body's hidden states, and none where there is padding.
  at::Tensor padded_labels(const at::Tensor& labels, int64_t places) const;
  // Logits of the body's hidden states as a caller sees them: [batch, sequence, ..].
  at::Tensor real_logits(const at::Tensor& logits, int64_t places) const;

 private:
  GroupRef group_;
  bool sequence_parallel_;
  ModelSizes sizes_;
};

// An eps as a norm takes it, which wants more than 0. The smallest of all numbers is nothing beside
// any sum.
inline double norm_eps(double eps) {
  return eps == 0 ? std::numeric_limits<double>::denorm_min() : eps;
}

// Rejects ids that are not [batch, sequence] on all ranks alike, also of a model's body that is
// called alone.
void check_token_ids(const Module& module, const at::Tensor& ids);

// A module's input, undefined where it was left out.
inline at::Tensor input_or_none(const Module::Tensors& inputs, size_t index) {
  return index < inputs.size() ? inputs[index] : at::Tensor();
}

}  // namespace nxd
