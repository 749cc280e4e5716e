#include "engine/autograd/gradients.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "engine/autograd/caller_engine.h"
#include "engine/autograd/graph_nodes.h"
#include "engine/device/recorder.h"
#include "engine/device/view_history.h"
#include "engine/dtype.h"
#include "engine/ops/autocast.h"
#include "engine/own_products.h"
#include "engine/tensor/call_tracer.h"

namespace nxd {
namespace {

// Backward passes may be nested, by callbacks that differentiate on their own. From 60 levels on
// libtorch would move to a thread of its own, where callbacks must not run.
constexpr int kMostNestedPasses = 48;

class PassOnThisThread {
 public:
  PassOnThisThread() {
    check_not_tracing("backward");
    if (depth_ >= kMostNestedPasses) {
      fail(NXD_ERROR_UNSUPPORTED, "backward: more than ", kMostNestedPasses,
           " passes, each inside a callback of the one before");
    }
    ++depth_;
  }
  ~PassOnThisThread() { --depth_; }
  PassOnThisThread(const PassOnThisThread&) = delete;
  PassOnThisThread& operator=(const PassOnThisThread&) = delete;

 private:
  const AutocastPause casts_;
  const HostTensorScope host_tensors_;  // a forward may have saved some that it computed with
  static thread_local int depth_;
};

thread_local int PassOnThisThread::depth_ = 0;

void check_like(const at::Tensor& grad, const at::Tensor& tensor, const std::string& name,
                const char* what) {
  check_argument(grad.sizes() == tensor.sizes(), name, ": expected the shape ", tensor.sizes(),
                 " of ", what, ", got ", grad.sizes());
  check_argument(grad.scalar_type() == tensor.scalar_type(), name, ": expected the dtype ",
                 dtype_text(tensor.scalar_type()), " of ", what, ", got ",
                 dtype_text(grad.scalar_type()));
  check_argument(grad.device() == tensor.device(), name, ": expected the device ",
                 tensor.device().str(), " of ", what, ", got ", grad.device().str());
}

// False for a view that was made while nothing was recorded: it requires a gradient where its base
// does, and none comes to it.
bool has_edge(const at::Tensor& tensor) {
  renew_history(tensor);
  return tensor.requires_grad() && torch::autograd::impl::gradient_edge(tensor).is_valid();
}

// Gradients of the outputs, with the ones put in that the caller left out.
std::vector<at::Tensor> checked_grads(const std::vector<at::Tensor>& outputs,
                                      const std::vector<at::Tensor>& grads) {
  check_argument(!outputs.empty(), "num_outputs: expected at least 1, got 0");
  std::vector<at::Tensor> out(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    check_argument(has_edge(outputs[i]), "outputs[", i,
                   "]: it was not recorded and does not require a gradient");
    if (grads[i].defined()) {
      check_like(grads[i], outputs[i], text("grads[", i, "]"), "the output");
      out[i] = grads[i];
    } else {
      check_argument(outputs[i].numel() == 1, "grads[", i,
                     "]: only an output of one element may do without, this one has the shape ",
                     outputs[i].sizes());
      out[i] = at::ones_like(outputs[i]);
    }
  }
  return out;
}

void check_leaf(const at::Tensor& tensor) {
  renew_history(tensor);
  check_state(tensor.is_leaf(), "tensor: expected a leaf, got the result of ",
              tensor.is_leaf() ? "" : tensor.grad_fn()->name());
}

// Where gradients of tensors enter the graph, or come out of it: also those of leaves.
torch::autograd::edge_list edges_of(const std::vector<at::Tensor>& tensors) {
  torch::autograd::edge_list edges;
  for (const at::Tensor& tensor : tensors) {
    edges.push_back(torch::autograd::impl::gradient_edge(tensor));
  }
  return edges;
}

// The leaves that a pass gives their first gradient. libtorch keeps that one where it lies, also
// where others lie there too: the caller's gradient of an output, what a caller's function returns,
// the gradient of another leaf where both came by views. Each is added to, scaled and reduced in
// place later, so that a leaf's is to be its own before the pass returns.
class FirstGradients {
 public:
  explicit FirstGradients(const torch::autograd::edge_list& roots) {
    visit_nodes(roots, [this](torch::autograd::Node& node) {
      const auto* end = node.num_outputs() == 0
                            ? dynamic_cast<const torch::autograd::AccumulateGrad*>(&node)
                            : nullptr;
      if (end && !end->variable.grad().defined()) leaves_.push_back(end->variable);
      return true;
    });
  }

  void make_own() const {
    for (const at::Tensor& leaf : leaves_) own_gradient(leaf);
  }

