#pragma once

#include <cstdint>

#include "nxd.h"

namespace nxd::kernels {

// Sum of absolute values of F32, F64 or BF16 values, in f64 and in one fixed order, which threads
// do not change: the 1-norm.
double abs_sum(nxd_dtype_t dtype, int64_t n, const void* x);

}  // namespace nxd::kernels
