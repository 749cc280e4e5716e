// Support for tests of data parallelism over modules: ranks as threads, and a container of
// parameters whose gradients are the factors of its loss.
#pragma once

#include "support/model_support.h"

#include "support/check.h"

namespace nxd_test {

using Ddp = std::unique_ptr<nxd_ddp_t, Destroyer<nxd_ddp_destroy>>;

inline void on_copies(int copies, nxd_test_rank_fn fn, const void* user_data = nullptr,
                      int64_t timeout_ms = 60000) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = timeout_ms;
  nxd_test_run_ranks_with(&options, copies, 1, fn, const_cast<void*>(user_data));
}

inline Tensor make(const std::vector<double>& data, std::vector<int64_t> shape, nxd_dtype_t dtype) {
  std::vector<float> f32(data.begin(), data.end());
  std::vector<uint16_t> bf16;
  for (const float value : f32) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bf16.push_back(static_cast<uint16_t>(bits >> 16U));
  }
  const void* from = dtype == NXD_DTYPE_F64   ? static_cast<const void*>(data.data())
                     : dtype == NXD_DTYPE_F32 ? static_cast<const void*>(f32.data())
                                              : bf16.data();
  const size_t size = dtype == NXD_DTYPE_F64 ? 8 : dtype == NXD_DTYPE_F32 ? 4 : 2;
  nxd_tensor_t* out = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(from, data.size() * size, shape.data(),
                                   static_cast<int32_t>(shape.size()), dtype, &out));
  return Tensor(out);
}

inline Tensor op(const char* name, const char* overload, std::vector<nxd_tensor_t*> inputs) {
  nxd_tensor_t* out = nullptr;
  NXD_TEST_OK(nxd_op_call(name, overload, inputs.data(), inputs.size(), &out, 1));
  return Tensor(out);
}

inline nxd_status_t backward(const Tensor& loss) {
  nxd_tensor_t* out = loss.get();
  return nxd_backward(&out, nullptr, 1, 0);
}

// Parameters of a container, by index.
struct Holder {
  Holder(nxd_context_t* ctx, const std::vector<std::vector<int64_t>>& shapes, nxd_dtype_t of)
      : dtype(of) {
    nxd_module_t* out = nullptr;
    NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, &out));
    module.reset(out);
    for (size_t i = 0; i < shapes.size(); ++i) {
      nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
      options.dtype = dtype;
      nxd_parameter_t* parameter = nullptr;
      NXD_TEST_OK(nxd_module_add_parameter(module.get(), ("p" + std::to_string(i)).c_str(),
                                           shapes[i].data(), static_cast<int32_t>(shapes[i].size()),
                                           &options, &parameter));
      nxd_tensor_t* tensor = nullptr;
      NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &tensor));
      parameters.push_back(parameter);
      tensors.push_back(tensor);
    }
  }

  // The sum over parameters of p_i times a factor; one that is 0 leaves its parameter out.
  Tensor loss(const std::vector<double>& factors) const {
    Tensor total;
    for (size_t i = 0; i < factors.size(); ++i) {
      if (factors[i] == 0) continue;
      const Tensor factor = make({factors[i]}, {}, dtype);
      Tensor term = op("sum", "", {op("mul", "Tensor", {tensors[i], factor.get()}).get()});
      total = total ? op("add", "Tensor", {total.get(), term.get()}) : std::move(term);
    }
    return total;
  }
  bool has_grad(size_t i) const { return grad_tensor(i) != nullptr; }
  Tensor grad_tensor(size_t i) const {
    nxd_tensor_t* grad = nullptr;
    NXD_TEST_OK(nxd_parameter_gather_full_grad(parameters[i], &grad));
    return Tensor(grad);
  }
  // All elements are to be alike.
  double grad(size_t i) const {
    const Tensor tensor = grad_tensor(i);
    if (!tensor) return NAN;
    const std::vector<double> v = values(tensor.get());
    for (const double x : v) {
      if (x != v[0]) return NAN;
    }
    return v[0];
  }
  Ddp ddp(nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT) const {
    if (options.bucket_bytes == 0) options.bucket_bytes = 64;
    nxd_ddp_t* out = nullptr;
    NXD_TEST_OK(nxd_ddp_create(module.get(), &options, &out));
    return Ddp(out);
  }

  nxd_dtype_t dtype;
  Module module;
  std::vector<nxd_parameter_t*> parameters;
  std::vector<nxd_tensor_t*> tensors;  // borrowed
};

inline void finish(const Ddp& ddp) { NXD_TEST_OK(nxd_ddp_finish(ddp.get(), nullptr, nullptr)); }

}  // namespace nxd_test
