#include "core/planner/plan_model.h"

#include <cstddef>

#include "core/base/error.h"
#include "core/model/config_fields.h"
#include "core/planner/split_points.h"

namespace nxd {
namespace {

// attention_bias of a model whose queries, keys and values have biases, but not the output.
constexpr int32_t kBiasOfInputs = 2;

void check_size(const char* name, int64_t value, int64_t most = kLargestSize) {
  check_argument(value >= 1 && value <= most, "model->", name, ": expected 1 to ", most, ", got ",
                 value);
}

}  // namespace

ModelSizes read_plan_model(const nxd_plan_model_t& given) {
  nxd_plan_model_t model = given;
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
  check_argument(model.num_token_types >= 0 && model.num_token_types <= kLargestSize,
                 "model->num_token_types: expected 0 to ", kLargestSize, ", got ",
                 model.num_token_types);
  check_argument(model.sliding_window >= 0 && model.sliding_window <= kLargestSize,
                 "model->sliding_window: expected 0 to ", kLargestSize, ", got ",
                 model.sliding_window);
  check_argument(model.sliding_window == 0 || model.num_token_types == 0,
                 "model->sliding_window: expected 0 where num_token_types says BERT, got ",
                 model.sliding_window);
  const int64_t with_window = model.sliding_window > 0 ? model.num_layers : 0;
  check_argument(model.num_window_layers >= 0 && model.num_window_layers <= with_window,
                 "model->num_window_layers: expected 0 to ", with_window,
                 " of num_layers (0 without a sliding_window), got ", model.num_window_layers);
  check_argument(model.attention_bias >= 0 && model.attention_bias <= kBiasOfInputs,
                 "model->attention_bias: expected 0 to ", kBiasOfInputs, ", got ",
                 model.attention_bias);
  ModelSizes sizes;
  sizes.hidden = model.hidden_size;
  sizes.layers = model.num_layers;
  sizes.heads = model.num_heads;
  sizes.kv_heads = model.num_kv_heads;
  sizes.head_dim = model.head_dim;
  sizes.intermediate = model.intermediate_size;
  sizes.vocabulary = model.vocab_size;
  sizes.positions = model.max_positions;
  sizes.gated_mlp = flag(model.gated_mlp, "model->gated_mlp");
  sizes.attention_bias = model.attention_bias != 0;
  sizes.output_bias = sizes.attention_bias && model.attention_bias != kBiasOfInputs;
  sizes.mlp_bias = flag(model.mlp_bias, "model->mlp_bias");
  sizes.norm_bias = flag(model.norm_bias, "model->norm_bias");
  sizes.tied_embeddings = flag(model.tied_embeddings, "model->tied_embeddings");
  sizes.token_types = model.num_token_types;
  sizes.causal = sizes.token_types == 0;
  sizes.window = model.sliding_window;
  sizes.window_layers = model.num_window_layers == 0 ? with_window : model.num_window_layers;
  return sizes;
}

nxd_plan_model_t plan_model_of(const ModelSizes& sizes) {
  nxd_plan_model_t model = NXD_PLAN_MODEL_INIT;
  model.hidden_size = sizes.hidden;
  model.num_layers = sizes.layers;
  model.num_heads = sizes.heads;
  model.num_kv_heads = sizes.kv_heads;
  model.head_dim = sizes.head_dim;
  model.intermediate_size = sizes.intermediate;
  model.vocab_size = sizes.vocabulary;
  model.max_positions = sizes.positions;
  model.gated_mlp = sizes.gated_mlp;
  model.attention_bias =
      sizes.attention_bias && !sizes.output_bias ? kBiasOfInputs : sizes.attention_bias;
  model.mlp_bias = sizes.mlp_bias;
  model.norm_bias = sizes.norm_bias;
  model.tied_embeddings = sizes.tied_embeddings;
  model.num_token_types = static_cast<int32_t>(sizes.token_types);
  if (sizes.window_layers > 0) {
    model.sliding_window = sizes.window;
    model.num_window_layers = sizes.window_layers;
  }
  return model;
}

std::vector<int> stage_layers(const ModelSizes& model, nxd_pp_partition_t partition, int stages,
                              int64_t sequence) {
  const auto layers = static_cast<int>(model.layers);
  check_argument(stages <= layers, "layout: expected at most one stage for each of the ", layers,
                 " layers, got ", stages);
  std::vector<int> cuts;
  if (partition == NXD_PP_PARTITION_COST) {
    const double layer =
        (model.matrix_operations(sequence) + model.attention_operations(sequence)) / layers;
    std::vector<double> costs(static_cast<size_t>(layers), layer);
    costs.push_back(model.head_operations(sequence));
    cuts = balanced_split_points(costs, stages);
  } else {
    cuts = even_split_points(layers, stages);
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

}  // namespace nxd
