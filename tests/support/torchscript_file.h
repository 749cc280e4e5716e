// TorchScript modules made by hand, their files, and batches for them.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/model_support.h"
#include "support/temp_dir.h"

namespace nxd_test {

namespace jit = torch::jit;

inline at::Tensor numbers(at::IntArrayRef shape, int64_t phase,
                          at::ScalarType dtype = at::kDouble) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return at::arange(count, at::kDouble)
      .add(static_cast<double>(phase))
      .mul(0.7)
      .sin()
      .mul(0.5)
      .reshape(shape)
      .to(dtype)
      .contiguous();
}

inline jit::Module linear(const std::string& name, int64_t in, int64_t out, at::ScalarType dtype) {
  jit::Module made("__torch__." + name);
  made.register_parameter("weight", numbers({out, in}, in, dtype).requires_grad_(), false);
  made.register_parameter("bias", numbers({out}, out, dtype).requires_grad_(), false);
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      return torch.linear(x, self.weight, self.bias)
  )");
  return made;
}

inline jit::Module function(const std::string& name, const std::string& body) {
  jit::Module made("__torch__." + name);
  made.register_attribute("training", c10::BoolType::get(), true);
  made.define("\ndef forward(self, x: Tensor) -> Tensor:\n  return " + body + "\n");
  return made;
}

struct File {
  explicit File(const jit::Module& module) { module.save(path); }
  TempDir directory;
  std::string path = directory.path() + "/module.pt";
};

inline Module load(nxd_context_t* ctx, const std::string& path) {
  nxd_module_t* out = nullptr;
  NXD_TEST_OK(nxd_model_from_torchscript(ctx, path.c_str(), &out));
  return Module(out);
}

inline at::Tensor numbers_of(const std::vector<double>& values) {
  return at::tensor(at::ArrayRef<double>(values), at::kDouble);
}

inline Tensor rows(int64_t first, int64_t count, nxd_dtype_t dtype = NXD_DTYPE_F64) {
  std::vector<double> all;
  for (int64_t i = first * 6; i < (first + count) * 6; ++i) {
    all.push_back(std::cos(0.9 * static_cast<double>(i)));
  }
  const int64_t shape[] = {count, 6};
  const at::Tensor data = numbers_of(all).to(dtype == NXD_DTYPE_F32 ? at::kFloat : at::kDouble);
  nxd_tensor_t* out = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(data.data_ptr(), data.nbytes(), shape, 2, dtype, &out));
  return Tensor(out);
}

inline std::vector<double> values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

inline void backward_of(const Tensor& loss) {
  nxd_tensor_t* of = loss.get();
  NXD_TEST_OK(nxd_backward(&of, nullptr, 1, 0));
}

// Loss and gradients of libtorch's own, for the same rows.
struct Wanted {
  double loss = 0;
  Named gradients;
};

inline Wanted run_by_libtorch(const std::string& path, int64_t count) {
  jit::Module module = jit::load(path);
  const Tensor x = rows(0, count);
  const at::Tensor input = numbers_of(values(x.get())).reshape({count, 6});
  const at::Tensor loss = module.forward({input}).toTensor();
  loss.backward();
  Wanted wanted;
  wanted.loss = loss.item<double>();
  for (const auto& entry : module.named_parameters()) {
    wanted.gradients[entry.name] = values_of(entry.value.grad());
  }
  return wanted;
}

}  // namespace nxd_test
