#pragma once

#include <cstdint>

#include "nxd.h"

// Cross entropy over one shard of the vocabulary. The pieces between which ranks exchange a few
// numbers per row:
//   max over ranks of row_max; sums over ranks of sum_exp, target_logit and sum_logits;
//   lse = max + log(sum_exp); loss = lse - (1 - smoothing) target_logit - smoothing/V sum_logits.
// Nothing depends on the number of threads.
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
};

// Each row's largest logit, -infinity for no columns. NaN is passed over: it shows in sum_exp.
void cross_entropy_row_max(const LogitShard& shard, float* out_max);

// Per row: the sum of exp(x - max), the target's logit (0 when another shard has it), and the sum
// of the logits (for smoothing; may be null).
void cross_entropy_sums(const LogitShard& shard, const float* max, float* sum_exp,
                        float* target_logit, float* sum_logits);

// dlogits = (exp(x - lse) - (1 - smoothing) onehot(target) - smoothing / vocabulary) * grad_row,
// in the logits' dtype, with row stride out_ld. out may be the logits (then out_ld is ld). Rows
// whose grad_row is 0 are set to 0 without being read: ignored targets.
void cross_entropy_backward(const LogitShard& shard, const float* lse, const float* grad_row,
                            double smoothing, int64_t vocabulary, void* out, int64_t out_ld);

}  // namespace nxd::kernels
