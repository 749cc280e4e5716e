#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/model/config_fields.h"
#include "nxd.h"

namespace nxd {

// The families of models that are known. Mistral, Qwen2 and Qwen3 are forms of Llama.
enum class ModelType : uint8_t { kLlama, kGpt2, kGptNeox, kBert };

// The family of a Hugging Face config.json, by its "model_type". UNSUPPORTED for an unknown one.
ModelType model_type_of(const std::string& json_text);

// Rejects fields of any family's configuration by which transformers makes another model, or reads
// other weights, than this library would: UNSUPPORTED names the field.
void check_common_fields(const ConfigFields& fields);
// The same of a family whose tokens see no later one.
void check_causal(const ConfigFields& fields);

// The activation of a model's MLP, by the names that transformers has for it.
nxd_activation_t read_activation(const ConfigFields& fields, const char* name,
                                 const char* fallback);
double read_dropout(const ConfigFields& fields, const char* name, double fallback);
// "pad_token_id": the row of an embedding that gets no gradient. A negative one counts from the
// end, as torch counts it: -1 is the last.
std::optional<int64_t> read_padding_row(const ConfigFields& fields, int64_t vocabulary);

}  // namespace nxd
