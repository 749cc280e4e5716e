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
  const int64_t entries = shape.key_mask ? shape.batch : 1;
  for (int64_t b = 0; b < entries; ++b) keys_.push_back(keys_of(b));
}

SeenKeys AttentionPlan::keys_of(int64_t b) const {
  const int64_t length = shape_.key_length;
  SeenKeys keys{length, shape_.causal, length - shape_.query_length, shape_.window, 0, length};
  if (!shape_.key_mask) return keys;
  const uint8_t* mask = shape_.key_mask + b * length;
  const auto kept = [](uint8_t keep) { return keep != 0; };
  keys.first_kept = std::find_if(mask, mask + length, kept) - mask;
  while (keys.kept_end > keys.first_kept && !mask[keys.kept_end - 1]) --keys.kept_end;
  if (keys.first_kept == length) keys.first_kept = keys.kept_end = 0;
  keys.holes = !std::all_of(mask + keys.first_kept, mask + keys.kept_end, kept);
  return keys;
}

// With causality they are the first keys' triangle without those of earlier queries, and without
// those that the window leaves behind.
double AttentionPlan::seen_unmasked() const {
  const auto queries = static_cast<double>(shape_.query_length);
  const auto keys = static_cast<double>(shape_.key_length);
  if (!shape_.causal) return queries * keys;
  const auto triangle = [](double n) { return n > 0 ? n * (n + 1) / 2 : 0; };
  const auto window = static_cast<double>(shape_.window > 0 ? shape_.window : shape_.key_length);
  return triangle(keys) - triangle(keys - queries) - triangle(keys - window) +
         triangle(keys - queries - window);
}

// Over the batch.
double AttentionPlan::seen() const {
  if (!shape_.key_mask) return static_cast<double>(shape_.batch) * seen_unmasked();
  const int64_t length = shape_.key_length, offset = length - shape_.query_length;
  double pairs = 0;
  for (int64_t i = 0; i < shape_.batch * length; ++i) {
    if (!shape_.key_mask[i]) continue;
    // Queries from the one in the key's place on, as far as the window reaches.
    const int64_t place = i % length - offset;
    const int64_t begin = shape_.causal ? std::max<int64_t>(place, 0) : 0;
    const int64_t end = shape_.window > 0 ? std::min(place + shape_.window, shape_.query_length)
                                          : shape_.query_length;
    pairs += static_cast<double>(std::max<int64_t>(end - begin, 0));
  }
  return pairs;
}

double AttentionPlan::operations(int64_t products) const {
  return 2.0 * static_cast<double>(products * shape_.query_heads) * seen() *
         static_cast<double>(shape_.head_dim);
}

const float* AttentionPlan::bias(float* space, int64_t b) const {
  if (!keys(b).holes) return nullptr;
  const uint8_t* mask = shape_.key_mask + b * shape_.key_length;
  for (int64_t i = 0; i < shape_.key_length; ++i) space[i] = mask[i] ? 0.0F : -HUGE_VALF;
  return space;
}

}  // namespace nxd::kernels
