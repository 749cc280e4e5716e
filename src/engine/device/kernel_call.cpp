#include "engine/device/kernel_call.h"

#include <ATen/ATen.h>

namespace nxd {

bool records_kernels() { return Recording::current()->records_kernels(); }

at::Tensor kernel_result(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype).device(at::kMeta));
}

}  // namespace nxd
