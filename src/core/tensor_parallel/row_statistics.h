#pragma once

#include <string>

#include "core/kernels/cross_entropy.h"
#include "core/tensor_parallel/group_calls.h"
#include "core/tensor_parallel/stacked_parts.h"

namespace nxd {

// The weight of the uniform part of a loss, by torch's formula, and the ids that it is spread over.
struct LossSmoothing {
  double weight;
  int64_t vocabulary;
};

// Says what is wrong where the least and the most columns that a rank of the group has differ;
// empty where they are one number.
std::string differing_vocabulary_shares(const ProcessGroup& group, int64_t cols, double least,
                                        double most);

// The statistics that ranks exchange about rows of logits whose vocabulary is split over them. Each
// rank adds those of its own columns, block by block of rows or all at once. One small all-gather
// follows, and then all ranks have the losses of all rows, with the same bits. dtype: F64 for
// logits of F64, else F32.
class RowStatistics {
 public:
  RowStatistics(const ProcessGroup& group, nxd_dtype_t dtype, int64_t rows, Scratch& scratch);
  int collectives() const { return group_.size() > 1 ? 1 : 0; }

  // Forms those of this rank's columns, for the rows from first on.
  void add(const kernels::LogitShard& shard, int64_t first, const Scratch& scratch) const;
  // INVALID_ARGUMENT, on all ranks, where they have other numbers of columns, or another key; see
  // Call.
  void exchange(GroupCalls& calls, const char* operation, int64_t cols, const Scratch& scratch,
                uint64_t key = 0) const;
  // Gives, for a block of rows as it was added, the largest logit, the log of the sum of
  // exponentials, and the loss of logits of cols columns on each rank, which means nothing where
  // the label is not valid.
  void merge(int64_t first, int64_t count, int64_t cols, const LossSmoothing& smoothing,
             const Scratch& scratch, float* max, float* log_sum, float* loss) const;
  void merge(int64_t first, int64_t count, int64_t cols, const LossSmoothing& smoothing,
             const Scratch& scratch, double* max, double* log_sum, double* loss) const;

 private:
  // A rank's statistics, and behind them its number of columns.
  template <class T>
  T* part(const Scratch& scratch, int rank) const {
    return reinterpret_cast<T*>(parts_.part(scratch, rank).data);
  }
  template <class T>
  void check_columns(const char* operation, int64_t cols, const Scratch& scratch) const;

  const ProcessGroup& group_;
  nxd_dtype_t dtype_;
  int64_t rows_;
  StackedParts parts_;
};

}  // namespace nxd
