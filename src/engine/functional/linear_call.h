#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "core/tensor_parallel/column_linear.h"
#include "core/tensor_parallel/row_linear.h"
#include "engine/functional/parallel_linear_op.h"

// Parallel linear layers on tensors with memory: core's layers over buffers do products and
// exchanges. The ranks have one model, so that they do not agree on each call.
namespace nxd {

// y_i of x for each weight; biases as in parallel_linears().
std::vector<at::Tensor> linear_forward(const ParallelLinearPlan& plan, const at::Tensor& x,
                                       at::ArrayRef<at::Tensor> weights,
                                       const std::vector<at::Tensor>& biases);

// A backward pass: start(), the weights' gradients, finish(). A gradient of a weight may also be
// asked for after finish(): then what the ranks have of x is gathered again, once.
class LinearBackward {
 public:
  LinearBackward(const ParallelLinearPlan& plan, at::Tensor x, at::ArrayRef<at::Tensor> weights,
                 std::vector<at::Tensor> dys);

  // The gradient of x, complete after finish(); undefined if it is not wanted. makes_weights:
  // gradients of weights come before finish().
  at::Tensor start(bool wants_dx, bool makes_weights);
  // The gradient, or nothing where sum is defined: it is added there.
  at::Tensor weight_gradient(size_t index, at::Tensor sum);
  void finish();

 private:
  // One pass over the ranks: the plan, its operands and its exchanges.
  struct Pass {
    std::optional<ColumnLinearBackward> column;
    std::optional<RowLinearBackward> row;
    ColumnLinearBackward::Inputs column_inputs;
    RowLinearBackward::Inputs row_inputs;
    std::optional<GroupCalls> calls;  // ends before the memory that it uses
  };

  std::unique_ptr<Pass> begin(const at::Tensor& dx, bool reads_x);
  Product weight_product(const Pass& pass, size_t index) const;

  ParallelLinearPlan plan_;
  at::Tensor x_;
  std::vector<at::Tensor> weights_, dys_;
  at::Tensor dx_;
  std::unique_ptr<Pass> pass_;
};

}  // namespace nxd
