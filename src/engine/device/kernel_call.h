#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <vector>

#include "engine/device/device_tensor.h"
#include "engine/device/recorder.h"

namespace nxd {

// True if this thread records kernels of the library's as they are. A compiler knows plain
// operators alone, and stochastic rounding is of each of them.
bool records_kernels();

// INVALID_ARGUMENT for a tensor that has no memory to give a kernel.
void check_on_host(const char* kernel, const std::vector<at::Tensor>& inputs);

// A kernel's results, on the meta device.
at::Tensor kernel_result(at::IntArrayRef sizes, at::ScalarType dtype);
inline at::Tensor kernel_result_like(const at::Tensor& x) {
  return kernel_result(x.sizes(), x.scalar_type());
}

// Calls a kernel on tensors of the CPU, or records the call as one node where one of them is on the
// recorded device. A kernel is a struct of numbers, and takes all else as tensors, some of which
// may be undefined:
//   static constexpr const char* kName;               "nxd::rms_norm"
//   KernelParameters parameters() const;              its numbers, with names
//   Tensors results(const Tensors& inputs) const;     of kernel_result; inputs have shapes alone
//   Tensors run(const Tensors& inputs) const;         on the CPU; inputs may be strided views
// Not seen by autograd.
template <class Kernel>
std::vector<at::Tensor> call_kernel(const Kernel& kernel, const std::vector<at::Tensor>& inputs) {
  if (std::none_of(inputs.begin(), inputs.end(), is_recorded)) {
    check_on_host(Kernel::kName, inputs);
    return kernel.run(inputs);
  }
  const KernelMaker make{[](const void* self, const std::vector<at::Tensor>& shapes) {
                           return static_cast<const Kernel*>(self)->results(shapes);
                         },
                         [](const void* self) -> ReplayFunction {
                           return [copy = *static_cast<const Kernel*>(self)](
                                      const std::vector<at::Tensor>& in) { return copy.run(in); };
                         }};
  return record_kernel(Kernel::kName, kernel.parameters(), &kernel, make, inputs);
}

}  // namespace nxd
