// AdamW against torch's and NxD Core's values, in every dtype, through both kernels, and in the
// three ways of bf16.
#include <limits>
#include <numeric>

#include "capi/optimizer_support.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

Optimizer make_optimizer(nxd_module_t* root, nxd_adamw_options_t options) {
  nxd_optimizer_t* out = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_adamw(root, &options, &out));
  return Optimizer(out);
}

struct Golden {
  nxd_adamw_formula_t formula;
  double weight_decay;
  std::vector<std::vector<double>> want;
};

// torch.optim.AdamW and NxD Core's AdamW_FP32OptimParams, learning rate 0.1, eps 1e-6, p = [1, -2],
// on three gradients.
const Golden kGolden[] = {
    {NXD_ADAMW_FORMULA_TORCH,
     0,
     {{0.9000002, -1.9000001}, {0.8067825, -1.9366105}, {0.7347249, -1.9649104}}},
    {NXD_ADAMW_FORMULA_NXD,
     0,
     {{0.9000064, -1.9000032}, {0.8067937, -1.9366131}, {0.7347400, -1.9649127}}},
    {NXD_ADAMW_FORMULA_NXD,
     0.01,
     {{0.8991063, -1.8981032}, {0.8050877, -1.9327784}, {0.7323011, -1.9591168}}},
};

void check_golden(nxd_context_t* ctx, nxd_dtype_t dtype) {
  for (const Golden& golden : kGolden) {
    const Setup s = make_setup(ctx, dtype, {1, -2});
    nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
    options.formula = golden.formula;
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
          NXD_TEST_OK(nxd_parameter_set_full(s.parameter, make({8, 4}, NXD_DTYPE_F64).get()));
          NXD_TEST_OK(nxd_optimizer_update(optimizer.get()));
          check_values("after a load", values(s.tensor), {8, 4}, 1.0 / 256);
        },
        plain);
  }
}

struct Held {
  std::vector<double> values;
  uint64_t state_bytes;
};

// n elements at 1 after updates that lower each by a hundredth of bf16's spacing there. With tp
// ranks each holds a part.
Held lowered(nxd_context_t* ctx, nxd_bf16_update_t how, int64_t n, int ranks, int updates = 50) {
  Setup s;
  nxd_module_t* module = nullptr;
  NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, &module));
  s.module.reset(module);
  s.dtype = NXD_DTYPE_BF16;
  nxd_parameter_options_t parameter = NXD_PARAMETER_OPTIONS_INIT;
  parameter.dtype = NXD_DTYPE_BF16;
  parameter.has_shard_dim = parameter.shard_dim = 1;
  parameter.init = NXD_INIT_CONSTANT;
  parameter.init_a = 1;
  const int64_t shape[] = {3, n / 3};
  NXD_TEST_OK(nxd_module_add_parameter(module, "w", shape, 2, &parameter, &s.parameter));
  NXD_TEST_OK(nxd_parameter_get_tensor(s.parameter, &s.tensor));
  nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
  options.learning_rate = 0.01 / 256;
  options.bf16_update = how;
  const Optimizer optimizer = make_optimizer(module, options);
  const int64_t local[] = {3, n / 3 / ranks};
  const std::vector<uint16_t> ones(static_cast<size_t>(n / ranks), 0x3f80);
  nxd_tensor_t* grad = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(ones.data(), ones.size() * 2, local, 2, s.dtype, &grad));
  NXD_TEST_OK(nxd_tensor_set_grad(s.tensor, grad));
  nxd_tensor_destroy(grad);
  for (int i = 0; i < updates; ++i) NXD_TEST_OK(nxd_optimizer_update(optimizer.get()));
  Held held{{}, 0};
  NXD_TEST_OK(nxd_optimizer_get_state_bytes(optimizer.get(), &held.state_bytes));
  nxd_tensor_t* whole = nullptr;
  NXD_TEST_OK(nxd_parameter_gather_full(s.parameter, &whole));
  held.values = values(Tensor(whole).get());
  return held;
}

double mean(const std::vector<double>& all) {
  return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
}

// Half of bf16's spacing below 1 is lost to nearest, comes out in the mean of stochastic roundings,
// whose standard deviation is 0.0028 / sqrt(n), and is kept by the master until it shows.
void three_ways_of_bf16(void**) {
  constexpr int64_t kCount = 3 * 4000;
  for (const bool plain : {false, true}) {
    on_one_rank(
        [](nxd_context_t* ctx, int, int, void*) {
          const Held nearest = lowered(ctx, NXD_BF16_UPDATE_NEAREST, kCount, 1);
          NXD_TEST_CHECK(mean(nearest.values) == 1);
          NXD_TEST_CHECK(nearest.state_bytes == 8 * kCount);
          NXD_TEST_OK(nxd_context_set_step(ctx, 0, 0));
          const Held drawn = lowered(ctx, NXD_BF16_UPDATE_STOCHASTIC, kCount, 1);
          NXD_TEST_CHECK(std::fabs(mean(drawn.values) - (1 - 0.5 / 256)) < 5 * 0.0028 / 109);
          NXD_TEST_CHECK(drawn.state_bytes == 8 * kCount);
          NXD_TEST_OK(nxd_context_set_step(ctx, 0, 0));
          NXD_TEST_CHECK(lowered(ctx, NXD_BF16_UPDATE_STOCHASTIC, kCount, 1).values ==
                         drawn.values);
          NXD_TEST_CHECK(lowered(ctx, NXD_BF16_UPDATE_STOCHASTIC, kCount, 1).values !=
                         drawn.values);
          // Four tenths of the spacing round to where it was, six tenths to the next value.
          const Held unmoved = lowered(ctx, NXD_BF16_UPDATE_MASTER, kCount, 1, 40);
          NXD_TEST_CHECK(mean(unmoved.values) == 1);
          const Held moved = lowered(ctx, NXD_BF16_UPDATE_MASTER, kCount, 1, 60);
          NXD_TEST_CHECK(mean(moved.values) == 1 - 1.0 / 256);
          NXD_TEST_CHECK(moved.state_bytes == 12 * kCount);
        },
        plain);
  }
}

