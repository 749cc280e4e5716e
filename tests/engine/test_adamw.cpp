// AdamW against torch's values, in every dtype and through both kernels.
#include <limits>

#include "engine/model_support.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

struct Setup {
  Module module;
  nxd_parameter_t* parameter = nullptr;
  nxd_tensor_t* tensor = nullptr;  // borrowed
  nxd_dtype_t dtype = NXD_DTYPE_F32;
};

Tensor make(const std::vector<double>& data, nxd_dtype_t dtype) {
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

Setup make_setup(nxd_context_t* ctx, nxd_dtype_t dtype, const std::vector<double>& start) {
  Setup s;
  s.dtype = dtype;
  nxd_module_t* module = nullptr;
  NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, &module));
  s.module.reset(module);
  nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
  options.dtype = dtype;
  const int64_t shape[] = {static_cast<int64_t>(start.size())};
  NXD_TEST_OK(nxd_module_add_parameter(module, "w", shape, 1, &options, &s.parameter));
  NXD_TEST_OK(nxd_parameter_set_whole(s.parameter, make(start, NXD_DTYPE_F64).get()));
  NXD_TEST_OK(nxd_parameter_get_tensor(s.parameter, &s.tensor));
  return s;
}

void set_grad(const Setup& s, const std::vector<double>& grad) {
  NXD_TEST_OK(nxd_tensor_set_grad(s.tensor, make(grad, s.dtype).get()));
}

Optimizer make_optimizer(nxd_module_t* root, nxd_adamw_options_t options) {
  nxd_optimizer_t* out = nullptr;
  NXD_TEST_OK(nxd_adamw_create(root, &options, &out));
  return Optimizer(out);
}

struct Golden {
  double weight_decay;
  std::vector<std::vector<double>> want;
};

// torch.optim.AdamW, learning rate 0.1, eps 1e-6, p = [1, -2], on three gradients. With decay the
// values follow from the published formula, in double.
const Golden kGolden[] = {
    {0, {{0.9000002, -1.9000001}, {0.8067825, -1.9366105}, {0.7347249, -1.9649104}}},
};

void check_golden(nxd_context_t* ctx, nxd_dtype_t dtype) {
  for (const Golden& golden : kGolden) {
    const Setup s = make_setup(ctx, dtype, {1, -2});
    nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
    options.learning_rate = 0.1;
    options.eps = 1e-6;
    options.weight_decay = golden.weight_decay;
    const Optimizer optimizer = make_optimizer(s.module.get(), options);
    const std::vector<std::vector<double>> grads = {{0.5, -1}, {0.25, 2}, {0, 0}};
    for (size_t i = 0; i < grads.size(); ++i) {
      set_grad(s, grads[i]);
      NXD_TEST_OK(nxd_optimizer_update(optimizer.get()));
      // bf16 shows the master copy's value, rounded to 8 bits.
      const double tol = dtype == NXD_DTYPE_BF16 ? 1.0 / 256 : 1e-7;
      check_values("after step " + std::to_string(i), values(s.tensor), golden.want[i], tol);
    }
  }
}

// The formula of the paper, step by step in double.
std::vector<double> reference(std::vector<double> p, const std::vector<std::vector<double>>& grads,
                              const nxd_adamw_options_t& o) {
  std::vector<double> m(p.size()), v(p.size());
  for (size_t t = 1; t <= grads.size(); ++t) {
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = grads[t - 1][i];
      p[i] -= o.learning_rate * o.weight_decay * p[i];
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
      const auto n = static_cast<double>(t);
      const double mhat = m[i] / (1 - std::pow(o.beta1, n));
      const double vhat = v[i] / (1 - std::pow(o.beta2, n));
      p[i] -= o.learning_rate * mhat / (std::sqrt(vhat) + o.eps);
    }
  }
  return p;
}

void check_formula(nxd_context_t* ctx, nxd_dtype_t dtype, double tol) {
  std::vector<double> start;
  std::vector<std::vector<double>> grads(7);
  for (int i = 0; i < 37; ++i) {  // no multiple of a vector's width
    start.push_back(0.125 * ((i * 7) % 19 - 9));
    for (size_t t = 0; t < grads.size(); ++t) {
      grads[t].push_back(0.0625 * ((i * 5 + static_cast<int>(t) * 3) % 23 - 11));
    }
  }
  nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
  options.learning_rate = 0.03;
  options.beta1 = 0.8;
  options.beta2 = 0.95;
  options.weight_decay = 0.2;
  const Setup s = make_setup(ctx, dtype, start);
  const Optimizer optimizer = make_optimizer(s.module.get(), options);
  for (const auto& grad : grads) {
    set_grad(s, grad);
    NXD_TEST_OK(nxd_optimizer_update(optimizer.get()));
  }
  options.eps = 1e-8;
  check_values("formula", values(s.tensor), reference(start, grads, options), tol);
}

void on_one_rank(nxd_test_rank_fn fn, bool plain) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  options.plain_kernels = plain;
  nxd_test_run_ranks_with(&options, 1, 1, fn, nullptr);
}

void against_torch(void**) {
  for (const bool plain : {false, true}) {
    on_one_rank(
        [](nxd_context_t* ctx, int, int, void*) {
          for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16}) {
            check_golden(ctx, dtype);
          }
          check_formula(ctx, NXD_DTYPE_F64, 1e-14);
          check_formula(ctx, NXD_DTYPE_F32, 1e-6);
          check_formula(ctx, NXD_DTYPE_BF16, 1.0 / 256);
        },
        plain);
  }
}

