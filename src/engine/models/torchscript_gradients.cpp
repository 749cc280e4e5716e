#include "engine/models/torchscript_gradients.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>
#include <vector>

#include "engine/autograd/caller_engine.h"
#include "engine/autograd/gradients.h"
#include "engine/device/device_tensor.h"
#include "engine/models/torchscript_nodes.h"
#include "engine/models/torchscript_operators.h"

namespace nxd {
namespace {

namespace jit = torch::jit;
using Tensors = std::vector<at::Tensor>;

// The arguments of torch.autograd.grad.
struct GradientCall {
  Tensors outputs, inputs;
  Tensors grads;  // of the outputs; undefined: 1
  bool retain_graph = false;
  bool create_graph = false;
  bool allow_unused = false;
};

// One of each of so many outputs; undefined where the code gives none.
Tensors output_gradients(const c10::IValue& given, size_t outputs) {
  Tensors grads(outputs);
  if (given.isNone()) return grads;
  if (given.isTensor()) return {given.toTensor()};
  const auto list = given.toListRef();
  check_argument(list.size() == outputs, "grad: expected a gradient of each of ", outputs,
                 " outputs, got ", list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].isTensor()) grads[i] = list[i].toTensor();
  }
  return grads;
}

GradientCall popped(jit::Stack& stack) {
  GradientCall call;
  call.allow_unused = jit::pop(stack).toBool();
  call.create_graph = jit::pop(stack).toBool();
  const c10::IValue retain_graph = jit::pop(stack);
  call.retain_graph = retain_graph.isNone() ? call.create_graph : retain_graph.toBool();
  const c10::IValue grads = jit::pop(stack);
  call.inputs = jit::pop(stack).toTensorVector();
  call.outputs = jit::pop(stack).toTensorVector();
  call.grads = output_gradients(grads, call.outputs.size());
  return call;
}

// True if the pass of these outputs computes on the recorded device, also where they have left it.
bool computed_on_device(const Tensors& outputs) {
  torch::autograd::edge_list roots;
  for (const at::Tensor& output : outputs) {
    if (is_recorded(output)) return true;
    if (output.requires_grad()) roots.push_back(torch::autograd::impl::gradient_edge(output));
  }
  return leads_to_device(roots);
}

Tensors gradients_of(const GradientCall& call) {
  if (!computed_on_device(call.outputs)) {
    return torch::autograd::grad(call.outputs, call.inputs, call.grads, call.retain_graph,
                                 call.create_graph, call.allow_unused);
  }
  Tensors out =
      run_gradients(call.outputs, call.grads, call.inputs, call.retain_graph, call.create_graph);
  for (size_t i = 0; i < out.size(); ++i) {
    check_argument(out[i].defined() || call.allow_unused, "grad: inputs[", i,
                   "]: it has no influence on the outputs, and allow_unused is not set");
  }
  return out;
}

}  // namespace

void give_gradients(jit::Stack& stack) {
  c10::List<c10::optional<at::Tensor>> out;
  for (at::Tensor& grad : gradients_of(popped(stack))) {
    out.push_back(grad.defined() ? c10::optional<at::Tensor>(std::move(grad)) : c10::nullopt);
  }
  jit::push(stack, std::move(out));
}

void accumulate_gradients(jit::Stack& stack) {
  const bool create_graph = jit::pop(stack).toBool();
  const c10::IValue retain_graph = jit::pop(stack), given = jit::pop(stack);
  const c10::IValue of = jit::pop(stack);
  const Tensors outputs = of.isTensor() ? Tensors{of.toTensor()} : of.toTensorVector();
  const Tensors grads = output_gradients(given, outputs.size());
  const bool retain = retain_graph.isNone() ? create_graph : retain_graph.toBool();
  if (!computed_on_device(outputs)) {
    return torch::autograd::backward(outputs, grads, retain, create_graph);
  }
  if (create_graph) {
    fail(NXD_ERROR_UNSUPPORTED,
         "backward: create_graph: expected False on the recorded device, where "
         "torch.autograd.grad gives gradients that can be differentiated again");
  }
  run_backward(outputs, grads, retain);
}

void compute_gradients_here(jit::Graph& graph, void (*give)(jit::Stack&),
                            void (*accumulate)(jit::Stack&)) {
  static const c10::Symbol grad = known_to_interpreter(
      "nxd::grad",
      "(Tensor[] outputs, Tensor[] inputs, Tensor?[]? grad_outputs, bool? retain_graph, "
      "bool create_graph, bool allow_unused) -> Tensor?[]",
      give);
  static const c10::Symbol backward = known_to_interpreter(
      "nxd::backward",
      "(Tensor output, Tensor? grad_output, bool? retain_graph, bool create_graph) -> ()",
      accumulate);
  static const c10::Symbol backward_of_all = known_to_interpreter(
      "nxd::backward_of_all",
      "(Tensor[] outputs, Tensor?[]? grad_outputs, bool? retain_graph, bool create_graph) -> ()",
      accumulate);
  for (jit::Node* node : nodes_of(graph, c10::Symbol::fromQualString("aten::grad"))) {
    replace_node(*node, grad, node->inputs());
  }
  for (jit::Node* node : nodes_of(graph, c10::Symbol::fromQualString("aten::backward"))) {
    const bool of_all = node->input(0)->type()->kind() == c10::TypeKind::ListType;
    graph.create(of_all ? backward_of_all : backward, node->inputs(), 0)->insertBefore(node);
    node->destroy();
  }
}

}  // namespace nxd
