#pragma once

#include "core/tensor_parallel/dense_array.h"
#include "core/tensor_parallel/gathered_input.h"
#include "core/tensor_parallel/group_calls.h"
#include "core/tensor_parallel/linear_plan.h"
#include "core/tensor_parallel/reduced_output.h"

namespace nxd {

// y = x W^T + b, with the rows of W split over the ranks; for several W an x that is gathered once.
// Plans for run_layer().
class ColumnLinearForward : public LinearPlan {
 public:
  ColumnLinearForward(const ProcessGroup& group, const LinearArrays& arrays,
                      const LinearCallOptions& options);
  int collectives() const;
  void run(GroupCalls& calls) const;

 private:
  struct Output {
    MatrixInput weight;
    DenseInput bias;
    std::optional<MatrixOutput> y{};
    std::optional<StackedParts> stacked{};  // with gather_output
  };

  // This rank's features of the whole bias.
  const void* bias_part(const LinearWeight& w, const void* bias) const;
  void run_one(GroupCalls& calls, const Operand& x, size_t index) const;

  std::optional<MatrixInput> x_;
  std::optional<GatheredInput> gathered_x_;  // under sequence parallelism
  std::vector<Output> outputs_;
};

// Its gradients. Both exchanges, of x and of the gradient of x, go on during products. The gradient
// of x is one sum over weights and ranks.
class ColumnLinearBackward : public LinearPlan {
 public:
  // reads_x: also without gradients of weights, for a caller of weight_product().
  ColumnLinearBackward(const ProcessGroup& group, const LinearArrays& arrays,
                       const LinearCallOptions& options, bool reads_x = false);
  int collectives() const { return (gathered_x_ ? 1 : 0) + (reduced_x_ ? 1 : 0); }
  void run(GroupCalls& calls) const;

  // The parts of run(), in this order, for a caller who puts the weights' gradients where it likes.
  // start() gives the operands of their products, and leaves the sum of x's gradient under way.
  struct Inputs {
    Operand x;
    std::vector<Operand> dys;  // one per weight
  };
  Inputs start(GroupCalls& calls) const;
  // The gradient of one weight.
  Product weight_product(size_t index, const Inputs& inputs) const;
  // The end of the sum.
  void finish(GroupCalls& calls) const;

 private:
  struct Part {
    MatrixInput dy, weight;
    std::optional<MatrixOutput> grad_weight{};
  };

  void multiply_to_x(const std::vector<Operand>& dys) const;

  std::vector<Part> parts_;
  std::optional<MatrixInput> x_;
  std::optional<GatheredInput> gathered_x_;
  std::optional<MatrixOutput> grad_x_;
  std::optional<ReducedOutput> reduced_x_;
  std::optional<size_t> wide_x_block_;  // sums of several products of 16-bit floats
};

}  // namespace nxd
