#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <utility>
#include <vector>

namespace nxd {

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
    } else if (argument.isOptionalTensorList()) {
      c10::List<c10::optional<at::Tensor>> list;
      for (const c10::optional<at::Tensor>& tensor : argument.toOptionalTensorVector()) {
        list.push_back(tensor ? c10::optional<at::Tensor>(visit(*tensor)) : c10::nullopt);
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
    } else if (argument.isOptionalTensorList()) {
      for (const c10::optional<at::Tensor>& tensor : argument.toOptionalTensorVector()) {
        if (tensor) visit(*tensor);
      }
    }
  }
}

}  // namespace nxd
