#include "engine/ops/op_call.h"

#include <ATen/core/Reduction.h>

#include "core/base/suggestions.h"
#include "engine/device/device_tensor.h"
#include "engine/ops/autocast.h"
#include "engine/ops/written_views.h"
#include "engine/own_products.h"
#include "engine/tensor/dtype_map.h"
#include "engine/torch_compat.h"

namespace nxd {
namespace {

// The type of an argument, taken apart: the kind of a value or of a list's elements.
struct Slot {
  c10::TypeKind kind;
  bool optional = false;
  bool list = false;
  bool optional_elements = false;

  bool is(c10::TypeKind wanted) const { return !list && kind == wanted; }
  bool is_list_of(c10::TypeKind wanted) const { return list && kind == wanted; }
  bool is_int() const { return !list && compat::is_int(kind); }
  bool is_list_of_ints() const { return list && compat::is_int(kind); }
};

Slot slot_of(const c10::Argument& argument) {
  Slot slot{};
  // The real type tells a dtype from the integer that stands for it.
  c10::TypePtr type = argument.real_type();
  if (const auto* optional = type->castRaw<c10::OptionalType>()) {
    slot.optional = true;
    type = optional->getElementType();
  }
  if (const auto* list = type->castRaw<c10::ListType>()) {
    slot.list = true;
    type = list->getElementType();
    if (const auto* optional = type->castRaw<c10::OptionalType>()) {
      slot.optional_elements = true;
      type = optional->getElementType();
    }
  }
  slot.kind = type->kind();
  return slot;
}

template <class T, class Values>
c10::IValue list_of(const Values& values) {
  c10::List<T> list;
  list.reserve(values.size());
  for (const auto& value : values) list.push_back(T(value));
  return c10::IValue(std::move(list));
}

at::Device device_of(const char* name) {
  const at::Device device(name);
  if (device.is_cpu() || device.is_meta()) return device;
  if (device.type() != kRecordedDeviceType) {
    fail(NXD_ERROR_UNSUPPORTED, "device: expected cpu, meta or xla, got ", name);
  }
  check_argument(device.index() <= 0, "device: expected xla or xla:0, got ", name);
  to_device(NXD_DEVICE_XLA);  // chooses its backend
  return device;
}

// Values that libtorch asserts and does not check, as if a caller could not give others.
void check_value(const c10::Argument& argument, const c10::IValue& value) {
  if (argument.name() == "reduction" && value.isInt()) {
    check_argument(value.toInt() >= at::Reduction::None && value.toInt() < at::Reduction::END,
                   "argument reduction: expected 0 (none), 1 (mean) or 2 (sum), got ",
                   value.toInt());
  }
  check_argument(argument.name() != "stable" || !value.isNone(),
                 "argument stable: expected a boolean, got None (NULL)");
}

}  // namespace

OpCall::OpCall(std::string_view name, std::string_view overload)
    : op_(find_operator(name, overload)),
      schema_(op_.schema()),
      values_(schema_.arguments().size()) {}

const char* OpCall::schema() {
  if (schema_text_.empty()) schema_text_ = text(schema_);
  return schema_text_.c_str();
}

size_t OpCall::index_of(std::string_view name) const {
  const auto& arguments = schema_.arguments();
  std::vector<std::string> names;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == name) return i;
    names.push_back(arguments[i].name());
  }
  fail(NXD_ERROR_INVALID_ARGUMENT, "name: no argument ", name, " in ", schema_,
       suggestions(name, names));
}

void OpCall::reject(size_t index, const char* given) const {
  const c10::Argument& argument = schema_.arguments()[index];
  fail(NXD_ERROR_INVALID_ARGUMENT, "argument ", argument.name(), ": expected ",
       argument.real_type()->str(), ", got ", given, "; schema: ", schema_);
}

void OpCall::put_tensor(size_t index, const at::Tensor* tensor) {
  const Slot slot = slot_of(schema_.arguments()[index]);
  if (!tensor) {
    if (!slot.optional) reject(index, "None (NULL)");
    values_[index] = c10::IValue();
    return;
  }
  if (!slot.is(c10::TypeKind::TensorType)) reject(index, "a tensor");
  values_[index] = c10::IValue(*tensor);
}

void OpCall::set_tensor(std::string_view name, const at::Tensor* tensor) {
  put_tensor(index_of(name), tensor);
}

void OpCall::set_tensors(std::string_view name, const std::vector<const at::Tensor*>& tensors) {
  const size_t index = index_of(name);
  const Slot slot = slot_of(schema_.arguments()[index]);
  if (!slot.is_list_of(c10::TypeKind::TensorType)) reject(index, "a list of tensors");
  if (slot.optional_elements) {
    c10::List<c10::optional<at::Tensor>> list;
    for (const at::Tensor* tensor : tensors) {
      list.push_back(tensor ? c10::optional<at::Tensor>(*tensor) : c10::nullopt);
    }
    values_[index] = c10::IValue(std::move(list));
    return;
  }
  c10::List<at::Tensor> list;
  for (size_t i = 0; i < tensors.size(); ++i) {
    check_argument(tensors[i], "tensors[", i, "]: expected a tensor, got NULL");
    list.push_back(*tensors[i]);
  }
  values_[index] = c10::IValue(std::move(list));
}

void OpCall::set_int(std::string_view name, int64_t value) {
  const size_t index = index_of(name);
  const Slot slot = slot_of(schema_.arguments()[index]);
  if (!slot.is_int() && !slot.is(c10::TypeKind::NumberType)) reject(index, "an integer");
  values_[index] = c10::IValue(value);
}

