#pragma once

// Handles of the engine, and how its functions take them apart.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "capi/handles.h"
#include "capi/options.h"
#include "capi/tensor_handles.h"
#include "core/base/last_error.h"
#include "engine/autograd/custom_function.h"
#include "engine/module/module.h"
#include "engine/module/tape.h"
#include "engine/ops/op_call.h"
#include "engine/training/model_state.h"

struct nxd_module {
  std::shared_ptr<nxd::Module> value;
};

struct nxd_parameter {
  nxd::Parameter* value;
};

struct nxd_tape {
  std::shared_ptr<nxd::Tape> value;
};

struct nxd_op {
  nxd::OpCall call;
  nxd::ForkGuard fork_guard{};
};

struct nxd_load_report {
  nxd::LoadReport value;
};

struct nxd_function {
  nxd::CustomFunction function;
  nxd::ForkGuard fork_guard{};
};

// Lives on the stack of the callback's call.
struct nxd_function_call {
  nxd::FunctionCall& value;
  std::vector<std::unique_ptr<nxd_tensor>> saved{};  // borrowed by the callback so far, by index

  bool lends(const nxd_tensor_t* handle) const {
    return std::any_of(saved.begin(), saved.end(),
                       [&](const auto& own) { return own.get() == handle; });
  }
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

// For calls that come to callbacks of the caller's, which may destroy the handle.
inline std::shared_ptr<Module> hold(nxd_module_t* module, const char* name) {
  return unwrap(module, name).shared_from_this();
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

inline std::vector<std::string> unwrap_texts(const char* const* values, size_t count,
                                             const char* name) {
  check_array(values, count, name);
  std::vector<std::string> out;
  for (size_t i = 0; i < count; ++i) {
    out.push_back(unwrap_text(values[i], text(name, "[", i, "]").c_str()));
  }
  return out;
}

inline nxd_module_t* new_handle(std::shared_ptr<Module> module) {
  return new nxd_module{std::move(module)};
}

// Handles that a module lends. Its own shares no ownership: inside the module it must not keep it
// alive.
struct ModuleHandles {
  explicit ModuleHandles(Module& owner)
      : module{std::shared_ptr<Module>(std::shared_ptr<void>(), &owner)},
        master_weight{at::Tensor(), owner.attachment().fork_guard()} {}
  nxd_module module;
  nxd_tensor master_weight;  // of a layer that keeps one
};

inline ModuleHandles& handles_of(Module& module) {
  return module.attachment().get<ModuleHandles>(module);
}

inline nxd_module_t* borrow_module(Module& module) { return &handles_of(module).module; }

// Handles that a parameter lends.
struct ParameterHandles {
  explicit ParameterHandles(Parameter& owner)
      : parameter{&owner}, tensor{at::Tensor(), owner.attachment().fork_guard(), &owner} {}
  nxd_parameter parameter;
  nxd_tensor tensor;

  // From now on they are those of another parameter, which outlives them.
  void follow(Parameter& other) {
    parameter.value = &other;
    tensor.parameter = &other;
  }
};

inline ParameterHandles& handles_of(Parameter& parameter) {
  return parameter.attachment().get<ParameterHandles>(parameter);
}

inline nxd_parameter_t* borrow_parameter(Parameter& parameter) {
  return &handles_of(parameter).parameter;
}

// A tensor that forward saved, lent for the callback.
inline nxd_tensor_t* borrow_saved(nxd_function_call_t& call, size_t index) {
  const at::Tensor& tensor = call.value.saved_at(index);
  if (call.saved.size() <= index) call.saved.resize(index + 1);
  if (!call.saved[index]) call.saved[index].reset(wrap(tensor));
  return call.saved[index].get();
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
