#pragma once

// Models and machines for the planner's tests.
#include "nxd.h"

inline nxd_plan_model_t small_model() {
  nxd_plan_model_t model = NXD_PLAN_MODEL_INIT;
  model.hidden_size = 8;
  model.num_layers = 4;
  model.num_heads = 2;
  model.intermediate_size = 16;
  model.vocab_size = 32;
  model.gated_mlp = 1;
  return model;
}

inline nxd_plan_layout_t layout_of(int tensor, int pipeline, int data, int microbatches,
                                   int sequence) {
  nxd_plan_layout_t layout = NXD_PLAN_LAYOUT_INIT;
  layout.tensor_parallel_size = tensor;
  layout.pipeline_parallel_size = pipeline;
  layout.data_parallel_size = data;
  layout.num_microbatches = microbatches;
  layout.sequence_length = sequence;
  return layout;
}
