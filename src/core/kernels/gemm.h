#pragma once

#include <cstdint>

#include "nxd.h"

namespace nxd::kernels {

enum class Trans { kNo, kYes };

// C = op(A) op(B) [+ bias] [+ C], all row-major.
//   a: [m, k] with row stride lda, or [k, m] when trans_a
//   b: [k, n] with row stride ldb, or [n, k] when trans_b
//   c: [m, n] with row stride ldc; overlaps neither a nor b; not read unless accumulate
//   bias: [n] of out_dtype, added to each row; may be null
// Row strides are in elements and at least the row's length. Dense operands are the fast ones:
// others are copied first, or written through a copy, when the product is large enough.
// Dtypes: F32 -> F32, BF16 -> BF16, BF16 -> F32; sums are formed in f32 and rounded once.
// m, n and k may be 0; an empty sum is 0.
struct GemmArgs {
  Trans trans_a = Trans::kNo;
  Trans trans_b = Trans::kNo;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const void* a = nullptr;
  int64_t lda = 0;
  const void* b = nullptr;
  int64_t ldb = 0;
  void* c = nullptr;
  int64_t ldc = 0;
  nxd_dtype_t in_dtype = NXD_DTYPE_F32;
  nxd_dtype_t out_dtype = NXD_DTYPE_F32;
  bool accumulate = false;
  const void* bias = nullptr;
};

// Runs on the calling thread's team, whose size changes no bit. Any number of threads may call at
// once: primitives and scratch memory are kept per thread.
void gemm(const GemmArgs& args);

// Floating-point operations per second of [n, n] x [n, n] by oneDNN's matmul on plain row-major
// operands: the median of a few timed products. gemm() itself may be faster.
double measure_gemm_peak(nxd_dtype_t dtype, int64_t n);

}  // namespace nxd::kernels
