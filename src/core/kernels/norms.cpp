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

#include "core/kernels/two_vectors-inl.h"
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
  float* dbias;    // added to; of a layer norm
};

}  // namespace
}  // namespace nxd::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

template <class T>
HWY_INLINE float row_sum(const T* x, int64_t cols) {
  Accumulators sums(0);
  sweep_two_sums<T>(cols, [&](auto part, int64_t i, auto lanes) NXD_INLINE_LAMBDA {
    const auto v = lanes.load(x + i);
    for (int k = 0; k < lanes.kVectors; ++k) sums.v[part + k] = hn::Add(sums.v[part + k], v.v[k]);
  });
  return sums.sum();
}

// Sum of (x - center)^2.
template <bool kCentered, class T>
HWY_INLINE float row_squares(const T* x, int64_t cols, float center) {
  Accumulators sums(0);
  const V c = set(center);
  sweep_two_sums<T>(cols, [&](auto part, int64_t i, auto lanes) NXD_INLINE_LAMBDA {
    const auto v = lanes.load(x + i);
    for (int k = 0; k < lanes.kVectors; ++k) {
      const V d = kCentered ? lanes.fill(hn::Sub(v.v[k], c), 0) : v.v[k];
      sums.v[part + k] = hn::MulAdd(d, d, sums.v[part + k]);
    }
  });
  return sums.sum();
}

// x + residual, rounded, into sum.
template <class T>
HWY_INLINE void add_row(const T* x, const T* residual, T* sum, int64_t cols) {
  sweep_two<T>(cols, [&](int64_t i, auto lanes) NXD_INLINE_LAMBDA {
    const auto add = [](V a, V b) NXD_INLINE_LAMBDA { return hn::Add(a, b); };
    lanes.store(each(add, lanes.load(x + i), lanes.load(residual + i)), sum + i);
  });
}

