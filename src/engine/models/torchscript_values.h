#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>

// How values of TorchScript code go through a call of a module, which takes and gives tensors
// alone. None is an undefined tensor. A flag or a number is a tensor without dimensions on the CPU,
// of BOOL, I64 or F64: a trace has it as a constant, and who runs the call again has its value.
namespace nxd {

bool is_tensor(const c10::TypePtr& type);

// True of tensors, flags, integers, floating-point numbers, and of these or None.
bool goes_as_tensor(const torch::jit::Value* value);
// The value as an element of a call's list of inputs, made at the graph's insertion point.
torch::jit::Value* as_input(torch::jit::Graph& graph, torch::jit::Value* value);

// The argument of the declared type that an input of a call stands for; nothing if it is none of
// that type.
std::optional<c10::IValue> argument_of(const at::Tensor& input, const c10::TypePtr& declared);

// Tensors in a result of the type, one for each that may be None; nothing for a type that is
// neither a tensor nor made of tuples of them, and for one that may be None as a whole.
std::optional<size_t> tensors_in(const c10::TypePtr& type);
// True of None where the type has a tensor or None.
bool is_none_for_tensor(const c10::IValue& value, const c10::TypePtr& type);
// A value of the type from the next ones of its tensors, made at the graph's insertion point.
torch::jit::Value* assembled(torch::jit::Graph& graph, const c10::TypePtr& type,
                             at::ArrayRef<torch::jit::Value*>& tensors);

}  // namespace nxd
