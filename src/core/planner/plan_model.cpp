#include "core/planner/plan_model.h"

#include <algorithm>
#include <cstddef>

#include "core/base/config_fields.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/planner/cut_points.h"

namespace nxd {
namespace {

void check_size(const char* name, int64_t value, int64_t most = kLargestSize) {
  check_argument(value >= 1 && value <= most, "model->", name, ": expected 1 to ", most, ", got ",
                 value);
}

nxd_plan_model_t llama_sizes(const ConfigFields& fields) {
  nxd_plan_model_t model = NXD_PLAN_MODEL_INIT;
  model.hidden_size = fields.size("hidden_size");
  model.num_layers = fields.layers("num_hidden_layers");
  model.num_heads = fields.size("num_attention_heads");
  model.num_kv_heads = fields.size("num_key_value_heads", model.num_heads);
  if (fields.has("head_dim")) model.head_dim = fields.size("head_dim");
  model.intermediate_size = fields.size("intermediate_size");
  model.vocab_size = fields.size("vocab_size");
  model.gated_mlp = 1;
  model.attention_bias = fields.boolean("attention_bias", false);
  model.mlp_bias = fields.boolean("mlp_bias", false);
  model.tied_embeddings = fields.boolean("tie_word_embeddings", false);
  return model;
}

nxd_plan_model_t gpt2_sizes(const ConfigFields& fields) {
  nxd_plan_model_t model = NXD_PLAN_MODEL_INIT;
  model.hidden_size = fields.size(fields.either("n_embd", "hidden_size"));
  model.num_layers = fields.layers(fields.either("n_layer", "num_hidden_layers"));
  model.num_heads = fields.size(fields.either("n_head", "num_attention_heads"));
  model.intermediate_size = fields.size("n_inner", 4 * model.hidden_size);
  model.vocab_size = fields.size("vocab_size");
  model.max_positions = fields.size(fields.either("n_positions", "max_position_embeddings"), 1024);
  model.attention_bias = model.mlp_bias = model.norm_bias = 1;
  model.tied_embeddings = fields.boolean("tie_word_embeddings", true);
  return model;
}

// Of one sequence through all layers' matrices, forwards.
double matrix_operations(const nxd_plan_model_t& model, int64_t sequence) {
  return 2 * number(sequence) * number(model.num_layers) * number(layer_matrix_elements(model, 1));
}

// And of attention's scores and what they weigh, each of which sees all keys.
double attention_operations(const nxd_plan_model_t& model, int64_t sequence) {
  return 4 * number(sequence) * number(sequence) * number(model.num_layers) *
         number(query_width(model, 1));
}

double head_operations(const nxd_plan_model_t& model, int64_t sequence) {
  return 2 * number(sequence) * number(model.hidden_size) * number(model.vocab_size);
}

}  // namespace

nxd_plan_model_t read_plan_model(const nxd_plan_model_t* given) {
  check_argument(given, "model: expected a pointer, got NULL");
  const nxd_plan_model_t defaults = NXD_PLAN_MODEL_INIT;
  nxd_plan_model_t model = read_options(given, defaults, "model");
  check_size("hidden_size", model.hidden_size);
  check_size("num_layers", model.num_layers, kMostLayers);
  check_size("num_heads", model.num_heads);
  if (model.num_kv_heads == 0) model.num_kv_heads = model.num_heads;
  check_size("num_kv_heads", model.num_kv_heads);
  check_argument(model.num_heads % model.num_kv_heads == 0,
                 "model->num_kv_heads: expected a divisor of the ", model.num_heads, " heads, got ",
                 model.num_kv_heads);
  if (model.head_dim == 0) {
    check_argument(model.hidden_size % model.num_heads == 0,
                   "model->num_heads: expected a divisor of hidden_size (", model.hidden_size,
                   ") where head_dim is 0, got ", model.num_heads);
    model.head_dim = model.hidden_size / model.num_heads;
  }
  check_size("head_dim", model.head_dim);
  check_size("num_heads * head_dim", model.num_heads * model.head_dim);
  check_size("intermediate_size", model.intermediate_size);
  check_size("vocab_size", model.vocab_size);
  check_argument(model.max_positions >= 0 && model.max_positions <= kLargestSize,
                 "model->max_positions: expected 0 to ", kLargestSize, ", got ",
                 model.max_positions);
  check_argument(model.reserved == 0, "model->reserved: expected 0, got ", model.reserved);
  return model;
}

nxd_plan_model_t plan_model_of_config(const std::string& json_text) {
  const ConfigFields fields = ConfigFields::parse(json_text);
  const bool is_llama = fields.choice<bool>("model_type", "", {{"llama", true}, {"gpt2", false}});
  const nxd_plan_model_t model = is_llama ? llama_sizes(fields) : gpt2_sizes(fields);
  return read_plan_model(&model);
}

int64_t query_width(const nxd_plan_model_t& model, int tensor) {
  return model.num_heads / tensor * model.head_dim;
}

// Key heads fewer than ranks are held several times.
int64_t key_width(const nxd_plan_model_t& model, int tensor) {
  return std::max<int64_t>(model.num_kv_heads / tensor, 1) * model.head_dim;
}

int64_t layer_matrix_elements(const nxd_plan_model_t& model, int tensor) {
  const int64_t attention = 2 * query_width(model, tensor) + 2 * key_width(model, tensor);
  const int64_t mlp = (model.gated_mlp ? 3 : 2) * (model.intermediate_size / tensor);
  return model.hidden_size * (attention + mlp);
}

int64_t norm_elements(const nxd_plan_model_t& model) {
  return model.hidden_size * (model.norm_bias ? 2 : 1);
}

int64_t layer_elements(const nxd_plan_model_t& model, int tensor) {
  int64_t elements = layer_matrix_elements(model, tensor) + 2 * norm_elements(model);
  if (model.attention_bias) {
    elements += query_width(model, tensor) + 2 * key_width(model, tensor) + model.hidden_size;
  }
  if (model.mlp_bias) {
    elements += (model.gated_mlp ? 2 : 1) * (model.intermediate_size / tensor) + model.hidden_size;
  }
  return elements;
}

int64_t head_elements(const nxd_plan_model_t& model, int tensor) {
  return (model.vocab_size + tensor - 1) / tensor * model.hidden_size;
}

int64_t embedding_elements(const nxd_plan_model_t& model, int tensor) {
  return head_elements(model, tensor) + model.max_positions * model.hidden_size;
}

std::vector<int> stage_layers(const nxd_plan_model_t& model, nxd_pp_partition_t partition,
                              int stages, int64_t sequence) {
  const auto layers = static_cast<int>(model.num_layers);
  check_argument(stages <= layers, "layout: expected at most one stage for each of the ", layers,
                 " layers, got ", stages);
  std::vector<int> cuts;
  if (partition == NXD_PP_PARTITION_COST) {
    const double layer =
        (matrix_operations(model, sequence) + attention_operations(model, sequence)) / layers;
    std::vector<double> costs(static_cast<size_t>(layers), layer);
    costs.push_back(head_operations(model, sequence));
    cuts = balanced_cut_points(costs, stages);
  } else {
    cuts = even_cut_points(layers, stages);
  }
  cuts.push_back(layers - 1);
  std::vector<int> sizes;
  int begin = 0;
  for (const int cut : cuts) {
    sizes.push_back(cut + 1 - begin);
    begin = cut + 1;
  }
  return sizes;
}

// Causal attention sees half of the scores.
double step_operations(const nxd_plan_model_t& model, double sequences, int64_t sequence) {
  const double forward = matrix_operations(model, sequence) +
                         attention_operations(model, sequence) / 2 +
                         head_operations(model, sequence);
  return 3 * forward * sequences;
}

}  // namespace nxd
