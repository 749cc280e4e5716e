// Every operator that has a lowering, recorded in one graph: each becomes StableHLO without a call
// of the host, and gives what ATen gives on the CPU, by whichever backend NXD_XLA_BACKEND names.
#include <ATen/ATen.h>
#include <torch/version.h>

#include <cstdio>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "engine/device/device_tensor.h"
#include "engine/device/recording.h"
#include "engine/stablehlo/stablehlo_module.h"
#include "engine/tensor/dtype_map.h"

#include "support/pjrt.h"

#include "support/check.h"

namespace {

using namespace nxd;
using at::Tensor;
using Tensors = std::vector<Tensor>;

// Arguments on one device, the same values on each.
struct Arguments {
  Arguments(at::Device to, at::ScalarType type) : device(to), dtype(type) {
    at::manual_seed(3);
    a = floats({3, 4});
    b = floats({3, 4});
    row = floats({4});
    positive = (floats({3, 4}).abs() + 0.5).to(dtype);
    share = at::sigmoid(floats({3, 4}));
    cube = floats({2, 3, 4});
    cube2 = floats({2, 4, 5});
    wide = floats({4, 6});
    rows = floats({7, 4});
    ids = at::randint(0, 7, {2, 3}, at::kLong);
    classes = at::tensor({1, 3, -100}, at::kLong);
    places = at::randint(0, 3, {3, 4}, at::kLong);
    some = at::tensor({2, 0, -1}, at::kLong);
    whole = at::randint(-9, 9, {3, 4}, at::kLong);
    mask = at::rand({3, 4}) > 0.5;
    scalar = floats({});
    for (Tensor* each : {&a, &b, &row, &positive, &share, &cube, &cube2, &wide, &rows, &ids,
                         &classes, &places, &some, &whole, &mask, &scalar}) {
      *each = each->to(device);
    }
  }

  Tensor floats(at::IntArrayRef sizes) const { return at::randn(sizes).to(dtype); }
  at::TensorOptions like() const { return at::TensorOptions(device).dtype(dtype); }

