#pragma once

#include "core/agree/proposal.h"
#include "core/kernels/embedding.h"
#include "core/tensor_parallel/gathered_input.h"
#include "core/tensor_parallel/group_calls.h"
#include "core/tensor_parallel/id_input.h"
#include "core/tensor_parallel/reduced_output.h"

namespace nxd {

struct VocabEmbeddingOptions {
  int64_t num_embeddings = 0;            // 0: the rows of all ranks
  std::optional<int64_t> padding_idx{};  // its row gets no gradient
  bool sequence_parallel = false;
  int64_t sequence_dim = 0;
  bool accumulate_grads = false;
  bool exchanges = true;  // false: the table is of this rank alone, whatever the group
  uint64_t key = 0;       // of the forward's exchange; see Call
  CallerWorkspace workspace{};
};

// In a backward pass weight and y are their gradients.
struct VocabEmbeddingArrays {
  Array ids, weight, y;
};

// One call of an embedding whose rows are split over the ranks, the same number on each: its
// arguments, found good, and its memory.
class VocabEmbeddingPlan {
 public:
  size_t workspace_bytes() const { return scratch_.workspace_bytes(); }
  void allocate() { scratch_.allocate(group_, options_.workspace); }
  static void propose(Proposal& proposal, const VocabEmbeddingPlan* plan);

 protected:
  VocabEmbeddingPlan(const ProcessGroup& group, bool backward, VocabEmbeddingArrays arrays,
                     const VocabEmbeddingOptions& options);

  int ranks() const { return options_.exchanges ? group_.size() : 1; }
  bool is_alone() const { return ranks() == 1; }
  bool splits_sequence() const { return options_.sequence_parallel && !is_alone(); }
  kernels::Ids ids() const;

  const ProcessGroup& group_;
  VocabEmbeddingArrays arrays_;
  VocabEmbeddingOptions options_;
  int sequence_dim_ = -1;
  Scratch scratch_;

 private:
  void check_options();
  void check_arrays();

  bool backward_;
  IdInput ids_;
};

// y = the rows of the ids, of which every rank but one contributes zeros. Plans for run_layer().
class VocabEmbeddingForward : public VocabEmbeddingPlan {
 public:
  VocabEmbeddingForward(const ProcessGroup& group, const VocabEmbeddingArrays& arrays,
                        const VocabEmbeddingOptions& options);
  int collectives() const { return reduced_y_ ? 1 : 0; }
  void run(GroupCalls& calls) const;

 private:
  std::optional<ReducedOutput> reduced_y_;
};

// The gradient of the weight.
class VocabEmbeddingBackward : public VocabEmbeddingPlan {
 public:
  VocabEmbeddingBackward(const ProcessGroup& group, const VocabEmbeddingArrays& arrays,
                         const VocabEmbeddingOptions& options);
  int collectives() const { return gathered_dy_ ? 1 : 0; }
  void run(GroupCalls& calls) const;

 private:
  std::optional<GatheredInput> gathered_dy_;  // under sequence parallelism
  bool in_place_;                             // rows are summed where the gradient is
  size_t sums_block_ = 0;
};

}  // namespace nxd
