#pragma once

#include <cstdint>
#include <vector>

#include "core/kernels/stochastic_rounding.h"
#include "nxd.h"

// One-pass optimizer updates and the norms of gradients. No result depends on the number of
// threads. Pointers need the alignment of their elements only.
namespace nxd::kernels {

// The formulas of nxd_adamw_formula_t. With mhat and vhat for the moments freed of their start from
// zero: TORCH decays first, p = p (1 - lr wd) - lr mhat / (sqrt(vhat) + eps). NXD adds eps to the
// root of v as it is, and decays last: p = (p - lr mhat sqrt(1 - beta2^step) / (sqrt(v) + eps))
// (1 - lr wd).
// param is of dtype F32, F64 or BF16; exp_avg and exp_avg_sq are of dtype, or F32 for BF16; grad is
// F32 or BF16, or for F64 F64 or BF16. Nothing may overlap.
// A model in BF16 may have a master copy: param is F32, and copy, when not null, receives the new
// parameter rounded to BF16. Without one param is BF16. It is rounded stochastically with the words
// of rounding when that is not null, else to nearest, where steps below half the spacing of BF16
// are lost for good.
// peer_copies are further places of n elements each, which get the bits that copy gets, or param
// where there is no copy, in the same pass.
struct AdamwArgs {
  int64_t n = 0;
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  nxd_dtype_t grad_dtype = NXD_DTYPE_F32;
  void* param = nullptr;
  const void* grad = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  void* copy = nullptr;
  const std::vector<void*>* peer_copies = nullptr;
  nxd_adamw_formula_t formula = NXD_ADAMW_FORMULA_TORCH;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  int64_t step = 1;       // 1 for the first
  double grad_scale = 1;  // the gradient is multiplied by this first: the clip factor
  const RoundingSource* rounding = nullptr;  // for dtype BF16
  bool reference = false;                    // element by element in double: what F64 takes anyway
};
void adamw(const AdamwArgs& args);

// Both formulas as p = decay * p - rate * exp_avg / (root * sqrt(exp_avg_sq) + eps).
struct AdamwTerms {
  double decay, rate, root;
};
AdamwTerms adamw_terms(const AdamwArgs& args);

// torch.optim.SGD. momentum_buffer is null without momentum; on first_step it is set to the
// gradient instead of being read. All else as in AdamwArgs.
struct SgdArgs {
  int64_t n = 0;
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  nxd_dtype_t grad_dtype = NXD_DTYPE_F32;
  void* param = nullptr;
  const void* grad = nullptr;
  void* momentum_buffer = nullptr;
  void* copy = nullptr;
  const std::vector<void*>* peer_copies = nullptr;
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool first_step = false;
  double grad_scale = 1;
  const RoundingSource* rounding = nullptr;
  bool reference = false;
};
void sgd(const SgdArgs& args);

// Sum of squares of F32, F64 or BF16 values, in f64 and in one fixed order: neither threads nor the
// vector width change a bit of it.
double sum_of_squares(nxd_dtype_t dtype, int64_t n, const void* x);

// Largest absolute value, 0 for none; NaN when any value is NaN. So the values are all finite
// exactly when the result is.
double max_abs(nxd_dtype_t dtype, int64_t n, const void* x);

}  // namespace nxd::kernels
