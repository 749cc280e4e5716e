#include "core/model/gpt2_config.h"

#include "core/base/error.h"
#include "core/model/common_fields.h"
#include "core/model/config_fields.h"

namespace nxd {

Gpt2Config Gpt2Config::parse(const std::string& json_text) {
  const ConfigFields fields = ConfigFields::parse(json_text);
  fields.choice<int>("model_type", "", {{"gpt2", 0}});
  check_common_fields(fields);
  check_causal(fields);
  Gpt2Config config;
  config.attention_bias = config.output_bias = config.mlp_bias = config.norm_bias = true;
  config.hidden = fields.size(fields.either("n_embd", "hidden_size"));
  config.layers = fields.layers(fields.either("n_layer", "num_hidden_layers"));
  config.heads = fields.size(fields.either("n_head", "num_attention_heads"));
  check_argument(config.hidden % config.heads == 0,
                 "config_json: n_head: expected a divisor of n_embd (", config.hidden, "), got ",
                 config.heads);
  config.kv_heads = config.heads;
  config.head_dim = config.hidden / config.heads;
  config.intermediate = fields.size("n_inner", 4 * config.hidden);
  config.vocabulary = fields.size("vocab_size");
  config.positions = fields.size(fields.either("n_positions", "max_position_embeddings"), 1024);
  config.norm_eps = fields.not_negative("layer_norm_epsilon", 1e-5);
  config.initializer_range = fields.not_negative("initializer_range", 0.02);
  config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
  config.scale_by_head_dim = fields.boolean("scale_attn_weights", true);
  config.scale_by_layer_index = fields.boolean("scale_attn_by_inverse_layer_idx", false);
  config.activation = read_activation(fields, "activation_function", "gelu_new");
  config.embedding_dropout = read_dropout(fields, "embd_pdrop", 0.1);
  config.attention_dropout = read_dropout(fields, "attn_pdrop", 0.1);
  config.residual_dropout = read_dropout(fields, "resid_pdrop", 0.1);
  return config;
}

}  // namespace nxd
