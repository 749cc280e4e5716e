#include "core/model/model_sizes.h"

#include <algorithm>

#include "core/base/round_up.h"
#include "core/model/bert_config.h"
#include "core/model/common_fields.h"
#include "core/model/gpt2_config.h"
#include "core/model/gpt_neox_config.h"
#include "core/model/llama_config.h"

namespace nxd {
namespace {

// The last of so many nearly equal parts.
int64_t last_part(int64_t whole, int64_t parts) { return (whole + parts - 1) / parts; }

}  // namespace

int64_t fewest_heads(int64_t kv_heads, int ranks) {
  return round_up(int64_t{ranks}, kv_heads);  // each key head has a query for each of its ranks
}

int64_t ModelSizes::query_width(int tensor) const {
  const int64_t each = heads / kv_heads;
  if (kv_heads >= tensor) return last_part(kv_heads, tensor) * each * head_dim;
  // As many ranks as the last key head has; others may have one more.
  return last_part(each, tensor / kv_heads) * head_dim;
}

int64_t ModelSizes::key_width(int tensor) const { return last_part(kv_heads, tensor) * head_dim; }

int64_t ModelSizes::mlp_width(int tensor) const { return last_part(intermediate, tensor); }

int64_t ModelSizes::layer_matrix_elements(int tensor) const {
  const int64_t attention = 2 * query_width(tensor) + 2 * key_width(tensor);
  const int64_t mlp = (gated_mlp ? 3 : 2) * mlp_width(tensor);
  return hidden * (attention + mlp);
}

int64_t ModelSizes::layer_elements(int tensor) const {
  int64_t elements = layer_matrix_elements(tensor) + 2 * norm_elements();
  if (attention_bias) elements += query_width(tensor) + 2 * key_width(tensor);
  if (output_bias) elements += hidden;
  if (head_norms) elements += 2 * head_dim;
  if (mlp_bias) elements += (gated_mlp ? 2 : 1) * mlp_width(tensor) + hidden;
  return elements;
}

int64_t ModelSizes::embedding_elements(int tensor) const {
  const int64_t tables = head_elements(tensor) + positions * hidden;
  return token_types == 0 ? tables : tables + token_types * hidden + norm_elements();
}

int64_t ModelSizes::last_elements(int tensor) const {
  if (token_types == 0) return norm_elements();
  // Two dense layers, a norm, the bias of the logits, and what decides between two.
  return 2 * (hidden + 1) * hidden + norm_elements() + head_elements(tensor) / hidden +
         2 * (hidden + 1);
}

int64_t ModelSizes::norm_elements() const { return hidden * (norm_bias ? 2 : 1); }

int64_t ModelSizes::head_elements(int tensor) const {
  return last_part(vocabulary, tensor) * hidden;
}

double ModelSizes::matrix_operations(int64_t sequence) const {
  return 2 * number(sequence) * number(layers) * number(layer_matrix_elements());
}

double ModelSizes::attention_operations(int64_t sequence) const {
  const auto square = [](int64_t side) { return number(side) * number(side); };
  const double pairs = number(layers) * square(sequence) -
                       number(window_layers) * square(std::max<int64_t>(sequence - window, 0));
  return 4 * pairs * number(query_width());
}

double ModelSizes::head_operations(int64_t sequence) const {
  const double logits = 2 * number(sequence) * number(hidden) * number(vocabulary);
  if (token_types == 0) return logits;
  // Each token's hidden state passes a dense layer, and the first one's another, and two rows.
  return logits + 2 * number(hidden) * (number(sequence + 1) * number(hidden) + 2);
}

double ModelSizes::step_operations(double sequences, int64_t sequence) const {
  const double forward = matrix_operations(sequence) +
                         attention_operations(sequence) / (causal ? 2 : 1) +
                         head_operations(sequence);
  return 3 * forward * sequences;
}

ModelSizes sizes_of_config(const std::string& json_text) {
  switch (model_type_of(json_text)) {
    case ModelType::kLlama: return LlamaConfig::parse(json_text);
    case ModelType::kGptNeox: return GptNeoxConfig::parse(json_text);
    case ModelType::kBert: return BertConfig::parse(json_text);
    default: return Gpt2Config::parse(json_text);
  }
}

}  // namespace nxd
