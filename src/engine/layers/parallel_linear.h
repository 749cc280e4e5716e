#pragma once

#include <optional>

#include "engine/functional/parallel_linear_op.h"
#include "engine/layers/layer_support.h"

namespace nxd {

struct LinearOptions {
  bool bias = true;
  std::optional<bool> gather_output{};  // columns only; by default without sequence parallelism
  bool reduce_output = true;            // rows only; else the partial sums are the output
  bool input_is_parallel = false;       // rows only
  int64_t sequence_dim = 0;
  bool skip_bias_add = false;  // a second output gives the bias, which is not added
  bool keep_master_weight = false;
  int stride = 1;  // blocks per rank of the split dimension, for fused weights
};

// The base of the column- and the row-parallel layer: a weight [out, in] and a bias.
class ParallelLinearLayer : public Module {
 public:
  // The whole initial weight; INVALID_STATE unless the options asked to keep it. On the meta device
  // it is made when it is asked for.
  const at::Tensor& master_weight();

  // This rank's shards, for layers that run several projections at once. The bias may be undefined.
  at::Tensor weight() const { return parameter_value("weight"); }
  at::Tensor bias() const { return parameter_value("bias"); }

 protected:
  ParallelLinearLayer(const LayerContext& at, const char* class_name, int64_t in_features,
                      int64_t out_features, const LinearOptions& options);

  // The weight with its shard, and its bias.
  void make_weight(const LayerContext& at, ShardSpec shard, bool keeps_master_weight);
  Parameter& make_bias(const LayerContext& at, ShardSpec shard);

  // Result of forward: with skip_bias_add the bias is a second output.
  Tensors result(at::Tensor y, size_t n_outputs) const;
  at::Tensor bias_to_add() const;

  GroupRef group_;
  int64_t in_features_, out_features_;
  bool skip_bias_add_;
  bool sequence_parallel_;
  int64_t sequence_dim_;

 private:
  void make_master_weight();

  bool keeps_master_weight_ = false;
  at::Tensor master_weight_;
};

class ColumnParallelLinear : public ParallelLinearLayer {
 public:
  ColumnParallelLinear(const LayerContext& at, int64_t in_features, int64_t out_features,
                       const LinearOptions& options);

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  bool gather_output_;
};

class RowParallelLinear : public ParallelLinearLayer {
 public:
  RowParallelLinear(const LayerContext& at, int64_t in_features, int64_t out_features,
                    const LinearOptions& options);

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  bool input_is_parallel_;
  bool reduce_output_;
};

}  // namespace nxd
