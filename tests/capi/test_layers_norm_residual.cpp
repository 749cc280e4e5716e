// Norms that add a residual first and give the sum back, against ATen's operators in f64: with and
// without the sum, fused and plain, and with bad residuals.
#include "support/kernel_compare.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr int64_t kSize = 21;
constexpr double kEps = 1e-5;
const std::vector<int64_t> kShape{3, 5, kSize};

struct Setting {
  bool layer;  // layer norm, else RMS
  nxd_dtype_t dtype;
  bool plain, residual, sum, affine;
  std::string name() const {
    return std::string(layer ? "layer" : "rms") + " norm, dtype " + std::to_string(dtype) +
           (plain ? ", plain" : "") + (residual ? ", residual" : "") + (sum ? ", sum" : "") +
           (affine ? "" : ", no weight");
  }
};

Module make(nxd_context_t* ctx, bool layer, nxd_dtype_t dtype, bool affine = true) {
  nxd_norm_options_t options = NXD_NORM_OPTIONS_INIT;
  options.dtype = dtype;
  options.affine = affine ? NXD_TOGGLE_ON : NXD_TOGGLE_OFF;
  Module module;
  NXD_TEST_OK(layer ? nxd_layer_create_layer_norm(ctx, kSize, &options, module.out())
                    : nxd_layer_create_rms_norm(ctx, kSize, &options, module.out()));
  return module;
}

// Outputs, then gradients by x, the residual where there is one, and the parameters.
struct Results {
  std::vector<Tensor> outputs, grads;
};

Results learn(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> weights;
  for (size_t i = 0; i < outputs.size(); ++i) {
    weights.push_back(wave(kShape, outputs[i].dtype(), static_cast<int>(i) + 7));
  }
  return {outputs, gradients(outputs, weights, inputs)};
}

Results run_module(nxd_context_t* ctx, const Setting& s) {
  const Module module = make(ctx, s.layer, s.dtype, s.affine);
  std::vector<Tensor> in{leaf(wave(kShape, s.dtype, 1), s.dtype, true)};
  if (s.residual) in.push_back(leaf(wave(kShape, s.dtype, 2), s.dtype, true));
  std::vector<nxd_tensor_t*> handles, out(s.sum ? 2 : 1);
  for (const Tensor& t : in) handles.push_back(t.get());
  NXD_TEST_OK(
      nxd_module_forward(module.get(), handles.data(), handles.size(), out.data(), out.size()));
  std::vector<Tensor> outputs;
  for (nxd_tensor_t* t : out) outputs.emplace_back(t);
  for (const auto& [name, parameter] : module.parameters()) {
    nxd_tensor_t* tensor = nullptr;
    Tensor kept;
    NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &tensor));
    NXD_TEST_OK(nxd_tensor_retain(tensor, kept.out()));
    in.push_back(kept);
  }
  return learn(outputs, in);
}

Results run_exact(const Setting& s) {
  const auto load = [&](int phase) {
    return leaf(wave(kShape, s.dtype, phase), NXD_DTYPE_F64, true);
  };
  const auto constant = [&](double value) {
    return leaf(from_doubles(std::vector<double>(kSize, value), {kSize}), NXD_DTYPE_F64, true);
  };
  std::vector<Tensor> in{load(1)};
  if (s.residual) in.push_back(load(2));
  const Tensor sum = s.residual ? add(in[0], in[1]) : in[0];
  const Tensor weight = constant(1), bias = constant(0);
  if (s.affine) in.push_back(weight);
  if (s.affine && s.layer) in.push_back(bias);
  std::vector<Tensor> outputs{s.layer ? aten_layer_norm(sum, weight, bias, kEps)
                                      : aten_rms_norm(sum, weight, kEps)};
  if (s.sum) outputs.push_back(sum);
  return learn(outputs, in);
}

void check_setting(nxd_context_t* ctx, const Setting& s) {
  NXD_TEST_OK(nxd_context_set_plain_kernels(ctx, s.plain));
  const Results got = run_module(ctx, s), want = run_exact(s);
  NXD_TEST_OK(nxd_context_set_plain_kernels(ctx, false));
  const double tolerance = s.dtype == NXD_DTYPE_F64   ? 1e-12
                           : s.dtype == NXD_DTYPE_F32 ? 1e-5
                                                      : 2.0 / 128;
  if (!NXD_TEST_CHECK(got.grads.size() == want.grads.size())) return;
  for (size_t i = 0; i < got.outputs.size(); ++i) {
    NXD_TEST_CLOSE(s.name() + " output " + std::to_string(i), got.outputs[i], want.outputs[i],
                   tolerance);
  }
  for (size_t i = 0; i < got.grads.size(); ++i) {
    NXD_TEST_CLOSE(s.name() + " gradient " + std::to_string(i), got.grads[i], want.grads[i],
                   tolerance);
  }
}