void OpCall::set_double(std::string_view name, double value) {
  const size_t index = index_of(name);
  const Slot slot = slot_of(schema_.arguments()[index]);
  if (!slot.is(c10::TypeKind::FloatType) && !slot.is(c10::TypeKind::NumberType)) {
    reject(index, "a float");
  }
  values_[index] = c10::IValue(value);
}

void OpCall::set_bool(std::string_view name, bool value) {
  const size_t index = index_of(name);
  const Slot slot = slot_of(schema_.arguments()[index]);
  if (!slot.is(c10::TypeKind::BoolType) && !slot.is(c10::TypeKind::NumberType)) {
    reject(index, "a boolean");
  }
  values_[index] = c10::IValue(value);
}

void OpCall::set_string(std::string_view name, const char* value) {
  const size_t index = index_of(name);
  const Slot slot = slot_of(schema_.arguments()[index]);
  if (slot.is(c10::TypeKind::DeviceObjType)) {
    values_[index] = c10::IValue(device_of(value));
    return;
  }
  if (!slot.is(c10::TypeKind::StringType)) reject(index, "a string");
  values_[index] = c10::IValue(std::string(value));
}

void OpCall::set_dtype(std::string_view name, at::ScalarType value) {
  const size_t index = index_of(name);
  if (!slot_of(schema_.arguments()[index]).is(c10::TypeKind::ScalarTypeType)) {
    reject(index, "a dtype");
  }
  values_[index] = c10::IValue(static_cast<int64_t>(value));
}

void OpCall::set_ints(std::string_view name, const std::vector<int64_t>& values) {
  const size_t index = index_of(name);
  const Slot slot = slot_of(schema_.arguments()[index]);
  if (slot.is_list_of_ints()) {
    values_[index] = list_of<int64_t>(values);
  } else if (slot.is_list_of(c10::TypeKind::NumberType)) {
    values_[index] = list_of<at::Scalar>(values);
  } else if (slot.is_list_of(c10::TypeKind::BoolType)) {
    values_[index] = list_of<bool>(values);
  } else {
    reject(index, "a list of integers");
  }
}

void OpCall::set_doubles(std::string_view name, const std::vector<double>& values) {
  const size_t index = index_of(name);
  const Slot slot = slot_of(schema_.arguments()[index]);
  if (slot.is_list_of(c10::TypeKind::FloatType)) {
    values_[index] = list_of<double>(values);
  } else if (slot.is_list_of(c10::TypeKind::NumberType)) {
    values_[index] = list_of<at::Scalar>(values);
  } else {
    reject(index, "a list of floats");
  }
}

void OpCall::set_leading(const std::vector<const at::Tensor*>& tensors) {
  check_argument(tensors.size() <= values_.size(), "num_inputs: expected at most ", values_.size(),
                 ", got ", tensors.size(), "; schema: ", schema_);
  for (size_t i = 0; i < tensors.size(); ++i) put_tensor(i, tensors[i]);
}

// Before the operator runs, and perhaps writes its arguments, as far as the schema tells.
void OpCall::check_result_count(size_t count) const {
  for (const c10::Argument& result : schema_.returns()) {
    if (slot_of(result).list) return;
  }
  check_argument(schema_.returns().size() >= count, "num_outputs: expected at most ",
                 schema_.returns().size(), ", got ", count, "; schema: ", schema_);
}

void OpCall::run() {
  results_.clear();
  has_run_ = false;
  const auto& arguments = schema_.arguments();
  std::vector<c10::IValue> stack;
  stack.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (values_[i]) {
      stack.push_back(*values_[i]);
    } else {
      check_argument(arguments[i].default_value().has_value(), "argument ", arguments[i].name(),
                     ": it has no default and was not set; schema: ", schema_);
      stack.push_back(*arguments[i].default_value());
    }
  }
  for (size_t i = 0; i < stack.size(); ++i) check_value(arguments[i], stack[i]);
  // An operator that writes to an argument would write to the cast's copy of it.
  if (autocast_dtype() != NXD_DTYPE_INVALID && !schema_.is_mutable()) {
    cast_arguments(cast_policy(schema_.name(), lists_of(stack)), stack);
  }
  const OwnProducts own_products;
  run_on_views(op_, stack);
  for (const c10::IValue& value : stack) {
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) results_.emplace_back(tensor);
    } else {
      results_.push_back(value);
    }
  }
  has_run_ = true;
}

std::vector<at::Tensor> OpCall::run_for(size_t count) {
  check_result_count(count);
  run();
  check_argument(results_.size() >= count, "num_outputs: expected at most ", results_.size(),
                 ", got ", count, "; schema: ", schema_);
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < count; ++i) out.push_back(tensor_result(i));
  return out;
}

const c10::IValue& OpCall::result(size_t index) const {
  check_state(has_run_, "operator ", schema_.name(), ": nxd_op_run has not succeeded yet");
  check_argument(index < results_.size(), "index: expected less than ", results_.size(),
                 " results of ", schema_.name(), ", got ", index);
  return results_[index];
}

size_t OpCall::result_count() const {
  check_state(has_run_, "operator ", schema_.name(), ": nxd_op_run has not succeeded yet");
  return results_.size();
}

const at::Tensor& OpCall::tensor_result(size_t index) const {
  const c10::IValue& value = result(index);
  check_argument(value.isTensor(), "index: result ", index, " of ", schema_.name(),
                 " is no tensor, but ", value.tagKind());
  return value.toTensor();
}

double OpCall::number_result(size_t index) const {
  const c10::IValue& value = result(index);
  if (value.isDouble()) return value.toDouble();
  if (value.isInt()) return static_cast<double>(value.toInt());
  if (value.isBool()) return value.toBool() ? 1.0 : 0.0;
  fail(NXD_ERROR_INVALID_ARGUMENT, "index: result ", index, " of ", schema_.name(),
       " is no number or boolean, but ", value.tagKind());
}

}  // namespace nxd
