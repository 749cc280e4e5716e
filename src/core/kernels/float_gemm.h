#pragma once

#include "core/kernels/gemm.h"

namespace nxd::kernels {

// gemm() for every dtype of floats: also F64 -> F64, F16 -> F16 and F16 -> F32. Sums of F16 are
// formed in f32 and rounded once, those of F64 in f64. No result depends on the number of threads.
// F64 is for results to compare others with: its loops are plain.
void float_gemm(const GemmArgs& args);

}  // namespace nxd::kernels
