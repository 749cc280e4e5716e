#include "engine/models/torchscript_values.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/models/torchscript_operators.h"

namespace nxd {
namespace {

namespace jit = torch::jit;

c10::TypePtr without_none(const c10::TypePtr& type) {
  const auto optional = type->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

bool is_tensor_or_none(const c10::TypePtr& type) { return is_tensor(without_none(type)); }

std::optional<at::ScalarType> dtype_of_number(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::BoolType: return at::kBool;
    case c10::TypeKind::IntType: return at::kLong;
    case c10::TypeKind::FloatType: return at::kDouble;
    default: return std::nullopt;
  }
}

// No operator makes it, so that no trace has one.
template <class Number>
at::Tensor tensor_of(Number number, at::ScalarType dtype) {
  auto kept = std::make_shared<Number>(number);
  void* const data = kept.get();
  return at::from_blob(
      data, {}, [kept = std::move(kept)](void*) {}, at::TensorOptions().dtype(dtype));
}

void give_input(jit::Stack& stack) {
  const c10::IValue value = jit::pop(stack);
  if (value.isBool()) {
    jit::push(stack, tensor_of(value.toBool(), at::kBool));
  } else if (value.isInt()) {
    jit::push(stack, tensor_of(value.toInt(), at::kLong));
  } else if (value.isDouble()) {
    jit::push(stack, tensor_of(value.toDouble(), at::kDouble));
  } else {
    jit::push(stack, c10::IValue());
  }
}

void give_tensor_or_none(jit::Stack& stack) {
  const at::Tensor value = jit::pop(stack).toTensor();
  jit::push(stack, value.defined() ? c10::IValue(value) : c10::IValue());
}

bool surely_has_tensor(const c10::TypePtr& type) {
  if (is_tensor(type)) return true;
  const auto tuple = type->cast<c10::TupleType>();
  return tuple &&
         std::any_of(tuple->elements().begin(), tuple->elements().end(), &surely_has_tensor);
}

std::optional<size_t> count_tensors(const c10::TypePtr& type) {
  if (is_tensor_or_none(type)) return 1;
  const auto tuple = type->cast<c10::TupleType>();
  if (!tuple) return std::nullopt;
  size_t sum = 0;
  for (const c10::TypePtr& element : tuple->elements()) {
    const auto count = count_tensors(element);
    if (!count) return std::nullopt;
    sum += *count;
  }
  return sum;
}

c10::Symbol input_operator() {
  static const c10::Symbol symbol =
      known_to_interpreter("nxd::input", "(t value) -> Tensor?", &give_input);
  return symbol;
}

c10::Symbol tensor_or_none_operator() {
  static const c10::Symbol symbol = known_to_interpreter(
      "nxd::tensor_or_none", "(Tensor value) -> Tensor?", &give_tensor_or_none);
  return symbol;
}

}  // namespace

bool is_tensor(const c10::TypePtr& type) { return type->kind() == c10::TypeKind::TensorType; }

bool goes_as_tensor(const jit::Value* value) {
  // None in the code is of the type that the submodule declares, such as that of a tuple.
  if (value->mustBeNone()) return true;
  const c10::TypePtr type = without_none(value->type());
  return is_tensor(type) || dtype_of_number(type);
}

jit::Value* as_input(jit::Graph& graph, jit::Value* value) {
  if (value->mustBeNone()) return graph.insertConstant(c10::IValue());
  if (is_tensor_or_none(value->type())) return value;
  jit::Value* const made = graph.insertNode(graph.create(input_operator(), {value}))->output();
  return made->setType(c10::OptionalType::create(c10::TensorType::get()));
}

std::optional<c10::IValue> argument_of(const at::Tensor& input, const c10::TypePtr& declared) {
  const c10::TypePtr type = without_none(declared);
  if (!input.defined()) return c10::IValue();
  if (is_tensor(type) || type->kind() == c10::TypeKind::AnyType) return c10::IValue(input);
  const auto dtype = dtype_of_number(type);
  if (!dtype || !input.is_cpu() || input.dim() != 0 || input.scalar_type() != *dtype) return {};
  if (*dtype == at::kBool) return c10::IValue(*input.data_ptr<bool>());
  if (*dtype == at::kLong) return c10::IValue(*input.data_ptr<int64_t>());
  return c10::IValue(*input.data_ptr<double>());
}

std::optional<size_t> tensors_in(const c10::TypePtr& type) {
  return surely_has_tensor(type) ? count_tensors(type) : std::nullopt;
}

bool is_none_for_tensor(const c10::IValue& value, const c10::TypePtr& type) {
  return value.isNone() && type && is_tensor_or_none(type);
}

jit::Value* assembled(jit::Graph& graph, const c10::TypePtr& type,
                      at::ArrayRef<jit::Value*>& tensors) {
  if (is_tensor_or_none(type)) {
    jit::Value* const first = tensors.front();
    tensors = tensors.slice(1);
    if (is_tensor(type)) return first;
    jit::Node* const asked = graph.insertNode(graph.create(tensor_or_none_operator(), {first}));
    return asked->output()->setType(type);
  }
  const auto tuple = type->expect<c10::TupleType>();
  std::vector<jit::Value*> parts;
  for (const c10::TypePtr& element : tuple->elements()) {
    parts.push_back(assembled(graph, element, tensors));
  }
  return graph.insertNode(graph.createTuple(parts, tuple->name() ? tuple : nullptr))->output();
}

}  // namespace nxd
