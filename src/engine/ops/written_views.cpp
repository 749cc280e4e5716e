#include "engine/ops/written_views.h"

#include <ATen/ATen.h>

#include <string>
#include <string_view>
#include <unordered_set>

#include "engine/device/device_tensor.h"
#include "engine/device/operator_arguments.h"
#include "engine/device/recorder.h"
#include "engine/device/view_history.h"

namespace nxd {
namespace {

// Views whose history libtorch gives up are rejected here as they would be by the operator, which
// lets them pass too where nothing is recorded.
void renew_histories(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    if (!alias || !alias->isWrite()) continue;
    const c10::IValue& argument = arguments[i];
    if (argument.isTensor() && argument.toTensor().defined()) argument.toTensor().grad_fn();
    if (!argument.isTensorList()) continue;
    for (const at::Tensor& tensor : argument.toTensorVector()) tensor.grad_fn();
  }
}

// Integers have no gradient, and libtorch fails by an assertion of its own where a write in place
// gives them a history. It rejects a write to an out.
bool writes_integers_alone(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments) {
  if (schema.name().back() != '_') return false;
  bool writes_floats = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    if (!alias || !alias->isWrite()) continue;
    for_each_tensor({arguments[i]}, [&](const at::Tensor& tensor) {
      writes_floats = writes_floats || !tensor.defined() ||
                      !at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
    });
  }
  return !writes_floats;
}

bool saves_its_result(const std::string& name) {
  static const std::unordered_set<std::string_view> names = {
      "aten::celu_",       "aten::cumprod_",  "aten::elu_",   "aten::exp2_",       "aten::exp_",
      "aten::expm1_",      "aten::hardtanh_", "aten::pow_",   "aten::reciprocal_", "aten::relu6_",
      "aten::leaky_relu_", "aten::relu_",     "aten::rsqrt_", "aten::selu_",       "aten::sgn_",
      "aten::sigmoid_",    "aten::sqrt_",     "aten::tan_",   "aten::tanh_",
  };
  return names.count(name) != 0;
}

c10::OperatorHandle without_writes(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const bool is_power = name.name == "aten::pow_";
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      name.name.substr(0, name.name.size() - 1).c_str(),
      ((is_power ? "Tensor_" : "") + name.overload_name).c_str());
}

}  // namespace

void run_on_views(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (at::GradMode::is_enabled()) for_each_tensor(stack, renew_history);
  if (!op.schema().is_mutable()) return op.callBoxed(&stack);
  const RecordedWrite write(op, stack);
  if (!at::GradMode::is_enabled()) return op.callBoxed(&stack);
  if (writes_integers_alone(op.schema(), stack)) {
    const at::NoGradGuard no_grad;
    return op.callBoxed(&stack);
  }
  renew_histories(op.schema(), stack);
  if (!saves_its_result(op.operator_name().name)) return op.callBoxed(&stack);
  const at::Tensor written = stack[0].toTensor();
  if (!is_recorded(written) || !written.is_view()) return op.callBoxed(&stack);
  // The operator that writes nothing may save its argument for the gradient.
  stack[0] = written.clone();
  without_writes(op).callBoxed(&stack);
  written.copy_(stack[0].toTensor());
  stack[0] = written;
}

}  // namespace nxd
