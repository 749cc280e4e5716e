// nxd/autograd.h: gradients and a caller's own functions.
#include "capi/engine_handles.h"
#include "capi/options.h"
#include "capi/user_data.h"
#include "core/base/last_error.h"
#include "engine/autograd/gradients.h"
#include "engine/ops/autocast.h"

using namespace nxd;

namespace {

// Gradients of outputs; NULL, as the array or in it, gives undefined ones.
std::vector<at::Tensor> optional_grads(nxd_tensor_t* const* grads, size_t count) {
  check_count(count, sizeof *grads, "grads");
  std::vector<at::Tensor> out(count);
  for (size_t i = 0; grads && i < count; ++i) out[i] = unwrap_optional(grads[i], "grads");
  return out;
}

// The parameter whose whole gradient a ddp has; null for other tensors. In a hook the tensor has
// what its pass adds.
std::shared_ptr<Parameter> with_main_grad(const nxd_tensor& tensor) {
  std::shared_ptr<Parameter> parameter = tensor.owner();
  const bool keeps =
      parameter && parameter->has_main_grad() && !parameter->tensor().grad().defined();
  return keeps ? parameter : nullptr;
}

const nxd_function_options_t kFunctionDefaults = NXD_FUNCTION_OPTIONS_INIT;

using Tensors = FunctionDefinition::Tensors;

// A function of tensors that calls back with handles; name and results are those of messages.
template <class Callback>
auto with_handles(Callback callback, const std::shared_ptr<UserData>& user, const std::string& name,
                  const char* results, bool all_required) {
  return [callback, user, name, results = text(name, ": ", results), all_required](
             FunctionCall& call, const Tensors& inputs, size_t n_results) {
    nxd_function_call handle{call};
    const BorrowedHandles in(inputs);
    OwnedHandles out(n_results);
    CallbackWatch().run(
        [&] { return callback(&handle, in.data(), in.size(), out.data(), out.size(), user->data); },
        name.c_str());
    const auto is_lent = [&](const auto* each) { return in.contains(each) || handle.lends(each); };
    return out.take(is_lent, results, all_required);
  };
}

std::shared_ptr<const FunctionDefinition> resolve(const nxd_function_options_t& given,
                                                  const std::shared_ptr<UserData>& user) {
  auto out = std::make_shared<FunctionDefinition>();
  out->name = given.name ? given.name : "";
  check_argument(!out->name.empty(), "options.name: expected a name, got ",
                 given.name ? "an empty one" : "NULL");
  check_argument(given.forward, "options.forward: expected a callback, got NULL");
  if (given.num_outputs != 0) out->num_outputs = given.num_outputs;
  const std::string name = text("function ", out->name);
  out->forward = with_handles(given.forward, user, name + ": forward", "outputs", true);
  if (given.backward) {
    out->backward = with_handles(given.backward, user, name + ": backward", "grad_inputs", false);
  }
  if (given.shape) {
    const auto shape = [shape = given.shape](nxd_function_call_t*, auto... rest) {
      return shape(rest...);
    };
    out->shape = [call = with_handles(shape, user, name + ": shape", "outputs", true)](
                     const Tensors& inputs, size_t n_outputs) {
      FunctionCall none;
      return call(none, inputs, n_outputs);
    };
  }
  return out;
}

}  // namespace

nxd_status_t nxd_tensor_get_requires_grad(nxd_tensor_t* tensor, int32_t* out_requires) {
  return guard([&] {
    auto& out = output(out_requires, "out_requires");
    out = unwrap(tensor, "tensor").requires_grad() ? 1 : 0;
  });
}

nxd_status_t nxd_tensor_set_requires_grad(nxd_tensor_t* tensor, int32_t requires_grad) {
  return guard(
      [&] { set_requires_grad(unwrap(tensor, "tensor"), flag(requires_grad, "requires_grad")); });
}

nxd_status_t nxd_tensor_share_grad(nxd_tensor_t* tensor, nxd_tensor_t** out_grad) {
  return guard([&] {
    auto& out = output(out_grad, "out_grad");
    at::Tensor grad = grad_of(unwrap(tensor, "tensor"));
    if (const auto parameter = with_main_grad(*tensor)) grad = parameter->main_grad();
    wrap_all({grad}, &out);
  });
}

