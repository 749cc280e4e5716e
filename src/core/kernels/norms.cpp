#include "core/kernels/norms.h"

#include <algorithm>
#include <cmath>

#include "core/base/dtype.h"
#include "core/base/profiler.h"
#include "core/kernels/memory_pool.h"
#include "core/kernels/parallel.h"
#include "core/kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/norms.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/kernels/vector-inl.h"

#ifndef NXD_KERNELS_NORMS_CPP
#define NXD_KERNELS_NORMS_CPP
namespace nxd::kernels {
namespace {

// Rows of one tensor of a norm, from the first row of a range on.
struct NormRows {
  nxd_dtype_t dtype;
  int64_t rows;
  int64_t cols;
  const void* x;
  const void* weight;
  float* mean;  // null: RMS norm
  float* inv;   // 1 / rms or 1 / standard deviation
};

struct NormForward : NormRows {
  const void* residual;  // null: none
  const void* bias;      // null: none
  void* sum;
  void* y;
  double eps;
};

struct NormBackward : NormRows {
  const void* dy;
  const void* residual_grad;  // null: none
  void* dx;
  float* dweight;  // added to
  float* dbias;    // added to; null: none
};

}  // namespace
}  // namespace nxd::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

template <class T>
HWY_INLINE float row_sum(const T* x, int64_t cols) {
  Accumulators sums(0);
  sweep4(cols, [&](auto part, int64_t i, auto lanes)
                   HWY_ATTR { sums.v[part()] = hn::Add(sums.v[part()], lanes.load(x + i)); });
  return sums.sum();
}

// Sum of (x - center)^2.
template <bool kCentered, class T>
HWY_INLINE float row_squares(const T* x, int64_t cols, float center) {
  Accumulators sums(0);
  const V c = set(center);
  sweep4(cols, [&](auto part, int64_t i, auto lanes) HWY_ATTR {
    const V v = lanes.load(x + i);
    const V d = kCentered ? lanes.fill(hn::Sub(v, c), 0) : v;
    sums.v[part()] = hn::MulAdd(d, d, sums.v[part()]);
  });
  return sums.sum();
}

// x + residual, rounded, into sum.
template <class T>
HWY_INLINE void add_row(const T* x, const T* residual, T* sum, int64_t cols) {
  sweep(cols, [&](int64_t i, auto lanes) HWY_ATTR {
    lanes.store(hn::Add(lanes.load(x + i), lanes.load(residual + i)), sum + i);
  });
}

template <class T, bool kCentered>
void ForwardRows(const NormForward& f) {
  const auto* weight = static_cast<const T*>(f.weight);
  const auto* bias = static_cast<const T*>(f.bias);
  const auto count = static_cast<float>(f.cols);
  for (int64_t r = 0; r < f.rows; ++r) {
    const T* x = static_cast<const T*>(f.x) + r * f.cols;
    if (f.residual) {
      T* sum = static_cast<T*>(f.sum) + r * f.cols;
      add_row(x, static_cast<const T*>(f.residual) + r * f.cols, sum, f.cols);
      x = sum;
    }
    const float mean = kCentered ? row_sum(x, f.cols) / count : 0.0F;
    const float squares = row_squares<kCentered>(x, f.cols, mean);
    const auto inv =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(squares / count) + f.eps));
    if (kCentered) f.mean[r] = mean;
    f.inv[r] = inv;
    const V vmean = set(mean);
    const V vinv = set(inv);
    T* y = static_cast<T*>(f.y) + r * f.cols;
    sweep(f.cols, [&](int64_t i, auto lanes) HWY_ATTR {
      const V v = lanes.load(x + i);
      const V normal = hn::Mul(kCentered ? hn::Sub(v, vmean) : v, vinv);
      const V w = lanes.load(weight + i);
      lanes.store(bias ? hn::MulAdd(normal, w, lanes.load(bias + i)) : hn::Mul(normal, w), y + i);
    });
  }
}

