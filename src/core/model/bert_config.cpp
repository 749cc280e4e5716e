#include "core/model/bert_config.h"

#include "core/base/error.h"
#include "core/model/common_fields.h"
#include "core/model/config_fields.h"

namespace nxd {

BertConfig BertConfig::parse(const std::string& json_text) {
  const ConfigFields fields = ConfigFields::parse(json_text);
  fields.choice<int>("model_type", "", {{"bert", 0}});
  check_common_fields(fields);
  fields.reject_unless_empty("is_decoder", "a token sees all others; only false is supported");
  fields.reject_unless_empty("is_causal", "a token sees all others; only false is supported");
  fields.choice<int>("position_embedding_type", "absolute", {{"absolute", 0}});
  BertConfig config;
  config.causal = false;
  config.attention_bias = config.output_bias = config.mlp_bias = config.norm_bias = true;
  config.hidden = fields.size("hidden_size");
  config.layers = fields.layers("num_hidden_layers");
  config.heads = config.kv_heads = fields.size("num_attention_heads");
  check_argument(config.hidden % config.heads == 0,
                 "config_json: num_attention_heads: expected a divisor of hidden_size (",
                 config.hidden, "), got ", config.heads);
  config.head_dim = config.hidden / config.heads;
  config.intermediate = fields.size("intermediate_size");
  config.vocabulary = fields.size("vocab_size");
  config.positions = fields.size("max_position_embeddings", 512);
  config.token_types = fields.size("type_vocab_size", 2);
  config.norm_eps = fields.not_negative("layer_norm_eps", 1e-12);
  config.initializer_range = fields.not_negative("initializer_range", 0.02);
  config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
  config.activation = read_activation(fields, "hidden_act", "gelu");
  config.attention_dropout = read_dropout(fields, "attention_probs_dropout_prob", 0.1);
  config.hidden_dropout = read_dropout(fields, "hidden_dropout_prob", 0.1);
  config.padding_idx = read_padding_row(fields, config.vocabulary);
  if (!config.padding_idx && !fields.is_null("pad_token_id")) config.padding_idx = 0;
  return config;
}

}  // namespace nxd