nxd_status_t nxd_tensor_set_grad(nxd_tensor_t* tensor, nxd_tensor_t* grad) {
  return guard([&] {
    at::Tensor& value = unwrap(tensor, "tensor");
    const auto replaces_main = with_main_grad(*tensor);
    set_grad(value, unwrap_optional(grad, "grad"));
    if (replaces_main) replaces_main->main_grad().reset();
  });
}

nxd_status_t nxd_tensor_detach(nxd_tensor_t* tensor, nxd_tensor_t** out_tensor) {
  return guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    out = wrap(unwrap(tensor, "tensor").detach());
  });
}

nxd_status_t nxd_set_grad_enabled(int32_t enabled, int32_t* out_previous) {
  return guard([&] {
    if (out_previous) *out_previous = 0;
    const bool on = flag(enabled, "enabled");
    if (out_previous) *out_previous = at::GradMode::is_enabled() ? 1 : 0;
    at::GradMode::set_enabled(on);
  });
}

nxd_status_t nxd_set_autocast(nxd_dtype_t dtype, nxd_dtype_t* out_previous) {
  return guard([&] {
    const nxd_dtype_t previous = autocast_dtype();
    set_autocast(dtype);
    if (out_previous) *out_previous = previous;
  });
}

nxd_status_t nxd_backward(nxd_tensor_t* const* outputs, nxd_tensor_t* const* grads,
                          size_t num_outputs, int32_t retain_graph) {
  return guard([&] {
    run_backward(unwrap_all(outputs, num_outputs, "outputs"), optional_grads(grads, num_outputs),
                 flag(retain_graph, "retain_graph"));
  });
}

nxd_status_t nxd_grad(nxd_tensor_t* const* outputs, nxd_tensor_t* const* grads, size_t num_outputs,
                      nxd_tensor_t* const* inputs, size_t num_inputs, int32_t retain_graph,
                      nxd_tensor_t** out_grads) {
  return guard([&] {
    clear_outputs(out_grads, num_inputs, "out_grads");
    wrap_all(run_gradients(
                 unwrap_all(outputs, num_outputs, "outputs"), optional_grads(grads, num_outputs),
                 unwrap_all(inputs, num_inputs, "inputs"), flag(retain_graph, "retain_graph")),
             out_grads);
  });
}

nxd_status_t nxd_function_options_init(nxd_function_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kFunctionDefaults, "options"); });
}

nxd_status_t nxd_function_create(const nxd_function_options_t* options,
                                 nxd_function_t** out_function) {
  return guard([&] {
    auto& out = output(out_function, "out_function");
    const auto known = read_options(options, kFunctionDefaults, "options");
    const auto user = std::make_shared<UserData>(known.user_data);
    out = new nxd_function{CustomFunction(resolve(known, user))};
    user->destroy = known.destroy;
  });
}

nxd_status_t nxd_function_apply(nxd_function_t* function, nxd_tensor_t* const* inputs,
                                size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs) {
  return guard([&] {
    clear_outputs(outputs, num_outputs, "outputs");
    check_argument(function, "function: expected a function, got NULL");
    function->fork_guard.check("function");
    wrap_all(function->function.apply(unwrap_all(inputs, num_inputs, "inputs"), num_outputs),
             outputs);
  });
}

void nxd_function_destroy(nxd_function_t* function) {
  const Uncancelled whole_call;
  delete function;
}

nxd_status_t nxd_function_call_save(nxd_function_call_t* call, nxd_tensor_t* tensor) {
  return guard([&] { required(call, "call").value.save(unwrap(tensor, "tensor")); });
}

nxd_status_t nxd_function_call_get_saved(nxd_function_call_t* call, size_t index,
                                         nxd_tensor_t** out_tensor) {
  return guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    out = borrow_saved(required(call, "call"), index);
  });
}

nxd_status_t nxd_function_call_needs_grad(nxd_function_call_t* call, size_t input_index,
                                          int32_t* out_needs) {
  return guard([&] {
    auto& out = output(out_needs, "out_needs");
    out = required(call, "call").value.needs_grad_of(input_index) ? 1 : 0;
  });
}
