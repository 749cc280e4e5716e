#include "core/model/common_fields.h"

#include "core/base/error.h"
#include "core/base/exact_number.h"

namespace nxd {

ModelType model_type_of(const std::string& json_text) {
  const ConfigFields fields = ConfigFields::parse(json_text);
  check_argument(fields.has("model_type"),
                 "config_json: model_type: expected the name of a family, got no such field");
  return fields.choice<ModelType>("model_type", "",
                                  {{"bert", ModelType::kBert},
                                   {"gpt2", ModelType::kGpt2},
                                   {"gpt_neox", ModelType::kGptNeox},
                                   {"llama", ModelType::kLlama},
                                   {"mistral", ModelType::kLlama},
                                   {"qwen2", ModelType::kLlama},
                                   {"qwen3", ModelType::kLlama}});
}

void check_common_fields(const ConfigFields& fields) {
  fields.reject_unless_empty("quantization_config", "quantized weights are not read");
  fields.reject_unless_empty("per_layer_config", "all layers have the same sizes");
  fields.reject_unless_empty("pruned_heads", "all layers have all heads");
  fields.reject_unless_empty("is_encoder_decoder", "a model is a decoder alone");
  fields.reject_unless_empty("add_cross_attention", "there is no encoder to attend to");
  fields.reject_unless_empty("transformers_weights",
                             "weights are read from model.safetensors or its index");
}

void check_causal(const ConfigFields& fields) {
  if (!fields.boolean("is_causal", true)) {
    fail(NXD_ERROR_UNSUPPORTED,
         "config_json: is_causal: attention sees no later position; only true is supported, got "
         "false");
  }
}

nxd_activation_t read_activation(const ConfigFields& fields, const char* name,
                                 const char* fallback) {
  return fields.choice<nxd_activation_t>(name, fallback,
                                         {{"silu", NXD_ACTIVATION_SILU},
                                          {"swish", NXD_ACTIVATION_SILU},
                                          {"gelu", NXD_ACTIVATION_GELU},
                                          {"gelu_fast", NXD_ACTIVATION_GELU_TANH},
                                          {"gelu_new", NXD_ACTIVATION_GELU_TANH},
                                          {"gelu_pytorch_tanh", NXD_ACTIVATION_GELU_TANH},
                                          {"relu", NXD_ACTIVATION_RELU}});
}

double read_dropout(const ConfigFields& fields, const char* name, double fallback) {
  const double p = fields.number(name, fallback);
  check_argument(p >= 0 && p < 1, "config_json: ", fields.path(name),
                 ": expected a probability from 0 to below 1, got ", exact_number(p));
  return p;
}

std::optional<int64_t> read_padding_row(const ConfigFields& fields, int64_t vocabulary) {
  std::optional<int64_t> row = fields.integer("pad_token_id", -vocabulary, vocabulary - 1);
  if (row && *row < 0) *row += vocabulary;
  return row;
}

}  // namespace nxd
