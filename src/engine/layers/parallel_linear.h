#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/layout/head_padding.h"
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
  int stride = 1;    // blocks per rank of the split dimension, for fused weights
  bool pad = false;  // zeros follow split features that the ranks do not divide
  // This rank's part of the split dimension; by default parts are equal.
  std::optional<ShardSpec::Range> own{};
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

  // The parameters that ranks split, and the shards that they have once split features grow as
  // heads do, which outputs and inputs follow. INVALID_ARGUMENT, with the layer's path, where the
  // ranks do not divide these.
  struct PaddedParameter {
    std::shared_ptr<Parameter> parameter;
    ShardSpec shard;
  };
  std::vector<PaddedParameter> padded_parameters(const HeadPadding& heads,
                                                 const std::string& path) const;

 protected:
  ParallelLinearLayer(const LayerContext& at, const char* class_name, int64_t in_features,
                      int64_t out_features, const LinearOptions& options);

  // The weight with its shard, and its bias.
  void make_weight(const LayerContext& at, ShardSpec shard, bool keeps_master_weight);
  Parameter& make_bias(const LayerContext& at, ShardSpec shard);

  // Result of forward: with skip_bias_add the bias is a second output.
  Tensors result(at::Tensor y, size_t n_outputs) const;
  at::Tensor bias_to_add() const;
  // This rank's shard of a parameter that ranks have parts of along a dimension.
  ShardSpec part_of(ShardSpec::Shape shape, int dim, const LinearOptions& options) const;

  const ShardSpec& weight_shard() const { return own_parameter("weight").shard(); }
  // This rank's split features, those of padding as zeros that pass no gradient on: what is made of
  // zeros need not be zero, and would reach the weight's padding.
  at::Tensor without_padding(const at::Tensor& x) const;
  // All split features with the padding of all ranks, of those without; x itself where there is
  // none.
  at::Tensor with_padding(const at::Tensor& x, int64_t local_features) const;

  // The dimension that ranks have parts of; fails on all ranks where that is no sequence's.
  int64_t sequence_dim_of(const char* operation, const at::Tensor& x) const;

  GroupRef group_;
  int64_t in_features_, out_features_;
  bool skip_bias_add_;
  bool sequence_parallel_;
  int64_t sequence_dim_;

 private:
  const Parameter& own_parameter(std::string_view name) const;

  int stride_;          // blocks of the split features, each of which is split and padded
  bool has_own_range_;  // ranks may have shares of several sizes, and none is padded
  bool keeps_master_weight_ = false;
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
