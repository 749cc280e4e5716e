// Ranks that would update copies of one parameter in different ways are told so, and nothing is
// updated.
#include "support/buffer_model.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

struct Setup {
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  bool is_sgd = false;

  Optimizer make(const Ddp& ddp) const {
    nxd_optimizer_t* made = nullptr;
    nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
    sgd.learning_rate = adamw.learning_rate;
    NXD_TEST_OK(is_sgd ? nxd_optimizer_create_sgd_ddp(ddp.get(), &sgd, &made)
                       : nxd_optimizer_create_adamw_ddp(ddp.get(), &adamw, &made));
    return Optimizer(made);
  }
};

struct Difference {
  const char* message;
  void (*apply)(Setup& setup);
  void (*change)(nxd_optimizer_t* optimizer);
};

const Difference kDifferences[] = {
    {"learning rate of group 0 (-1: no update): expected the same on all ranks, got 0.01 on rank 0 "
     "and 0.02 on rank 1",
     [](Setup& s) { s.adamw.learning_rate = 0.02; }, nullptr},
    {"learning rate of group 0", nullptr,
     [](nxd_optimizer_t* o) {
       nxd_lr_schedule_options_t warm_up = NXD_LR_SCHEDULE_OPTIONS_INIT;
       warm_up.warmup_steps = 10;
       NXD_TEST_OK(nxd_optimizer_set_lr_schedule(o, &warm_up));
     }},
    {"update rule, hyperparameters, groups and schedule: expected the same on all ranks, got "
     "another "
     "on rank 1 than on rank 0",
     [](Setup& s) { s.is_sgd = true; }, nullptr},
    {"update rule, hyperparameters", [](Setup& s) { s.adamw.beta2 = 0.95; }, nullptr},
    {"update rule, hyperparameters", nullptr,
     [](nxd_optimizer_t* o) {
       const char* pattern = "1";
       int32_t group = 0;
       NXD_TEST_OK(nxd_optimizer_add_group(o, &pattern, 1, &group));
       NXD_TEST_OK(
           nxd_optimizer_set_hyperparameter(o, group, NXD_HYPERPARAMETER_WEIGHT_DECAY, 0.1));
     }},
};

void differing_settings(void**) {
  for (const int zero_stage : {0, 1}) {
    on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
      for (const Difference& difference : kDifferences) {
        BufferModel model({{4, 3}, {5}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
        nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
        options.zero_stage = zero_stage;
        Ddp ddp;
        NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
        Setup setup;
        setup.adamw.learning_rate = 0.01;
        if (rank == 1 && difference.apply) difference.apply(setup);
        const Optimizer optimizer = setup.make(ddp);
        if (rank == 1 && difference.change) difference.change(optimizer.get());
        model.set_gradients(rank, rank + 1);
        const std::vector<char> before = model.bytes();
        NXD_TEST_REFUSED(nxd_optimizer_step(optimizer.get(), nullptr, nullptr),
                         NXD_ERROR_INVALID_ARGUMENT, difference.message);
        NXD_TEST_CHECK(model.bytes() == before);
      }
      return 0;
    });
  }
}

// A state that one rank alone has loaded, and a rank that makes no update.
void differing_histories(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/state.safetensors";
  on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
    BufferModel model({{4, 3}, {5}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    const nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    Ddp ddp;
    NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
    Setup setup;
    setup.adamw.learning_rate = 0.01;
    model.set_gradients(rank, rank + 1);
    {
      const Optimizer optimizer = setup.make(ddp);
      NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
      NXD_TEST_OK(nxd_optimizer_save(optimizer.get(), path.c_str()));
    }
    const Optimizer optimizer = setup.make(ddp);
    if (rank == 0) NXD_TEST_OK(nxd_optimizer_load(optimizer.get(), path.c_str()));
    const std::vector<char> before = model.bytes();
    NXD_TEST_REFUSED(nxd_optimizer_step(optimizer.get(), nullptr, nullptr),
                     NXD_ERROR_INVALID_ARGUMENT,
                     "updates made so far (-1: none is to be made): expected the same on all "
                     "ranks, got 0 on rank 1 and 1 on rank 0");
    if (rank == 1) NXD_TEST_OK(nxd_optimizer_load(optimizer.get(), path.c_str()));
    NXD_TEST_REFUSED(rank == 0 ? nxd_ddp_finish(ddp.get(), nullptr, nullptr)
                               : nxd_optimizer_step(optimizer.get(), nullptr, nullptr),
                     NXD_ERROR_INVALID_ARGUMENT, "learning rate of group 0 (-1: no update)");
    NXD_TEST_CHECK(model.bytes() == before);
    NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
    return 0;
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(differing_settings),
                              cmocka_unit_test(differing_histories)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
