#pragma once

#include "core/kernels/gemm.h"

namespace nxd::kernels {

// gemm() for every dtype of floats: also F64 -> F64, F16 -> F16 and F16 -> F32. Sums of F16 are
// formed in f32 and rounded once, those of F64 in f64. No result depends on the number of threads.
void float_gemm(const GemmArgs& args);

// float_gemm() for each of batch matrices; operand i starts i strides (in elements) after the
// first. A stride of 0 shares an operand; C's must keep the results apart. The bias is shared.
void float_gemm_batched(const GemmArgs& first, int64_t batch, int64_t a_stride, int64_t b_stride,
                        int64_t c_stride);

}  // namespace nxd::kernels
