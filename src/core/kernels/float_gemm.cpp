#include "core/kernels/float_gemm.h"

#include <array>

#include "core/base/dtype.h"
#include "core/base/half.h"
#include "core/base/thread_own.h"
#include "core/kernels/gemm_f64.h"
#include "core/kernels/memory_pool.h"
#include "core/kernels/parallel.h"

namespace nxd::kernels {
namespace {

// A dense copy in f32.
float* f32_copy(Workspace& space, const void* data, int64_t rows, int64_t cols, int64_t ld) {
  auto* copy = space.get<float>(static_cast<size_t>(rows * cols) * sizeof(float));
  const auto* from = static_cast<const uint16_t*>(data);
  parallel_ranges(rows, cols, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < cols; ++j) copy[i * cols + j] = f16_to_f32(from[i * ld + j]);
    }
  });
  return copy;
}

struct WideCopies {
  std::array<Workspace, 4> spaces;  // of a, b, c and bias
};

void gemm_f16(const GemmArgs& args) {
  auto& spaces = ThreadOwn<WideCopies>::get().spaces;
  const bool trans_a = args.trans_a == Trans::kYes, trans_b = args.trans_b == Trans::kYes;
  GemmArgs wide = args;
  wide.in_dtype = wide.out_dtype = NXD_DTYPE_F32;
  wide.lda = trans_a ? args.m : args.k;
  wide.ldb = trans_b ? args.k : args.n;
  wide.a = f32_copy(spaces[0], args.a, trans_a ? args.k : args.m, wide.lda, args.lda);
  wide.b = f32_copy(spaces[1], args.b, trans_b ? args.n : args.k, wide.ldb, args.ldb);
  if (args.out_dtype == NXD_DTYPE_F32) return gemm(wide);
  if (args.bias) wide.bias = f32_copy(spaces[3], args.bias, 1, args.n, args.n);
  wide.ldc = args.n;
  wide.c = args.accumulate ? f32_copy(spaces[2], args.c, args.m, args.n, args.ldc)
                           : spaces[2].get(static_cast<size_t>(args.m * args.n) * sizeof(float));
  gemm(wide);
  const auto* sums = static_cast<const float*>(wide.c);
  auto* out = static_cast<uint16_t*>(args.c);
  parallel_ranges(args.m, args.n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < args.n; ++j) out[i * args.ldc + j] = f32_to_f16(sums[i * args.n + j]);
    }
  });
}

}  // namespace

void float_gemm(const GemmArgs& args) {
  if (args.in_dtype == NXD_DTYPE_F64) {
    check_argument(args.out_dtype == NXD_DTYPE_F64, "gemm: expected f64 -> f64, got f64 -> ",
                   dtype_name(args.out_dtype));
    if (args.m > 0 && args.n > 0) gemm_f64(args);
  } else if (args.in_dtype == NXD_DTYPE_F16) {
    check_argument(args.out_dtype == NXD_DTYPE_F16 || args.out_dtype == NXD_DTYPE_F32,
                   "gemm: expected f16 -> f16 or f16 -> f32, got f16 -> ",
                   dtype_name(args.out_dtype));
    if (args.m > 0 && args.n > 0) gemm_f16(args);
  } else {
    gemm(args);
  }
}

void float_gemm_batched(const GemmArgs& first, int64_t batch, int64_t a_stride, int64_t b_stride,
                        int64_t c_stride) {
  const auto in_size = static_cast<int64_t>(dtype_size(first.in_dtype));
  const auto out_size = static_cast<int64_t>(dtype_size(first.out_dtype));
  parallel_ranges(batch, first.m * first.n * first.k, [&](int64_t begin, int64_t end) {
    GemmArgs args = first;
    for (int64_t i = begin; i < end; ++i) {
      args.a = static_cast<const char*>(first.a) + i * a_stride * in_size;
      args.b = static_cast<const char*>(first.b) + i * b_stride * in_size;
      args.c = static_cast<char*>(first.c) + i * c_stride * out_size;
      float_gemm(args);
    }
  });
}

}  // namespace nxd::kernels
