#pragma once

#include "core/tensor_parallel/dense_array.h"
#include "core/tensor_parallel/gathered_input.h"
#include "core/tensor_parallel/group_calls.h"
#include "core/tensor_parallel/linear_plan.h"
#include "core/tensor_parallel/reduced_output.h"

namespace nxd {

// y = x W^T + b, with the rows of W split over the ranks. Plans for run_layer().
class ColumnLinearForward : public LinearPlan {
 public:
  ColumnLinearForward(const ProcessGroup& group, const LinearArrays& arrays,
                      const LinearOptions& options);
  int collectives() const { return gathered_x_ || stacked_y_ ? 1 : 0; }
  void run(GroupCalls& calls) const;

 private:
  // This rank's features of the whole bias.
  const void* bias_part(const void* bias) const;

  std::optional<MatrixInput> x_;
  std::optional<GatheredInput> gathered_x_;  // under sequence parallelism
  MatrixInput weight_;
  DenseInput bias_;
  std::optional<MatrixOutput> y_;
  std::optional<StackedParts> stacked_y_;  // with gather_output
};

// Its gradients. Both exchanges, of x and of the gradient of x, go on during a product.
class ColumnLinearBackward : public LinearPlan {
 public:
  ColumnLinearBackward(const ProcessGroup& group, const LinearArrays& arrays,
                       const LinearOptions& options);
  int collectives() const { return (gathered_x_ ? 1 : 0) + (reduced_x_ ? 1 : 0); }
  void run(GroupCalls& calls) const;

 private:
  MatrixInput dy_, weight_;
  std::optional<MatrixInput> x_;
  std::optional<GatheredInput> gathered_x_;
  std::optional<MatrixOutput> grad_x_;
  std::optional<ReducedOutput> reduced_x_;
  std::optional<MatrixOutput> grad_weight_;
};

}  // namespace nxd
