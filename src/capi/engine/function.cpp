// The custom functions of section 11 of nxd.h.
#include "capi/engine/handles.h"
#include "core/base/options.h"

using namespace nxd;

namespace {

const nxd_function_options_t kDefaults = NXD_FUNCTION_OPTIONS_INIT;

}  // namespace

nxd_status_t nxd_function_options_init(nxd_function_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kDefaults, "options"); });
}

nxd_status_t nxd_function_create(const nxd_function_options_t* options,
                                 nxd_function_t** out_function) {
  return engine_guard([&] {
    auto& out = output(out_function, "out_function");
    out = new nxd_function{CustomFunction(read_options(options, kDefaults, "options"))};
    out->function.take_user_data();
  });
}

nxd_status_t nxd_function_apply(nxd_function_t* function, nxd_tensor_t* const* inputs,
                                size_t n_inputs, nxd_tensor_t** outputs, size_t n_outputs) {
  return engine_guard([&] {
    clear_outputs(outputs, n_outputs, "outputs");
    check_argument(function, "function: expected a function, got NULL");
    function->stamp.check("function");
    wrap_all(function->function.apply(unwrap_all(inputs, n_inputs, "inputs"), n_outputs), outputs);
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
