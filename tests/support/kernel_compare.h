// Support for tests that compare kernels with ATen's operators.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/kernel_support.h"
#include "support/tensor.h"

namespace nxd_test {

using nxd::test::Buffer;

inline Tensor tensor_of(const Buffer& buffer, const std::vector<int64_t>& shape, nxd_dtype_t dtype,
                        bool requires_grad = false) {
  std::vector<double> values;
  for (int64_t i = 0; i < buffer.size(); ++i) values.push_back(buffer[i]);
  return leaf(from_doubles(values, shape), dtype, requires_grad);
}

// Operators of two tensors, or of a tensor and a number.
inline Tensor add(const Tensor& a, const Tensor& b, double alpha = 1) {
  return op("add", "Tensor", {{"self", a}, {"other", b}, {"alpha", alpha}});
}
inline Tensor mul(const Tensor& a, const Tensor& b) {
  return op("mul", "Tensor", {{"self", a}, {"other", b}});
}
inline Tensor scaled(const Tensor& a, double factor) {
  return op("mul", "Scalar", {{"self", a}, {"other", factor}});
}
inline Tensor plus(const Tensor& a, double value) {
  return op("add", "Scalar", {{"self", a}, {"other", value}});
}
inline Tensor matmul(const Tensor& a, const Tensor& b) {
  return op("matmul", {{"self", a}, {"other", b}});
}
inline Tensor narrow(const Tensor& x, int dim, int64_t start, int64_t length) {
  return op("narrow", {{"self", x}, {"dim", dim}, {"start", start}, {"length", length}});
}
inline Tensor transposed(const Tensor& x, int a, int b) {
  return op("transpose", "int", {{"self", x}, {"dim0", a}, {"dim1", b}});
}

// The root-mean-square norm as models spell it: statistics in f32 or wider.
inline Tensor aten_rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  const nxd_dtype_t wide = x.dtype() == NXD_DTYPE_F64 ? NXD_DTYPE_F64 : NXD_DTYPE_F32;
  const Tensor in = to(x, wide);
  const Tensor mean = op(
      "mean", "dim", {{"self", mul(in, in)}, {"dim", std::vector<int64_t>{-1}}, {"keepdim", true}});
  const Tensor normal = mul(in, op("rsqrt", {{"self", plus(mean, eps)}}));
  return mul(to(normal, x.dtype()), weight);
}

inline Tensor aten_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                              double eps) {
  return op("layer_norm", {{"input", x},
                           {"normalized_shape", std::vector<int64_t>{x.shape().back()}},
                           {"weight", weight},
                           {"bias", bias},
                           {"eps", eps}});
}

// softmax(q k^T / sqrt(dim) + bias) v on [batch, heads, length, dim].
inline Tensor aten_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                             const Tensor& bias) {
  const auto dim = static_cast<double>(q.shape().back());
  Tensor scores = scaled(matmul(q, transposed(k, 2, 3)), 1 / std::sqrt(dim));
  if (bias) scores = add(scores, bias);
  return matmul(op("softmax", "int", {{"self", scores}, {"dim", -1}}), v);
}

// Gradients of the tensors' sum with weights grads by the inputs.
inline std::vector<Tensor> gradients(const std::vector<Tensor>& outputs,
                                     const std::vector<Tensor>& grads,
                                     const std::vector<Tensor>& inputs) {
  std::vector<nxd_tensor_t*> y, g, x, out(inputs.size());
  for (const Tensor& t : outputs) y.push_back(t.get());
  for (const Tensor& t : grads) g.push_back(t.get());
  for (const Tensor& t : inputs) x.push_back(t.get());
  NXD_TEST_OK(nxd_grad(y.data(), g.data(), y.size(), x.data(), x.size(), 0, out.data()));
  std::vector<Tensor> result;
  for (nxd_tensor_t* t : out) result.emplace_back(t);
  return result;
}

}  // namespace nxd_test
