// A pipeline over callbacks whose last tasks mark gradients: their reductions begin at times that
// differ from rank to rank, and the loss that the ranks share goes beside them.
#include <chrono>
#include <thread>

#include "support/pipeline_model.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr size_t kParameters = 12;

struct Stage : StageCode {
  nxd_ddp_t* ddp = nullptr;
  std::array<double, kParameters> params{}, grads{};
  int rank = 0;

  nxd_status_t forward(const nxd_pp_call_t& call, DLTensor* const*, DLTensor* const*,
                       double* loss) override {
    *loss = rank + call.microbatch;
    return NXD_OK;
  }
  // The second rank is late at every mark, so that the first one's reductions wait for it.
  nxd_status_t backward(const nxd_pp_call_t& call, DLTensor* const*, DLTensor* const*,
                        DLTensor* const*, bool) override {
    for (double& grad : grads) grad += (rank + 1) * call.loss_weight;
    for (size_t i = 0; call.last && i < kParameters; ++i) {
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      NXD_TEST_OK(nxd_ddp_mark_ready(ddp, kParameters - 1 - i));
    }
    return NXD_OK;
  }
};

DLTensor scalar(double& value) {
  DLTensor tensor{};
  tensor.data = &value;
  tensor.device = {kDLCPU, 0};
  tensor.dtype = {kDLFloat, 64, 1};
  return tensor;
}

nxd_ddp_t* make_ddp(nxd_context_t* ctx, Stage& stage) {
  std::array<DLTensor, kParameters> params{}, grads{};
  std::array<DLTensor*, kParameters> to_params{}, to_grads{};
  const std::array<const char*, kParameters> names{"a", "b", "c", "d", "e", "f",
                                                   "g", "h", "i", "j", "k", "l"};
  for (size_t i = 0; i < kParameters; ++i) {
    params[i] = scalar(stage.params[i]);
    grads[i] = scalar(stage.grads[i]);
    to_params[i] = &params[i];
    to_grads[i] = &grads[i];
  }
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.bucket_bytes = 16;  // two parameters, which are copied to reduce them
  options.reduce = NXD_REDUCE_AVG;
  nxd_ddp_t* out = nullptr;
  NXD_TEST_OK(nxd_ddp_create_buffers(ctx, nullptr, names.data(), to_params.data(), to_grads.data(),
                                     kParameters, &options, &out));
  return out;
}

void run_rank(nxd_context_t* ctx, int rank, int, void*) {
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  if (!NXD_TEST_OK(nxd_init_model_parallel(ctx, &parallel))) return;
  Stage stage;
  stage.rank = rank;
  stage.ddp = make_ddp(ctx, stage);
  nxd_pp_callbacks_options_t options = NXD_PP_CALLBACKS_OPTIONS_INIT;
  options.num_microbatches = 2;
  options.broadcast_and_average_loss = 1;
  const size_t none = 0;
  nxd_pp_stage_callbacks_t callbacks = stage.callbacks(false);
  nxd_pp_t* out = nullptr;
  NXD_TEST_OK(
      nxd_pp_create_callbacks(ctx, &options, nullptr, &none, nullptr, &none, &callbacks, &out));
  const Pp pp(out);
  for (int step = 0; pp && step < 2; ++step) {
    stage.grads.fill(0);
    double loss = 0;
    NXD_TEST_OK(nxd_pp_run(pp.get(), 1, &loss));
    NXD_TEST_CHECK(loss == 1.0);  // of 0.5 and 1.5
    NXD_TEST_OK(nxd_ddp_finish(stage.ddp, nullptr, nullptr));
    for (const double grad : stage.grads) NXD_TEST_CHECK(grad == 1.5);
  }
  nxd_ddp_destroy(stage.ddp);
}

void test_losses_beside_reductions(void**) { nxd_test_run_ranks(2, 0, run_rank, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_losses_beside_reductions)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
