#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/models/language_head.h"
#include "engine/models/token_model.h"

namespace nxd {

// A model that predicts the next token: a body, which turns ids and an optional key mask into
// hidden states, and a language head. See nxd_model_create.
class CausalLm : public TokenModel {
 public:
  std::vector<std::string> input_names() const override {
    return {"input_ids", "labels", "attention_mask"};
  }

 protected:
  using TokenModel::TokenModel;

  // The body, which is a child already, and a head of that name, which may share the embedding's
  // weight.
  void set_body(const LayerContext& at, std::shared_ptr<Module> body, const Module& embedding,
                const char* head_name = "lm_head");

  Tensors forward(const Tensors& inputs, size_t n_outputs) final;

 private:
  std::shared_ptr<Module> body_;
  std::shared_ptr<LanguageHead> head_;
};

}  // namespace nxd