// With n = (x - mean) inv and g = dy weight: dx = inv (g - mean(g) - n mean(g n)); an RMS norm has
// no mean(g) term.
template <class T>
void BackwardRows(const NormBackward& b) {
  const auto* weight = static_cast<const T*>(b.weight);
  const auto count = static_cast<float>(b.cols);
  for (int64_t r = 0; r < b.rows; ++r) {
    const T* x = static_cast<const T*>(b.x) + r * b.cols;
    const T* dy = static_cast<const T*>(b.dy) + r * b.cols;
    T* dx = static_cast<T*>(b.dx) + r * b.cols;
    const T* past = b.residual_grad ? static_cast<const T*>(b.residual_grad) + r * b.cols : nullptr;
    const V mean = set(b.mean ? b.mean[r] : 0.0F);
    const V inv = set(b.inv[r]);
    Accumulators products(0);
    Accumulators sums(0);
    sweep4(b.cols, [&](auto part, int64_t i, auto lanes) HWY_ATTR {
      const V d = lanes.load(dy + i);
      const V g = hn::Mul(d, lanes.load(weight + i));
      const V normal = hn::Mul(hn::Sub(lanes.load(x + i), mean), inv);
      products.v[part()] = hn::MulAdd(g, normal, products.v[part()]);
      sums.v[part()] = hn::Add(sums.v[part()], g);
      lanes.store(hn::MulAdd(d, normal, lanes.load(b.dweight + i)), b.dweight + i);
      if (b.dbias) lanes.store(hn::Add(d, lanes.load(b.dbias + i)), b.dbias + i);
    });
    const V mean_product = set(products.sum() / count);
    const V mean_sum = set(b.mean ? sums.sum() / count : 0.0F);
    sweep(b.cols, [&](int64_t i, auto lanes) HWY_ATTR {
      const V g = hn::Mul(lanes.load(dy + i), lanes.load(weight + i));
      const V normal = hn::Mul(hn::Sub(lanes.load(x + i), mean), inv);
      V out = hn::Mul(hn::NegMulAdd(normal, mean_product, hn::Sub(g, mean_sum)), inv);
      if (past) out = hn::Add(out, lanes.load(past + i));
      lanes.store(out, dx + i);
    });
  }
}

void Forward(const NormForward& f) {
  with_dtype(f.dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    if (f.mean) {
      ForwardRows<T, true>(f);
    } else {
      ForwardRows<T, false>(f);
    }
  });
}

void Backward(const NormBackward& b) {
  with_dtype(b.dtype, [&](auto element) HWY_ATTR { BackwardRows<decltype(element)>(b); });
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(Forward);
HWY_EXPORT(Backward);

const void* skip(const void* data, int64_t elements, nxd_dtype_t dtype) {
  if (!data) return nullptr;
  return static_cast<const char*>(data) + elements * static_cast<int64_t>(dtype_size(dtype));
}
void* skip(void* data, int64_t elements, nxd_dtype_t dtype) {
  return const_cast<void*>(skip(static_cast<const void*>(data), elements, dtype));
}

void forward(const NormForward& all) {
  parallel_ranges(all.rows, all.cols, [&](int64_t begin, int64_t end) {
    NormForward part = all;
    const int64_t first = begin * all.cols;
    part.rows = end - begin;
    part.x = skip(all.x, first, all.dtype);
    part.residual = skip(all.residual, first, all.dtype);
    part.sum = skip(all.sum, first, all.dtype);
    part.y = skip(all.y, first, all.dtype);
    if (all.mean) part.mean = all.mean + begin;
    part.inv = all.inv + begin;
    HWY_DYNAMIC_DISPATCH(Forward)(part);
  });
}

// Weight gradients are summed in f32 over blocks of rows, then in f64 over the blocks of a chunk,
// which are one thread's, and over the chunks in order: neither threads nor the number of rows
// bring in more than the rounding of a block.
constexpr int64_t kBlockRows = 16;
constexpr int64_t kChunkRows = 256;

void backward_block(const NormBackward& all, int64_t begin, int64_t rows, float* sums) {
  NormBackward part = all;
  const int64_t first = begin * all.cols;
  part.rows = rows;
  part.x = skip(all.x, first, all.dtype);
  part.dy = skip(all.dy, first, all.dtype);
  part.residual_grad = skip(all.residual_grad, first, all.dtype);
  part.dx = skip(all.dx, first, all.dtype);
  if (all.mean) part.mean = all.mean + begin;
  part.inv = all.inv + begin;
  part.dweight = sums;
  part.dbias = all.dbias ? sums + all.cols : nullptr;
  HWY_DYNAMIC_DISPATCH(Backward)(part);
}

void backward_chunk(const NormBackward& all, int64_t chunk, int64_t width, double* total) {
  Workspace space;
  auto* sums = space.get<float>(static_cast<size_t>(width) * sizeof(float));
  std::fill_n(total, width, 0.0);
  const int64_t end = std::min((chunk + 1) * kChunkRows, all.rows);
  for (int64_t begin = chunk * kChunkRows; begin < end; begin += kBlockRows) {
    std::fill_n(sums, width, 0.0F);
    backward_block(all, begin, std::min(kBlockRows, end - begin), sums);
    for (int64_t i = 0; i < width; ++i) total[i] += static_cast<double>(sums[i]);
  }
}

void backward(const NormBackward& all) {
  const int64_t chunks = (all.rows + kChunkRows - 1) / kChunkRows;
  const int64_t width = all.dbias ? 2 * all.cols : all.cols;
  Workspace space;
  auto* totals = space.get<double>(static_cast<size_t>(chunks * width) * sizeof(double));
  parallel_ranges(chunks, kChunkRows * all.cols, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      backward_chunk(all, chunk, width, totals + chunk * width);
    }
  });
  for (int64_t chunk = 1; chunk < chunks; ++chunk) {
    for (int64_t i = 0; i < width; ++i) totals[i] += totals[chunk * width + i];
  }
  for (int64_t i = 0; i < width; ++i) {
    float& out = i < all.cols ? all.dweight[i] : all.dbias[i - all.cols];
    out = chunks > 0 ? static_cast<float>(totals[i]) : 0.0F;
  }
}

