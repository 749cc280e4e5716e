#pragma once

#include <string>

#include "core/model/model_sizes.h"
#include "core/model/rope_frequencies.h"
#include "nxd.h"

namespace nxd {

// Sizes and settings of a GPT-NeoX, from Hugging Face's config.json. Pure.
struct GptNeoxConfig : ModelSizes {
  double norm_eps = 0;
  double initializer_range = 0;
  bool parallel_residual = true;  // attention and MLP read the same x, and both add to it
  nxd_activation_t activation = NXD_ACTIVATION_GELU;
  RopeOptions rope;
  double attention_dropout = 0;
  double hidden_dropout = 0;  // of the embedding, and of what attention and MLP add

  // INVALID_ARGUMENT naming the field that is missing, of another type or out of range;
  // UNSUPPORTED for a name that is not known, with those that are, and for settings that change
  // the model in ways that are not here.
  static GptNeoxConfig parse(const std::string& json_text);
};

}  // namespace nxd
