#include "engine/device/trial_arguments.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "engine/device/call_signature.h"
#include "engine/device/operator_arguments.h"

namespace nxd {

namespace {

// Views of one element too, such as an expanded tensor, are views here.
at::Tensor filled(const at::Tensor& like, int number, const at::TensorOptions& options) {
  int64_t elements = like.numel() == 0 ? 0 : 1;
  for (int64_t i = 0; i < like.dim() && elements > 0; ++i) {
    elements += (like.size(i) - 1) * like.stride(i);
  }
  return at::full({elements}, number, options).as_strided(like.sizes(), like.strides());
}

}  // namespace

torch::jit::Stack trial_arguments(const torch::jit::Stack& meta, int number, TrialSizes sizes) {
  torch::jit::Stack stack = meta;
  replace_tensors(stack, [number, sizes](const at::Tensor& like) {
    if (!like.defined()) return like;
    const at::TensorOptions options = like.options().device(at::kCPU).requires_grad(false);
    at::Tensor data;
    if (sizes == TrialSizes::kGiven) {
      data = filled(like, number, options);
    } else {
      std::vector<int64_t> least = like.sizes().vec();
      for (int64_t& size : least) size = std::min<int64_t>(size, 1);
      data = at::full(least, number, options);
    }
    if (is_wrapped_number(like)) data.unsafeGetTensorImpl()->set_wrapped_number(true);
    return data;
  });
  for (c10::IValue& argument : stack) {
    if (argument.isDevice()) argument = at::Device(at::kCPU);
  }
  return stack;
}

}  // namespace nxd
