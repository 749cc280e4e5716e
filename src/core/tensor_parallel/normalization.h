#pragma once

#include "core/agree/proposal.h"
#include "core/tensor_parallel/dense_array.h"
#include "core/tensor_parallel/group_calls.h"

namespace nxd {

enum class NormKind { kRms, kLayer };

struct NormalizationOptions {
  double eps = 1e-5;
  bool sequence_parallel = false;
  bool accumulate_grads = false;
  CallerWorkspace workspace{};
};

// y is the gradient of y in a backward pass. Gradients that are not wanted are absent.
struct NormalizationArrays {
  Array x, y;
  std::optional<Array> weight{}, bias{}, statistics{}, grad_x{}, grad_weight{}, grad_bias{};
};

// One call of a norm of rows.
class NormalizationPlan {
 public:
  size_t workspace_bytes() const { return scratch_.workspace_bytes(); }
  void allocate() { scratch_.allocate(group_, options_.workspace); }
  static void propose(Proposal& proposal, const NormalizationPlan* plan);

 protected:
  NormalizationPlan(const ProcessGroup& group, NormKind kind, bool backward,
                    NormalizationArrays arrays, const NormalizationOptions& options);

  bool has_mean() const { return kind_ == NormKind::kLayer; }
  int64_t rows() const { return arrays_.x.count() / cols(); }
  int64_t cols() const { return arrays_.x.last(); }
  // The dtype of arithmetic, statistics and sums of gradients: f64 for f64, else f32.
  nxd_dtype_t wide() const { return wide_; }
  nxd_dtype_t dtype() const { return kernel_dtype(arrays_.x.dtype); }
  Array::Shape statistics_shape() const;
  // The weight, or ones.
  const void* weight() const;

  const ProcessGroup& group_;
  NormKind kind_;
  NormalizationArrays arrays_;
  NormalizationOptions options_;
  nxd_dtype_t wide_;
  Scratch scratch_;
  DenseInput x_, weight_;

 private:
  void check_dtypes() const;
  void check_shapes() const;
  void check_memory() const;

  bool backward_;
  size_t ones_block_ = 0;
};

// Plans for run_layer().
class NormalizationForward : public NormalizationPlan {
 public:
  NormalizationForward(const ProcessGroup& group, NormKind kind, const NormalizationArrays& arrays,
                       const NormalizationOptions& options);
  int collectives() const { return 0; }
  void run(GroupCalls& calls) const;

 private:
  DenseInput bias_;
  DenseOutput y_, statistics_;
};

class NormalizationBackward : public NormalizationPlan {
 public:
  NormalizationBackward(const ProcessGroup& group, NormKind kind, const NormalizationArrays& arrays,
                        const NormalizationOptions& options);
  int collectives() const { return sums_over_ranks() ? 1 : 0; }
  void run(GroupCalls& calls) const;

 private:
  bool sums_over_ranks() const;
  Array sums(int64_t which) const;  // 0: of the weight's gradient, 1: of the bias's

  DenseInput dy_, statistics_;
  DenseOutput grad_x_;
  size_t sums_block_;
};

}  // namespace nxd
