#pragma once

#include "engine/functional/parallel_linear_op.h"
#include "engine/layers/head_projection.h"

namespace nxd {

struct QkvOptions {
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  nxd_qkv_fusion_t fusion = NXD_QKV_SEPARATE;
  bool bias = true;
};

// Queries, keys and values of attention: one linear layer to heads, or three, split over the
// tensor-parallel ranks. The three share one exchange of their input.
class QkvLinear : public Module {
 public:
  QkvLinear(const LayerContext& at, int64_t hidden, int64_t num_heads, const QkvOptions& options);

 protected:
  // x [.., hidden] to queries, keys and values [.., heads, head_dim] of this rank.
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  void make_separate(const LayerContext& at, bool has_bias);
  void make_fused(const LayerContext& at, bool has_bias);
  ShardSpec fused_shard(ShardSpec::Shape shape) const;
  Tensors separate_heads(const at::Tensor& x) const;
  Tensors fused_heads(const at::Tensor& x) const;

  GroupRef group_;
  HeadSizes sizes_;
  nxd_qkv_fusion_t fusion_;
  ParallelLinearPlan plan_;
  std::shared_ptr<HeadProjection> q_, k_, v_;  // of separate ones
};

}  // namespace nxd
