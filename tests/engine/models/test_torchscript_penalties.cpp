// Code of TorchScript files that differentiates, with create_graph, through what the library's
// layers, losses and a caller's function gave it. Their backward passes are not recorded, so that
// such a gradient is rejected.
#include <torch/csrc/jit/api/module.h>

#include "support/temp_dir.h"
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

void write_penalty(const std::string& path) {
  torch::jit::Module made("__torch__.Penalty");
  made.define(R"(
    def forward(self, x: Tensor, y: Tensor, again: bool) -> Tensor:
      grad = torch.autograd.grad([torch.sum(y * y)], [x], None, True, again)[0]
      if grad is None:
        return torch.sum(y)
      return torch.sum(grad * grad)
  )");
  made.save(path);
}

Module load(nxd_context_t* ctx, void* path) {
  Module model;
  NXD_TEST_OK(nxd_model_from_torchscript(ctx, static_cast<const char*>(path), model.out()));
  return model;
}

nxd_status_t run_penalty(const Module& model, const Tensor& x, const Tensor& y, bool again,
                         Tensor& out) {
  nxd_tensor_t* flag = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(&again, 1, nullptr, 0, NXD_DTYPE_BOOL, &flag));
  const Tensor own(flag);
  nxd_tensor_t* inputs[] = {x.get(), y.get(), flag};
  return nxd_module_forward(model.get(), inputs, 3, out.out(), 1);
}

nxd_status_t give_input(nxd_function_call_t*, nxd_tensor_t* const* inputs, size_t,
                        nxd_tensor_t** outputs, size_t, void*) {
  return nxd_tensor_detach(inputs[0], outputs);
}

Tensor by_function(const Tensor& x) {
  nxd_function_options_t options = NXD_FUNCTION_OPTIONS_INIT;
  options.name = "same";
  options.forward = &give_input;
  options.backward = &give_input;
  nxd_function_t* function = nullptr;
  NXD_TEST_OK(nxd_function_create(&options, &function));
  nxd_tensor_t* inputs[] = {x.get()};
  Tensor out;
  NXD_TEST_OK(nxd_function_apply(function, inputs, 1, out.out(), 1));
  nxd_function_destroy(function);
  return out;
}

using Layer = std::function<nxd_status_t(nxd_module_t** out)>;

Tensor by_layer(const Layer& create, const Tensor& x) {
  Module layer;
  NXD_TEST_OK(create(layer.out()));
  return layer({x});
}

// Results that are made of x, of shape [2, 3, 1, 8].
std::vector<std::pair<std::string, Tensor>> results_of(nxd_context_t* ctx, const Tensor& x) {
  const auto linear = [&](nxd_module_t** out) {
    return nxd_layer_create_column_parallel_linear(ctx, 8, 4, nullptr, out);
  };
  const auto rms = [&](nxd_module_t** out) {
    return nxd_layer_create_rms_norm(ctx, 8, nullptr, out);
  };
  const auto norm = [&](nxd_module_t** out) {
    return nxd_layer_create_layer_norm(ctx, 8, nullptr, out);
  };
  const auto rope = [&](nxd_module_t** out) {
    return nxd_layer_create_rotary_embedding(ctx, 8, nullptr, out);
  };
  const Tensor rows = op("reshape", {{"self", x}, {"shape", std::vector<int64_t>{6, 8}}});
  Tensor loss;
  NXD_TEST_OK(nxd_parallel_cross_entropy(ctx, rows.get(), from_ints({0, 7, 3, 1, 2, 5}, {6}).get(),
                                         nullptr, loss.out()));
  return {{"nxd::rms_norm", by_layer(rms, x)}, {"nxd::layer_norm", by_layer(norm, x)},
          {"nxd::rope", by_layer(rope, x)},    {"linear", by_layer(linear, x)},
          {"parallel_cross_entropy", loss},    {"function same", by_function(x)}};
}

void through_own_passes(nxd_context_t* ctx, int, int, void* path) {
  const Module model = load(ctx, path);
  const Tensor x = leaf(wave({2, 3, 1, 8}, NXD_DTYPE_F32, 1), NXD_DTYPE_F32, true);
  for (const auto& [name, y] : results_of(ctx, x)) {
    Tensor once, again;
    NXD_TEST_OK(run_penalty(model, x, y, false, once));
    const std::string reason = name + ": its gradient cannot be differentiated again";
    NXD_TEST_REFUSED(run_penalty(model, x, y, true, again), NXD_ERROR_UNSUPPORTED, reason.c_str());
  }
}

// With plain kernels a layer's products are operators of tensors, which are recorded: the penalty
// 4 |W^T W x|^2 has the gradient 8 (W^T W)^2 x.
void through_plain_products(nxd_context_t* ctx, int, int, void* path) {
  NXD_TEST_OK(nxd_context_set_plain_kernels(ctx, true));
  const Module model = load(ctx, path);
  const Tensor x = leaf(wave({5, 8}, NXD_DTYPE_F64, 1), NXD_DTYPE_F64, true);
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  options.dtype = NXD_DTYPE_F64;
  options.bias = NXD_TOGGLE_OFF;
  Module layer;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 4, &options, layer.out()));
  Tensor out;
  NXD_TEST_OK(run_penalty(model, x, layer({x}), true, out));
  if (!out) return;
  backward(out, from_doubles({1}, {}));
  const Tensor w = whole(layer.parameters()[0].second);
  const Tensor square = op("matmul", {{"self", op("t", {{"self", w}})}, {"other", w}});
  Tensor want = op("matmul", {{"self", x}, {"other", square}});
  want = op("matmul", {{"self", want}, {"other", square}});
  want = op("mul", "Scalar", {{"self", want}, {"other", 8.0}});
  NXD_TEST_CLOSE("gradient", x.grad(), want, 1e-12);
}

void penalties(void**) {
  const TempDir directory;
  std::string path = directory.path() + "/module.pt";
  write_penalty(path);
  nxd_test_run_ranks(1, 1, through_own_passes, path.data());
  nxd_test_run_ranks(1, 1, through_plain_products, path.data());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(penalties)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
