// NEURON_RT_STOCHASTIC_ROUNDING_EN on replay: results lie beside the exact value, whose mean they
// have, with bits that a seed decides on; and a model in bf16 trains on.
#include <cstdlib>
#include <thread>

#include "support/model_support.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

// Runs on a thread of its own, whose steps count from 0.
template <class Function>
auto rounded(const char* on, const char* seed, Function&& function) {
  decltype(function()) out;
  ::setenv("NEURON_RT_STOCHASTIC_ROUNDING_EN", on, 1);
  ::setenv("NEURON_RT_STOCHASTIC_ROUNDING_SEED", seed, 1);
  std::thread([&] { out = function(); }).join();
  ::unsetenv("NEURON_RT_STOCHASTIC_ROUNDING_EN");
  ::unsetenv("NEURON_RT_STOCHASTIC_ROUNDING_SEED");
  return out;
}

Tensor of(const std::vector<float>& values, const std::vector<int64_t>& shape) {
  nxd_tensor_t *here = nullptr, *there = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(values.data(), values.size() * sizeof(float), shape.data(),
                                   static_cast<int32_t>(shape.size()), NXD_DTYPE_F32, &here));
  const Tensor owned(here);
  NXD_TEST_OK(nxd_tensor_to_device(here, NXD_DEVICE_XLA, &there));
  return Tensor(there);
}

Tensor call(const char* name, const char* overload, nxd_tensor_t* self, nxd_tensor_t* other,
            const char* other_name, nxd_dtype_t dtype = NXD_DTYPE_INVALID) {
  nxd_op_t* op = nullptr;
  nxd_tensor_t* out = nullptr;
  NXD_TEST_OK(nxd_op_create(name, overload, &op));
  NXD_TEST_OK(nxd_op_set_tensor(op, "self", self));
  if (other) NXD_TEST_OK(nxd_op_set_tensor(op, other_name, other));
  if (dtype != NXD_DTYPE_INVALID) NXD_TEST_OK(nxd_op_set_dtype(op, "dtype", dtype));
  NXD_TEST_OK(nxd_op_run(op));
  NXD_TEST_OK(nxd_op_share_tensor(op, 0, &out));
  nxd_op_destroy(op);
  return Tensor(out);
}

Tensor to_bf16(const Tensor& x) {
  return call("to", "dtype", x.get(), nullptr, "", NXD_DTYPE_BF16);
}

std::vector<float> wave(size_t count, float step) {
  std::vector<float> out;
  for (size_t i = 0; i < count; ++i) out.push_back(std::sin(step * static_cast<float>(i)));
  return out;
}

// The distance of two bf16 beside a value.
double gap(double value) { return std::ldexp(1.0, std::ilogb(value) - 7); }

// Each result is one of the two beside the exact value, and their mean is that value: the mean of
// errors, in gaps, has a deviation of at most 1/2 over the root of their number.
void check_unbiased(const std::vector<double>& got, const std::vector<double>& exact) {
  assert_int_equal(got.size(), exact.size());
  double sum = 0;
  size_t inexact = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double error = got[i] - exact[i];
    if (!(std::fabs(error) < 1.001 * gap(exact[i]))) fail_msg("%g for %g", got[i], exact[i]);
    sum += error / gap(exact[i]);
    inexact += error != 0 ? 1 : 0;
  }
  assert_true(inexact > exact.size() / 2);
  const double bound = 4 * 0.5 / std::sqrt(static_cast<double>(exact.size()));
  if (!(std::fabs(sum / static_cast<double>(exact.size())) < bound)) {
    fail_msg("a mean error of %g gaps, at most %g expected",
             sum / static_cast<double>(exact.size()), bound);
  }
}

constexpr int64_t kSide = 96;

std::vector<double> cast() {
  return values(to_bf16(of(std::vector<float>(20000, 1.001F), {20000})).get());
}

std::vector<double> product() {
  const Tensor a = to_bf16(of(wave(kSide * kSide, 0.37F), {kSide, kSide}));
  const Tensor b = to_bf16(of(wave(kSide * kSide, 0.11F), {kSide, kSide}));
  // The graph before it has the casts.
  NXD_TEST_OK(nxd_mark_step(1));
  return values(call("matmul", nullptr, a.get(), b.get(), "other").get());
}

// The same in f32, of the factors that were rounded.
std::vector<double> exact_product() {
  const Tensor a = to_bf16(of(wave(kSide * kSide, 0.37F), {kSide, kSide}));
  const Tensor b = to_bf16(of(wave(kSide * kSide, 0.11F), {kSide, kSide}));
  NXD_TEST_OK(nxd_mark_step(1));
  const auto wide = [](const Tensor& x) {
    return call("to", "dtype", x.get(), nullptr, "", NXD_DTYPE_F32);
  };
  return values(call("matmul", nullptr, wide(a).get(), wide(b).get(), "other").get());
}

