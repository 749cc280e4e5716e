#pragma once

// From handles to values and back, for the files of this directory.

#include <memory>
#include <string>
#include <vector>

#include "core/base/options.h"
#include "engine/device/tensor_handle.h"
#include "engine/nn/module.h"
#include "engine/nn/tape.h"
#include "engine/translate.h"

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

inline const at::Tensor& unwrap(nxd_tensor_t* tensor, const char* name) {
  check_argument(tensor != nullptr, name, ": expected a tensor, got NULL");
  return tensor->value;
}

inline const std::shared_ptr<Context>& unwrap(nxd_context_t* ctx, const char* name) {
  check_argument(ctx != nullptr, name, ": expected a context, got NULL");
  ctx->value->check_usable();
  return ctx->value;
}

// Empties an output and gives it back for filling; NULL is refused.
template <class T>
T*& output(T** out, const char* name) {
  check_argument(out != nullptr, name, ": expected a pointer, got NULL");
  *out = nullptr;
  return *out;
}

template <class T>
T& output_value(T* out, const char* name) {
  check_argument(out != nullptr, name, ": expected a pointer, got NULL");
  *out = T{};
  return *out;
}

inline std::string unwrap_text(const char* value, const char* name) {
  check_argument(value != nullptr, name, ": expected a string, got NULL");
  return value;
}

// Borrowed tensors; a NULL among them becomes an undefined tensor.
inline Module::Tensors unwrap_tensors(nxd_tensor_t* const* tensors, size_t n, const char* name) {
  check_argument(tensors != nullptr || n == 0, name, ": expected an array of ", n, ", got NULL");
  Module::Tensors result(n);
  for (size_t i = 0; i < n; ++i) {
    if (tensors[i]) result[i] = tensors[i]->value;
  }
  return result;
}

inline void clear_outputs(nxd_tensor_t** outputs, size_t n, const char* name) {
  check_argument(outputs != nullptr || n == 0, name, ": expected room for ", n, ", got NULL");
  for (size_t i = 0; i < n; ++i) outputs[i] = nullptr;
}

// New handles; an undefined tensor becomes NULL. Nothing is handed out when memory runs out midway.
inline void give_tensors(const Module::Tensors& values, nxd_tensor_t** outputs) {
  std::vector<std::unique_ptr<nxd_tensor>> handles(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].defined()) handles[i] = std::make_unique<nxd_tensor>(nxd_tensor{values[i]});
  }
  for (size_t i = 0; i < values.size(); ++i) outputs[i] = handles[i].release();
}

inline nxd_tensor_t* new_handle(const at::Tensor& value) { return new nxd_tensor{value}; }

inline nxd_module_t* new_handle(std::shared_ptr<Module> module) {
  return new nxd_module{std::move(module)};
}

// Copies a list into a caller's buffer by the rule of nxd_tensor_get_shape.
template <class T>
void copy_list(const std::vector<T>& values, T* buffer, size_t cap, size_t* out_count,
               const char* buffer_name) {
  output_value(out_count, "out count") = values.size();
  if (cap == 0) return;
  check_argument(buffer != nullptr, buffer_name, ": expected room for ", cap, ", got NULL");
  check_argument(values.size() <= cap, buffer_name, ": expected room for at least ", values.size(),
                 ", got ", cap);
  for (size_t i = 0; i < values.size(); ++i) buffer[i] = values[i];
}

}  // namespace nxd
