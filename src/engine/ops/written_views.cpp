#include "engine/ops/written_views.h"

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/base/error.h"
#include "engine/device/device_tensor.h"
#include "engine/device/dtype_trial.h"
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
// gives them a history.
bool writes_integers_alone(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments) {
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

// A tensor on another device that the call writes to; undefined: there is none.
at::Tensor written_elsewhere(const c10::FunctionSchema& schema,
                             const torch::jit::Stack& arguments) {
  at::Tensor found;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    if (!alias || !alias->isWrite()) continue;
    for_each_tensor({arguments[i]}, [&](const at::Tensor& tensor) {
      if (tensor.defined() && !is_recorded(tensor)) found = tensor;
    });
  }
  return found;
}

// The argument whose values an operator in place takes from whatever device.
std::optional<size_t> source_of(const std::string& name) {
  static const std::unordered_map<std::string_view, size_t> places = {
      {"aten::copy_", 1}, {"aten::fill_", 1}, {"aten::index_fill_", 3}, {"aten::masked_fill_", 2}};
  const auto found = places.find(name);
  return found == places.end() ? std::nullopt : std::optional<size_t>(found->second);
}

// libtorch fails by an assertion of its own where a write to a tensor of another device takes one
// of the recorded device.
void bring_to_written(const c10::OperatorHandle& op, torch::jit::Stack& arguments) {
  const at::Tensor written = written_elsewhere(op.schema(), arguments);
  if (!written.defined()) return;
  const std::string& name = op.operator_name().name;
  const std::optional<size_t> source = source_of(name);
  if (source && arguments[*source].isTensor() && is_recorded(arguments[*source].toTensor())) {
    arguments[*source] = arguments[*source].toTensor().to(written.device());
  }
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    check_argument(!is_recorded(tensor), name, ": expected all tensors on device ",
                   written.device().str(), ", got one of shape ", tensor.sizes(), " on ",
                   tensor.device().str());
  });
}

// True if a tensor that a call is given for its result cannot become one of other sizes: a view, or
// one that is another argument, too.
bool keeps_its_sizes(const at::Tensor& out, const torch::jit::Stack& arguments) {
  int uses = 0;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) { uses += tensor.is_same(out); });
  return out.is_view() || uses > 1;
}

// A view on the device that a call is given for its result.
struct GivenResult {
  at::Tensor given{}, made{};  // what the call is given instead, without elements
};

// libtorch rejects results that have a gradient.
std::vector<GivenResult> replace_given_results(const c10::FunctionSchema& schema,
                                               torch::jit::Stack& arguments) {
  std::vector<GivenResult> results;
  const torch::jit::Stack given = arguments;
  for (size_t i = 0; i < given.size(); ++i) {
    if (!schema.arguments()[i].is_out() || !given[i].isTensor()) continue;
    const at::Tensor& out = given[i].toTensor();
    if (!is_recorded(out) || (out.requires_grad() && at::GradMode::is_enabled())) continue;
    if (!keeps_its_sizes(out, given)) continue;
    results.push_back({out, at::empty({0}, out.options().requires_grad(false))});
    arguments[i] = results.back().made;
  }
  return results;
}

// Sums and their like are computed in the dtype of the tensor that is given for the result.
void use_dtype_of_result(const c10::FunctionSchema& schema, torch::jit::Stack& arguments) {
  static const std::unordered_set<std::string_view> names = {
      "aten::cumprod", "aten::cumsum", "aten::mean", "aten::nanmean",
      "aten::nansum",  "aten::prod",   "aten::sum",
  };
  if (names.count(schema.name()) == 0) return;
  const auto dtype = schema.argumentIndexWithName("dtype");
  const auto out = schema.argumentIndexWithName("out");
  if (!dtype || !out || !arguments.at(static_cast<size_t>(*dtype)).isNone()) return;
  const at::ScalarType given = arguments.at(static_cast<size_t>(*out)).toTensor().scalar_type();
  arguments[static_cast<size_t>(*dtype)] = static_cast<int64_t>(given);
}

