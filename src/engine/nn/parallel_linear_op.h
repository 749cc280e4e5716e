#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "core/parallel/context.h"
#include "engine/nn/mappings.h"

namespace nxd {

// y = out(in(x) W^T) + b, where in and out move between regions of the tensor-parallel group. The
// moves are part of the operator, so that the gathered input is not kept for the backward, partial
// sums of 16-bit floats are exchanged in f32, and each rank's gradients are complete for its shard.
struct ParallelLinearPlan {
  enum class Input {
    kAsIs,           // in: x; backward: nothing
    kCopy,           // in: x, the same on all ranks; backward: sum over ranks
    kGatherSequence  // in: all-gather along dim; backward: reduce-scatter
  };
  enum class Output {
    kAsIs,                  // out: this rank's features, or partial sums
    kReduce,                // out: sum over ranks
    kReduceScatterSequence  // out: this rank's part, along dim, of the sum over ranks
  };

  std::shared_ptr<Context> context;
  GroupRef group;
  Input input = Input::kAsIs;
  Output output = Output::kAsIs;
  int64_t dim = 0;
};

// x [..., in], w [out, in], bias [out] or undefined; all of one dtype.
at::Tensor parallel_linear(const ParallelLinearPlan& plan, const at::Tensor& x, const at::Tensor& w,
                           const at::Tensor& bias);

}  // namespace nxd
