#include "engine/autograd/function_node.h"

#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>

#include "core/base/error.h"
#include "engine/autograd/gradients.h"
#include "engine/dtype.h"
#include "engine/graph_node.h"

namespace nxd {

using torch::autograd::variable_list;

FunctionNode::FunctionNode(std::shared_ptr<const FunctionDefinition> definition,
                           const FunctionCall& call)
    : definition_(std::move(definition)) {
  // Detached when they were saved: none of them can lead back to this node.
  for (const at::Tensor& tensor : call.saved) saved_.emplace_back(tensor, false);
}

void FunctionNode::attach(std::shared_ptr<const FunctionDefinition> definition,
                          const std::vector<at::Tensor>& inputs,
                          const std::vector<at::Tensor>& outputs, const FunctionCall& call) {
  const auto node =
      hold(std::unique_ptr<FunctionNode>(new FunctionNode(std::move(definition), call)));
  for (const at::Tensor& input : inputs) {
    node->inputs_.push_back({input.sizes().vec(), input.options()});
  }
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  for (const at::Tensor& output : outputs) {
    if (at::isFloatingType(output.scalar_type()) || at::isComplexType(output.scalar_type())) {
      torch::autograd::create_gradient_edge(const_cast<at::Tensor&>(output), node);
    } else {
      node->add_input_metadata(Node::undefined_input());
    }
  }
}

variable_list FunctionNode::apply(variable_list&& grads) {
  const std::string& name = definition_->name;
  if (!definition_->backward) {
    fail(NXD_ERROR_UNSUPPORTED, "function ", name, ": it has no backward callback");
  }
  check_unrecorded_pass("function " + name);
  check_state(!released_, "function ", name,
              ": its graph was differentiated already; the pass before needs retain_graph");
  check_state(!running_, "function ", name, ": its backward callback differentiates its own graph");
  running_ = true;
  struct Stop {
    bool& running;
    ~Stop() { running = false; }
  } stop{running_};
  at::NoGradGuard no_grad;
  const bool meta = std::any_of(grads.begin(), grads.end(), [](const at::Tensor& grad) {
    return grad.defined() && grad.is_meta();
  });
  return meta ? zeros_on_meta() : run_callback(grads);
}

variable_list FunctionNode::run_callback(const variable_list& grads) {
  FunctionCall call;
  call.in_forward = false;
  for (size_t i = 0; i < inputs_.size(); ++i)
    call.needs_grad.push_back(task_should_compute_output(i));
  call.saved.reserve(saved_.size());
  for (const auto& saved : saved_) call.saved.push_back(saved.unpack());
  variable_list given;
  given.reserve(grads.size());
  for (const at::Tensor& grad : grads) given.push_back(grad.defined() ? grad.detach() : grad);
  variable_list out = definition_->backward(call, given, inputs_.size());
  for (size_t i = 0; i < out.size(); ++i) {
    if (!out[i].defined()) continue;
    check_gradient(out[i], i);
    out[i] = call.needs_grad[i] ? out[i].detach() : at::Tensor();
  }
  return out;
}

variable_list FunctionNode::zeros_on_meta() {
  variable_list out(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!task_should_compute_output(i)) continue;
    out[i] = at::empty(inputs_[i].shape, inputs_[i].options.device(at::kMeta));
  }
  return out;
}

void FunctionNode::check_gradient(const at::Tensor& grad, size_t index) const {
  const std::string what =
      text("function ", definition_->name, ": backward: grad_inputs[", index, "]");
  const Input& input = inputs_[index];
  check_argument(grad.sizes() == at::IntArrayRef(input.shape), what, ": expected the shape ",
                 at::IntArrayRef(input.shape), " of the input, got ", grad.sizes());
  const at::ScalarType type = c10::typeMetaToScalarType(input.options.dtype());
  check_argument(grad.scalar_type() == type, what, ": expected the dtype ", dtype_text(type),
                 " of the input, got ", dtype_text(grad.scalar_type()));
  check_argument(grad.device() == input.options.device(), what, ": expected the device ",
                 input.options.device().str(), " of the input, got ", grad.device().str());
}

// A call that saved nothing has lost nothing, and may be differentiated again, as libtorch's own
// operators may.
void FunctionNode::release_variables() {
  released_ = released_ || !saved_.empty();
  saved_.clear();
}

}  // namespace nxd
