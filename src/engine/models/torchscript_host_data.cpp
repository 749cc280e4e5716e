#include "engine/models/torchscript_host_data.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "engine/models/torchscript_nodes.h"
#include "engine/models/torchscript_operators.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/host_copy.h"

namespace nxd {
namespace {

namespace jit = torch::jit;

const char* overload_for(const c10::IValue& data) {
  if (data.isBool()) return "bool";
  if (data.isInt()) return "int";
  if (data.isDouble()) return "float";
  return data.isComplexDouble() ? "complex" : "";  // a list
}

at::Tensor tensor_of(const c10::IValue& data, jit::Stack options) {
  const std::string_view overload = overload_for(data);
  for (const std::shared_ptr<jit::Operator>& made : jit::getAllOperatorsFor(c10::aten::tensor)) {
    if (made->schema().overload_name() != overload) continue;
    options.insert(options.begin(), data);
    made->getOperation()(options);
    return options.back().toTensor();
  }
  fail(NXD_ERROR_INTERNAL, "aten::tensor: expected one of ", data.tagKind());
}

void make_host_tensor(jit::Stack& stack) {
  const jit::Stack options = jit::pop(stack, 3);
  const c10::IValue data = jit::pop(stack);
  jit::push(stack, host_values([&] { return tensor_of(data, options); }));
}

c10::Symbol host_tensor_operator() {
  static const c10::Symbol symbol = known_to_interpreter(
      "nxd::host_tensor",
      "(t data, ScalarType? dtype, Device? device, bool requires_grad) -> Tensor",
      &make_host_tensor);
  return symbol;
}

void make_tensor_of_number(jit::Stack& stack) {
  const at::Scalar number = jit::pop(stack).toScalar();
  jit::push(stack, host_values([&] { return at::scalar_to_tensor(number); }));
}

c10::Symbol tensor_of_number_operator() {
  static const c10::Symbol symbol =
      known_to_interpreter("nxd::tensor_of_number", "(t number) -> Tensor", &make_tensor_of_number);
  return symbol;
}

void check_read_as_list(jit::Stack& stack) {
  check_access(jit::peek(stack, 0, 1).toTensor(), CallTracer::Access::kRead, "tolist");
}

c10::Symbol read_operator() {
  static const c10::Symbol symbol = known_to_interpreter(
      "nxd::read_as_list", "(Tensor(a) values) -> Tensor(a)", &check_read_as_list);
  return symbol;
}

// Inputs of the operator in a node's place; none for a node that gives its own input.
std::vector<jit::Value*> inputs_of_host_tensor(jit::Graph& graph, jit::Node& node, bool is_list) {
  std::vector<jit::Value*> inputs = node.inputs().vec();
  if (inputs.empty() || inputs[0]->type()->isSubtypeOf(*c10::TensorType::get())) return {};
  if (is_list) {
    inputs.push_back(graph.insertConstant(at::kInt));
    inputs.push_back(graph.insertConstant(c10::IValue()));
  }
  const bool is_as_tensor = inputs.size() == 3;
  if (is_as_tensor) inputs.push_back(graph.insertConstant(false));
  return inputs;
}

bool is_written(const jit::Value& value) {
  const auto writes = [](const jit::Use& use) { return writes_to_input(*use.user, use.offset); };
  return std::any_of(value.uses().begin(), value.uses().end(), writes);
}

const c10::Symbol kToList = c10::Symbol::fromQualString("prim::tolist");

}  // namespace

void check_reads_as_lists(jit::Graph& graph) {
  for (jit::Node* node : nodes_of(graph, kToList)) {
    const jit::WithInsertPoint at(node);
    node->replaceInput(0,
                       graph.insertNode(graph.create(read_operator(), {node->input(0)}))->output());
  }
}

void make_host_tensors(jit::Graph& graph) {
  for (const char* name : {"aten::tensor", "aten::as_tensor", "aten::_list_to_tensor"}) {
    for (jit::Node* node : nodes_of(graph, c10::Symbol::fromQualString(name))) {
      const jit::WithInsertPoint at(node);
      const bool is_list = std::string_view(name) == "aten::_list_to_tensor";
      const std::vector<jit::Value*> inputs = inputs_of_host_tensor(graph, *node, is_list);
      if (!inputs.empty()) replace_node(*node, host_tensor_operator(), inputs);
    }
  }
  // Traced code has one for each size that it asks for: a trace need not make these again.
  for (jit::Node* node : nodes_of(graph, c10::prim::NumToTensor)) {
    if (!is_written(*node->output())) continue;
    replace_node(*node, tensor_of_number_operator(), {node->input()});
  }
}

}  // namespace nxd
