#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model/model_sizes.h"
#include "core/model/rope_frequencies.h"
#include "nxd.h"

namespace nxd {

// Sizes and settings of a Llama, or of a Mistral, Qwen2 or Qwen3, which are forms of it, from
// Hugging Face's config.json. Pure.
struct LlamaConfig : ModelSizes {
  int64_t max_positions = 0;
  double norm_eps = 0;
  double initializer_range = 0;
  nxd_activation_t activation = NXD_ACTIVATION_SILU;
  RopeOptions rope;
  std::vector<int64_t> windows;        // of each layer: keys that a query sees at most; 0: all
  std::optional<int64_t> padding_idx;  // row of the embedding without gradient

  // INVALID_ARGUMENT naming the field that is missing, of another type or out of range;
  // UNSUPPORTED for a name that is not known, with those that are.
  static LlamaConfig parse(const std::string& json_text);
};

}  // namespace nxd
