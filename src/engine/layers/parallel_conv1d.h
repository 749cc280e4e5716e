#pragma once

#include "engine/functional/parallel_linear_op.h"
#include "engine/layers/layer_support.h"

namespace nxd {

// The Conv1D of Hugging Face's GPT-2: y = x W + b with a weight [in, out], here split over the
// tensor-parallel ranks.
class ParallelConv1d : public Module {
 public:
  enum class Split {
    kColumns,  // this rank's features of the output; x is the same on all ranks
    kRows      // x holds this rank's features; y is summed over the ranks
  };
  // own: this rank's features of the split side. fused: outputs of equal size, one after another,
  // of each of which a rank has these.
  ParallelConv1d(const LayerContext& at, Split split, int64_t in_features, int64_t out_features,
                 ShardSpec::Range own, int fused = 1);

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  GroupRef group_;
  int64_t local_in_;
  ParallelLinearPlan plan_;
};

}  // namespace nxd
