#pragma once

#include "core/kernels/cross_entropy.h"
#include "core/tensor_parallel/dense_array.h"
#include "core/tensor_parallel/gathered_input.h"
#include "core/tensor_parallel/group_calls.h"
#include "core/tensor_parallel/matrix_product.h"
#include "core/tensor_parallel/reduced_output.h"
#include "core/tensor_parallel/token_losses.h"

namespace nxd {

struct LinearLossOptions : LossFormula {
  bool sequence_parallel = false;
  int64_t sequence_dim = 0;
  bool transposed_weight = false;
  bool accumulate_grads = false;
  int64_t block_tokens = 0;                  // 0: by the sizes
  nxd_dtype_t reduce_dtype = NXD_DTYPE_F32;  // of bf16 partial sums: F32 or BF16
  CallerWorkspace workspace{};
};

// In a backward pass loss is the gradient of the loss; absent: 1. Gradients that are not wanted are
// absent.
struct LinearLossArrays {
  Array x, weight, labels;
  std::optional<Array> bias{}, statistics{}, loss{}, grad_x{}, grad_weight{}, grad_bias{};
};

// One call of the cross entropy of the logits x weight^T + bias, whose vocabulary is split over the
// ranks. The logits of one block of tokens exist at a time.
class LinearLossPlan {
 public:
  size_t workspace_bytes() const { return scratch_.workspace_bytes(); }
  void allocate() { scratch_.allocate(group_, options_.workspace); }
  static void propose(Proposal& proposal, const LinearLossPlan* plan);

 protected:
  LinearLossPlan(const ProcessGroup& group, bool backward, LinearLossArrays arrays,
                 const LinearLossOptions& options);

  // A range of tokens.
  struct Block {
    int64_t first, count;
  };
  int64_t tokens() const { return tokens_.count(); }
  int64_t features() const { return arrays_.x.last(); }
  int64_t cols() const { return arrays_.weight.size(options_.transposed_weight ? 1 : 0); }
  int64_t real_cols() const;  // of this rank's, without those that pad the vocabulary
  bool splits_sequence() const { return options_.sequence_parallel && group_.size() > 1; }
  int sequence_dim() const { return static_cast<int>(options_.sequence_dim); }
  // The dtype in which ranks exchange the parts of the gradient of x.
  nxd_dtype_t exchanged_dtype() const {
    return nxd::exchanged_dtype(arrays_.x.dtype, options_.reduce_dtype);
  }
  // Calls body with each block in turn.
  template <class Body>
  void each_block(const Body& body) const;
  // The operands of all blocks: x of all ranks, after its collective, and the weight as [in, out].
  void start_gather(GroupCalls& calls) const;
  Operand read_x() const;
  Operand read_weight() const;
  // The logits of a block, computed.
  kernels::LogitShard logits(const Block& block, const Operand& x, const Operand& weight,
                             const void* bias, const int64_t* labels) const;
  Array logits_array(int64_t count) const;

  const ProcessGroup& group_;
  LinearLossArrays arrays_;
  LinearLossOptions options_;
  Scratch scratch_;
  TokenLosses tokens_;
  MatrixInput weight_;
  DenseInput bias_;
  std::optional<MatrixInput> x_;
  std::optional<GatheredInput> gathered_x_;
  int64_t block_tokens_ = 1;

 private:
  void check_dtypes() const;
  void check_shapes();
  void check_memory() const;

  bool backward_;
  size_t logits_block_ = 0;
};

// Plans for run_layer().
class LinearLossForward : public LinearLossPlan {
 public:
  LinearLossForward(const ProcessGroup& group, const LinearLossArrays& arrays,
                    const LinearLossOptions& options);
  int collectives() const { return statistics_.collectives() + (splits_sequence() ? 1 : 0); }
  void run(GroupCalls& calls) const;

 private:
  template <class T>
  void run_as(GroupCalls& calls) const;

  RowStatistics statistics_;
  size_t rows_block_;  // of each token the largest logit, the log of the sum, and the loss
};

class LinearLossBackward : public LinearLossPlan {
 public:
  LinearLossBackward(const ProcessGroup& group, const LinearLossArrays& arrays,
                     const LinearLossOptions& options);
  int collectives() const { return (splits_sequence() ? 1 : 0) + (reduced_x_ ? 1 : 0); }
  void run(GroupCalls& calls) const;

 private:
  template <class T>
  void run_as(GroupCalls& calls) const;
  // The gradient of a block's logits, in the dtype of x, where that is not the logits' own.
  Array narrowed(const Array& dlogits) const;
  void add_block(const Block& block, const Array& dlogits, const Operand& x,
                 const Operand& weight) const;
  // Where the sums of all blocks are formed: the gradient itself, or f32 for 16-bit floats.
  Array sums_of(const Array& grad, size_t block) const;
  void finish(const std::optional<Array>& grad, size_t block) const;

  size_t rows_block_;  // statistics of tokens, and factors of their gradients
  size_t narrow_block_ = 0, weight_sums_ = 0, bias_sums_ = 0;
  std::optional<ReducedOutput> reduced_x_;
  std::optional<DenseOutput> dense_x_;
};

}  // namespace nxd
