// nxd/autograd.h: gradients and a caller's own functions.
#include "capi/engine_handles.h"
#include "core/base/options.h"
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

const nxd_function_options_t kDefaults = NXD_FUNCTION_OPTIONS_INIT;

std::shared_ptr<FunctionDefinition> resolve(const nxd_function_options_t& given) {
  auto out = std::make_shared<FunctionDefinition>();
  out->name = given.name ? given.name : "";
  check_argument(!out->name.empty(), "options.name: expected a name, got ",
                 given.name ? "an empty one" : "NULL");
  check_argument(given.forward, "options.forward: expected a callback, got NULL");
  if (given.num_outputs != 0) out->num_outputs = given.num_outputs;
  out->forward = given.forward;
  out->backward = given.backward;
  out->shape = given.shape;
  out->user_data = given.user_data;
  return out;
}

}  // namespace

nxd_status_t nxd_tensor_get_requires_grad(nxd_tensor_t* tensor, int32_t* out_requires) {
  return engine_guard([&] {
    auto& out = output(out_requires, "out_requires");
    out = unwrap(tensor, "tensor").requires_grad() ? 1 : 0;
  });
}

nxd_status_t nxd_tensor_set_requires_grad(nxd_tensor_t* tensor, int32_t requires_grad) {
  return engine_guard([&] { set_requires_grad(unwrap(tensor, "tensor"), requires_grad != 0); });
}

nxd_status_t nxd_tensor_share_grad(nxd_tensor_t* tensor, nxd_tensor_t** out_grad) {
  return engine_guard([&] {
    auto& out = output(out_grad, "out_grad");
    wrap_all({grad_of(unwrap(tensor, "tensor"))}, &out);
  });
}

nxd_status_t nxd_tensor_set_grad(nxd_tensor_t* tensor, nxd_tensor_t* grad) {
  return engine_guard([&] { set_grad(unwrap(tensor, "tensor"), unwrap_optional(grad, "grad")); });
}

nxd_status_t nxd_tensor_detach(nxd_tensor_t* tensor, nxd_tensor_t** out_tensor) {
  return engine_guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    out = wrap(unwrap(tensor, "tensor").detach());
  });
}

nxd_status_t nxd_set_grad_enabled(int32_t enabled, int32_t* out_previous) {
  return engine_guard([&] {
    if (out_previous) *out_previous = at::GradMode::is_enabled() ? 1 : 0;
    at::GradMode::set_enabled(enabled != 0);
  });
}

nxd_status_t nxd_set_autocast(nxd_dtype_t dtype, nxd_dtype_t* out_previous) {
  return engine_guard([&] {
    const nxd_dtype_t previous = autocast_dtype();
    set_autocast(dtype);
    if (out_previous) *out_previous = previous;
  });
}

nxd_status_t nxd_backward(nxd_tensor_t* const* outputs, nxd_tensor_t* const* grads,
                          size_t num_outputs, int32_t retain_graph) {
  return engine_guard([&] {
    run_backward(unwrap_all(outputs, num_outputs, "outputs"), optional_grads(grads, num_outputs),
                 retain_graph != 0);
  });
}

nxd_status_t nxd_grad(nxd_tensor_t* const* outputs, nxd_tensor_t* const* grads, size_t num_outputs,
                      nxd_tensor_t* const* inputs, size_t num_inputs, int32_t retain_graph,
                      nxd_tensor_t** out_grads) {
  return engine_guard([&] {
    clear_outputs(out_grads, num_inputs, "out_grads");
    wrap_all(run_gradients(unwrap_all(outputs, num_outputs, "outputs"),
                           optional_grads(grads, num_outputs),
                           unwrap_all(inputs, num_inputs, "inputs"), retain_graph != 0),
             out_grads);
  });
}

nxd_status_t nxd_function_options_init(nxd_function_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kDefaults, "options"); });
}

nxd_status_t nxd_function_create(const nxd_function_options_t* options,
                                 nxd_function_t** out_function) {
  return engine_guard([&] {
    auto& out = output(out_function, "out_function");
    const auto known = read_options(options, kDefaults, "options");
    out = new nxd_function{CustomFunction(resolve(known))};
    out->function.take_user_data(known.destroy);
  });
}

nxd_status_t nxd_function_apply(nxd_function_t* function, nxd_tensor_t* const* inputs,
                                size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs) {
  return engine_guard([&] {
    clear_outputs(outputs, num_outputs, "outputs");
    check_argument(function, "function: expected a function, got NULL");
    function->stamp.check("function");
    wrap_all(function->function.apply(unwrap_all(inputs, num_inputs, "inputs"), num_outputs),
             outputs);
  });
}

void nxd_function_destroy(nxd_function_t* function) { delete function; }

nxd_status_t nxd_function_call_save(nxd_function_call_t* call, nxd_tensor_t* tensor) {
  return engine_guard([&] { save_for_backward(required(call, "call"), unwrap(tensor, "tensor")); });
}

nxd_status_t nxd_function_call_get_saved(nxd_function_call_t* call, size_t index,
                                         nxd_tensor_t** out_tensor) {
  return engine_guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    out = saved_tensor(required(call, "call"), index);
  });
}

nxd_status_t nxd_function_call_needs_grad(nxd_function_call_t* call, size_t input_index,
                                          int32_t* out_needs) {
  return engine_guard([&] {
    auto& out = output(out_needs, "out_needs");
    out = needs_grad(required(call, "call"), input_index) ? 1 : 0;
  });
}
