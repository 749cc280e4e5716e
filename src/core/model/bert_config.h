#pragma once

#include <optional>
#include <string>

#include "core/model/model_sizes.h"
#include "nxd.h"

namespace nxd {

// Sizes and settings of a BERT for pre-training, from Hugging Face's config.json. Pure.
struct BertConfig : ModelSizes {
  double norm_eps = 0;
  double initializer_range = 0;
  nxd_activation_t activation = NXD_ACTIVATION_GELU;
  double attention_dropout = 0;
  double hidden_dropout = 0;           // of embeddings, and of what attention and MLP add
  std::optional<int64_t> padding_idx;  // row of the word embedding without gradient of its own

  // INVALID_ARGUMENT naming the field that is missing, of another type or out of range;
  // UNSUPPORTED for a name that is not known, with those that are, and for settings that change
  // the model in ways that are not here.
  static BertConfig parse(const std::string& json_text);
};

}  // namespace nxd
