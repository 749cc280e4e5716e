#include "core/model/gpt_neox_config.h"

#include "core/base/error.h"
#include "core/model/common_fields.h"
#include "core/model/config_fields.h"
#include "core/model/rope_fields.h"

namespace nxd {
namespace {

constexpr const char* kShare = "partial_rotary_factor";

// The share of a head that turns is "rotary_pct" of older files, "partial_rotary_factor" of newer
// ones' object. Releases of transformers differ in the one that counts, so that two values are
// none.
double read_rotary_share(const ConfigFields& fields) {
  const double share = fields.positive("rotary_pct", 0.25);
  const std::optional<ConfigFields> rope = rope_fields(fields);
  if (!rope || !rope->has(kShare)) return share;
  const double given = rope->positive(kShare);
  check_argument(!fields.has("rotary_pct") || given == share, "config_json: ", rope->path(kShare),
                 ": expected the value of rotary_pct, ", share, ", got ", given);
  return given;
}

// A field at the top that transformers writes, and does not read: it has the value of another.
void check_copy(const ConfigFields& fields, const char* name, const char* read, double value) {
  if (!fields.has(name)) return;
  const double given = fields.positive(name);
  check_argument(given == value, "config_json: ", name, ": expected the value of ", read, ", ",
                 value, ", got ", given);
}

RopeOptions read_partial_rope(const ConfigFields& fields, int64_t max_positions, int64_t head_dim) {
  RopeOptions rope = read_rope(fields, max_positions, "rotary_emb_base");
  const double share = read_rotary_share(fields);
  check_copy(fields, "rope_theta", "rotary_emb_base", rope.theta);
  check_copy(fields, kShare, "rotary_pct", share);
  rope.rotary_dim = share <= 1 ? static_cast<int64_t>(number(head_dim) * share) : 0;
  check_argument(rope.rotary_dim > 0 && rope.rotary_dim % 2 == 0,
                 "config_json: rotary_pct: expected a share of at most 1 that is an even number of "
                 "a head's ",
                 head_dim, " features, got ", share);
  return rope;
}

}  // namespace

GptNeoxConfig GptNeoxConfig::parse(const std::string& json_text) {
  const ConfigFields fields = ConfigFields::parse(json_text);
  fields.choice<int>("model_type", "", {{"gpt_neox", 0}});
  check_common_fields(fields);
  check_causal(fields);
  GptNeoxConfig config;
  config.mlp_bias = config.norm_bias = true;
  config.attention_bias = config.output_bias = fields.boolean("attention_bias", true);
  config.hidden = fields.size("hidden_size");
  config.layers = fields.layers("num_hidden_layers");
  config.heads = config.kv_heads = fields.size("num_attention_heads");
  check_argument(config.hidden % config.heads == 0,
                 "config_json: num_attention_heads: expected a divisor of hidden_size (",
                 config.hidden, "), got ", config.heads);
  config.head_dim = config.hidden / config.heads;
  // transformers would have the rotary part of heads of this size, and the attention of the others.
  check_argument(fields.size("head_dim", config.head_dim) == config.head_dim,
                 "config_json: head_dim: expected hidden_size / num_attention_heads, ",
                 config.head_dim, ", got ", fields.size("head_dim", config.head_dim));
  config.intermediate = fields.size("intermediate_size");
  config.vocabulary = fields.size("vocab_size");
  config.norm_eps = fields.not_negative("layer_norm_eps", 1e-5);
  config.initializer_range = fields.not_negative("initializer_range", 0.02);
  config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
  config.parallel_residual = fields.boolean("use_parallel_residual", true);
  config.activation = read_activation(fields, "hidden_act", "gelu");
  config.rope =
      read_partial_rope(fields, fields.size("max_position_embeddings", 2048), config.head_dim);
  config.attention_dropout = read_dropout(fields, "attention_dropout", 0);
  config.hidden_dropout = read_dropout(fields, "hidden_dropout", 0);
  return config;
}

}  // namespace nxd
