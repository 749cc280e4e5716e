#include "engine/autograd/custom_function.h"

#include <torch/csrc/autograd/custom_function.h>

#include "core/base/last_error.h"
#include "engine/autograd/function_node.h"
#include "engine/tensor/call_recorder.h"

namespace nxd {

FunctionDefinition::~FunctionDefinition() {
  if (destroy) destroy(user_data);
}

namespace {

bool any_on_meta(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& t) { return t.is_meta(); });
}

std::vector<at::Tensor> run_forward(const FunctionDefinition& f, nxd_function_call& call,
                                    const std::vector<at::Tensor>& inputs) {
  BorrowedHandles given;
  for (const at::Tensor& input : inputs) given.add(input.detach());
  OwnedHandles outputs(f.num_outputs);
  CallbackWatch().run(
      [&] {
        return f.forward(&call, given.data(), given.size(), outputs.data(), outputs.size(),
                         f.user_data);
      },
      text("function ", f.name, ": forward").c_str());
  return outputs.take(given, call, text("function ", f.name, ": forward: outputs"), true);
}

// On the meta device there is nothing to compute: the shape callback says what would come out.
std::vector<at::Tensor> run_shape(const FunctionDefinition& f,
                                  const std::vector<at::Tensor>& inputs) {
  if (!f.shape) {
    fail(NXD_ERROR_UNSUPPORTED, "function ", f.name,
         ": it has no shape callback, and an input is on the meta device");
  }
  BorrowedHandles given;
  for (const at::Tensor& input : inputs) {
    given.add(input.is_meta() ? input.detach()
                              : at::empty_strided(input.sizes(), input.strides(),
                                                  input.options().device(at::kMeta)));
  }
  OwnedHandles outputs(f.num_outputs);
  CallbackWatch().run(
      [&] {
        return f.shape(given.data(), given.size(), outputs.data(), outputs.size(), f.user_data);
      },
      text("function ", f.name, ": shape").c_str());
  std::vector<at::Tensor> out =
      outputs.take(given, {}, text("function ", f.name, ": shape: outputs"), true);
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
  return call_whole(f.name.c_str(), inputs,
                    [self = *this](const auto& given) { return self.run(given); });
}

std::vector<at::Tensor> CustomFunction::run(const std::vector<at::Tensor>& inputs) const {
  const FunctionDefinition& f = *definition_;
  nxd_function_call call;
  bool record = false;
  for (const at::Tensor& input : inputs) {
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

void save_for_backward(nxd_function_call& call, const at::Tensor& tensor) {
  check_state(call.in_forward, "call: tensors are saved in forward, this is backward");
  call.saved.push_back(nxd_tensor{tensor.detach()});
}

nxd_tensor_t* saved_tensor(nxd_function_call& call, size_t index) {
  check_argument(index < call.saved.size(), "index: expected less than ", call.saved.size(),
                 " saved tensors, got ", index);
  return &call.saved[index];
}

bool needs_grad(const nxd_function_call& call, size_t input_index) {
  check_argument(input_index < call.needs_grad.size(), "input_index: expected less than ",
                 call.needs_grad.size(), " inputs, got ", input_index);
  return call.needs_grad[input_index];
}

}  // namespace nxd
