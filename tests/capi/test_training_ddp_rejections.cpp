// After a step of a module's ddp that was rejected, or that never came: gradients from elsewhere,
// backward passes on all ranks or on some, over those there are or after these were forgotten.
#include "capi/ddp_support.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr double kRate = 0.5;

struct Training {
  Holder model;
  Ddp ddp;
  Optimizer optimizer;

  Training(nxd_context_t* ctx, const nxd_ddp_options_t& options)
      : model(ctx, {{40}, {24}}, NXD_DTYPE_F64), ddp(model.ddp(options)) {
    nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
    sgd.learning_rate = kRate;
    nxd_optimizer_t* made = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &sgd, &made));
    optimizer.reset(made);
  }

  void zero_grad() const { NXD_TEST_OK(nxd_module_zero_grad(model.module.get())); }
  void set_gradients(double value) const {
    for (nxd_tensor_t* tensor : model.tensors) {
      const auto n = static_cast<int64_t>(values(tensor).size());
      const std::vector<double> all(static_cast<size_t>(n), value);
      NXD_TEST_OK(nxd_tensor_set_grad(tensor, make(all, {n}, NXD_DTYPE_F64).get()));
    }
  }
};

// A step is to leave of each parameter its values less the sum over ranks of the gradients.
std::vector<std::vector<double>> values_to_be(nxd_context_t* ctx, const Training& training) {
  nxd_group_t* world = nullptr;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  std::vector<std::vector<double>> wanted;
  for (nxd_tensor_t* tensor : training.model.tensors) {
    wanted.push_back(values(tensor));
    std::vector<double>& want = wanted.back();
    nxd_tensor_t* out = nullptr;
    NXD_TEST_OK(nxd_tensor_share_grad(tensor, &out));
    const Tensor grad(out);
    std::vector<double> sum = out ? values(out) : std::vector<double>(want.size());
    NXD_TEST_OK(
        nxd_all_reduce(world, sum.data(), sum.data(), sum.size(), NXD_DTYPE_F64, NXD_REDUCE_SUM));
    for (size_t i = 0; i < want.size(); ++i) want[i] -= kRate * sum[i];
  }
  return wanted;
}

// How a program goes on. Other ranks than the one that is named leave their gradients alone.
enum class Way {
  kAnew,
  kTwiceOnOne,
  kOnTop,
  kOnTopOfOne,
  kForgottenOnOne,
  kSet,
  kSetOnOne,
  kAsTheyAre
};

void go_on(Way way, const Training& training, int rank) {
  const auto pass = [&] { NXD_TEST_OK(backward(training.model.loss({2.0 + rank, 4.0 + rank}))); };
  const bool forgets = way == Way::kAnew || way == Way::kTwiceOnOne || way == Way::kForgottenOnOne;
  if (forgets) training.zero_grad();
  if (way == Way::kTwiceOnOne && rank == 0) {
    pass();
    training.zero_grad();
  }
  const bool is_on_all = way == Way::kAnew || way == Way::kTwiceOnOne || way == Way::kOnTop;
  const bool is_on_one = way == Way::kOnTopOfOne || way == Way::kForgottenOnOne;
  if (is_on_all || (is_on_one && rank == 0)) pass();
  if (way == Way::kSet || (way == Way::kSetOnOne && rank == 1)) training.set_gradients(8.0 + rank);
}

void check_way(nxd_context_t* ctx, int rank, const nxd_ddp_options_t& options, Way way) {
  const Training training(ctx, options);
  // One rank has used a parameter that the other has not.
  NXD_TEST_OK(backward(training.model.loss({1, rank == 0 ? 1.0 : 0.0})));
  nxd_finish_options_t bad = NXD_FINISH_OPTIONS_INIT;
  if (rank == 0) bad.max_norm = -1;
  nxd_optimizer_t* const optimizer = training.optimizer.get();
  NXD_TEST_REFUSED(nxd_optimizer_step(optimizer, &bad, nullptr), NXD_ERROR_INVALID_ARGUMENT,
                   "max_norm");
  go_on(way, training, rank);
  const auto want = values_to_be(ctx, training);
  NXD_TEST_OK(nxd_optimizer_step(optimizer, nullptr, nullptr));
  // Reduced gradients are not reduced again.
  if (way == Way::kAsTheyAre) return;
  for (size_t i = 0; i < want.size(); ++i) {
    const std::vector<double> got = values(training.model.tensors[i]);
    for (size_t k = 0; k < got.size(); ++k) NXD_TEST_CHECK(std::fabs(got[k] - want[i][k]) < 1e-12);
  }
}

void new_steps(void**) {
  for (const nxd_toggle_t overlap : {NXD_TOGGLE_OFF, NXD_TOGGLE_ON}) {
    for (const int32_t zero_stage : {0, 1}) {
      nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
      options.overlap = overlap;
      options.zero_stage = zero_stage;
      on_copies(
          2,
          [](nxd_context_t* ctx, int rank, int, void* user_data) {
            const auto& given = *static_cast<const nxd_ddp_options_t*>(user_data);
            for (const Way way :
                 {Way::kAnew, Way::kTwiceOnOne, Way::kOnTop, Way::kOnTopOfOne, Way::kForgottenOnOne,
                  Way::kSet, Way::kSetOnOne, Way::kAsTheyAre}) {
              check_way(ctx, rank, given, way);
            }
          },
          &options, 10000);
    }
  }
}

nxd_status_t fail_on_demand(nxd_parameter_t*, void* user_data) {
  return *static_cast<const bool*>(user_data) ? NXD_ERROR_USER : NXD_OK;
}

// Passes that end with other gradients on one rank than on the other: by a hook that fails there,
// or by a loss that leaves some out. Without an end of the step, the next pass begins another.
void passes_without_an_end(void**) {
  for (const bool by_hook : {false, true}) {
    on_copies(
        2,
        [](nxd_context_t* ctx, int rank, int, void* user_data) {
          const bool by_hook = *static_cast<const bool*>(user_data);
          bool fails = false;
          const Holder model(ctx, {{8}, {8}, {8}}, NXD_DTYPE_F64);
          NXD_TEST_OK(
              nxd_parameter_set_grad_hook(model.parameters[0], fail_on_demand, &fails, nullptr));
          const Ddp ddp = model.ddp();
          for (int step = 0; step < 3; ++step) {
            fails = by_hook && rank == 1;
            const double others = !by_hook && rank == 1 ? 0 : 4;
            NXD_TEST_CHECK(backward(model.loss({others, others, 2})) ==
                           (fails ? NXD_ERROR_USER : NXD_OK));
            fails = false;
            NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
            NXD_TEST_OK(backward(model.loss({1.0 + rank, 3.0 + rank, 5.0 + rank})));
            finish(ddp);
            for (size_t i = 0; i < 3; ++i) {
              NXD_TEST_CHECK(model.grad(i) == 3 + 4 * static_cast<double>(i));
            }
            NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
          }
          NXD_TEST_OK(nxd_parameter_set_grad_hook(model.parameters[0], nullptr, nullptr, nullptr));
        },
        &by_hook, 10000);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(new_steps), cmocka_unit_test(passes_without_an_end)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
