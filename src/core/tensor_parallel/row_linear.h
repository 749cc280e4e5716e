#pragma once

#include "core/tensor_parallel/dense_array.h"
#include "core/tensor_parallel/gathered_input.h"
#include "core/tensor_parallel/group_calls.h"
#include "core/tensor_parallel/linear_plan.h"
#include "core/tensor_parallel/reduced_output.h"

namespace nxd {

// y = x W^T + b, summed over the ranks, over which the columns of W are split. Plans for
// run_layer().
class RowLinearForward : public LinearPlan {
 public:
  RowLinearForward(const ProcessGroup& group, const LinearArrays& arrays,
                   const LinearCallOptions& options);
  int collectives() const { return reduced_y_ ? 1 : 0; }
  void run(GroupCalls& calls) const;

 private:
  const LinearWeight& w() const { return arrays_.weights.front(); }

  MatrixInput x_, weight_;
  DenseInput bias_;
  std::optional<MatrixOutput> y_;
  std::optional<ReducedOutput> reduced_y_;
};

// Its gradients.
class RowLinearBackward : public LinearPlan {
 public:
  RowLinearBackward(const ProcessGroup& group, const LinearArrays& arrays,
                    const LinearCallOptions& options);
  int collectives() const { return gathered_dy_ || stacked_x_ ? 1 : 0; }
  void run(GroupCalls& calls) const;

  // The parts of run(), as those of ColumnLinearBackward.
  struct Inputs {
    Operand dy;
    Array whole_dy;
  };
  Inputs start(GroupCalls& calls) const;
  Product weight_product(const Inputs& inputs) const;  // to be called once
  void finish(GroupCalls& calls) const;

 private:
  const LinearWeight& w() const { return arrays_.weights.front(); }

  MatrixInput x_, weight_;
  std::optional<MatrixInput> dy_;
  std::optional<GatheredInput> gathered_dy_;  // under sequence parallelism
  std::optional<MatrixOutput> grad_x_;
  std::optional<StackedParts> stacked_x_;  // without input_is_parallel
  std::optional<MatrixOutput> grad_weight_;
};

}  // namespace nxd
