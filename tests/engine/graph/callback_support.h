// Modules of the caller whose forwards are functions of C++.
#pragma once

#include "core/base/last_error.h"
#include "engine/graph/graph_support.h"
#include "engine/layers/caller_parameter.h"

namespace nxd_test {

using Forward = std::function<Tensors(nxd_module_t* self, const Tensors& inputs)>;

inline Module make_module(nxd_context_t* ctx, const char* class_name, Forward forward) {
  const auto call = [](nxd_module_t* self, nxd_tensor_t* const* inputs, size_t n_inputs,
                       nxd_tensor_t** outputs, size_t n_outputs, void* user_data) {
    return nxd::guard([&] {
      Tensors given(n_inputs);
      for (size_t i = 0; i < n_inputs; ++i) given[i] = nxd::unwrap_optional(inputs[i], "input");
      const Tensors results = (*static_cast<Forward*>(user_data))(self, given);
      for (size_t i = 0; i < n_outputs; ++i) outputs[i] = nxd::wrap(results.at(i));
    });
  };
  const auto destroy = [](void* user_data) { delete static_cast<Forward*>(user_data); };
  nxd_module_t* out = nullptr;
  NXD_TEST_OK(
      nxd_module_create(ctx, class_name, call, new Forward(std::move(forward)), destroy, &out));
  return Module(out);
}

inline void add_child(const Module& parent, const char* name, const Module& child) {
  NXD_TEST_OK(nxd_module_add_child(parent.get(), name, child.get()));
}

// A replicated parameter of whole numbers from -2 to 2, of which sums and products are exact.
inline void add_parameter(const Module& module, const char* name, std::vector<int64_t> shape) {
  nxd::Parameter& parameter =
      nxd::add_caller_parameter(*module->value, {module->value->context()}, name, shape);
  at::NoGradGuard no_grad;
  at::Tensor& tensor = parameter.tensor();
  tensor.copy_(at::arange(tensor.numel()).mul(7).remainder(5).sub(2).view(tensor.sizes()));
}

// The tensor by which a forward reads a parameter.
inline at::Tensor parameter_of(nxd_module_t* self, const char* name) {
  return self->value->parameter(name)->tensor();
}

inline Tensors call_child(nxd_module_t* self, const char* path, const Tensors& inputs,
                          size_t n_outputs = 1) {
  std::vector<nxd_tensor> handles;
  for (const at::Tensor& input : inputs) handles.push_back(nxd_tensor{input});
  std::vector<nxd_tensor_t*> in, out(n_outputs, nullptr);
  for (nxd_tensor& handle : handles) in.push_back(handle.value.defined() ? &handle : nullptr);
  nxd_module_t* child = nullptr;
  if (nxd_module_find_module(self, path, &child) != NXD_OK) throw std::runtime_error(path);
  nxd::CallbackWatch().check(nxd_module_forward(child, in.data(), in.size(), out.data(), n_outputs),
                             "call_child");
  Tensors results;
  for (nxd_tensor_t* handle : out) results.push_back(Tensor(handle)->value);
  return results;
}

// An operator by name through the header.
inline at::Tensor op_call(const char* name, const char* overload, const Tensors& inputs) {
  std::vector<nxd_tensor> handles;
  for (const at::Tensor& input : inputs) handles.push_back(nxd_tensor{input});
  std::vector<nxd_tensor_t*> in;
  for (nxd_tensor& handle : handles) in.push_back(&handle);
  nxd_tensor_t* out = nullptr;
  nxd::CallbackWatch().check(nxd_op_call(name, overload, in.data(), in.size(), &out, 1), name);
  return Tensor(out)->value;
}

}  // namespace nxd_test