bool gives_recorded_results(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!schema.arguments()[i].is_out() || !arguments[i].isTensor()) continue;
    if (is_recorded(arguments[i].toTensor())) return true;
  }
  return false;
}

void run_for_given_results(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (!gives_recorded_results(op.schema(), stack)) return call_holding_arguments(op, stack);
  check_dtypes(op, stack);
  use_dtype_of_result(op.schema(), stack);
  const std::vector<GivenResult> results = replace_given_results(op.schema(), stack);
  call_holding_arguments(op, stack);
  for (const GivenResult& result : results) {
    check_argument(result.given.sizes() == result.made.sizes(), op.operator_name().name,
                   ": output with shape ", result.given.sizes(),
                   " doesn't match the broadcast shape ", result.made.sizes());
  }
  for (const GivenResult& result : results) result.given.copy_(result.made);
  replace_tensors(stack, [&](const at::Tensor& tensor) {
    for (const GivenResult& result : results) {
      if (tensor.is_same(result.made)) return result.given;
    }
    return tensor;
  });
}

bool has_in_place_name(const c10::FunctionSchema& schema) { return schema.name().back() == '_'; }

bool saves_its_result(const std::string& name) {
  static const std::unordered_set<std::string_view> names = {
      "aten::celu_",  "aten::copysign_",       "aten::cumprod_",
      "aten::elu_",   "aten::exp2_",           "aten::exp_",
      "aten::expm1_", "aten::float_power_",    "aten::hardtanh_",
      "aten::hypot_", "aten::index_reduce_",   "aten::leaky_relu_",
      "aten::pow_",   "aten::reciprocal_",     "aten::relu6_",
      "aten::relu_",  "aten::rrelu_",          "aten::rrelu_with_noise_",
      "aten::rsqrt_", "aten::scatter_reduce_", "aten::selu_",
      "aten::sgn_",   "aten::sigmoid_",        "aten::sqrt_",
      "aten::tan_",   "aten::tanh_",
  };
  return names.count(name) != 0;
}

c10::OperatorHandle without_writes(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const bool is_power = name.name == "aten::pow_" || name.name == "aten::float_power_";
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      name.name.substr(0, name.name.size() - 1).c_str(),
      ((is_power ? "Tensor_" : "") + name.overload_name).c_str());
}

}  // namespace

void run_on_views(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (at::GradMode::is_enabled()) for_each_tensor(stack, renew_history);
  if (!op.schema().is_mutable()) return op.callBoxed(&stack);
  bring_to_written(op, stack);
  if (!has_in_place_name(op.schema())) {
    if (at::GradMode::is_enabled()) renew_histories(op.schema(), stack);
    return run_for_given_results(op, stack);
  }
  const RecordedWrite write(op, stack);
  if (!at::GradMode::is_enabled()) return op.callBoxed(&stack);
  if (writes_integers_alone(op.schema(), stack)) {
    const at::NoGradGuard no_grad;
    return op.callBoxed(&stack);
  }
  renew_histories(op.schema(), stack);
  if (!saves_its_result(op.operator_name().name)) return op.callBoxed(&stack);
  const at::Tensor written = stack[0].toTensor();
  if (!is_recorded(written) || !reads_a_base(written)) return op.callBoxed(&stack);
  // The operator itself says that it writes to tensors of double precision alone.
  const bool is_wide = at::toRealValueType(written.scalar_type()) == at::kDouble;
  if (op.operator_name().name == "aten::float_power_" && !is_wide) return op.callBoxed(&stack);
  // The operator that writes nothing may save its argument for the gradient.
  stack[0] = written.clone();
  without_writes(op).callBoxed(&stack);
  written.copy_(stack[0].toTensor());
  stack[0] = written;
}

}  // namespace nxd