void check(nxd_dtype_t dtype, int64_t rows, int64_t cols) {
  check_argument(dtype == NXD_DTYPE_F32 || dtype == NXD_DTYPE_BF16,
                 "norm: expected dtype f32 or bf16, got ", dtype_name(dtype));
  check_argument(rows >= 0 && cols > 0, "norm: expected rows >= 0 and cols > 0, got ", rows, ", ",
                 cols);
}

}  // namespace

void rms_norm_forward(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* x,
                      const void* weight, double eps, void* y, float* inv_rms) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  check(dtype, rows, cols);
  forward({{dtype, rows, cols, x, weight, nullptr, inv_rms}, nullptr, nullptr, nullptr, y, eps});
}

void add_rms_norm_forward(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* x,
                          const void* residual, const void* weight, double eps, void* sum, void* y,
                          float* inv_rms) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  check(dtype, rows, cols);
  forward({{dtype, rows, cols, x, weight, nullptr, inv_rms}, residual, nullptr, sum, y, eps});
}

void rms_norm_backward(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* x,
                       const void* weight, const float* inv_rms, const void* dy, void* dx,
                       float* dweight, const void* residual_grad) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  check(dtype, rows, cols);
  backward({{dtype, rows, cols, x, weight, nullptr, const_cast<float*>(inv_rms)},
            dy,
            residual_grad,
            dx,
            dweight,
            nullptr});
}

void layer_norm_forward(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* x,
                        const void* weight, const void* bias, double eps, void* y, float* mean,
                        float* inv_std) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  check(dtype, rows, cols);
  forward({{dtype, rows, cols, x, weight, mean, inv_std}, nullptr, bias, nullptr, y, eps});
}

void add_layer_norm_forward(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* x,
                            const void* residual, const void* weight, const void* bias, double eps,
                            void* sum, void* y, float* mean, float* inv_std) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  check(dtype, rows, cols);
  forward({{dtype, rows, cols, x, weight, mean, inv_std}, residual, bias, sum, y, eps});
}

void layer_norm_backward(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* x,
                         const void* weight, const float* mean, const float* inv_std,
                         const void* dy, void* dx, float* dweight, float* dbias,
                         const void* residual_grad) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  check(dtype, rows, cols);
  backward({{dtype, rows, cols, x, weight, const_cast<float*>(mean), const_cast<float*>(inv_std)},
            dy,
            residual_grad,
            dx,
            dweight,
            dbias});
}

}  // namespace nxd::kernels
#endif
