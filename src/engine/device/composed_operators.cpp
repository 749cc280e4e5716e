#include "engine/device/composed_operators.h"

#include <ATen/ATen.h>
#include <ATen/FunctionalTensorWrapper.h>

#include <algorithm>
#include <cstdint>

#include "core/base/error.h"
#include "engine/device/recorded_operator.h"
#include "engine/device/silent_warnings.h"
#include "engine/mended_kernels.h"
#include "engine/operator_library.h"
#include "engine/torch_compat.h"

namespace nxd {
namespace {

// As many elements of a matrix as its diagonal has are each columns + 1 behind the last in C order.
// wrap: goes on over the rows below.
at::Tensor diagonal_of(const at::Tensor& self, bool wrap) {
  if (self.dim() == 2 && wrap) {
    return self.reshape({-1}).slice(0, 0, INT64_MAX, self.size(1) + 1);
  }
  at::Tensor diagonal = self.diagonal(0, 0, 1);
  while (diagonal.dim() > 1) diagonal = diagonal.diagonal(0, 0, 1);
  return diagonal;
}

at::Tensor& fill_diagonal(at::Tensor& self, const at::Scalar& value, bool wrap) {
  check_argument(self.dim() >= 2,
                 "fill_diagonal_: self: expected at least 2 dimensions, got shape ", self.sizes());
  const auto is_first = [&](int64_t size) { return size == self.size(0); };
  check_argument(self.dim() == 2 || std::all_of(self.sizes().begin(), self.sizes().end(), is_first),
                 "fill_diagonal_: self: expected dimensions of one size, got shape ", self.sizes());
  diagonal_of(self, wrap).fill_(value);
  return self;
}

at::Tensor& multiply_by_power_of_two(at::Tensor& self, const at::Tensor& exponent) {
  return self.mul_(at::pow(2.0, exponent));
}

at::Tensor shuffled_channels(const at::Tensor& self, compat::Size groups) {
  const int64_t count = compat::sizes_of(compat::Sizes(groups))[0];
  check_channel_groups(self, count);
  const int64_t rows = self.size(0), channels = self.size(1);
  const int64_t pixels = self.numel() / std::max<int64_t>(rows * channels, 1);
  const at::Tensor grouped = self.reshape({rows, count, channels / count, pixels});
  return grouped.transpose(1, 2).clone().reshape(self.sizes());
}

// Below autograd, which has seen polygamma_ itself.
at::Tensor& polygamma(at::Tensor& self, int64_t n) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  return self.copy_(at::polygamma(n, self));
}

// The tensor itself, as on the CPU. Another library's that is none of a function's becomes one.
at::Tensor lift(const at::Tensor& self) {
  namespace functional = at::functionalization::impl;
  if (functional::isFunctionalTensor(self)) return self;
  const at::AutoDispatchSkipFunctionalize plain;
  return functional::to_functional_tensor(at::lift(self));
}

// libtorch's kernel for the CPU calls the operator of each tensor.
void write_each(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

// Writes to lists of tensors, which libtorch 1.13 tries without data first, and has no kernel for.
void compose_writes_to_lists(torch::Library& library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::_foreach_", 0) != 0 || name.name.back() != '_') continue;
    const auto op = dispatcher.findSchema(name);
    using Key = c10::DispatchKey;
    if (!op || !op->hasKernelForDispatchKey(Key::CPU)) continue;
    if (op->hasKernelForDispatchKey(Key::Meta)) continue;
    library.impl(qualified_name(*op).substr(6).c_str(),
                 torch::CppFunction::makeFromBoxedFunction<&write_each>());
  }
}

}  // namespace

void add_composed_operators() {
  using Key = c10::DispatchKey;
  static OperatorLibrary of_autograd, of_functionalization;
  const SilentWarnings silent;
  torch::Library& composed = of_autograd.open(Key::AutogradXLA);
  composed.impl("fill_diagonal_", TORCH_FN(fill_diagonal));
  composed.impl("native_channel_shuffle", TORCH_FN(shuffled_channels));
  composed.impl("ldexp_", TORCH_FN(multiply_by_power_of_two));
  torch::Library& functional = of_functionalization.open(Key::Functionalize);
  functional.impl("polygamma_", TORCH_FN(polygamma));
  functional.impl("lift", TORCH_FN(lift));
  functional.impl("lift_fresh", TORCH_FN(lift));
  compose_writes_to_lists(functional);
}

}  // namespace nxd
