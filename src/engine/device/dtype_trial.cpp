#include "engine/device/dtype_trial.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/device/operator_arguments.h"
#include "engine/device/recorded_operator.h"
#include "engine/device/replay_plan.h"
#include "engine/device/silent_warnings.h"
#include "engine/device/trial_arguments.h"
#include "engine/own_products.h"
#include "engine/torch_compat.h"

namespace nxd {
namespace {

using torch::jit::Stack;

// Integers that say where or which, not how large a tensor is.
bool is_place(const std::string& argument) {
  static const std::unordered_set<std::string_view> names = {
      "correction", "decimals",    "diagonal",  "dilation",         "dim",
      "dim0",       "dim1",        "dims",      "divisor_override", "ignore_index",
      "n",          "padding_idx", "reduction",
  };
  return names.count(argument) != 0;
}

// An integer that says how large a tensor or a window is, or how far apart: the one that goes with
// tensors of single elements. Nothing for others.
std::optional<int64_t> least_size(const std::string& argument) {
  static const std::unordered_map<std::string_view, int64_t> sizes = {
      {"C", 1},           {"HxW", 1},
      {"N", 1},           {"bias_sizes", 1},
      {"group", 1},       {"groups", 1},
      {"input_size", 1},  {"k", 1},
      {"kernel_size", 1}, {"normalized_shape", 1},
      {"num_classes", 1}, {"num_weights", 1},
      {"offset", 0},      {"output_padding", 0},
      {"output_size", 1}, {"pad", 0},
      {"padding", 0},     {"repeats", 1},
      {"shifts", 0},      {"stride", 1},
  };
  const auto found = sizes.find(argument);
  return found == sizes.end() ? std::nullopt : std::optional<int64_t>(found->second);
}

void use_least_sizes(const c10::FunctionSchema& schema, Stack& stack) {
  for (size_t i = 0; i < stack.size(); ++i) {
    const std::optional<int64_t> least = least_size(schema.arguments()[i].name());
    if (least && stack[i].isInt()) stack[i] = *least;
    if (least && stack[i].isIntList()) {
      stack[i] = c10::IValue(std::vector<int64_t>(stack[i].toIntVector().size(), *least));
    }
  }
}

// Tensors of single elements fit one another then as the given ones do.
bool has_shapes_of_tensors(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    c10::TypePtr type = argument.real_type();
    if (const auto* optional = type->castRaw<c10::OptionalType>())
      type = optional->getElementType();
    if (const auto* list = type->castRaw<c10::ListType>()) type = list->getElementType();
    if (const auto* optional = type->castRaw<c10::OptionalType>())
      type = optional->getElementType();
    switch (type->kind()) {
      case c10::TypeKind::TensorType:
      case c10::TypeKind::NumberType:
      case c10::TypeKind::FloatType:
      case c10::TypeKind::BoolType:
      case c10::TypeKind::StringType:
      case c10::TypeKind::ScalarTypeType: break;
      default:
        if (!compat::is_int(type->kind())) return false;
        if (!is_place(argument.name()) && !least_size(argument.name())) return false;
    }
  }
  return true;
}

bool says(const c10::Error& error, std::string_view part) {
  return std::string_view(error.what_without_backtrace()).find(part) != std::string_view::npos;
}

// An error that the dtypes of the arguments make, or the numbers of their dimensions: those are the
// given ones'. Errors of sizes and of values are not those that the call would make.
bool is_of_dtypes(const c10::Error& error) {
  static constexpr std::string_view kSigns[] = {
      "not implemented for '",
      "Expected a floating point",
      "can't be cast",
      "non-boolean output",
      "should be the same",
      "bool tensor",
      "inputs not supported",
      "unsigned type",
      "dtype",
      "scalar type",
      "boolean tensor",
      "long tensor",
      "input type",
      "1D tensors expected",
      "-dimensional tensor",
      "supposed to be a vector",
      "vector/scalar",
      "Dimension out of range",
  };
  return std::any_of(std::begin(kSigns), std::end(kSigns),
                     [&](std::string_view sign) { return says(error, sign); });
}

bool is_of_short_floats(const c10::Error& error) {
  return says(error, "for 'Half'") || says(error, "for 'BFloat16'");
}

}  // namespace

void check_dtypes(const c10::OperatorHandle& op, const Stack& arguments) {
  if (recorded_operator(op).is_effect) return;
  bool takes_tensors = false;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    takes_tensors = takes_tensors || tensor.defined();
  });
  if (!takes_tensors || !has_shapes_of_tensors(op.schema())) return;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  const OwnProducts own_products;
  const SilentWarnings silent;
  Stack stack = trial_arguments(op.schema(), arguments, 0, TrialSizes::kLeast);
  use_least_sizes(op.schema(), stack);
  try {
    call_holding_arguments(op, stack);
  } catch (const c10::Error& error) {
    if (!is_of_dtypes(error)) return;
    if (!is_of_short_floats(error) || !has_graph_compiler()) throw;
  } catch (const std::exception& error) {
    // A number that the dtype does not hold is the call's own. Zeros may be no valid values.
    if (std::string_view(error.what()).find("without overflow") != std::string_view::npos) throw;
  }
}

}  // namespace nxd
