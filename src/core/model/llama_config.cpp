#include "core/model/llama_config.h"

#include <algorithm>
#include <vector>

#include "core/base/error.h"
#include "core/model/common_fields.h"
#include "core/model/config_fields.h"
#include "core/model/rope_fields.h"

namespace nxd {
namespace {

enum class Form : uint8_t { kLlama, kMistral, kQwen2, kQwen3 };

// A Llama turns whole heads, whatever share of them its file names.
RopeOptions read_whole_rope(const ConfigFields& fields, int64_t max_positions) {
  const std::optional<ConfigFields> found = rope_fields(fields);
  const ConfigFields& owner = found && found->has("partial_rotary_factor") ? *found : fields;
  if (owner.number("partial_rotary_factor", 1) != 1) {
    fail(NXD_ERROR_UNSUPPORTED, "config_json: ", owner.path("partial_rotary_factor"),
         ": a Llama turns whole heads; only 1 is supported");
  }
  return read_rope(fields, max_positions);
}

void read_heads(const ConfigFields& fields, Form form, LlamaConfig& config) {
  config.heads = fields.size("num_attention_heads");
  // The other forms' defaults are numbers that fit few models; null stands for the heads there,
  // too.
  const bool as_heads = form == Form::kLlama || fields.is_null("num_key_value_heads");
  config.kv_heads = as_heads ? fields.size("num_key_value_heads", config.heads)
                             : fields.size("num_key_value_heads");
  check_argument(config.heads % config.kv_heads == 0,
                 "config_json: num_key_value_heads: expected a divisor of num_attention_heads (",
                 config.heads, "), got ", config.kv_heads);
  if (fields.has("head_dim") || form == Form::kQwen3) {
    config.head_dim = fields.size("head_dim", 128);
  } else {
    check_argument(config.hidden % config.heads == 0,
                   "config_json: num_attention_heads: expected a divisor of hidden_size (",
                   config.hidden, ") where there is no head_dim, got ", config.heads);
    config.head_dim = config.hidden / config.heads;
  }
  check_argument(config.heads * config.head_dim <= kLargestSize,
                 "config_json: head_dim: expected at most ", kLargestSize, " features of ",
                 config.heads, " heads, got ", config.head_dim, " of each");
  check_argument(config.head_dim % 2 == 0,
                 "config_json: head_dim: expected an even number, as rotary positions turn pairs, "
                 "got ",
                 config.head_dim);
}

void read_biases(const ConfigFields& fields, Form form, LlamaConfig& config) {
  const bool has_field = form == Form::kLlama || form == Form::kQwen3;
  config.output_bias = has_field && fields.boolean("attention_bias", false);
  config.attention_bias = config.output_bias || form == Form::kQwen2;
  config.mlp_bias = form == Form::kLlama && fields.boolean("mlp_bias", false);
  config.head_norms = form == Form::kQwen3;
}

// Keys that a query sees in layers with a window; 0: no layer has one.
int64_t read_window(const ConfigFields& fields, Form form) {
  if (form == Form::kLlama || fields.is_null("sliding_window")) return 0;
  if (form != Form::kMistral && !fields.boolean("use_sliding_window", false)) return 0;
  return fields.size("sliding_window", 4096);
}

// Qwen's layers have a window where layer_types says so, or without it from max_window_layers on;
// Mistral's all do.
void read_windows(const ConfigFields& fields, Form form, LlamaConfig& config) {
  const auto layers = static_cast<size_t>(config.layers);
  const int64_t window = read_window(fields, form);
  config.windows.assign(layers, window);
  if (form == Form::kQwen2 || form == Form::kQwen3) {
    const auto types = fields.strings("layer_types");
    check_argument(!types || types->size() == layers,
                   "config_json: layer_types: expected a type of each of the ", layers,
                   " layers, got ", types ? types->size() : 0);
    const auto full = static_cast<size_t>(
        types ? 0 : fields.integer("max_window_layers", 0, kLargestSize).value_or(28));
    for (size_t i = 0; i < layers; ++i) {
      const std::string type = types                     ? (*types)[i]
                               : i < full || window == 0 ? "full_attention"
                                                         : "sliding_attention";
      if (type == "full_attention") {
        config.windows[i] = 0;
      } else if (type != "sliding_attention") {
        reject_unknown("layer_types", type, {"full_attention", "sliding_attention"});
      } else {
        check_argument(window > 0,
                       "config_json: layer_types: sliding_attention needs use_sliding_window and a "
                       "sliding_window");
      }
    }
  }
  config.window = window;
  config.window_layers = std::count_if(config.windows.begin(), config.windows.end(),
                                       [](int64_t size) { return size > 0; });
}

int64_t default_positions(Form form) {
  switch (form) {
    case Form::kLlama: return 2048;
    case Form::kMistral: return 131072;
    default: return 32768;
  }
}

}  // namespace

LlamaConfig LlamaConfig::parse(const std::string& json_text) {
  const ConfigFields fields = ConfigFields::parse(json_text);
  const Form form = fields.choice<Form>("model_type", "",
                                        {{"llama", Form::kLlama},
                                         {"mistral", Form::kMistral},
                                         {"qwen2", Form::kQwen2},
                                         {"qwen3", Form::kQwen3}});
  check_common_fields(fields);
  check_causal(fields);
  LlamaConfig config;
  config.gated_mlp = true;
  config.hidden = fields.size("hidden_size");
  config.layers = fields.layers("num_hidden_layers");
  read_heads(fields, form, config);
  config.intermediate = fields.size("intermediate_size");
  config.vocabulary = fields.size("vocab_size");
  config.max_positions = fields.size("max_position_embeddings", default_positions(form));
  config.norm_eps = fields.not_negative("rms_norm_eps", 1e-6);
  config.initializer_range = fields.not_negative("initializer_range", 0.02);
  config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
  read_biases(fields, form, config);
  read_windows(fields, form, config);
  config.activation = read_activation(fields, "hidden_act", "silu");
  config.rope = read_whole_rope(fields, config.max_positions);
  config.padding_idx = read_padding_row(fields, config.vocabulary);
  if (fields.number("attention_dropout", 0) != 0) {
    fail(NXD_ERROR_UNSUPPORTED,
         "config_json: attention_dropout: attention has no dropout; only 0 is supported");
  }
  return config;
}

}  // namespace nxd
