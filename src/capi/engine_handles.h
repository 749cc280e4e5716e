#pragma once

// Handles of the engine, and how its functions take them apart.
#include <memory>
#include <string>
#include <vector>

#include "capi/handles.h"
#include "core/base/options.h"
#include "engine/autograd/custom_function.h"
#include "engine/module/module.h"
#include "engine/module/tape.h"
#include "engine/ops/op_call.h"
#include "engine/tensor/tensor_handle.h"
#include "engine/training/model_state.h"
#include "engine/translate.h"

struct nxd_op {
  nxd::OpCall call;
  nxd::ForkStamp stamp{};
};

struct nxd_load_report {
  nxd::LoadReport value;
};

struct nxd_function {
  nxd::CustomFunction function;
  nxd::ForkStamp stamp{};
};

namespace nxd {

template <class T>
T& unwrap(T* handle, const char* name) {
  check_argument(handle != nullptr, name, ": expected a handle, got NULL");
  return *handle;
}

inline Module& unwrap(nxd_module_t* module, const char* name) {
  check_argument(module != nullptr, name, ": expected a module, got NULL");
  return *module->value;
}

inline Parameter& unwrap(nxd_parameter_t* parameter, const char* name) {
  check_argument(parameter != nullptr, name, ": expected a parameter, got NULL");
  return *parameter->value;
}

inline const std::shared_ptr<Context>& unwrap(nxd_context_t* ctx, const char* name) {
  check_argument(ctx != nullptr, name, ": expected a context, got NULL");
  ctx->value->check_usable();
  return ctx->value;
}

inline std::string unwrap_text(const char* value, const char* name) {
  check_argument(value != nullptr, name, ": expected a string, got NULL");
  return value;
}

// Borrowed tensors; a NULL among them becomes an undefined tensor.
inline Module::Tensors unwrap_tensors(nxd_tensor_t* const* tensors, size_t n, const char* name) {
  check_array(tensors, n, name);
  Module::Tensors result(n);
  for (size_t i = 0; i < n; ++i) {
    if (tensors[i]) result[i] = tensors[i]->value;
  }
  return result;
}

inline nxd_module_t* new_handle(std::shared_ptr<Module> module) {
  return new nxd_module{std::move(module)};
}

// Copies a list into a caller's buffer by the rule of nxd_tensor_get_shape: how many there are is
// told also when there is no room for them.
template <class T>
void copy_list(const std::vector<T>& values, T* buffer, size_t cap, size_t* out_count,
               const char* buffer_name) {
  auto& count = output(out_count, "out count");
  check_argument(cap == 0 || buffer != nullptr, buffer_name, ": expected room for ", cap,
                 ", got NULL");
  count = values.size();
  if (cap == 0) return;
  check_argument(values.size() <= cap, buffer_name, ": expected room for at least ", values.size(),
                 ", got ", cap);
  for (size_t i = 0; i < values.size(); ++i) buffer[i] = values[i];
}

}  // namespace nxd
