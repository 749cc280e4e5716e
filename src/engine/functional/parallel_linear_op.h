#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <vector>

#include "core/world/context.h"
#include "engine/functional/mappings.h"

namespace nxd {

// y_i = out(in(x) W_i^T) + b_i for one or more weights, where in and out move between regions of
// the tensor-parallel group. The moves are part of the operator, so that the gathered input is not
// kept for the backward, that several weights share one exchange, and that partial sums of 16-bit
// floats are exchanged in f32.
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
  bool weights_in_out = false;  // weights are [in, out_i], as Hugging Face's Conv1D keeps them

  // The dtype in which ranks exchange partial sums of a layer of this dtype.
  at::ScalarType exchanged_dtype(at::ScalarType dtype) const;
};

// The input of the products: x, or what all ranks have of it.
at::Tensor input_in_region(const ParallelLinearPlan& plan, const at::Tensor& x);

// x [..., in], weights [out_i, in] unless the plan says otherwise, biases [out_i] or undefined, one
// per weight; all of one dtype, once automatic casts have lowered them.
torch::autograd::variable_list parallel_linears(const ParallelLinearPlan& plan, const at::Tensor& x,
                                                const std::vector<at::Tensor>& weights,
                                                const std::vector<at::Tensor>& biases);

at::Tensor parallel_linear(const ParallelLinearPlan& plan, const at::Tensor& x, const at::Tensor& w,
                           const at::Tensor& bias);

}  // namespace nxd