// A norm of groups in the dtype, of values that were rounded.
std::vector<double> normalized(nxd_dtype_t dtype) {
  const Tensor narrow = to_bf16(of(wave(20000, 0.37F), {4, 8, 625}));
  NXD_TEST_OK(nxd_mark_step(1));
  const Tensor x = call("to", "dtype", narrow.get(), nullptr, "", dtype);
  nxd_op_t* op = nullptr;
  nxd_tensor_t* out = nullptr;
  NXD_TEST_OK(nxd_op_create("group_norm", nullptr, &op));
  NXD_TEST_OK(nxd_op_set_tensor(op, "input", x.get()));
  NXD_TEST_OK(nxd_op_set_int(op, "num_groups", 2));
  NXD_TEST_OK(nxd_op_run(op));
  NXD_TEST_OK(nxd_op_share_tensor(op, 0, &out));
  nxd_op_destroy(op);
  return values(Tensor(out).get());
}

void the_mean_is_the_value(void**) {
  check_unbiased(rounded("1", "3", cast), std::vector<double>(20000, 1.001F));
  check_unbiased(rounded("1", "3", product), rounded("1", "3", exact_product));
  check_unbiased(rounded("1", "3", [] { return normalized(NXD_DTYPE_BF16); }),
                 rounded("1", "3", [] { return normalized(NXD_DTYPE_F32); }));
}

void a_seed_decides_on_the_bits(void**) {
  const auto first = rounded("1", "3", product);
  assert_true(first == rounded("1", "3", product));
  assert_true(first != rounded("1", "4", product));
  // The second graph of a thread draws other bits than its first.
  const auto twice = rounded("1", "3", [] { return std::pair{cast(), cast()}; });
  assert_true(twice.first == rounded("1", "3", cast));
  assert_true(twice.first != twice.second);
}

void off_it_rounds_to_nearest(void**) {
  const std::vector<float> exact = wave(1000, 0.37F);
  const auto narrowed = [&] { return values(to_bf16(of(exact, {1000})).get()); };
  const auto nearest = rounded("0", "3", narrowed);
  for (size_t i = 1; i < exact.size(); ++i) {
    assert_true(std::fabs(nearest[i] - exact[i]) <= 0.5001 * gap(exact[i]));
  }
  assert_true(rounded("1", "3", narrowed) != nearest);
}

// Values that bf16 can hold, in another order, or the larger of two.
void exact_results_stay(void**) {
  const auto moved_about = [] {
    const Tensor x = of({1, 2, -3, 0.5F, -0.25F, 4}, {2, 3});
    const Tensor narrow = to_bf16(x);
    const Tensor turned = call("t", nullptr, narrow.get(), nullptr, "");
    return values(call("maximum", nullptr, turned.get(), turned.get(), "other").get());
  };
  assert_true(rounded("1", "3", moved_about) == (std::vector<double>{1, 0.5, 2, -0.25, -3, 4}));
}

// bf16's own largest number, and the one behind 1: those of f32 would be rounded off.
void numbers_of_the_dtype_stay(void**) {
  const auto finite = [] {
    const Tensor x = to_bf16(of({INFINITY, -INFINITY, 1, NAN}, {4}));
    return values(call("nan_to_num", nullptr, x.get(), nullptr, "").get());
  };
  const double largest = 0x1.FEp127;
  assert_true(rounded("1", "3", finite) == (std::vector<double>{largest, -largest, 1, 0}));
  const auto next = [] {
    const Tensor x = to_bf16(of({1, 1}, {2})), y = to_bf16(of({2, -2}, {2}));
    return values(call("nextafter", nullptr, x.get(), y.get(), "other").get());
  };
  assert_true(rounded("1", "3", next) == (std::vector<double>{1 + 0x1p-7, 1 - 0x1p-8}));
}

