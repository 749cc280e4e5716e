#include "core/kernels/attention_plan.h"

#include <cmath>

#include "core/base/error.h"

namespace nxd::kernels {

AttentionPlan::AttentionPlan(nxd_dtype_t dtype, const AttentionShape& shape)
    : dtype_(dtype), shape_(shape) {
  check_argument(dtype == NXD_DTYPE_F32 || dtype == NXD_DTYPE_BF16,
                 "attention: expected dtype f32 or bf16, got ", dtype_name(dtype));
  check_argument(
      shape.batch >= 0 && shape.query_length >= 0 && shape.key_length >= 0 && shape.head_dim > 0,
      "attention: expected batch and lengths >= 0 and head_dim > 0, got ", shape.batch, ", ",
      shape.query_length, ", ", shape.key_length, ", ", shape.head_dim);
  check_argument(
      shape.kv_heads > 0 && shape.query_heads > 0 && shape.query_heads % shape.kv_heads == 0,
      "attention: expected query_heads a multiple of kv_heads, got ", shape.query_heads, " and ",
      shape.kv_heads);
  check_argument(shape.window == 0 || (shape.window > 0 && shape.causal),
                 "attention: expected a window of at least 0, and 0 without causal, got ",
                 shape.window);
  check_argument(!shape.dropout || (shape.dropout->keep > 0 && shape.dropout->keep <= 1),
                 "attention: expected a dropout that keeps with a probability above 0, got ",
                 shape.dropout ? shape.dropout->keep : 0);
  group_ = shape.query_heads / shape.kv_heads;
  keys_ = {shape.key_length, shape.causal, shape.key_length - shape.query_length, shape.window};
}

// With causality they are the first keys' triangle without those of earlier queries, and without
// those that the window leaves behind.
double AttentionPlan::seen() const {
  const auto queries = static_cast<double>(shape_.query_length);
  const auto keys = static_cast<double>(shape_.key_length);
  if (!shape_.causal) return queries * keys;
  const auto triangle = [](double n) { return n > 0 ? n * (n + 1) / 2 : 0; };
  const auto window = static_cast<double>(shape_.window > 0 ? shape_.window : shape_.key_length);
  return triangle(keys) - triangle(keys - queries) - triangle(keys - window) +
         triangle(keys - queries - window);
}

double AttentionPlan::operations(int64_t products) const {
  return 2.0 * static_cast<double>(products * shape_.batch * shape_.query_heads) * seen() *
         static_cast<double>(shape_.head_dim);
}

const float* AttentionPlan::bias(float* space, int64_t b) const {
  if (!shape_.key_mask) return nullptr;
  const uint8_t* mask = shape_.key_mask + b * shape_.key_length;
  for (int64_t i = 0; i < shape_.key_length; ++i) space[i] = mask[i] ? 0.0F : -HUGE_VALF;
  return space;
}

}  // namespace nxd::kernels
