#pragma once

// Predictions and their comparison, for the planner's tests.
#include <cmath>
#include <cstdint>

#include "support/planner_support.h"

#include "support/check.h"

inline nxd_plan_machine_t round_machine() {
  nxd_plan_machine_t machine = NXD_PLAN_MACHINE_INIT;
  machine.gemm_rate_f32 = 1e6;
  machine.gemm_rate_bf16 = 2e6;
  machine.attention_share_f32 = machine.attention_share_bf16 = 0.5;
  machine.memory_bandwidth = machine.host_bandwidth = 1e6;
  machine.host_latency = 1e-3;
  machine.link_bandwidth = 1e5;
  machine.link_latency = 1e-2;
  return machine;
}

inline nxd_plan_prediction_t predict(const nxd_plan_model_t& model,
                                     const nxd_plan_machine_t& machine,
                                     const nxd_plan_layout_t& layout) {
  nxd_plan_prediction_t prediction = {};
  prediction.struct_size = sizeof prediction;
  if (nxd_plan_predict(&model, &machine, &layout, &prediction) != NXD_OK) {
    fail_msg("%s", nxd_last_error());
  }
  return prediction;
}

inline void assert_near(double got, double expected, double tolerance = 1e-12) {
  if (!(std::abs(got - expected) <= tolerance * std::abs(expected))) {
    fail_msg("expected %.17g, got %.17g", expected, got);
  }
}

// Bytes of a block of the pool whose size is one of a class of its own, with its share of what is
// left of a slab.
constexpr uint64_t block(uint64_t bytes) { return (bytes + 64) / 32 * 33; }
// Bytes that matrices of a layer and of a table have beyond their elements, in each copy.
constexpr uint64_t kLayerSlack = 4 * (block(256) - 256) + 3 * (block(512) - 512);
constexpr uint64_t kTableSlack = block(1024) - 1024;
