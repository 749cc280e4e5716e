#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace nxd {

// aten::native_batch_norm on the device. libtorch's writes to the running statistics, which its
// schema does not say: here they become values that the graph gives, as by any write in place.
std::tuple<at::Tensor, at::Tensor, at::Tensor> record_batch_norm(
    const at::Tensor& x, const c10::optional<at::Tensor>& weight,
    const c10::optional<at::Tensor>& bias, const c10::optional<at::Tensor>& running_mean,
    const c10::optional<at::Tensor>& running_variance, bool training, double momentum, double eps);

}  // namespace nxd
