#include "engine/device/kernel_call.h"

#include <ATen/ATen.h>

#include "core/base/error.h"

namespace nxd {

bool records_kernels() { return Recording::current()->records_kernels(); }

void check_on_host(const char* kernel, const std::vector<at::Tensor>& inputs) {
  for (const at::Tensor& input : inputs) {
    check_argument(!input.defined() || input.is_cpu(), kernel,
                   ": expected all tensors on device cpu, got one of shape ",
                   input.defined() ? input.sizes() : at::IntArrayRef(), " on ",
                   input.defined() ? input.device().str() : std::string());
  }
}

at::Tensor kernel_result(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype).device(at::kMeta));
}

}  // namespace nxd
