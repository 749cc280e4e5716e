#include "engine/device/recorded_batch_norm.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "engine/device/device_tensor.h"
#include "engine/device/recorder.h"

namespace nxd {
namespace {

using MaybeTensor = c10::optional<at::Tensor>;

bool is_there(const MaybeTensor& tensor) { return tensor && tensor->defined(); }

torch::jit::Stack recorded(const MaybeTensor& x, const MaybeTensor& weight, const MaybeTensor& bias,
                           const MaybeTensor& running_mean, const MaybeTensor& running_variance,
                           bool training, double momentum, double eps) {
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::native_batch_norm", "");
  torch::jit::Stack stack{x, weight, bias, running_mean, running_variance, training, momentum, eps};
  record_operator(op, &stack);
  return stack;
}

// The tensor's value becomes (1 - momentum) value + momentum now. A graph that fails leaves the old
// one.
void follow(const at::Tensor& running, const at::Tensor& now, double momentum) {
  const at::Tensor next =
      at::add(at::mul(running, 1 - momentum), now.to(running.scalar_type()), momentum);
  const DeviceValuePtr value = value_of(next);
  value->set_previous(device_value(running));
  take_recorded_value(running, value);
}

// Each channel's, with the divisor of a sample.
at::Tensor sample_variance(const at::Tensor& x, at::ScalarType dtype) {
  std::vector<int64_t> dims{0};
  for (int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
  return at::var(x.to(dtype), dims, /*unbiased=*/true);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> record_batch_norm(
    const at::Tensor& x, const MaybeTensor& weight, const MaybeTensor& bias,
    const MaybeTensor& running_mean, const MaybeTensor& running_variance, bool training,
    double momentum, double eps) {
  // Running statistics have no part in the output of a training pass.
  const torch::jit::Stack out =
      training ? recorded(x, weight, bias, c10::nullopt, c10::nullopt, true, 0, eps)
               : recorded(x, weight, bias, running_mean, running_variance, false, momentum, eps);
  const at::Tensor mean = out.at(1).toTensor();
  if (training && is_there(running_mean)) follow(*running_mean, mean, momentum);
  if (training && is_there(running_variance)) {
    follow(*running_variance, sample_variance(x, running_variance->scalar_type()), momentum);
  }
  return {out.at(0).toTensor(), mean, out.at(2).toTensor()};
}

}  // namespace nxd
