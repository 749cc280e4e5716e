#pragma once

#include <cstdint>

#include "nxd.h"

// Cross entropy over one shard of the vocabulary. Between the two passes over the logits ranks
// exchange four numbers per row: cross_entropy_statistics of every shard go into
// cross_entropy_merge, whose results go into cross_entropy_backward. Nothing depends on the number
// of threads.
namespace nxd::kernels {

// Logits [rows, cols] with row stride ld in elements, F32 or BF16: columns first ... first + cols
// of a vocabulary.
struct LogitShard {
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t ld = 0;
  const void* logits = nullptr;
  const int64_t* targets = nullptr;  // [rows], global ids
  int64_t first = 0;

  // The column of the row's target, or -1 when this shard does not have it.
  int64_t target_col(int64_t row) const {
    const int64_t col = targets[row] - first;
    return col >= 0 && col < cols ? col : -1;
  }
};

// Rows of a block, where logits are made and used block by block: as many as fit in a few caches,
// but enough that products run at speed, and evenly divided, so that there are few shapes of
// products.
int64_t logit_block_rows(int64_t rows, int64_t cols);

// Elements' worth of work that an exponential is.
constexpr int64_t kExpWork = 4;
// INVALID_ARGUMENT unless it is positive.
void check_vocabulary(int64_t vocabulary);

// Statistics of one shard about its rows, [kRowStatistics, rows]: the largest logit m (NaN passed
// over; -infinity for no columns), the sum of exp(x - m), the target's logit (0 when another shard
// has it), and the sum of x - m, or of x where m is -infinity: beside the sum of large logits their
// differences would lose their digits. A row that is -infinity throughout has the sum 0 of
// exponentials; a NaN or a +infinity makes it NaN.
constexpr int64_t kRowStatistics = 4;
void cross_entropy_statistics(const LogitShard& shard, float* out);

// Per row, from the statistics of all shards, the i-th at statistics + i * stride, with s for the
// smoothing and V for the vocabulary:
//   max over the shards; log_sum = log of the sum of exp(x - max);
//   loss = max + log_sum - (1 - s) target_logit - s/V sum_logits,
// where sum_logits is of cols columns of each shard, or of what the vocabulary leaves to it.
// The order of the shards decides the bits.
void cross_entropy_merge(int64_t shards, int64_t rows, const float* statistics, int64_t stride,
                         int64_t cols, double smoothing, int64_t vocabulary, float* max,
                         float* log_sum, float* loss);

// dlogits = (exp(x - max - log_sum) - (1 - s) onehot(target) - s/V) * grad_row, with row stride
// out_ld. out_dtype is F32 or BF16; out may be the logits when the dtypes are equal (then out_ld is
// ld). Rows whose grad_row is 0 are set to 0 without being read: ignored targets.
void cross_entropy_backward(const LogitShard& shard, const float* max, const float* log_sum,
                            const float* grad_row, double smoothing, int64_t vocabulary,
                            nxd_dtype_t out_dtype, void* out, int64_t out_ld);

// All of this for logits of F64, with statistics and results of F64; out may be the logits where
// out_ld is ld.
void cross_entropy_statistics(const LogitShard& shard, double* out);
void cross_entropy_merge(int64_t shards, int64_t rows, const double* statistics, int64_t stride,
                         int64_t cols, double smoothing, int64_t vocabulary, double* max,
                         double* log_sum, double* loss);
void cross_entropy_backward(const LogitShard& shard, const double* max, const double* log_sum,
                            const double* grad_row, double smoothing, int64_t vocabulary,
                            double* out, int64_t out_ld);

}  // namespace nxd::kernels
