#include "support/layer_arrays.h"

namespace nxd_test {

namespace {

// In four sums, which a vector holds.
double product(const double* a, const double* b, int64_t n) {
  double sums[4] = {};
  int64_t k = 0;
  for (; k + 4 <= n; k += 4) {
    for (int64_t lane = 0; lane < 4; ++lane) sums[lane] += a[k + lane] * b[k + lane];
  }
  for (; k < n; ++k) sums[0] += a[k] * b[k];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace

Numbers linear(const Numbers& x, const Numbers& weight, const Numbers* bias) {
  Sizes shape(x.shape.begin(), x.shape.end() - 1);
  shape.push_back(weight.size(0));
  Numbers y(shape);
  const int64_t in = weight.size(1), out = weight.size(0);
  const int64_t rows = count_of(x.shape) / std::max<int64_t>(in, 1);
  for (int64_t r = 0; in > 0 && r < rows; ++r) {
    const double* row = &x.values[static_cast<size_t>(r * in)];
    for (int64_t j = 0; j < out; ++j) {
      const double sum = product(row, &weight.values[static_cast<size_t>(j * in)], in);
      y.at(r * out + j) = sum + (bias ? bias->at(j) : 0);
    }
  }
  return y;
}

LinearGrads linear_grads(const Numbers& x, const Numbers& weight, const Numbers& dy) {
  LinearGrads grads{Numbers(x.shape), Numbers(weight.shape), Numbers({weight.size(0)})};
  const int64_t in = weight.size(1), out = weight.size(0);
  const int64_t rows = out > 0 && in > 0 ? count_of(dy.shape) / out : 0;
  for (int64_t r = 0; r < rows; ++r) {
    const double* row = &x.values[static_cast<size_t>(r * in)];
    double* grad_row = &grads.x.values[static_cast<size_t>(r * in)];
    for (int64_t j = 0; j < out; ++j) {
      const double d = dy.at(r * out + j);
      const double* column = &weight.values[static_cast<size_t>(j * in)];
      double* grad_column = &grads.weight.values[static_cast<size_t>(j * in)];
      for (int64_t k = 0; k < in; ++k) {
        grad_row[k] += d * column[k];
        grad_column[k] += d * row[k];
      }
    }
  }
  for (int64_t i = 0; i < count_of(dy.shape); ++i) grads.bias.at(i % out) += dy.at(i);
  return grads;
}

}  // namespace nxd_test
