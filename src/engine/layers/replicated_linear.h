#pragma once

#include "engine/functional/parallel_linear_op.h"
#include "engine/layers/layer_support.h"

namespace nxd {

// A linear layer that each rank has all of, for products that are too small to split: y = x W^T + b
// with a weight [out, in]. With sequence parallelism x is a slice, and the gradients are summed
// over the ranks.
class ReplicatedLinear : public Module {
 public:
  ReplicatedLinear(const LayerContext& at, int64_t in_features, int64_t out_features);

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  int64_t in_features_;
  ParallelLinearPlan plan_;
};

}  // namespace nxd
