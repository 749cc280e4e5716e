#include <algorithm>
#include <cmath>

#include "core/base/profiler.h"
#include "core/kernels/norms.h"
#include "core/kernels/parallel.h"

// Norms of rows in f64, as plain loops.
namespace nxd::kernels {
namespace {

struct Norm {
  int64_t rows, cols;
  const double* x;
  const double* weight;
  double* mean;  // null: RMS norm
  double* inv;

  double center(int64_t row) const { return mean ? mean[row] : 0.0; }
};

void forward(const Norm& n, const double* bias, double eps, double* y) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  const auto count = static_cast<double>(n.cols);
  parallel_ranges(n.rows, n.cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const double* x = n.x + r * n.cols;
      double* out = y + r * n.cols;
      double sum = 0;
      for (int64_t i = 0; i < n.cols; ++i) sum += x[i];
      if (n.mean) n.mean[r] = sum / count;
      const double mean = n.center(r);
      double squares = 0;
      for (int64_t i = 0; i < n.cols; ++i) squares += (x[i] - mean) * (x[i] - mean);
      const double inv = n.inv[r] = 1.0 / std::sqrt(squares / count + eps);
      for (int64_t i = 0; i < n.cols; ++i) {
        out[i] = (x[i] - mean) * inv * n.weight[i] + (bias ? bias[i] : 0.0);
      }
    }
  });
}

// The formula of norms.cpp.
void backward_rows(const Norm& n, const double* dy, double* dx) {
  const auto count = static_cast<double>(n.cols);
  parallel_ranges(n.rows, n.cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const double* x = n.x + r * n.cols;
      const double* d = dy + r * n.cols;
      double* out = dx + r * n.cols;
      const double mean = n.center(r), inv = n.inv[r];
      double sum = 0, product = 0;
      for (int64_t i = 0; i < n.cols; ++i) {
        const double g = d[i] * n.weight[i];
        sum += g;
        product += g * (x[i] - mean) * inv;
      }
      const double mean_sum = n.mean ? sum / count : 0.0, mean_product = product / count;
      for (int64_t i = 0; i < n.cols; ++i) {
        out[i] = (d[i] * n.weight[i] - mean_sum - (x[i] - mean) * inv * mean_product) * inv;
      }
    }
  });
}

// Column by column all rows in order, so that threads change no bit.
void backward_weights(const Norm& n, const double* dy, double* dweight, double* dbias) {
  parallel_ranges(n.cols, n.rows, [&](int64_t begin, int64_t end) {
    std::fill(dweight + begin, dweight + end, 0.0);
    if (dbias) std::fill(dbias + begin, dbias + end, 0.0);
    for (int64_t r = 0; r < n.rows; ++r) {
      const double* x = n.x + r * n.cols;
      const double* d = dy + r * n.cols;
      const double mean = n.center(r), inv = n.inv[r];
      for (int64_t i = begin; i < end; ++i) dweight[i] += d[i] * (x[i] - mean) * inv;
      for (int64_t i = begin; dbias && i < end; ++i) dbias[i] += d[i];
    }
  });
}

void backward(const Norm& n, const double* dy, double* dx, double* dweight, double* dbias) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  backward_weights(n, dy, dweight, dbias);
  backward_rows(n, dy, dx);
}

}  // namespace

void rms_norm_forward(int64_t rows, int64_t cols, const double* x, const double* weight, double eps,
                      double* y, double* inv_rms) {
  forward({rows, cols, x, weight, nullptr, inv_rms}, nullptr, eps, y);
}

void rms_norm_backward(int64_t rows, int64_t cols, const double* x, const double* weight,
                       const double* inv_rms, const double* dy, double* dx, double* dweight) {
  backward({rows, cols, x, weight, nullptr, const_cast<double*>(inv_rms)}, dy, dx, dweight,
           nullptr);
}

void layer_norm_forward(int64_t rows, int64_t cols, const double* x, const double* weight,
                        const double* bias, double eps, double* y, double* mean, double* inv_std) {
  forward({rows, cols, x, weight, mean, inv_std}, bias, eps, y);
}

void layer_norm_backward(int64_t rows, int64_t cols, const double* x, const double* weight,
                         const double* mean, const double* inv_std, const double* dy, double* dx,
                         double* dweight, double* dbias) {
  backward({rows, cols, x, weight, const_cast<double*>(mean), const_cast<double*>(inv_std)}, dy, dx,
           dweight, dbias);
}

}  // namespace nxd::kernels
