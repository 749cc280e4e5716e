#include "engine/device/recorded_operator.h"

#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "core/base/hash.h"
#include "core/base/thread_own.h"

namespace nxd {
namespace {

constexpr std::string_view kCopySuffix = "_copy";

// Copies of views whose view takes the same arguments. Others, such as those that see the bytes as
// another dtype, stay copies.
const std::unordered_set<std::string_view>& copies_of_views() {
  static const std::unordered_set<std::string_view> names = {
      "aten::_unsafe_view",       "aten::alias_copy",
      "aten::detach_copy",        "aten::diagonal_copy",
      "aten::expand_copy",        "aten::permute_copy",
      "aten::select_copy.int",    "aten::slice_copy.Tensor",
      "aten::split_copy.Tensor",  "aten::split_with_sizes_copy",
      "aten::squeeze_copy",       "aten::squeeze_copy.dim",
      "aten::squeeze_copy.dims",  "aten::t_copy",
      "aten::transpose_copy.int", "aten::unbind_copy.int",
      "aten::unfold_copy",        "aten::unsqueeze_copy",
      "aten::view_copy",
  };
  return names;
}

// Views that see their base's elements in the base's order.
const std::unordered_set<std::string_view>& views_in_order() {
  static const std::unordered_set<std::string_view> names = {
      "aten::_unsafe_view",   "aten::alias_copy",       "aten::detach_copy",
      "aten::squeeze_copy",   "aten::squeeze_copy.dim", "aten::squeeze_copy.dims",
      "aten::unsqueeze_copy", "aten::view_copy",
  };
  return names;
}

// Operators whose callers in libtorch rely on dense memory: they give what contiguous() gives,
// which is a copy on the CPU and none here, or ask is_contiguous() for the formula of the backward
// pass; and operators whose results have other sizes where an argument has other strides.
const std::unordered_set<std::string_view>& operators_on_dense_memory() {
  static const std::unordered_set<std::string_view> names = {
      "aten::_embedding_bag",
      "aten::_embedding_bag_forward_only",
      "aten::_linalg_det",
      "aten::_linalg_slogdet",
      "aten::_linalg_solve_ex",
      "aten::_pdist_backward",
      "aten::_pdist_forward",
      "aten::_slow_conv2d_backward",
      "aten::_slow_conv2d_forward",
      "aten::_weight_norm_interface",
      "aten::_weight_norm_interface_backward",
      "aten::native_group_norm",
      "aten::native_group_norm_backward",
      "aten::nll_loss2d_backward",
      "aten::nll_loss2d_forward",
      "aten::view_as_complex_copy",
  };
  return names;
}

// Draw random bits without an argument that would tell.
const std::unordered_set<std::string_view>& random_operators() {
  static const std::unordered_set<std::string_view> names = {
      "aten::_fused_dropout",
      "aten::dropout",
      "aten::feature_dropout",
      "aten::multinomial",
      "aten::native_dropout",
      "aten::poisson",
      "aten::rand",
      "aten::rand_like",
      "aten::randint",
      "aten::randint_like",
      "aten::randn",
      "aten::randn_like",
      "aten::randperm",
      "aten::rrelu_with_noise",
  };
  return names;
}

bool is_tensors(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  const auto* list = type->castRaw<c10::ListType>();
  return list && list->getElementType()->kind() == c10::TypeKind::TensorType;
}

bool is_number(const c10::TypePtr& type) {
  const auto* optional = type->castRaw<c10::OptionalType>();
  return (optional ? optional->getElementType() : type)->kind() == c10::TypeKind::NumberType;
}

// Scalars that choose among formulas. They hardly change from step to step, and are part of a
// graph's hash.
bool chooses_a_formula(const std::string& argument) {
  return argument == "exponent" || argument == "p" || argument == "ord" || argument == "correction";
}

std::string why_not(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.alias_info() && argument.alias_info()->isWrite()) return "writes to an argument";
  }
  for (const c10::Argument& result : schema.returns()) {
    if (!is_tensors(result.type())) return "gives something other than tensors";
  }
  return schema.returns().empty() ? "gives nothing" : "";
}

c10::optional<c10::OperatorHandle> view_of(const c10::OperatorName& name) {
  auto& dispatcher = c10::Dispatcher::singleton();
  // A reshape is a view where there can be one. Strides of the replay are not those of the record.
  if (name.name == "aten::view_copy" || name.name == "aten::_unsafe_view")
    return dispatcher.findSchema({"aten::reshape", ""});
  const std::string viewed = name.name.substr(0, name.name.size() - kCopySuffix.size());
  return dispatcher.findSchema({viewed, name.overload_name});
}

RecordedOperator described(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  RecordedOperator out;
  out.name = qualified_name(op);
  out.hash = Hash().add(out.name).value();
  out.replay = op;
  const std::string_view plain = op.operator_name().name;
  if (copies_of_views().count(out.name) != 0) {
    if (const auto view = view_of(op.operator_name())) {
      out.replay = *view;
      out.is_view = true;
      out.keeps_order = views_in_order().count(out.name) != 0;
    }
  }
  out.is_effect = random_operators().count(plain) != 0;
  for (const c10::Argument& argument : schema.arguments()) {
    out.is_scalar.push_back(is_number(argument.type()) && !chooses_a_formula(argument.name()));
    out.defaults.push_back(argument.default_value().value_or(c10::IValue()));
    out.is_effect = out.is_effect || argument.name() == "generator";
  }
  out.strides_over_memory = plain.find("as_strided") != std::string_view::npos;
  out.reinterprets_memory = out.strides_over_memory || plain == "aten::_reshape_alias_copy" ||
                            out.name == "aten::view_copy.dtype";
  out.needs_dense_inputs = out.reinterprets_memory || operators_on_dense_memory().count(plain) != 0;
  out.why_not_recorded = why_not(schema);
  return out;
}

}  // namespace

bool RecordedOperator::is_default(size_t argument, const c10::IValue& value) const {
  const c10::IValue& given = defaults.at(argument);
  if (given.isNone() || value.isNone()) return given.isNone() && value.isNone();
  if (!given.isScalar() || !value.isScalar()) return false;
  return given.toScalar().toDouble() == value.toScalar().toDouble();
}

std::string qualified_name(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

const RecordedOperator& recorded_operator(const c10::OperatorHandle& op) {
  // A schema stays where it is as long as its operator is registered. Each thread looks among its
  // own first, without a lock.
  using Known = std::unordered_map<const c10::FunctionSchema*, const RecordedOperator*>;
  Known& known = ThreadOwn<Known>::get();
  const RecordedOperator*& here = known[&op.schema()];
  if (here) return *here;
  static auto* all = new std::unordered_map<std::string, std::unique_ptr<RecordedOperator>>;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& entry = (*all)[qualified_name(op)];
  if (!entry) entry = std::make_unique<RecordedOperator>(described(op));
  return *(here = entry.get());
}

const RecordedOperator& recorded_function(const char* name, bool is_effect, bool is_alone) {
  using Known = std::unordered_map<const char*, const RecordedOperator*>;
  Known& known = ThreadOwn<Known>::get();
  const RecordedOperator*& here = known[name];
  if (here) return *here;
  static auto* all = new std::unordered_map<std::string, std::unique_ptr<RecordedOperator>>;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& entry = (*all)[name];
  if (!entry) {
    entry = std::make_unique<RecordedOperator>();
    entry->name = name;
    entry->hash = Hash().add(std::string_view(name)).value();
    entry->is_effect = is_effect;
    entry->is_alone = is_alone;
  }
  return *(here = entry.get());
}

}  // namespace nxd
