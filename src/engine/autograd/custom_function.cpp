#include "engine/autograd/custom_function.h"

#include <algorithm>

#include "core/base/error.h"
#include "engine/autograd/function_node.h"
#include "engine/device/view_history.h"
#include "engine/tensor/call_tracer.h"

namespace nxd {

void FunctionCall::save(const at::Tensor& tensor) {
  check_state(in_forward, "call: tensors are saved in forward, this is backward");
  saved.push_back(tensor.detach());
}

const at::Tensor& FunctionCall::saved_at(size_t index) const {
  check_argument(index < saved.size(), "index: expected less than ", saved.size(),
                 " saved tensors, got ", index);
  return saved[index];
}

bool FunctionCall::needs_grad_of(size_t input_index) const {
  check_argument(input_index < needs_grad.size(), "input_index: expected less than ",
                 needs_grad.size(), " inputs, got ", input_index);
  return needs_grad[input_index];
}

namespace {

using Tensors = FunctionDefinition::Tensors;

bool any_on_meta(const Tensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& t) { return t.is_meta(); });
}

Tensors run_forward(const FunctionDefinition& f, FunctionCall& call, const Tensors& inputs) {
  Tensors given;
  given.reserve(inputs.size());
  for (const at::Tensor& input : inputs) given.push_back(input.detach());
  return f.forward(call, given, f.num_outputs);
}

// On the meta device there is nothing to compute: the shape callback says what would come out.
Tensors run_shape(const FunctionDefinition& f, const Tensors& inputs) {
  if (!f.shape) {
    fail(NXD_ERROR_UNSUPPORTED, "function ", f.name,
         ": it has no shape callback, and an input is on the meta device");
  }
  Tensors given;
  for (const at::Tensor& input : inputs) {
    given.push_back(input.is_meta() ? input.detach()
                                    : at::empty_strided(input.sizes(), input.strides(),
                                                        input.options().device(at::kMeta)));
  }
  Tensors out = f.shape(given, f.num_outputs);
  for (size_t i = 0; i < out.size(); ++i) {
    check_argument(out[i].is_meta(), "function ", f.name, ": shape: outputs[", i,
                   "]: expected the meta device, got ", out[i].device().str());
  }
  return out;
}

}  // namespace

std::vector<at::Tensor> CustomFunction::apply(const std::vector<at::Tensor>& inputs,
                                              size_t n_outputs) const {
  const FunctionDefinition& f = *definition_;
  check_argument(n_outputs == f.num_outputs, "num_outputs: function ", f.name, " has ",
                 f.num_outputs, ", got ", n_outputs);
  return call_opaque(f.name.c_str(), inputs,
                     [self = *this](const auto& given) { return self.run(given); });
}

std::vector<at::Tensor> CustomFunction::run(const std::vector<at::Tensor>& inputs) const {
  const FunctionDefinition& f = *definition_;
  FunctionCall call;
  bool record = false;
  for (const at::Tensor& input : inputs) {
    renew_history(input);
    const bool needs = at::GradMode::is_enabled() && input.requires_grad();
    call.needs_grad.push_back(needs);
    record = record || needs;
  }
  std::vector<at::Tensor> outputs;
  {
    at::NoGradGuard no_grad;
    outputs = any_on_meta(inputs) ? run_shape(f, inputs) : run_forward(f, call, inputs);
    // History is written into the tensors that go out: they must be no one else's, such as a
    // constant that the callback keeps.
    for (at::Tensor& output : outputs) output = output.detach();
  }
  if (record) FunctionNode::attach(definition_, inputs, outputs, call);
  return outputs;
}

}  // namespace nxd
