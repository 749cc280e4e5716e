#pragma once

#include <cstdint>
#include <string>

#include "core/model/model_sizes.h"
#include "nxd.h"

namespace nxd {

// Sizes and settings of a GPT-2, from Hugging Face's config.json. Pure.
struct Gpt2Config : ModelSizes {
  double norm_eps = 0;
  double initializer_range = 0;
  bool scale_by_head_dim = true;      // scores are divided by sqrt(head_dim)
  bool scale_by_layer_index = false;  // and those of layer i by i + 1
  nxd_activation_t activation = NXD_ACTIVATION_GELU_TANH;
  double embedding_dropout = 0;
  double attention_dropout = 0;
  double residual_dropout = 0;

  // INVALID_ARGUMENT naming the field that is missing, of another type or out of range;
  // UNSUPPORTED for a name that is not known, with those that are, and for settings that change
  // the model in ways that are not here.
  static Gpt2Config parse(const std::string& json_text);
};

}  // namespace nxd
