#include "engine/device/trial_arguments.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "engine/device/call_signature.h"
#include "engine/device/operator_arguments.h"

namespace nxd {

torch::jit::Stack trial_arguments(const torch::jit::Stack& meta, int number, TrialSizes sizes) {
  torch::jit::Stack stack = meta;
  replace_tensors(stack, [number, sizes](const at::Tensor& like) {
    if (!like.defined()) return like;
    std::vector<int64_t> least = like.sizes().vec();
    for (int64_t& size : least) size = std::min<int64_t>(size, 1);
    at::Tensor data = at::full(sizes == TrialSizes::kLeast ? at::IntArrayRef(least) : like.sizes(),
                               number, like.options().device(at::kCPU));
    if (is_wrapped_number(like)) data.unsafeGetTensorImpl()->set_wrapped_number(true);
    return data;
  });
  for (c10::IValue& argument : stack) {
    if (argument.isDevice()) argument = at::Device(at::kCPU);
  }
  return stack;
}

}  // namespace nxd
