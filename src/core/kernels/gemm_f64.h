#pragma once

#include "core/kernels/gemm.h"

namespace nxd::kernels {

// gemm() for F64 -> F64, m and n above 0. Each element is the sum of its products in order, by
// blocks of k, so that the bits depend neither on threads nor on the other rows and columns.
void gemm_f64(const GemmArgs& args);

}  // namespace nxd::kernels
