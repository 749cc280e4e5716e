#include "engine/autograd/function_node.h"

#include <torch/csrc/autograd/functions/utils.h>

#include "core/base/last_error.h"
#include "engine/autograd/graph_node.h"

namespace nxd {

using torch::autograd::variable_list;

void BorrowedHandles::add(at::Tensor tensor) {
  handles_.push_back(nxd_tensor{std::move(tensor)});
  pointers_.push_back(&handles_.back());
}

bool BorrowedHandles::contains(const nxd_tensor_t* handle) const {
  return std::any_of(handles_.begin(), handles_.end(),
                     [&](const nxd_tensor& own) { return &own == handle; });
}

OwnedHandles::~OwnedHandles() {
  for (nxd_tensor_t* handle : pointers_) delete handle;
}

std::vector<at::Tensor> OwnedHandles::take(const BorrowedHandles& borrowed,
                                           const nxd_function_call& call, const std::string& name,
                                           bool all_required) {
  const auto is_saved = [&](const nxd_tensor_t* handle) {
    return std::any_of(call.saved.begin(), call.saved.end(),
                       [&](const nxd_tensor& saved) { return &saved == handle; });
  };
  std::string fault;
  for (size_t i = 0; i < pointers_.size(); ++i) {
    nxd_tensor_t*& handle = pointers_[i];
    if (!handle) continue;
    if (borrowed.contains(handle) || is_saved(handle)) {
      fault = text(name, "[", i, "]: it is a borrowed handle; give what nxd_tensor_retain gives");
      handle = nullptr;
    } else if (std::find(pointers_.begin(), pointers_.begin() + static_cast<ptrdiff_t>(i),
                         handle) != pointers_.begin() + static_cast<ptrdiff_t>(i)) {
      fault = text(name, "[", i, "]: it is the handle of another result; give a new one for each");
      handle = nullptr;
    }
  }
  check_argument(fault.empty(), fault);
  std::vector<at::Tensor> out(pointers_.size());
  for (size_t i = 0; i < pointers_.size(); ++i) {
    check_argument(pointers_[i] || !all_required, name, "[", i, "]: expected a tensor, got NULL");
    out[i] = unwrap_optional(pointers_[i], name.c_str());
  }
  return out;
}

FunctionNode::FunctionNode(std::shared_ptr<const FunctionDefinition> definition,
                           const nxd_function_call& call)
    : definition_(std::move(definition)) {
  // Detached when they were saved: none of them can lead back to this node.
  for (const nxd_tensor& tensor : call.saved) saved_.emplace_back(tensor.value, false);
}

void FunctionNode::attach(std::shared_ptr<const FunctionDefinition> definition,
                          const std::vector<at::Tensor>& inputs,
                          const std::vector<at::Tensor>& outputs, const nxd_function_call& call) {
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
  const FunctionDefinition& f = *definition_;
  nxd_function_call call;
  call.in_forward = false;
  for (size_t i = 0; i < inputs_.size(); ++i)
    call.needs_grad.push_back(task_should_compute_output(i));
  for (const auto& saved : saved_) call.saved.push_back(nxd_tensor{saved.unpack()});

  BorrowedHandles given;
  for (const at::Tensor& grad : grads) {
    if (grad.defined()) {
      given.add(grad.detach());
    } else {
      given.add_null();
    }
  }
  OwnedHandles results(inputs_.size());
  CallbackWatch().run(
      [&] {
        return f.backward(&call, given.data(), given.size(), results.data(), results.size(),
                          f.user_data);
      },
      text("function ", f.name, ": backward").c_str());
  variable_list out =
      results.take(given, call, text("function ", f.name, ": backward: grad_inputs"), false);
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
  check_argument(grad.scalar_type() == type, what, ": expected the dtype ", type,
                 " of the input, got ", grad.scalar_type());
  check_argument(grad.device() == input.options.device(), what, ": expected the device ",
                 input.options.device().str(), " of the input, got ", grad.device().str());
}

void FunctionNode::release_variables() {
  saved_.clear();
  released_ = true;
}

}  // namespace nxd
