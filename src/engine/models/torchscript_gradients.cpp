#include "engine/models/torchscript_gradients.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>
#include <vector>

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

GradientCall popped(jit::Stack& stack) {
  GradientCall call;
  call.allow_unused = jit::pop(stack).toBool();
  call.create_graph = jit::pop(stack).toBool();
  const c10::IValue retain_graph = jit::pop(stack);
  call.retain_graph = retain_graph.isNone() ? call.create_graph : retain_graph.toBool();
  const c10::IValue grads = jit::pop(stack);
  call.inputs = jit::pop(stack).toTensorVector();
  call.outputs = jit::pop(stack).toTensorVector();
  call.grads.resize(call.outputs.size());
  if (grads.isNone()) return call;
  const auto given = grads.toListRef();
  check_argument(given.size() == call.outputs.size(), "grad: expected a gradient of each of ",
                 call.outputs.size(), " outputs, got ", given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].isTensor()) call.grads[i] = given[i].toTensor();
  }
  return call;
}

Tensors gradients_of(const GradientCall& call) {
  if (std::none_of(call.outputs.begin(), call.outputs.end(), is_recorded)) {
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

void compute_gradients_here(jit::Graph& graph, void (*give)(jit::Stack&)) {
  static const c10::Symbol kind = known_to_interpreter(
      "nxd::grad",
      "(Tensor[] outputs, Tensor[] inputs, Tensor?[]? grad_outputs, bool? retain_graph, "
      "bool create_graph, bool allow_unused) -> Tensor?[]",
      give);
  for (jit::Node* node : nodes_of(graph, c10::Symbol::fromQualString("aten::grad"))) {
    replace_node(*node, kind, node->inputs());
  }
}

}  // namespace nxd