// A shard is rounded as the whole would be.
void stochastic_on_any_layout(void**) {
  static std::vector<double> seen[2];
  on_one_rank([](nxd_context_t* ctx, int, int,
                 void*) { seen[0] = lowered(ctx, NXD_BF16_UPDATE_STOCHASTIC, 3 * 50, 1).values; },
              false);
  nxd_test_run_ranks(
      2, 2,
      [](nxd_context_t* ctx, int rank, int, void*) {
        const Held held = lowered(ctx, NXD_BF16_UPDATE_STOCHASTIC, 3 * 50, 2);
        if (rank == 0) seen[1] = held.values;
      },
      nullptr);
  assert_true(mean(seen[0]) < 1 && seen[0] == seen[1]);
}

// 4 x 7 elements at 1 after updates that lower each by a hundredth of bf16's spacing there. On two
// ranks the rows of the last have padding behind three elements.
std::vector<double> lowered_beside_padding(nxd_context_t* ctx, int ranks) {
  nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
  linear.dtype = NXD_DTYPE_BF16;
  linear.bias = NXD_TOGGLE_OFF;
  linear.pad = 1;
  linear.init = NXD_INIT_CONSTANT;
  linear.init_a = 1;
  nxd_module_t* created = nullptr;
  NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, 7, 4, &linear, &created));
  const Module module(created);
  nxd_parameter_t* parameter = nullptr;
  nxd_tensor_t *tensor = nullptr, *grad = nullptr, *whole = nullptr;
  NXD_TEST_OK(nxd_module_find_parameter(created, "weight", &parameter));
  NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &tensor));
  const int64_t local[] = {4, (7 + ranks - 1) / ranks};
  const std::vector<uint16_t> ones(static_cast<size_t>(local[0] * local[1]), 0x3f80);
  NXD_TEST_OK(nxd_tensor_from_data(ones.data(), ones.size() * 2, local, 2, NXD_DTYPE_BF16, &grad));
  NXD_TEST_OK(nxd_tensor_set_grad(tensor, grad));
  nxd_tensor_destroy(grad);
  nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
  options.learning_rate = 0.01 / 256;
  options.bf16_update = NXD_BF16_UPDATE_STOCHASTIC;
  const Optimizer optimizer = make_optimizer(created, options);
  for (int i = 0; i < 100; ++i) NXD_TEST_OK(nxd_optimizer_update(optimizer.get()));
  NXD_TEST_OK(nxd_parameter_gather_full(parameter, &whole));
  return values(Tensor(whole).get());
}

// Padding lies behind each row of a shard: every element gets its own update and bits.
void stochastic_beside_padding(void**) {
  static std::vector<double> seen[2];
  on_one_rank([](nxd_context_t* ctx, int, int, void*) { seen[0] = lowered_beside_padding(ctx, 1); },
              false);
  nxd_test_run_ranks(
      2, 2,
      [](nxd_context_t* ctx, int rank, int, void*) {
        const std::vector<double> whole = lowered_beside_padding(ctx, 2);
        if (rank == 0) seen[1] = whole;
      },
      nullptr);
  assert_true(mean(seen[0]) < 1 && seen[0] == seen[1]);
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
          NXD_TEST_REFUSED(nxd_optimizer_create_adamw(s.module.get(), &options, &out), status,
                           part);
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
        options.formula = 2;
        refused(NXD_ERROR_INVALID_ARGUMENT, "formula");
        options.bf16_update = -1;
        refused(NXD_ERROR_INVALID_ARGUMENT, "bf16_update");
        options.struct_size = 8;
        refused(NXD_ERROR_ABI_MISMATCH, "struct_size");
        nxd_optimizer_t* out = nullptr;
        double rate = 1;
        const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
        NXD_TEST_REFUSED(nxd_optimizer_create_adamw(nullptr, nullptr, &out), bad, "root");
        NXD_TEST_REFUSED(nxd_optimizer_create_adamw(s.module.get(), nullptr, nullptr), bad,
                         "out_optimizer");
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
      cmocka_unit_test(three_ways_of_bf16),
      cmocka_unit_test(stochastic_on_any_layout),
      cmocka_unit_test(rates_steps_and_frozen),
      cmocka_unit_test(bad_arguments),
      cmocka_unit_test(stochastic_beside_padding),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
