// Models written with callbacks, as a caller of the C API writes them.
#pragma once

#include "support/model_support.h"

namespace nxd_test {

using Handles = std::vector<nxd_tensor_t*>;
using Forward = std::function<nxd_status_t(nxd_module_t* self, const Handles& inputs,
                                           nxd_tensor_t** outputs, size_t n_outputs)>;

inline Module callback_module(nxd_context_t* ctx, const char* class_name, Forward forward = {}) {
  const auto run = [](nxd_module_t* self, nxd_tensor_t* const* inputs, size_t n_inputs,
                      nxd_tensor_t** outputs, size_t n_outputs, void* user_data) {
    const auto& function = *static_cast<Forward*>(user_data);
    return function(self, Handles(inputs, inputs + n_inputs), outputs, n_outputs);
  };
  const auto destroy = [](void* user_data) { delete static_cast<Forward*>(user_data); };
  nxd_module_t* out = nullptr;
  if (!forward) {
    NXD_TEST_OK(nxd_module_create(ctx, class_name, nullptr, nullptr, nullptr, &out));
  } else {
    auto* kept = new Forward(std::move(forward));
    NXD_TEST_OK(nxd_module_create(ctx, class_name, run, kept, destroy, &out));
  }
  return Module(out);
}

inline void add_child(const Module& parent, const char* name, const Module& child) {
  NXD_TEST_OK(nxd_module_add_child(parent.get(), name, child.get()));
}

// A step of a callback: gives up the callback with the status of a failed call.
#define NXD_TEST_TRY(call)             \
  do {                                 \
    const nxd_status_t tried = (call); \
    if (tried != NXD_OK) return tried; \
  } while (0)

// One output of a module or an operator; the handle is the caller's.
inline nxd_status_t call_child(nxd_module_t* self, const char* path, const Handles& inputs,
                               Tensor& out) {
  nxd_module_t* child = nullptr;
  NXD_TEST_TRY(nxd_module_find_module(self, path, &child));
  nxd_tensor_t* result = nullptr;
  NXD_TEST_TRY(nxd_module_forward(child, inputs.data(), inputs.size(), &result, 1));
  out.reset(result);
  return NXD_OK;
}

inline nxd_status_t call_op(const char* name, const char* overload, const Handles& inputs,
                            Tensor& out) {
  nxd_tensor_t* result = nullptr;
  NXD_TEST_TRY(nxd_op_call(name, overload, inputs.data(), inputs.size(), &result, 1));
  out.reset(result);
  return NXD_OK;
}

inline Module column_linear(nxd_context_t* ctx, int64_t in, int64_t out, bool bias, bool gather) {
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  options.bias = bias ? NXD_TOGGLE_ON : NXD_TOGGLE_OFF;
  options.gather_output = gather ? NXD_TOGGLE_ON : NXD_TOGGLE_OFF;
  nxd_module_t* made = nullptr;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, in, out, &options, &made));
  return Module(made);
}

inline Module row_linear(nxd_context_t* ctx, int64_t in, int64_t out) {
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  options.input_is_parallel = 1;
  nxd_module_t* made = nullptr;
  NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, in, out, &options, &made));
  return Module(made);
}

inline Module embedding(nxd_context_t* ctx, int64_t count, int64_t size) {
  nxd_module_t* made = nullptr;
  NXD_TEST_OK(nxd_layer_create_parallel_embedding(ctx, count, size, nullptr, &made));
  return Module(made);
}

inline Module layer_norm(nxd_context_t* ctx, int64_t size) {
  nxd_module_t* made = nullptr;
  NXD_TEST_OK(nxd_layer_create_layer_norm(ctx, size, nullptr, &made));
  return Module(made);
}

inline void set_whole(nxd_module_t* root, const std::string& name, const std::vector<double>& data,
                      const std::vector<int64_t>& shape) {
  nxd_parameter_t* parameter = nullptr;
  if (!NXD_TEST_OK(nxd_module_find_parameter(root, name.c_str(), &parameter))) return;
  const std::vector<float> narrow(data.begin(), data.end());
  nxd_tensor_t* tensor = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(narrow.data(), narrow.size() * sizeof(float), shape.data(),
                                   static_cast<int32_t>(shape.size()), NXD_DTYPE_F32, &tensor));
  const Tensor owned(tensor);
  NXD_TEST_OK(nxd_parameter_set_full(parameter, owned.get()));
}

// x + b(gelu(a(ln(x)))), split over the tensor-parallel ranks between a and b.
inline Module residual_block(nxd_context_t* ctx, int64_t features, int64_t hidden) {
  Module block = callback_module(
      ctx, "Block", [](nxd_module_t* self, const Handles& inputs, nxd_tensor_t** outputs, size_t) {
        Tensor normed, wide, active, out, sum;
        NXD_TEST_TRY(call_child(self, "ln", {inputs[0]}, normed));
        NXD_TEST_TRY(call_child(self, "a", {normed.get()}, wide));
        NXD_TEST_TRY(call_op("gelu", nullptr, {wide.get()}, active));
        NXD_TEST_TRY(call_child(self, "b", {active.get()}, out));
        NXD_TEST_TRY(call_op("add", "Tensor", {inputs[0], out.get()}, sum));
        outputs[0] = sum.release();
        return nxd_status_t{NXD_OK};
      });
  add_child(block, "ln", layer_norm(ctx, features));
  add_child(block, "a", column_linear(ctx, features, hidden, true, false));
  add_child(block, "b", row_linear(ctx, hidden, features));
  return block;
}

}  // namespace nxd_test
