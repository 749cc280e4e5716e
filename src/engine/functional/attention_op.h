#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>

#include "core/world/context.h"

namespace nxd {

// The order of batch and sequence in [., ., heads, head_dim]: sequence parallelism puts the
// sequence first.
enum class SequenceLayout { kBatchFirst, kSequenceFirst };

// A dropout of the weights, [batch, heads, queries, keys]. Weights are numbered over all heads.
struct DroppedWeights {
  double keep_probability;
  int64_t heads, first_head;
  std::function<at::Tensor()> site;     // Dropout::site_words, for kernels
  std::function<at::Tensor()> factors;  // Dropout::factors, for plain operators, of their dtype
};

struct AttentionArgs {
  SequenceLayout layout = SequenceLayout::kBatchFirst;
  bool causal = true;
  int64_t window = 0;  // with causal: keys that a query sees at most, its own among them; 0: all
  double scale = 1;
  at::Tensor key_mask;  // [batch, sequence], u8, 1: keep; undefined: all
  std::optional<DroppedWeights> dropout;
};

// AttentionArgs::key_mask of a caller's mask, integers or booleans, where not 0 means keep;
// undefined for an undefined one. Rejects another shape, dtype or device than the queries' on all
// ranks of the group.
at::Tensor key_mask(ProcessGroup& group, const at::Tensor& mask, const at::Tensor& queries,
                    int64_t batch, int64_t sequence);

// softmax(scale q k^T) v by heads, differentiable. q [., ., heads, d], k and v [., ., kv_heads, d];
// query head h uses key head h / (heads / kv_heads). Blocked, without the scores in memory, where
// use_fused holds.
at::Tensor attention(const Context& context, const AttentionArgs& args, const at::Tensor& q,
                     const at::Tensor& k, const at::Tensor& v);

// Turns the leading 2 * cos.size(-1) features of each head by the angle of its position. x as q
// above; cos and sin [sequence, rotary_dim / 2], f32, or f64 for an f64 x.
at::Tensor rotate(const Context& context, SequenceLayout layout, const at::Tensor& x,
                  const at::Tensor& cos, const at::Tensor& sin);

}  // namespace nxd
