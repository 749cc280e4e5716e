#pragma once

#include "engine/layers/parallel_linear.h"

namespace nxd {

// A linear layer that each rank has all of, for products that are too small to split: y = x W^T + b
// with a weight [out, in]. With sequence parallelism x is a slice, and the gradients are summed
// over the ranks. The options that count are bias and skip_bias_add.
class ReplicatedLinear : public Module {
 public:
  ReplicatedLinear(const LayerContext& at, int64_t in_features, int64_t out_features,
                   const LinearOptions& options = {});

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  int64_t in_features_;
  bool skip_bias_add_;
  ParallelLinearPlan plan_;
};

}  // namespace nxd