 private:
  std::vector<at::Tensor> leaves_;
};

void accumulate(const torch::autograd::edge_list& roots, const std::vector<at::Tensor>& grads,
                bool retain_graph) {
  const FirstGradients first(roots);
  engine_for(roots).execute(roots, grads, retain_graph, /*create_graph=*/false,
                            /*accumulate_grad=*/true);
  first.make_own();
}

bool is_shared(const at::Tensor& x, size_t tensors = 1) {
  return x.defined() && x.has_storage() && x.storage().use_count() > tensors;
}

}  // namespace

void run_backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& grads,
                  bool retain_graph) {
  const std::vector<at::Tensor> given = checked_grads(outputs, grads);
  const PassOnThisThread pass;
  const OwnProducts own_products;
  accumulate(edges_of(outputs), given, retain_graph);
}

void run_backward_from(const std::vector<torch::autograd::Edge>& edges,
                       const std::vector<at::Tensor>& grads) {
  const PassOnThisThread here;
  const OwnProducts own_products;
  accumulate(edges, grads, /*retain_graph=*/false);
}

std::vector<at::Tensor> run_gradients(const std::vector<at::Tensor>& outputs,
                                      const std::vector<at::Tensor>& grads,
                                      const std::vector<at::Tensor>& inputs, bool retain_graph,
                                      bool create_graph) {
  const std::vector<at::Tensor> given = checked_grads(outputs, grads);
  check_argument(!inputs.empty(), "num_inputs: expected at least 1, got 0");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_argument(inputs[i].requires_grad(), "inputs[", i, "]: it does not require a gradient");
  }
  std::vector<size_t> places;
  std::vector<at::Tensor> in_graph;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!has_edge(inputs[i])) continue;
    places.push_back(i);
    in_graph.push_back(inputs[i]);
  }
  std::vector<at::Tensor> out(inputs.size());
  // The engine takes no inputs for a pass that accumulates into leaves.
  if (in_graph.empty()) return out;
  const PassOnThisThread pass;
  const OwnProducts own_products;
  const torch::autograd::edge_list roots = edges_of(outputs);
  std::vector<at::Tensor> found =
      engine_for(roots).execute(roots, given, retain_graph, create_graph,
                                /*accumulate_grad=*/false, edges_of(in_graph));
  const at::AutoGradMode recorded(create_graph);
  for (size_t k = 0; k < found.size(); ++k) {
    at::Tensor& grad = found[k];
    if (grad.defined() && (grad.use_count() > 1 || is_shared(grad))) grad = grad.clone();
    out[places[k]] = std::move(grad);
  }
  return out;
}

void own_gradient(const at::Tensor& leaf, size_t tensors) {
  const at::NoGradGuard no_grad;
  at::Tensor& grad = leaf.mutable_grad();
  if (is_shared(grad, tensors)) grad = grad.clone();
}

void check_unrecorded_pass(const std::string& node) {
  if (!at::GradMode::is_enabled()) return;
  fail(NXD_ERROR_UNSUPPORTED, node, ": its gradient cannot be differentiated again (create_graph)");
}

bool pass_adds_to(const at::Tensor& leaf) {
  // Not empty when the gradients of some inputs are asked for.
  const auto* asked_for = torch::autograd::get_current_graph_task_exec_info();
  if (!asked_for || !asked_for->empty() || at::GradMode::is_enabled()) return false;
  return leaf.is_leaf() && leaf.requires_grad() && torch::autograd::impl::hooks(leaf).empty();
}

at::Tensor gradient_in_place(const at::Tensor& leaf) {
  const at::Tensor& grad = leaf.grad();
  const bool fits = grad.defined() && !grad.requires_grad() && grad.layout() == at::kStrided &&
                    grad.is_contiguous() && grad.scalar_type() == leaf.scalar_type() &&
                    grad.device() == leaf.device();
  return fits ? grad : at::Tensor();
}

at::Tensor gradient_to_add_to(const at::Tensor& leaf) {
  return pass_adds_to(leaf) ? gradient_in_place(leaf) : at::Tensor();
}

void make_dense(at::Tensor& gradient) {
  if (gradient.defined() && gradient.layout() != at::kStrided) gradient = gradient.to_dense();
}

void set_requires_grad(at::Tensor& tensor, bool requires_grad) {
  check_leaf(tensor);
  check_argument(!requires_grad || at::isFloatingType(tensor.scalar_type()) ||
                     at::isComplexType(tensor.scalar_type()),
                 "tensor: only floating-point tensors have gradients, got ",
                 dtype_text(tensor.scalar_type()));
  tensor.set_requires_grad(requires_grad);
}

at::Tensor grad_of(const at::Tensor& tensor) {
  check_leaf(tensor);
  return tensor.grad();
}

void set_grad(at::Tensor& tensor, const at::Tensor& grad) {
  check_leaf(tensor);
  if (grad.defined()) {
    check_like(grad, tensor, "grad", "the tensor");
    // Either would be a cycle that is never released.
    check_argument(!grad.is_same(tensor), "grad: expected another tensor than the leaf itself");
    check_argument(!grad.requires_grad(),
                   "grad: it requires a gradient itself; give what nxd_tensor_detach gives");
  }
  tensor.mutable_grad() = grad;
}

}  // namespace nxd