// (x - mean) inv weight + bias, with the mean where kCentered and the bias where kBias.
template <bool kCentered, bool kBias, class T>
HWY_INLINE void normal_row(const T* x, float mean, float inv, const T* weight, const T* bias, T* y,
                           int64_t cols) {
  const V vmean = set(mean);
  const V vinv = set(inv);
  sweep_two<T>(cols, [&](int64_t i, auto lanes) NXD_INLINE_LAMBDA {
    const auto w = lanes.load(weight + i);
    const auto add = lanes.load((kBias ? bias : weight) + i);
    auto v = lanes.load(x + i);
    for (int k = 0; k < lanes.kVectors; ++k) {
      const V normal = hn::Mul(kCentered ? hn::Sub(v.v[k], vmean) : v.v[k], vinv);
      v.v[k] = kBias ? hn::MulAdd(normal, w.v[k], add.v[k]) : hn::Mul(normal, w.v[k]);
    }
    lanes.store(v, y + i);
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
    T* y = static_cast<T*>(f.y) + r * f.cols;
    if (bias) {
      normal_row<kCentered, true>(x, mean, inv, weight, bias, y, f.cols);
    } else {
      normal_row<kCentered, false>(x, mean, inv, weight, bias, y, f.cols);
    }
  }
}

// With n = (x - mean) inv and g = dy weight: dx = inv (g - mean(g) - n mean(g n)); an RMS norm has
// no mean(g) term, and no mean. Rows are taken kRows at a time, so that sums over rows go through
// memory less often.
template <class T, bool kCentered, int kRows>
struct RowsBackward {
  const NormBackward& b;
  int64_t first;
  V mean[kRows], inv[kRows];
  V mean_product[kRows], mean_sum[kRows];

  HWY_INLINE RowsBackward(const NormBackward& all, int64_t row) : b(all), first(row) {
    for (int r = 0; r < kRows; ++r) {
      mean[r] = set(kCentered ? b.mean[first + r] : 0.0F);
      inv[r] = set(b.inv[first + r]);
    }
  }
  HWY_INLINE const T* weight() const { return static_cast<const T*>(b.weight); }
  template <class Element>
  HWY_INLINE Element* row(Element* data, int r) const {
    return data + (first + r) * b.cols;
  }
  HWY_INLINE V normal(V x, int r) const {
    return hn::Mul(kCentered ? hn::Sub(x, mean[r]) : x, inv[r]);
  }

  HWY_INLINE void sum() {
    const auto count = static_cast<float>(b.cols);
    V products[kRows][2], sums[kRows][2];
    for (int r = 0; r < kRows; ++r) {
      products[r][0] = products[r][1] = sums[r][0] = sums[r][1] = hn::Zero(kD);
    }
    const T* x = row(static_cast<const T*>(b.x), 0);
    const T* dy = row(static_cast<const T*>(b.dy), 0);
    sweep_two<T>(b.cols, [&](int64_t i, auto lanes) NXD_INLINE_LAMBDA {
      const auto w = lanes.load(weight() + i);
      auto dw = lanes.load(b.dweight + i);
      auto db = lanes.load((kCentered ? b.dbias : b.dweight) + i);
      for (int r = 0; r < kRows; ++r) {
        const auto d = lanes.load(dy + r * b.cols + i);
        const auto v = lanes.load(x + r * b.cols + i);
        for (int k = 0; k < lanes.kVectors; ++k) {
          const V g = hn::Mul(d.v[k], w.v[k]);
          const V n = normal(v.v[k], r);
          products[r][k] = hn::MulAdd(g, n, products[r][k]);
          dw.v[k] = hn::MulAdd(d.v[k], n, dw.v[k]);
          if constexpr (kCentered) {
            sums[r][k] = hn::Add(sums[r][k], g);
            db.v[k] = hn::Add(d.v[k], db.v[k]);
          }
        }
      }
      lanes.store(dw, b.dweight + i);
      if constexpr (kCentered) lanes.store(db, b.dbias + i);
    });
    for (int r = 0; r < kRows; ++r) {
      mean_product[r] = mean_of(products[r], count);
      mean_sum[r] = kCentered ? mean_of(sums[r], count) : hn::Zero(kD);
    }
  }
  static HWY_INLINE V mean_of(const V (&sums)[2], float count) {
    return set(hn::GetLane(hn::SumOfLanes(kD, hn::Add(sums[0], sums[1]))) / count);
  }

  template <bool kPast>
  HWY_INLINE void store() const {
    for (int r = 0; r < kRows; ++r) {
      const T* x = row(static_cast<const T*>(b.x), r);
      const T* dy = row(static_cast<const T*>(b.dy), r);
      const T* past = kPast ? row(static_cast<const T*>(b.residual_grad), r) : x;
      T* dx = row(static_cast<T*>(b.dx), r);
      sweep_two<T>(b.cols, [&](int64_t i, auto lanes) NXD_INLINE_LAMBDA {
        const auto w = lanes.load(weight() + i);
        const auto d = lanes.load(dy + i);
        const auto v = lanes.load(x + i);
        auto out = lanes.load(past + i);
        for (int k = 0; k < lanes.kVectors; ++k) {
          const V g = hn::Mul(d.v[k], w.v[k]);
          const V part = hn::NegMulAdd(normal(v.v[k], r), mean_product[r],
                                       kCentered ? hn::Sub(g, mean_sum[r]) : g);
          const V own = hn::Mul(part, inv[r]);
          out.v[k] = kPast ? hn::Add(own, out.v[k]) : own;
        }
        lanes.store(out, dx + i);
      });
    }
  }
  HWY_INLINE void run() {
    sum();
    if (b.residual_grad) {
      store<true>();
    } else {
      store<false>();
    }
  }
};

template <class T, bool kCentered>
void BackwardRows(const NormBackward& b) {
  constexpr int kRows = kLanes >= 16 ? 4 : 2;
  // Short rows of f32 come from memory sooner one after another.
  const bool in_groups = std::is_same_v<T, Bf16> || b.cols >= 4096;
  int64_t r = 0;
  for (; in_groups && r + kRows <= b.rows; r += kRows) {
    RowsBackward<T, kCentered, kRows>(b, r).run();
  }
  for (; r < b.rows; ++r) RowsBackward<T, kCentered, 1>(b, r).run();
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
  with_dtype(b.dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    if (b.mean) {
      BackwardRows<T, true>(b);
    } else {
      BackwardRows<T, false>(b);
    }
  });
}

// Adds sums to total, and clears them.
void FoldSums(int64_t n, float* sums, double* total) {
  for (int64_t i = 0; i < n; ++i) {
    total[i] += static_cast<double>(sums[i]);
    sums[i] = 0;
  }
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(Forward);
HWY_EXPORT(Backward);
HWY_EXPORT(FoldSums);

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
  part.dbias = all.mean ? sums + all.cols : nullptr;
  HWY_DYNAMIC_DISPATCH(Backward)(part);
}

void backward_chunk(const NormBackward& all, int64_t chunk, int64_t width, double* total) {
  Workspace space;
  auto* sums = space.get<float>(static_cast<size_t>(width) * sizeof(float));
  std::fill_n(total, width, 0.0);
  std::fill_n(sums, width, 0.0F);
  const int64_t end = std::min((chunk + 1) * kChunkRows, all.rows);
  for (int64_t begin = chunk * kChunkRows; begin < end; begin += kBlockRows) {
    backward_block(all, begin, std::min(kBlockRows, end - begin), sums);
    HWY_DYNAMIC_DISPATCH(FoldSums)(width, sums, total);
  }
}

void backward(const NormBackward& all) {
  const int64_t chunks = (all.rows + kChunkRows - 1) / kChunkRows;
  const int64_t width = all.mean ? 2 * all.cols : all.cols;
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
  const auto total = [&](int64_t i) { return chunks > 0 ? static_cast<float>(totals[i]) : 0.0F; };
  for (int64_t i = 0; i < all.cols; ++i) {
    all.dweight[i] = total(i);
    if (all.dbias) all.dbias[i] = total(all.cols + i);
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
