#pragma once

#include <optional>

#include "engine/layers/head_projection.h"
#include "engine/layers/norm.h"
#include "engine/layers/parallel_linear.h"
#include "engine/layers/rotary_embedding.h"

namespace nxd {

struct AttentionOptions {
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  std::optional<RopeOptions> rope{};
  bool causal = true;
  int64_t window = 0;                     // of AttentionArgs
  std::optional<double> head_norm_eps{};  // queries and keys pass an RMSNorm of each head
  bool qkv_bias = false;
  bool output_bias = false;
  bool padded_sequence = false;  // the model pads sequences, see SequencePadding
};

// Self-attention with grouped key and value heads, heads split over the tensor-parallel ranks.
class Attention : public Module {
 public:
  Attention(const LayerContext& at, int64_t hidden, int64_t num_heads,
            const AttentionOptions& options);

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  GroupRef group_;
  HeadSizes sizes_;
  bool causal_;
  int64_t window_;
  bool sequence_parallel_, padded_sequence_;
  ParallelLinearPlan plan_;
  std::shared_ptr<HeadProjection> q_, k_, v_;
  std::shared_ptr<Module> output_;
  std::shared_ptr<RmsNorm> q_norm_, k_norm_;
  std::optional<RotaryTables> rotary_;
};

}  // namespace nxd
