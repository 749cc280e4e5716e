#pragma once

#include <cstdint>

#include "nxd.h"

// One-pass optimizer updates and the norms of gradients. No result depends on the number of
// threads. Pointers need the alignment of their elements only.
namespace nxd::kernels {

// torch.optim.AdamW: the decay first, decoupled; denominator sqrt(v) / sqrt(1 - beta2^step) + eps.
// param, exp_avg and exp_avg_sq are of dtype F32 or F64 (a master copy where the model is BF16);
// grad is of dtype or BF16. copy, when not null, receives the new parameter rounded to BF16
// (dtype F32 only). Nothing may overlap.
struct AdamwArgs {
  int64_t n = 0;
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  nxd_dtype_t grad_dtype = NXD_DTYPE_F32;
  void* param = nullptr;
  const void* grad = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  void* copy = nullptr;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  int64_t step = 1;       // 1 for the first
  double grad_scale = 1;  // the gradient is multiplied by this first: the clip factor
};
void adamw(const AdamwArgs& args);

// torch.optim.SGD. momentum_buffer is null without momentum; on first_step it is set to the
// gradient instead of being read. dtypes, grad_scale and copy as in AdamwArgs.
struct SgdArgs {
  int64_t n = 0;
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  nxd_dtype_t grad_dtype = NXD_DTYPE_F32;
  void* param = nullptr;
  const void* grad = nullptr;
  void* momentum_buffer = nullptr;
  void* copy = nullptr;
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool first_step = false;
  double grad_scale = 1;
};
void sgd(const SgdArgs& args);

// Sum of squares of F32, F64 or BF16 values, in f64 and in one fixed order: neither threads nor the
// vector width change a bit of it.
double sum_of_squares(nxd_dtype_t dtype, int64_t n, const void* x);

// Largest absolute value, 0 for none; NaN when any value is NaN. So the values are all finite
// exactly when the result is.
double max_abs(nxd_dtype_t dtype, int64_t n, const void* x);

}  // namespace nxd::kernels
