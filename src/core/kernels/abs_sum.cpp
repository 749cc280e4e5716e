#include "core/kernels/abs_sum.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/base/profiler.h"
#include "core/kernels/bf16.h"
#include "core/kernels/parallel.h"

namespace nxd::kernels {
namespace {

// Elements of one partial sum, and sums that go on side by side, so that the loop is no chain.
constexpr int64_t kBlock = 1 << 15;
constexpr int64_t kSums = 8;

double widen(float value) { return static_cast<double>(value); }
double widen(double value) { return value; }
double widen(Bf16 value) { return static_cast<double>(to_float(value)); }

template <class T>
double block_sum(const T* x, int64_t n) {
  double sums[kSums] = {};
  for (int64_t i = 0; i < n; ++i) sums[i % kSums] += std::fabs(widen(x[i]));
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

template <class T>
double typed_sum(const T* x, int64_t n) {
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  std::vector<double> sums(static_cast<size_t>(std::max<int64_t>(blocks, 0)));
  parallel_ranges(blocks, kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t start = block * kBlock;
      sums[static_cast<size_t>(block)] = block_sum(x + start, std::min(kBlock, n - start));
    }
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace

double abs_sum(nxd_dtype_t dtype, int64_t n, const void* x) {
  const PhaseScope phase(NXD_PHASE_OPTIMIZER);
  switch (dtype) {
    case NXD_DTYPE_F32: return typed_sum(static_cast<const float*>(x), n);
    case NXD_DTYPE_F64: return typed_sum(static_cast<const double*>(x), n);
    case NXD_DTYPE_BF16: return typed_sum(static_cast<const Bf16*>(x), n);
    default: fail(NXD_ERROR_INTERNAL, "abs_sum: dtype ", dtype);
  }
}

}  // namespace nxd::kernels