  at::Device device;
  at::ScalarType dtype;
  Tensor a, b, row, positive, share, cube, cube2, wide, rows, ids, classes, places, some, whole,
      mask, scalar;
};

struct Case {
  const char* text;
  std::function<Tensors(const Arguments&)> run;
};

template <class... Each>
Tensors listed(const std::tuple<Each...>& results) {
  return std::apply([](const auto&... each) { return Tensors{each...}; }, results);
}
Tensors listed(Tensor result) { return {std::move(result)}; }
Tensors listed(Tensors results) { return results; }

#define CASE(...)                                                        \
  {                                                                      \
#__VA_ARGS__, [](const Arguments& t) { return listed(__VA_ARGS__); } \
  }

const std::vector<Case>& elementwise_cases() {
  static const std::vector<Case> all = {
      CASE(t.a.abs()),
      CASE(t.a + t.b),
      CASE(at::add(t.a, t.row, 0.3)),
      CASE(at::add(t.a, 2.5)),
      CASE(t.a + t.scalar),
      CASE(t.whole + 2),
      CASE(t.whole * t.a),
      CASE(at::sub(t.a, t.b, 1.7)),
      CASE(at::rsub(t.a, 2.0)),
      CASE(at::sub(t.a, 2.5)),
      CASE(t.a * t.b),
      CASE(t.a * 3),
      CASE(t.a / t.positive),
      CASE(t.whole / 4),
      CASE(at::div(t.a, t.positive, "floor")),
      CASE(at::div(t.a, 0.3, "floor")),
      CASE(at::floor_divide(t.a, t.positive)),
      CASE(at::addcmul(t.a, t.b, t.row, 0.3)),
      CASE(at::addcdiv(t.a, t.b, t.positive, -0.1)),
      CASE(at::addcdiv(t.a, t.b, t.positive)),
      CASE(at::atan2(t.a, t.b)),
      CASE(at::bitwise_and(t.whole, 5)),
      CASE(at::bitwise_or(t.mask, t.mask)),
      CASE(at::bitwise_and(t.whole, t.places)),
      CASE(at::bitwise_xor(t.whole, t.places)),
      CASE(at::bitwise_not(t.mask)),
      CASE(at::ceil(t.a)),
      CASE(at::floor(t.a)),
      CASE(at::round(t.a)),
      CASE(at::sign(t.a)),
      CASE(at::clamp(t.a, -0.5, 0.4)),
      CASE(at::clamp(t.a, c10::nullopt, 0.4)),
      CASE(at::clamp(t.a, c10::optional<Tensor>(t.b), c10::nullopt)),
      CASE(at::clamp_min(t.a, 0.1)),
      CASE(at::clamp_max(t.a, 0.1)),
      CASE(at::clamp_min(t.a, t.b)),
      CASE(at::clamp_max(t.a, t.b)),
      CASE(at::cos(t.a)),
      CASE(at::sin(t.a)),
      CASE(at::erf(t.a)),
      CASE(at::exp(t.a)),
      CASE(at::expm1(t.a)),
      CASE(at::log(t.positive)),
      CASE(at::log1p(t.positive)),
      CASE(at::sqrt(t.positive)),
      CASE(at::rsqrt(t.positive)),
      CASE(at::reciprocal(t.positive)),
      CASE(at::neg(t.a)),
      CASE(at::tanh(t.a)),
      CASE(at::sigmoid(t.a)),
      CASE(t.a == t.b),
      CASE(t.whole == 3),
      CASE(t.a != t.b),
      CASE(t.whole != 2),
      CASE(t.a < t.b),
      CASE(t.a < 0.2),
      CASE(t.whole < 0.5),
      CASE(t.a <= t.row),
      CASE(t.a <= 0.2),
      CASE(t.a > t.b),
      CASE(t.a > 0),
      CASE(t.whole >= t.a),
      CASE(t.a >= 0),
      CASE(at::isnan(t.a)),
      CASE(at::lerp(t.a, t.b, 0.3)),
      CASE(at::lerp(t.a, t.b, t.share)),
      CASE(at::logical_and(t.mask, t.whole)),
      CASE(at::logical_or(t.mask, t.whole)),
      CASE(at::logical_xor(t.mask, t.whole)),
      CASE(at::logical_not(t.whole)),
      CASE(at::masked_fill(t.a, t.mask, -1e4)),
      CASE(at::masked_fill(t.a, t.mask, t.scalar)),
      CASE(at::maximum(t.a, t.b)),
      CASE(at::minimum(t.a, t.b)),
      CASE(t.a.pow(2)),
      CASE(t.a.pow(3)),
      CASE(t.positive.pow(0.5)),
      CASE(t.positive.pow(-0.5)),
      CASE(t.positive.pow(1.7)),
      CASE(at::pow(0.9, t.a)),
      CASE(at::pow(t.positive, t.b)),
      CASE(at::remainder(t.a, 0.7)),
      CASE(at::remainder(t.a, t.positive)),
      CASE(at::where(t.mask, t.a, t.row)),
      CASE(at::where(t.mask, t.a, 2.0)),
      CASE(at::where(t.mask, 2.0, t.a)),
      CASE(at::where(t.mask, t.a, t.whole)),
  };
  return all;
}

const std::vector<Case>& activation_cases() {
  static const std::vector<Case> all = {
      CASE(at::relu(t.a)),
      CASE(at::threshold_backward(t.a, t.b, 0.1)),
      CASE(at::silu(t.a)),
      CASE(at::silu_backward(t.a, t.b)),
      CASE(at::sigmoid_backward(t.a, t.share)),
      CASE(at::tanh_backward(t.a, t.share)),
      CASE(at::gelu(t.a)),
      CASE(at::gelu(t.a, "tanh")),
      CASE(at::gelu_backward(t.a, t.b)),
      CASE(at::gelu_backward(t.a, t.b, "tanh")),
  };
  return all;
}

const std::vector<Case>& gate_cases() {
  static const std::vector<Case> all = {
      CASE(at::elu(t.a * 3)),
      CASE(at::elu(t.a, 0.7, 1.3, 0.9)),
      CASE(at::elu_backward(t.a, 0.7, 1.3, 0.9, false, t.b)),
      CASE(at::elu_backward(t.a, 0.7, 1.3, 0.9, true, at::tanh(t.b))),
      CASE(at::glu(t.wide)),
      CASE(at::glu(t.cube2, 1)),
      CASE(at::glu_backward(t.wide.slice(1, 0, 3), t.wide, 1)),
      CASE(at::hardsigmoid(t.a * 4)),
      CASE(at::hardsigmoid_backward(t.a, t.b * 4)),
      CASE(at::hardswish(t.a * 4)),
      CASE(at::hardswish_backward(t.a, t.b * 4)),
      CASE(at::hardtanh(t.a)),
      CASE(at::hardtanh(t.a, -0.5, 0.25)),
      CASE(at::hardtanh_backward(t.a, t.b, -0.5, 0.25)),
      CASE(at::leaky_relu(t.a)),
      CASE(at::leaky_relu_backward(t.a, t.b, 0.2, false)),
      CASE(at::mish(t.a * 4)),
      CASE(at::softplus(t.a * 4)),
      CASE(at::softplus(t.a * 4, 2, 3)),
      CASE(at::softplus_backward(t.a, t.b * 4, 2, 3)),
      CASE(at::prelu(t.a, t.row)),
      CASE(at::prelu(t.a, t.row.slice(0, 1, 2))),
  };
  return all;
}

const std::vector<Case>& creation_cases() {
  static const std::vector<Case> all = {
      CASE(t.a.to(at::kDouble)),
      CASE(t.a.to(at::kLong)),
      CASE(t.a.to(at::kBool)),
      CASE(t.mask.to(t.dtype)),
      CASE(at::arange(5, t.like().dtype(at::kLong))),
      CASE(at::arange(1.5, 6, t.like().dtype(at::kFloat))),
      CASE(at::arange(2, 9, 3, t.like().dtype(at::kLong))),
      CASE(t.a.clone()),
      CASE(t.a.clone().copy_(t.whole)),
      CASE(at::empty({2, 3}, t.like()).fill_(4)),
      CASE(at::eye(3, t.like().dtype(at::kFloat))),
      CASE(at::eye(3, 4, t.like().dtype(at::kFloat))),
      CASE(at::full({2, 3}, 1.5, t.like())),
      CASE(at::full_like(t.a, 2.5)),
      CASE(t.a.clone().fill_(t.scalar)),
      CASE(t.a.new_full({2}, 7)),
      CASE(t.a.new_empty_strided({2}, {1}).zero_()),
      CASE(t.a.new_zeros({2})),
      CASE(t.a.new_ones({2})),
      CASE(at::ones({3}, t.like())),
      CASE(at::ones_like(t.a)),
      CASE(at::zeros({3}, t.like())),
      CASE(at::zeros_like(t.a)),
      CASE(t.a.clone().zero_()),
      CASE(at::scalar_tensor(2.5, t.like())),
  };
  return all;
}

const std::vector<Case>& reduction_cases() {
  static const std::vector<Case> all = {
      CASE(t.a.sum()),
      CASE(t.whole.sum()),
      CASE(t.mask.sum(at::IntArrayRef{1})),
      CASE(t.cube.sum(at::IntArrayRef{0, -1}, true)),
      CASE(t.a.mean()),
      CASE(t.cube.mean({1, 2})),
      CASE(t.cube.amax({1})),
      CASE(t.cube.amin({0, 2}, true)),
      CASE(t.a.max()),
      CASE(t.whole.min()),
      CASE(t.a.max(1)),
      CASE(t.whole.min(0, true)),
      CASE(t.cube.argmax(1)),
      CASE(t.cube.argmin(-1, true)),
      CASE(t.mask.all()),
      CASE(t.mask.all(1)),
      CASE(t.whole.any()),
      CASE(t.mask.any(0, true)),
      CASE(at::linalg_vector_norm(t.a, 2, at::OptionalIntArrayRef({1}))),
      CASE(at::linalg_vector_norm(t.a, INFINITY)),
      CASE(at::linalg_vector_norm(t.a, 1)),
      CASE(t.a.norm(2)),
      CASE(t.a.norm(2, {0}, true)),
      CASE(at::logsumexp(t.cube, {1})),
      CASE(t.a.std(at::IntArrayRef{1}, c10::optional<int64_t>(1), false)),
      CASE(t.a.var(at::IntArrayRef{0}, c10::optional<int64_t>(0), true)),
      CASE(at::var_mean(t.a, at::IntArrayRef{1}, c10::optional<int64_t>(1), true)),
      CASE(at::std_mean(t.a, at::IntArrayRef{1}, c10::optional<int64_t>(1), true)),
  };
  return all;
}

// By a list of dimensions, where libtorch has that.
Tensor squeezed(const Tensor& x, int64_t dim) {
#if TORCH_VERSION_MAJOR >= 2
  return x.squeeze(at::IntArrayRef{dim});
#else
  return x.squeeze(dim);
#endif
}

const std::vector<Case>& shape_cases() {
  static const std::vector<Case> all = {
      CASE(t.cube.view({6, 4}) * 2),
      CASE(t.cube.reshape({6, 4}) * 2),
      CASE(t.a.t() * 2),
      CASE(t.cube.transpose(0, 2) + 1),
      CASE(t.cube.permute({2, 0, 1}) + 1),
      CASE(t.row.expand({2, 3, 4}) + 1),
      CASE(t.a.unsqueeze(1).squeeze(1) + 1),
      CASE(t.a.unsqueeze(1).squeeze() + 1),
      CASE(squeezed(t.a.unsqueeze(1), 1) + 1),
      CASE(at::alias(t.a) + 1),
      CASE(t.a.detach() + 1),
      CASE(t.a.transpose(0, 1).reshape({12}) + 1),
      CASE(at::_unsafe_view(t.a, {12}) + 1),
      CASE(t.wide.slice(1, 1, 6, 2) + 1),
      CASE(t.wide.slice(0, -3, 100) + 1),
      CASE(t.cube.select(1, -1) + 1),
      CASE(at::slice_backward(t.a, {3, 9}, 1, 0, 8, 2)),
      CASE(at::slice_backward(t.a, {7, 4}, 0, 2, 5, 1)),
      CASE(at::select_backward(t.a, {3, 2, 4}, 1, -1)),
      CASE(at::slice_scatter(t.rows, t.a, 0, 2, 5)),
      CASE(at::select_scatter(t.cube, t.a, 0, 1)),
      CASE(t.wide.split(4, 1)),
      CASE(t.wide.split_with_sizes({1, 5}, 1)),
      CASE(t.cube.unbind(1)),
      CASE(at::cat({t.a, t.b, t.rows}, 0)),
      CASE(at::stack({t.a, t.b}, -1)),
      CASE(t.a.repeat({2, 1, 3})),
      CASE(at::flip(t.cube, {0, 2})),
      CASE(at::tril(t.cube, 1)),
      CASE(at::triu(t.wide, -1)),
  };
  return all;
}

const std::vector<Case>& product_cases() {
  static const std::vector<Case> all = {
      CASE(at::mm(t.a, t.wide)),
      CASE(at::bmm(t.cube, t.cube2)),
      CASE(at::mv(t.a, t.row)),
      CASE(at::dot(t.row, t.row)),
      CASE(at::addmm(t.wide.select(0, 0), t.a, t.wide)),
      CASE(at::addmm(t.scalar, t.a, t.wide, 0.5, 2)),
      CASE(at::addmv(t.a.select(1, 0), t.a, t.row)),
  };
  return all;
}

// A convolution of two groups, with the given stride, padding and dilation.
Tensor convolution(const Arguments& t, bool transposed, int64_t stride, int64_t pad,
                   int64_t dilation, int64_t more) {
  const Tensor x = t.rows.view({1, 4, 7}), bias = t.a.view({12}).slice(0, 0, transposed ? 6 : 2);
  const Tensor weight = transposed ? t.a.view({4, 3, 1}).repeat({1, 1, 2}) : t.a.view({2, 2, 3});
  return at::convolution(x, weight, bias, stride, pad, dilation, transposed, more, 2);
}

Tensors convolution_gradients(const Arguments& t, bool transposed, int64_t stride, int64_t pad,
                              int64_t dilation, int64_t more) {
  const Tensor x = t.rows.view({1, 4, 7});
  const Tensor weight = transposed ? t.a.view({4, 3, 1}).repeat({1, 1, 2}) : t.a.view({2, 2, 3});
  const Tensor gradient = convolution(t, transposed, stride, pad, dilation, more);
  const std::vector<int64_t> bias{transposed ? 6 : 2};
  return listed(at::convolution_backward(gradient, x, weight, at::IntArrayRef(bias), stride, pad,
                                         dilation, transposed, more, 2, {true, true, true}));
}

// In two dimensions of other numbers each.
Tensors convolution_of_planes(const Arguments& t) {
  const Tensor x = t.cube.view({1, 2, 3, 4}), weight = t.cube2.view({4, 2, 1, 5}).slice(3, 0, 3);
  const Tensor y = at::convolution(x, weight, {}, {2, 1}, {0, 1}, {1, 2}, false, {0, 0}, 1);
  Tensors out = listed(at::convolution_backward(y * 0.5, x, weight, c10::nullopt, {2, 1}, {0, 1},
                                                {1, 2}, false, {0, 0}, 1, {true, true, false}));
  out.back() = y;
  return out;
}

const std::vector<Case>& convolution_cases() {
  static const std::vector<Case> all = {
      CASE(convolution(t, false, 1, 1, 1, 0)),
      CASE(convolution(t, false, 2, 0, 2, 0)),
      CASE(convolution(t, true, 1, 0, 1, 0)),
      CASE(convolution(t, true, 3, 1, 2, 1)),
      CASE(convolution_gradients(t, false, 1, 1, 1, 0)),
      CASE(convolution_gradients(t, false, 3, 1, 1, 0)),
      CASE(convolution_gradients(t, false, 1, 2, 2, 0)),
      CASE(convolution_gradients(t, true, 1, 0, 1, 0)),
      CASE(convolution_gradients(t, true, 3, 1, 2, 1)),
      CASE(convolution_gradients(t, true, 1, 1, 3, 2)),
      CASE(convolution_of_planes(t)),
  };
  return all;
}

const std::vector<Case>& indexing_cases() {
  static const std::vector<Case> all = {
      CASE(at::embedding(t.rows, t.ids)),
      CASE(at::embedding_dense_backward(t.cube, t.ids, 7, -1, false)),
      CASE(at::embedding_dense_backward(t.cube, t.ids, 7, 2, false)),
      CASE(at::index_select(t.cube, 1, t.ids.select(0, 0).clamp_max(2))),
      CASE(t.rows.index({t.some})),
      CASE(t.rows.t().index({t.ids.slice(1, 0, 0).view({0})})),
      CASE(t.a.slice(0, 0, 0).index({t.ids.slice(1, 0, 0).view({0})})),
      CASE(at::gather(t.a.slice(0, 0, 0), 1, t.places.slice(0, 0, 0))),
      CASE(at::gather(t.a, 0, t.places)),
      CASE(at::gather(t.wide, 1, t.places)),
      CASE(at::scatter(t.a, 1, t.places, t.b.slice(1, 0, 4).zero_())),
      CASE(at::scatter(t.wide, 0, t.places, 2.5)),
      CASE(at::scatter_add(t.wide, 1, t.places, t.a)),
      CASE(at::index_add(t.rows, 0, t.ids.view({6}), t.wide.t())),
      CASE(at::index_add(t.rows, 0, t.ids.view({6}), t.wide.t(), 0.5)),
  };
  return all;
}

const std::vector<Case>& normalization_cases() {
  static const std::vector<Case> all = {
      CASE(at::_softmax(t.cube, 1, false)),
      CASE(at::_log_softmax(t.cube, -1, false)),
      CASE(at::_softmax_backward_data(t.a, t.share, 1, t.dtype)),
      CASE(at::_log_softmax_backward_data(t.a, -t.positive, 1, t.dtype)),
      CASE(at::native_layer_norm(t.cube, {3, 4}, t.a, t.b, 1e-5)),
      CASE(at::native_layer_norm(t.cube, {4}, {}, {}, 1e-3)),
      CASE(std::get<0>(at::nll_loss_forward(t.a, t.classes, {}, 1, -100))),
      CASE(std::get<0>(at::nll_loss_forward(t.a, t.classes.clamp_min(0), {}, 2, 3))),
      CASE(std::get<0>(at::nll_loss_forward(t.a, t.classes, {}, 0, -100))),
      CASE(at::nll_loss_backward(t.scalar, t.a, t.classes, {}, 1, -100,
                                 t.positive.sum().to(t.dtype))),
      CASE(at::nll_loss_backward(t.a.select(1, 0), t.a, t.classes, {}, 0, -100, t.scalar)),
  };
  return all;
}

// In 16 bits libtorch has none of them on the CPU, or rounds on the way.
const std::vector<Case>& wide_cases() {
  static const std::vector<Case> all = {
    CASE(at::baddbmm(t.cube2.slice(1, 0, 3), t.cube, t.cube2, 0.5, 3)),
    CASE(at::mse_loss(t.a, t.b)),
    CASE(at::mse_loss(t.a, t.b, 0)),
    CASE(at::mse_loss_backward(t.scalar, t.a, t.b, 1)),
    CASE(at::mish_backward(t.a, t.b * 4)),
#if TORCH_VERSION_MAJOR < 2
    CASE(at::prelu_backward(t.a, t.b, t.row)),
    CASE(at::prelu_backward(t.a, t.b, t.row.slice(0, 1, 2))),
#else
    CASE(at::_prelu_kernel_backward(t.a, t.b, t.row.view({1, -1}))),
#endif
  };
  return all;
}

Tensors layer_norm_gradients(const Arguments& t) {
  const auto made = at::native_layer_norm(t.cube, {4}, t.row, {}, 1e-5);
  return listed(at::native_layer_norm_backward(t.cube * 0.5, t.cube, {4}, std::get<1>(made),
                                               std::get<2>(made), t.row, t.row,
                                               {true, true, true}));
}

// Running statistics, too, which it writes to.
Tensors batch_norm(const Arguments& t, bool training, bool weighted) {
  const Tensor weight = weighted ? t.a.select(1, 0) : Tensor(),
               bias = weighted ? t.a.select(1, 1) : Tensor();
  const Tensor mean = t.b.select(1, 1).clone(), variance = t.positive.select(1, 0).clone();
  Tensors out =
      listed(at::native_batch_norm(t.cube, weight, bias, mean, variance, training, 0.3, 1e-3));
  out.push_back(mean);
  out.push_back(variance);
  return out;
}

Tensors batch_norm_gradients(const Arguments& t, bool training, bool weighted) {
  const Tensors made = batch_norm(t, training, weighted);
  const Tensor weight = weighted ? t.a.select(1, 0) : Tensor();
  Tensors out = listed(at::native_batch_norm_backward(t.cube * 0.5 + t.a, t.cube, weight, made[3],
                                                      made[4], made[1], made[2], training, 1e-3,
                                                      {true, weighted, weighted}));
  if (!weighted) out.resize(1);
  return out;
}

const std::vector<Case>& batch_norm_cases() {
  static const std::vector<Case> all = {
      CASE(batch_norm(t, true, true)),
      CASE(batch_norm(t, true, false)),
      CASE(batch_norm(t, false, true)),
      CASE(batch_norm_gradients(t, true, true)),
      CASE(batch_norm_gradients(t, true, false)),
      CASE(batch_norm_gradients(t, false, true)),
  };
  return all;
}

std::vector<Case> all_cases(at::ScalarType dtype) {
  std::vector<Case> all{{"native_layer_norm_backward", layer_norm_gradients}};
  for (const auto* family : {&elementwise_cases(), &activation_cases(), &creation_cases(),
                             &reduction_cases(), &shape_cases(), &product_cases(),
                             &indexing_cases(), &normalization_cases(), &batch_norm_cases()}) {
    all.insert(all.end(), family->begin(), family->end());
  }
  if (dtype != at::kFloat) return all;
  for (const auto* family : {&wide_cases(), &gate_cases(), &convolution_cases()}) {
    all.insert(all.end(), family->begin(), family->end());
  }
  return all;
}

// Names of the operators that a module leaves to the host.
std::multiset<std::string> left_to_host(const RecordedGraph& graph) {
  std::multiset<std::string> out;
  for (const int node : emit_stablehlo(graph).host_nodes) {
    out.insert(graph.nodes[static_cast<size_t>(node)]->call->op->name);
  }
  return out;
}

void check_cases(at::ScalarType dtype, double rtol, double atol) {
  const std::vector<Case> cases = all_cases(dtype);
  const Arguments host(at::kCPU, dtype);
  const Arguments there(to_device(NXD_DEVICE_XLA), dtype);
  std::vector<Tensors> got;
  for (const Case& c : cases) got.push_back(c.run(there));
  Recording::current()->mark_step(true);
  const std::multiset<std::string> left = left_to_host(Recording::current()->step_graph());
  for (const std::string& name : left) std::printf("%s has no lowering\n", name.c_str());
  bool all_equal = left.empty();
  for (size_t i = 0; i < cases.size(); ++i) {
    const Tensors want = cases[i].run(host);
    bool equal = want.size() == got[i].size();
    for (size_t k = 0; equal && k < want.size(); ++k) {
      const Tensor found = got[i][k].to(at::kCPU);
      equal = found.sizes() == want[k].sizes() && found.scalar_type() == want[k].scalar_type() &&
              at::allclose(found.to(at::kDouble), want[k].to(at::kDouble), rtol, atol, true);
    }
    if (!equal) std::printf("%s differs\n", cases[i].text);
    all_equal = all_equal && equal;
  }
  assert_true(all_equal);
}

void test_operators_in_f32(void**) { check_cases(at::kFloat, 1e-5, 1e-6); }

// ATen rounds some sums on their way; one unit of 8 bits is 2^-8.
void test_operators_in_bf16(void**) { check_cases(at::kBFloat16, 0.02, 0.02); }

// Versions of libtorch have a few operators of their own.
bool exists(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchema({name.substr(0, dot), overload}).has_value();
}

// A lowering that nothing above asks for would be untried.
void test_each_lowering_is_tried(void**) {
  std::set<std::string> recorded;
  const Arguments there(to_device(NXD_DEVICE_XLA), at::kFloat);
  std::vector<Tensors> kept;
  for (const Case& c : all_cases(at::kFloat)) kept.push_back(c.run(there));
  Recording::current()->mark_step(true);
  for (const auto& node : Recording::current()->step_graph().nodes) {
    recorded.insert(node->call->op->name);
  }
  bool all_tried = true;
  for (const Lowerings* family :
       {&elementwise_lowerings(), &activation_lowerings(), &gate_lowerings(), &creation_lowerings(),
        &reduction_lowerings(), &shape_lowerings(), &product_lowerings(), &convolution_lowerings(),
        &indexing_lowerings(), &normalization_lowerings()}) {
    for (const Lowering& lowering : *family) {
      const std::string name(lowering.name);
      if (recorded.count(name) != 0 || !exists(name)) continue;
#if TORCH_VERSION_MAJOR < 2
      // Detached tensors are views by identity there, and a tensor copied over is another value.
      if (name == "aten::detach_copy" || name == "aten::copy") continue;
#else
      if (name == "aten::prelu") continue;  // made of another operator there
#endif
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR <= 206
      // Made of other operators there, each of which has a lowering.
      if (name == "aten::silu_backward" || name == "aten::mish_backward") continue;
#endif
      std::printf("%s was not recorded\n", name.c_str());
      all_tried = false;
    }
  }
  assert_true(all_tried);
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_operators_in_f32),
      cmocka_unit_test(test_operators_in_bf16),
      cmocka_unit_test(test_each_lowering_is_tried),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
