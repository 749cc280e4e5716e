#include "engine/device/shape_trial.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/device/operator_arguments.h"
#include "engine/device/trial_arguments.h"

namespace nxd {
namespace {

using torch::jit::Stack;

at::Tensor on_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           tensor.options().device(at::kMeta).requires_grad(false));
}

// Nothing if the operator fails.
std::optional<Stack> results_on(const c10::OperatorHandle& op, const Stack& arguments, int number) {
  Stack stack = trial_arguments(op.schema(), arguments, number, TrialSizes::kGiven);
  try {
    call_holding_arguments(op, stack);
    replace_tensors(stack, on_meta);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return stack;
}

bool have_same_shapes(const Stack& a, const Stack& b) {
  std::vector<at::Tensor> of_a, of_b;
  for_each_tensor(a, [&](const at::Tensor& tensor) { of_a.push_back(tensor); });
  for_each_tensor(b, [&](const at::Tensor& tensor) { of_b.push_back(tensor); });
  return std::equal(
      of_a.begin(), of_a.end(), of_b.begin(), of_b.end(),
      [](const at::Tensor& x, const at::Tensor& y) {
        return x.defined() == y.defined() &&
               (!x.defined() || (x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type()));
      });
}

}  // namespace

bool give_shapes_of_trial(const c10::OperatorHandle& op, Stack& stack) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  std::optional<Stack> of_zeros = results_on(op, stack, 0);
  if (!of_zeros) return false;
  // Ones may be no valid indices.
  const std::optional<Stack> of_ones = results_on(op, stack, 1);
  if (of_ones && !have_same_shapes(*of_zeros, *of_ones)) return false;
  stack = std::move(*of_zeros);
  return true;
}

bool lacks_shape_function(const c10::Error& error) {
  if (dynamic_cast<const c10::NotImplementedError*>(&error)) return true;
  const std::string_view message = error.what_without_backtrace();
  for (const char* sign :
       {"INTERNAL ASSERT FAILED", "DispatchStub", "Meta", "data_ptr", "storage"}) {
    if (message.find(sign) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace nxd