void all_settings(nxd_context_t* ctx, int, int, void*) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (int bits = 0; bits < 32; ++bits) {
      const auto bit = [&](int i) { return (bits >> i & 1) != 0; };
      check_setting(ctx, {bit(0), dtype, bit(1), bit(2), bit(3), bit(4)});
    }
  }
}

void test_against_aten(void**) { nxd_test_run_ranks(1, 1, all_settings, nullptr); }

bool requires_grad(const Tensor& x) {
  int32_t is_required = 0;
  NXD_TEST_OK(nxd_tensor_get_requires_grad(x.get(), &is_required));
  return is_required != 0;
}

// A sum is no result of the weights: it requires a gradient where an input does, and alone it gives
// the weights none, for which an optimizer would move them.
void sums_apart(nxd_context_t* ctx, int, int, void*) {
  for (int bits = 0; bits < 8; ++bits) {
    const auto bit = [&](int i) { return (bits >> i & 1) != 0; };
    const Module module = make(ctx, bit(0), NXD_DTYPE_F32);
    std::vector<Tensor> in{leaf(wave(kShape, NXD_DTYPE_F32, 1), NXD_DTYPE_F32, bit(1))};
    if (bit(2)) in.push_back(leaf(in[0], NXD_DTYPE_F32, false));
    nxd_tensor_t *given[] = {in[0].get(), in.back().get()}, *out[2];
    NXD_TEST_OK(nxd_module_forward(module.get(), given, in.size(), out, 2));
    const Tensor norm(out[0]), sum(out[1]);
    NXD_TEST_CHECK(requires_grad(norm) && requires_grad(sum) == bit(1));
    if (!bit(1)) continue;
    const Tensor g = wave(kShape, NXD_DTYPE_F32, 7);
    backward(sum, g);
    NXD_TEST_CHECK(max_difference(in[0].grad(), g) == 0);
    for (const auto& [name, parameter] : module.parameters()) {
      NXD_TEST_CHECK(!whole_grad(parameter));
    }
  }
}

void test_sums_apart(void**) { nxd_test_run_ranks(1, 1, sums_apart, nullptr); }

// Without a residual the sum is the input, which may be written to like any other.
void written_input(nxd_context_t* ctx, int, int, void*) {
  for (const bool layer : {true, false}) {
    const Module module = make(ctx, layer, NXD_DTYPE_F32);
    const Tensor own = leaf(wave(kShape, NXD_DTYPE_F32, 1), NXD_DTYPE_F32, true);
    const Tensor x = op("neg", {{"self", own}});
    nxd_tensor_t *given = x.get(), *out[2];
    NXD_TEST_OK(nxd_module_forward(module.get(), &given, 1, out, 2));
    const Tensor norm(out[0]), sum(out[1]);
    op("mul_", "Scalar", {{"self", sum}, {"other", 3.0}});
    const Tensor g = wave(kShape, NXD_DTYPE_F32, 7);
    backward(sum, g);
    NXD_TEST_CLOSE("gradient", own.grad(), op("mul", "Scalar", {{"self", g}, {"other", -3.0}}), 0);
  }
}

void test_written_input(void**) { nxd_test_run_ranks(1, 1, written_input, nullptr); }

void refusals(nxd_context_t* ctx, int, int, void*) {
  const Tensor x = wave(kShape, NXD_DTYPE_F32, 1);
  for (const bool layer : {true, false}) {
    const Module module = make(ctx, layer, NXD_DTYPE_F32);
    const auto refused = [&](std::vector<nxd_tensor_t*> in, size_t n_outputs, const char* part) {
      std::vector<nxd_tensor_t*> out(n_outputs, x.get());
      NXD_TEST_REFUSED(
          nxd_module_forward(module.get(), in.data(), in.size(), out.data(), n_outputs),
          NXD_ERROR_INVALID_ARGUMENT, part);
      for (nxd_tensor_t* t : out) NXD_TEST_CHECK(t == nullptr);
    };
    refused({x.get(), wave({3, 1, kSize}, NXD_DTYPE_F32, 1).get()}, 1, "residual: expected");
    refused({x.get(), wave({3, 5, 1}, NXD_DTYPE_F32, 1).get()}, 2, "residual: expected");
    refused({x.get(), to(x, NXD_DTYPE_F64).get()}, 1, "residual: expected");
    refused({x.get(), to(x, NXD_DTYPE_I64).get()}, 2, "residual: expected");
    refused({x.get(), x.get(), x.get()}, 1, "expected 1 to 2 inputs, got 3");
    refused({x.get(), x.get()}, 3, "3 were asked for");
    refused({nullptr, x.get()}, 1, "got NULL");
  }
}

void test_refusals(void**) { nxd_test_run_ranks(1, 1, refusals, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_against_aten),
      cmocka_unit_test(test_sums_apart),
      cmocka_unit_test(test_written_input),
      cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests_name("norm_residual", tests, nullptr, nullptr);
}
