#include "core/tensor_parallel/row_statistics.h"

#include <algorithm>

#include "core/base/exact_number.h"

namespace nxd {
namespace {

constexpr int64_t kStatistics = kernels::kRowStatistics;

}  // namespace

std::string differing_vocabulary_shares(const ProcessGroup& group, int64_t cols, double least,
                                        double most) {
  if (most == least) return "";
  return text("expected the same share of the vocabulary on all ranks of group ", group.name(),
              ", got ", cols, " on rank ", group.rank(), " and from ", exact_number(least), " to ",
              exact_number(most), " on all");
}

RowStatistics::RowStatistics(const ProcessGroup& group, nxd_dtype_t dtype, int64_t rows,
                             Scratch& scratch)
    : group_(group),
      dtype_(dtype),
      rows_(rows),
      parts_(group, dtype, {kStatistics * rows + 1}, 0, scratch) {}

void RowStatistics::add(const kernels::LogitShard& shard, int64_t first,
                        const Scratch& scratch) const {
  const int64_t offset = kStatistics * first;
  if (dtype_ == NXD_DTYPE_F64) {
    kernels::cross_entropy_statistics(shard, part<double>(scratch, group_.rank()) + offset);
  } else {
    kernels::cross_entropy_statistics(shard, part<float>(scratch, group_.rank()) + offset);
  }
}

void RowStatistics::exchange(GroupCalls& calls, const char* operation, int64_t cols,
                             const Scratch& scratch, uint64_t key) const {
  if (group_.size() == 1) return;
  const int64_t count = kStatistics * rows_;
  if (dtype_ == NXD_DTYPE_F64) {
    part<double>(scratch, group_.rank())[count] = static_cast<double>(cols);
  } else {
    part<float>(scratch, group_.rank())[count] = static_cast<float>(cols);
  }
  Call call = parts_.gather(scratch);
  call.key = key;
  calls.run(call);
  if (dtype_ == NXD_DTYPE_F64) {
    check_columns<double>(operation, cols, scratch);
  } else {
    check_columns<float>(operation, cols, scratch);
  }
}

template <class T>
void RowStatistics::check_columns(const char* operation, int64_t cols,
                                  const Scratch& scratch) const {
  T least = part<T>(scratch, 0)[kStatistics * rows_], most = least;
  for (int rank = 1; rank < group_.size(); ++rank) {
    const T other = part<T>(scratch, rank)[kStatistics * rows_];
    least = std::min(least, other);
    most = std::max(most, other);
  }
  const std::string failure = differing_vocabulary_shares(group_, cols, static_cast<double>(least),
                                                          static_cast<double>(most));
  check_argument(failure.empty(), operation, ": ", failure);
}

void RowStatistics::merge(int64_t first, int64_t count, int64_t cols,
                          const LossSmoothing& smoothing, const Scratch& scratch, float* max,
                          float* log_sum, float* loss) const {
  kernels::cross_entropy_merge(group_.size(), count, part<float>(scratch, 0) + kStatistics * first,
                               kStatistics * rows_ + 1, cols, smoothing.weight,
                               smoothing.vocabulary, max, log_sum, loss);
}

void RowStatistics::merge(int64_t first, int64_t count, int64_t cols,
                          const LossSmoothing& smoothing, const Scratch& scratch, double* max,
                          double* log_sum, double* loss) const {
  kernels::cross_entropy_merge(group_.size(), count, part<double>(scratch, 0) + kStatistics * first,
                               kStatistics * rows_ + 1, cols, smoothing.weight,
                               smoothing.vocabulary, max, log_sum, loss);
}

}  // namespace nxd
