#include "engine/device/trial_arguments.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>
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

// Kernels of the CPU take these for places without a look at them. LAPACK counts rows from 1.
int number_of(const std::string& argument, int number) {
  if (argument == "pivots" || argument == "LU_pivots") return 1;
  const bool is_place = argument == "indices" || argument == "index" || argument == "offset2bag";
  return is_place ? 0 : number;
}

at::Tensor trial_of(const at::Tensor& like, int number, TrialSizes sizes) {
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
}

}  // namespace

torch::jit::Stack trial_arguments(const c10::FunctionSchema& schema, const torch::jit::Stack& meta,
                                  int number, TrialSizes sizes) {
  torch::jit::Stack stack;
  for (size_t i = 0; i < meta.size(); ++i) {
    const int here = number_of(schema.arguments()[i].name(), number);
    torch::jit::Stack one{meta[i]};
    replace_tensors(one, [&](const at::Tensor& like) { return trial_of(like, here, sizes); });
    stack.push_back(one[0].isDevice() ? c10::IValue(at::Device(at::kCPU)) : std::move(one[0]));
  }
  return stack;
}

}  // namespace nxd
