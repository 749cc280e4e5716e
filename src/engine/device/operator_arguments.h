#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace nxd {

// A list of tensors and of None, such as indices. libtorch's own question knows one type of such
// lists; code of TorchScript makes them of an equal type of its own.
inline bool is_optional_tensor_list(const c10::IValue& argument) {
  if (!argument.isList()) return false;
  const c10::TypePtr element = argument.toList().elementType();
  const auto* optional = element->castRaw<c10::OptionalType>();
  return optional && optional->getElementType()->kind() == c10::TypeKind::TensorType;
}

// Calls visit(tensor) for the tensors among an operator's arguments or results, also undefined
// ones, and those in lists, in order; None is no tensor. The result of visit replaces the tensor.
template <class Visit>
void replace_tensors(std::vector<c10::IValue>& arguments, Visit&& visit) {
  for (c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      argument = at::Tensor(visit(argument.toTensor()));
    } else if (argument.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : argument.toTensorVector()) list.push_back(visit(tensor));
      argument = std::move(list);
    } else if (is_optional_tensor_list(argument)) {
      c10::List<c10::optional<at::Tensor>> list;
      for (const c10::IValue& each : argument.toListRef()) {
        list.push_back(each.isTensor() ? c10::optional<at::Tensor>(visit(each.toTensor()))
                                       : c10::nullopt);
      }
      argument = std::move(list);
    }
  }
}

// The same without a replacement.
template <class Visit>
void for_each_tensor(const std::vector<c10::IValue>& arguments, Visit&& visit) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      visit(argument.toTensor());
    } else if (argument.isTensorList()) {
      for (const at::Tensor& tensor : argument.toTensorVector()) visit(tensor);
    } else if (is_optional_tensor_list(argument)) {
      for (const c10::IValue& each : argument.toListRef()) {
        if (each.isTensor()) visit(each.toTensor());
      }
    }
  }
}

// Runs the operator on a stack that may be the only holder of its arguments. libtorch takes these
// from the stack before it puts the results there, and reads several results that were given, which
// are references to arguments, in between.
inline void call_holding_arguments(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack) {
  const std::vector<c10::IValue> held = stack;
  op.callBoxed(&stack);
}

// Calls body with a stack of the last values alone, an operator's arguments, in whose place its
// results are put: an interpreter's stack has values of its own below, which are no part of a call.
template <class Body>
void on_own_arguments(size_t count, std::vector<c10::IValue>& stack, Body&& body) {
  const auto first = stack.end() - static_cast<ptrdiff_t>(count);
  std::vector<c10::IValue> own(std::make_move_iterator(first),
                               std::make_move_iterator(stack.end()));
  stack.erase(first, stack.end());
  body(own);
  std::move(own.begin(), own.end(), std::back_inserter(stack));
}

}  // namespace nxd
