// Support for tests of optimizers over modules: a module of one parameter, and gradients for it.
#pragma once

#include "support/model_support.h"

namespace nxd_test {

struct Setup {
  Module module;
  nxd_parameter_t* parameter = nullptr;
  nxd_tensor_t* tensor = nullptr;  // borrowed
  nxd_dtype_t dtype = NXD_DTYPE_F32;
};

inline Tensor make(const std::vector<double>& data, nxd_dtype_t dtype) {
  const int64_t shape[] = {static_cast<int64_t>(data.size())};
  nxd_tensor_t* out = nullptr;
  if (dtype == NXD_DTYPE_F64) {
    NXD_TEST_OK(nxd_tensor_from_data(data.data(), data.size() * 8, shape, 1, dtype, &out));
    return Tensor(out);
  }
  std::vector<float> narrow(data.begin(), data.end());
  if (dtype == NXD_DTYPE_F32) {
    NXD_TEST_OK(nxd_tensor_from_data(narrow.data(), narrow.size() * 4, shape, 1, dtype, &out));
    return Tensor(out);
  }
  // The tests' bf16 values are exact: the upper half of the f32 is all there is.
  std::vector<uint16_t> bits;
  for (const float value : narrow) {
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    bits.push_back(static_cast<uint16_t>(wide >> 16U));
  }
  NXD_TEST_OK(nxd_tensor_from_data(bits.data(), bits.size() * 2, shape, 1, dtype, &out));
  return Tensor(out);
}

inline Setup make_setup(nxd_context_t* ctx, nxd_dtype_t dtype, const std::vector<double>& start) {
  Setup s;
  s.dtype = dtype;
  nxd_module_t* module = nullptr;
  NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, &module));
  s.module.reset(module);
  nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
  options.dtype = dtype;
  const int64_t shape[] = {static_cast<int64_t>(start.size())};
  NXD_TEST_OK(nxd_module_add_parameter(module, "w", shape, 1, &options, &s.parameter));
  NXD_TEST_OK(nxd_parameter_set_full(s.parameter, make(start, NXD_DTYPE_F64).get()));
  NXD_TEST_OK(nxd_parameter_get_tensor(s.parameter, &s.tensor));
  return s;
}

inline void set_grad(const Setup& s, const std::vector<double>& grad) {
  NXD_TEST_OK(nxd_tensor_set_grad(s.tensor, make(grad, s.dtype).get()));
}

inline void on_one_rank(nxd_test_rank_fn fn, bool plain) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  options.plain_kernels = plain;
  nxd_test_run_ranks_with(&options, 1, 1, fn, nullptr);
}

}  // namespace nxd_test