// Steps far smaller than bf16 resolves add up in the master copy.
void bf16_master(void**) {
  for (const bool plain : {false, true}) {
    on_one_rank(
        [](nxd_context_t* ctx, int, int, void*) {
          const Setup s = make_setup(ctx, NXD_DTYPE_BF16, {1, -2});
          nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
          options.learning_rate = 1e-4;
          const Optimizer optimizer = make_optimizer(s.module.get(), options);
          for (int i = 0; i < 200; ++i) {
            set_grad(s, {1, -1});
            NXD_TEST_OK(nxd_optimizer_update(optimizer.get()));
          }
          check_values("after 200 steps", values(s.tensor), {0.98, -1.98}, 1.0 / 256);
          NXD_TEST_CHECK(values(s.tensor)[0] < 0.99);
          // A value written from outside is where the next step starts.
          NXD_TEST_OK(nxd_parameter_set_whole(s.parameter, make({8, 4}, NXD_DTYPE_F64).get()));
          NXD_TEST_OK(nxd_optimizer_update(optimizer.get()));
          check_values("after a load", values(s.tensor), {8, 4}, 1.0 / 256);
        },
        plain);
  }
}

void rates_steps_and_frozen(void**) {
  on_one_rank(
      [](nxd_context_t* ctx, int, int, void*) {
        const Setup s = make_setup(ctx, NXD_DTYPE_F32, {1, -2});
        nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
        const Optimizer optimizer = make_optimizer(s.module.get(), options);
        double rate = 0;
        NXD_TEST_OK(nxd_optimizer_get_learning_rate(optimizer.get(), &rate));
        NXD_TEST_CHECK(rate == 1e-3);
        // Without a gradient nothing moves, also not by decay.
        NXD_TEST_OK(nxd_optimizer_update(optimizer.get()));
        check_values("no gradient", values(s.tensor), {1, -2}, 0);
        set_grad(s, {1, 1});
        NXD_TEST_OK(nxd_optimizer_set_learning_rate(optimizer.get(), 0));
        NXD_TEST_OK(nxd_optimizer_update(optimizer.get()));
        check_values("rate 0", values(s.tensor), {1, -2}, 0);
        NXD_TEST_OK(nxd_optimizer_set_learning_rate(optimizer.get(), 0.5));
        NXD_TEST_OK(nxd_parameter_set_trainable(s.parameter, 0));
        NXD_TEST_OK(nxd_optimizer_update(optimizer.get()));
        check_values("frozen", values(s.tensor), {1, -2}, 0);
        NXD_TEST_OK(nxd_parameter_set_trainable(s.parameter, 1));
        set_grad(s, {1, 1});
        NXD_TEST_OK(nxd_optimizer_update(optimizer.get()));
        check_values("free", values(s.tensor), {0.5, -2.5}, 1e-6);
        for (const double bad : {-1.0, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
          NXD_TEST_REFUSED(nxd_optimizer_set_learning_rate(optimizer.get(), bad),
                           NXD_ERROR_INVALID_ARGUMENT, "learning_rate");
        }
        NXD_TEST_OK(nxd_optimizer_get_learning_rate(optimizer.get(), &rate));
        NXD_TEST_CHECK(rate == 0.5);
      },
      false);
}

void bad_arguments(void**) {
  on_one_rank(
      [](nxd_context_t* ctx, int, int, void*) {
        const Setup s = make_setup(ctx, NXD_DTYPE_F32, {1, -2});
        nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
        const auto refused = [&](nxd_status_t status, const char* part) {
          auto* out = reinterpret_cast<nxd_optimizer_t*>(&options);
          NXD_TEST_REFUSED(nxd_adamw_create(s.module.get(), &options, &out), status, part);
          NXD_TEST_CHECK(out == nullptr);
          options = NXD_ADAMW_OPTIONS_INIT;
        };
        options.learning_rate = -1;
        refused(NXD_ERROR_INVALID_ARGUMENT, "learning_rate");
        options.beta1 = 1;
        refused(NXD_ERROR_INVALID_ARGUMENT, "beta1");
        options.beta2 = -0.1;
        refused(NXD_ERROR_INVALID_ARGUMENT, "beta2");
        options.beta2 = NAN;
        refused(NXD_ERROR_INVALID_ARGUMENT, "beta2");
        options.eps = -1e-8;
        refused(NXD_ERROR_INVALID_ARGUMENT, "eps");
        options.weight_decay = INFINITY;
        refused(NXD_ERROR_INVALID_ARGUMENT, "weight_decay");
        options.struct_size = 8;
        refused(NXD_ERROR_ABI_MISMATCH, "struct_size");
        nxd_optimizer_t* out = nullptr;
        double rate = 1;
        const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
        NXD_TEST_REFUSED(nxd_adamw_create(nullptr, nullptr, &out), bad, "root");
        NXD_TEST_REFUSED(nxd_adamw_create(s.module.get(), nullptr, nullptr), bad, "out_optimizer");
        NXD_TEST_REFUSED(nxd_optimizer_update(nullptr), bad, "optimizer");
        NXD_TEST_REFUSED(nxd_optimizer_set_learning_rate(nullptr, 1), bad, "optimizer");
        NXD_TEST_REFUSED(nxd_optimizer_get_learning_rate(nullptr, &rate), bad, "optimizer");
        NXD_TEST_CHECK(rate == 0);
        nxd_optimizer_destroy(nullptr);
      },
      false);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(against_torch),
      cmocka_unit_test(bf16_master),
      cmocka_unit_test(rates_steps_and_frozen),
      cmocka_unit_test(bad_arguments),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
