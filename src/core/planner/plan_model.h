#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nxd.h"

namespace nxd {

// Sizes enter the planner's formulas as doubles.
inline double number(int64_t value) { return static_cast<double>(value); }

// A caller's sizes with their defaults filled in. INVALID_ARGUMENT names the field that is missing
// or out of range.
nxd_plan_model_t read_plan_model(const nxd_plan_model_t* given);

// Sizes of a Hugging Face configuration; see nxd_plan_model_from_config.
nxd_plan_model_t plan_model_of_config(const std::string& json_text);

// How many layers each stage has. The embedding belongs to the first and the head to the last,
// which by COST may have no layer: the rules of even_cuts and cost_cuts in
// engine/graph/partition.h, with their counts of operations.
std::vector<int> stage_layers(const nxd_plan_model_t& model, nxd_pp_partition_t partition,
                              int stages, int64_t sequence);

// Operations of a training step, as nxd_model_get_step_flops counts them.
double step_operations(const nxd_plan_model_t& model, double sequences, int64_t sequence);

// Elements of a layer's matrices, on one of so many tensor-parallel ranks.
int64_t layer_matrix_elements(const nxd_plan_model_t& model, int tensor);
// And of all of its parameters.
int64_t layer_elements(const nxd_plan_model_t& model, int tensor);
int64_t embedding_elements(const nxd_plan_model_t& model, int tensor);
// Of the last norm, and of the head's matrix.
int64_t norm_elements(const nxd_plan_model_t& model);
int64_t head_elements(const nxd_plan_model_t& model, int tensor);

// Features of queries and of keys that a rank has.
int64_t query_width(const nxd_plan_model_t& model, int tensor);
int64_t key_width(const nxd_plan_model_t& model, int tensor);

}  // namespace nxd
