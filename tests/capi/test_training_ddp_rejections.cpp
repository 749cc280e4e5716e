// After a step of a module's ddp that was rejected: gradients from elsewhere, backward
// passes on all ranks or on some, over those there are or after these were forgotten.
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
enum class Way { kAnew, kOnTop, kOnTopOfOne, kForgottenOnOne, kSet, kSetOnOne, kAsTheyAre };

void go_on(Way way, const Training& training, int rank) {
  const Holder& model = training.model;
  if (way == Way::kAnew || way == Way::kForgottenOnOne) training.zero_grad();
  const bool passes = way == Way::kAnew || way == Way::kOnTop ||
                      (rank == 0 && (way == Way::kOnTopOfOne || way == Way::kForgottenOnOne));
  if (passes) NXD_TEST_OK(backward(model.loss({2.0 + rank, 4.0 + rank})));
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
            for (const Way way : {Way::kAnew, Way::kOnTop, Way::kOnTopOfOne, Way::kForgottenOnOne,
                                  Way::kSet, Way::kSetOnOne, Way::kAsTheyAre}) {
              check_way(ctx, rank, given, way);
            }
          },
          &options, 10000);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(new_steps)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