// Every operator of a model's step in bf16 has its form in f32: losses are those of rounding to
// nearest but for some more noise, and ranks that have copies keep them equal.
void models_train(void**) {
  for (const char* name : {"llama_tiny", "gpt2_tiny", "bert_tiny"}) {
    const ModelOracle oracle(name);
    const auto losses = [&](const char* on) {
      ::setenv("NEURON_RT_STOCHASTIC_ROUNDING_EN", on, 1);
      Layout layout{2, false, NXD_DTYPE_BF16};
      layout.device = NXD_DEVICE_XLA;
      NXD_TEST_OK(nxd_device_reset_metrics());
      const auto runs = on_ranks<std::vector<double>>(layout, 7, [&](nxd_context_t* ctx) {
        const Module model = create_model(ctx, oracle.config, layout);
        return train(model.get(), oracle, 2).losses;
      });
      ::unsetenv("NEURON_RT_STOCHASTIC_ROUNDING_EN");
      nxd_device_metrics_t m = {};
      m.struct_size = sizeof m;
      NXD_TEST_OK(nxd_device_get_metrics(&m));
      assert_int_equal(m.fallbacks, 0);
      assert_true(runs[0] == runs[1]);
      return runs[0];
    };
    const std::vector<double> nearest = losses("0"), got = losses("1");
    assert_true(got != nearest);
    for (size_t i = 0; i < got.size(); ++i) check_loss(name, got[i], nearest[i], 2e-2);
  }
}

// The weights of a norm, which are 1, after a step of 1/1000: less than half of the distance to the
// bf16 beside it, on either side.
std::vector<double> stepped_weights(const char* on, nxd_bf16_update_t update) {
  const ModelOracle oracle("llama_tiny");
  ::setenv("NEURON_RT_STOCHASTIC_ROUNDING_EN", on, 1);
  Layout layout{1, false, NXD_DTYPE_BF16};
  layout.device = NXD_DEVICE_XLA;
  const auto runs = on_ranks<std::vector<double>>(layout, 7, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle.config, layout);
    nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
    options.bf16_update = update;
    options.learning_rate = 1e-3;
    nxd_optimizer_t* made = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_adamw(model.get(), &options, &made));
    const Optimizer optimizer(made);
    run_backward(model.get(), oracle);
    NXD_TEST_OK(nxd_optimizer_step(made, nullptr, nullptr));
    std::vector<double> weights;
    for (const auto& [name, given] : whole_parameters(model.get())) {
      if (name.find("norm") == std::string::npos) continue;
      weights.insert(weights.end(), given.begin(), given.end());
    }
    return weights;
  });
  ::unsetenv("NEURON_RT_STOCHASTIC_ROUNDING_EN");
  return runs[0];
}

// Where the device rounds stochastically, an update without a copy in f32 is no exception.
void updates_are_rounded_so_too(void**) {
  for (const auto& [on, update] :
       {std::pair{"0", NXD_BF16_UPDATE_NEAREST}, std::pair{"1", NXD_BF16_UPDATE_MASTER}}) {
    for (const double weight : stepped_weights(on, update)) assert_true(weight == 1);
  }
  const std::vector<double> got = stepped_weights("1", NXD_BF16_UPDATE_NEAREST);
  size_t moved = 0;
  for (const double weight : got) {
    assert_true(weight == 1 || weight == 1 - 0x1p-8 || weight == 1 + 0x1p-7);
    moved += weight != 1 ? 1 : 0;
  }
  // About a fifth of them.
  assert_true(got.size() > 50 && moved > got.size() / 20 && moved < got.size() / 2);
  assert_true(got == stepped_weights("1", NXD_BF16_UPDATE_NEAREST));
}

// One rank looks at something of its own before a graph that both have.
void copies_of_ranks_stay_alike(void**) {
  ::setenv("NEURON_RT_STOCHASTIC_ROUNDING_EN", "1", 1);
  static std::vector<double> seen[2];
  nxd_test_run_ranks(
      2, 2,
      [](nxd_context_t* ctx, int rank, int, void*) {
        for (int step = 0; step < 2; ++step) {
          if (rank == 0) values(to_bf16(of({1, 2, 3}, {3})).get());
          nxd_tensor_t* out = nullptr;
          NXD_TEST_OK(nxd_reduce_from_tensor_region(ctx, of({1, 2, 3}, {3}).get(), &out));
          const Tensor sum(out);
          seen[rank] = values(to_bf16(of(std::vector<float>(2000, 1.001F), {2000})).get());
          NXD_TEST_CHECK(values(sum.get())[2] == 6);
        }
      },
      nullptr);
  ::unsetenv("NEURON_RT_STOCHASTIC_ROUNDING_EN");
  assert_true(seen[0] == seen[1]);
}

}  // namespace

int main() {
  ::setenv("NXD_XLA_BACKEND", "replay", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_mean_is_the_value),      cmocka_unit_test(a_seed_decides_on_the_bits),
      cmocka_unit_test(off_it_rounds_to_nearest),   cmocka_unit_test(exact_results_stay),
      cmocka_unit_test(numbers_of_the_dtype_stay),  cmocka_unit_test(models_train),
      cmocka_unit_test(updates_are_rounded_so_too), cmocka_unit_test(copies_of_ranks_stay_alike),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
