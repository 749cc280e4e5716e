#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "nxd.h"

namespace nxd {

// Sizes and settings of a Llama, from Hugging Face's config.json. Pure.
struct LlamaConfig {
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate = 0;
  int64_t vocabulary = 0;
  int64_t max_positions = 0;
  double norm_eps = 0;
  double initializer_range = 0;
  bool tie_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  nxd_activation_t activation = NXD_ACTIVATION_SILU;
  nxd_rope_options_t rope = NXD_ROPE_OPTIONS_INIT;
  std::optional<int64_t> padding_idx;  // row of the embedding without gradient

  // INVALID_ARGUMENT naming the field that is missing, of another type or out of range;
  // UNSUPPORTED for a name that is not known, with those that are.
  static LlamaConfig parse(const std::string& json_text);
};

}  // namespace nxd
