#pragma once

#include "core/agree/proposal.h"
#include "core/kernels/cross_entropy.h"
#include "core/tensor_parallel/row_statistics.h"
#include "core/tensor_parallel/token_losses.h"

namespace nxd {

struct VocabLossOptions : LossFormula {
  const char* operation = "parallel_cross_entropy";  // errors name it
  bool rounds_grad = false;                          // grad_logits may be of BF16 for logits of F32
  CallerWorkspace workspace{};
  uint64_t key = 0;  // of the forward's exchange; see Call
};

// In a backward pass loss is the gradient of the loss; absent: 1.
struct VocabLossArrays {
  Array logits, labels;
  std::optional<Array> statistics{}, loss{}, grad_logits{};
};

// Logits as a kernel reads them: where they lie if their rows are dense and of a dtype that it
// knows, else from a copy, which gradients may overwrite.
class LogitInput {
 public:
  LogitInput(const Array& logits, Scratch& scratch);
  bool copies() const { return copies_; }
  Array copy(const Scratch& scratch) const;  // without the values
  // Makes the copy, if there is one. The shard has so many of the columns.
  kernels::LogitShard read(const Scratch& scratch, int64_t cols) const;

 private:
  Array logits_;
  Matrix matrix_;
  bool copies_;
  size_t block_ = 0;
};

// Columns of a rank that do not pad the vocabulary.
int64_t real_columns(int64_t cols, int rank, int64_t vocabulary);

// One call of the cross entropy of logits whose vocabulary is split over the ranks.
class VocabLossPlan {
 public:
  size_t workspace_bytes() const { return scratch_.workspace_bytes(); }
  void allocate() { scratch_.allocate(group_, options_.workspace); }
  static void propose(Proposal& proposal, const VocabLossPlan* plan);

 protected:
  VocabLossPlan(const ProcessGroup& group, bool backward, VocabLossArrays arrays,
                const VocabLossOptions& options);

  int64_t rows() const { return tokens_.count(); }
  kernels::LogitShard shard(const int64_t* labels) const;

  const ProcessGroup& group_;
  VocabLossArrays arrays_;
  VocabLossOptions options_;
  Scratch scratch_;
  TokenLosses tokens_;
  LogitInput logits_;

 private:
  void check_arrays() const;

  bool backward_;
};

// Losses, and the statistics of rows that the backward pass needs. Plans for run_layer().
class VocabLossForward : public VocabLossPlan {
 public:
  VocabLossForward(const ProcessGroup& group, const VocabLossArrays& arrays,
                   const VocabLossOptions& options);
  int collectives() const { return statistics_.collectives(); }
  void run(GroupCalls& calls) const;

 private:
  template <class T>
  void run_as(GroupCalls& calls) const;

  RowStatistics statistics_;
  size_t rows_block_;  // of each row the largest logit, the log of the sum, and the loss
};

// The gradient of the logits.
class VocabLossBackward : public VocabLossPlan {
 public:
  VocabLossBackward(const ProcessGroup& group, const VocabLossArrays& arrays,
                    const VocabLossOptions& options);
  int collectives() const { return 0; }
  void run(GroupCalls& calls) const;

 private:
  template <class T>
  void run_as() const;

  Matrix out_;
  bool direct_;  // the kernel writes to the output
  size_t out_block_ = 0;
  size_t rows_block_;  // statistics of rows, and factors of their gradients
};

}  // namespace nxd
