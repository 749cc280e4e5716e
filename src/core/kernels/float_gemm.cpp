#include "core/kernels/float_gemm.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/half.h"
#include "core/base/profiler.h"
#include "core/kernels/memory_pool.h"
#include "core/kernels/parallel.h"

namespace nxd::kernels {
namespace {

// Rows and columns of B that are copied at a time, so that they stay in a cache.
constexpr int64_t kDepth = 64;
constexpr int64_t kWidth = 256;

// A matrix of doubles, element (i, j) at i * row + j * col.
struct Doubles {
  const double* data;
  int64_t row, col;
  double at(int64_t i, int64_t j) const { return data[i * row + j * col]; }
};

Doubles doubles(const void* data, int64_t ld, Trans trans) {
  const auto* values = static_cast<const double*>(data);
  return trans == Trans::kYes ? Doubles{values, 1, ld} : Doubles{values, ld, 1};
}

// c[j] += the sum over p of a[p] tile[p][j], four p at a time.
void add_products(const double* a, const double* tile, int64_t depth, int64_t width, double* c) {
  int64_t p = 0;
  for (; p + 4 <= depth; p += 4) {
    const double* t = tile + p * width;
    const double a0 = a[p], a1 = a[p + 1], a2 = a[p + 2], a3 = a[p + 3];
    for (int64_t j = 0; j < width; ++j) {
      c[j] += (a0 * t[j] + a1 * t[j + width]) + (a2 * t[j + 2 * width] + a3 * t[j + 3 * width]);
    }
  }
  for (; p < depth; ++p) {
    for (int64_t j = 0; j < width; ++j) c[j] += a[p] * tile[p * width + j];
  }
}

void start_row(const GemmArgs& args, double* c) {
  if (!args.accumulate) std::fill_n(c, args.n, 0.0);
  const auto* bias = static_cast<const double*>(args.bias);
  for (int64_t j = 0; bias && j < args.n; ++j) c[j] += bias[j];
}

void rows_of_f64(const GemmArgs& args, int64_t begin, int64_t end) {
  const Doubles a = doubles(args.a, args.lda, args.trans_a);
  const Doubles b = doubles(args.b, args.ldb, args.trans_b);
  auto* c = static_cast<double*>(args.c);
  for (int64_t i = begin; i < end; ++i) start_row(args, c + i * args.ldc);
  std::vector<double> tile(static_cast<size_t>(kDepth * std::min(kWidth, args.n)));
  std::array<double, kDepth> row;
  for (int64_t j0 = 0; j0 < args.n; j0 += kWidth) {
    const int64_t width = std::min(kWidth, args.n - j0);
    for (int64_t p0 = 0; p0 < args.k; p0 += kDepth) {
      const int64_t depth = std::min(kDepth, args.k - p0);
      for (int64_t p = 0; p < depth; ++p) {
        for (int64_t j = 0; j < width; ++j) {
          tile[static_cast<size_t>(p * width + j)] = b.at(p0 + p, j0 + j);
        }
      }
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t p = 0; p < depth; ++p) row[static_cast<size_t>(p)] = a.at(i, p0 + p);
        add_products(row.data(), tile.data(), depth, width, c + i * args.ldc + j0);
      }
    }
  }
}

void gemm_f64(const GemmArgs& args) {
  const PhaseScope phase(args.trans_a == Trans::kYes   ? NXD_PHASE_GEMM_WEIGHT_GRAD
                         : args.trans_b == Trans::kYes ? NXD_PHASE_GEMM_FORWARD
                                                       : NXD_PHASE_GEMM_INPUT_GRAD,
                         2.0 * static_cast<double>(args.m) * static_cast<double>(args.n) *
                             static_cast<double>(args.k));
  parallel_ranges(args.m, args.n * std::max<int64_t>(args.k, 1),
                  [&](int64_t begin, int64_t end) { rows_of_f64(args, begin, end); });
}

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

void gemm_f16(const GemmArgs& args) {
  thread_local std::array<Workspace, 4> spaces;  // of a, b, c and bias
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

}  // namespace nxd::kernels
