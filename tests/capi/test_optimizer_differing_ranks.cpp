// Ranks that would update copies of one parameter in different ways are told so, and nothing is
// updated.
#include "support/buffer_model.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

const char* const kDigest =
    "update rule, hyperparameters, groups and schedule: expected the same on all ranks, got "
    "another "
    "on rank 1 than on rank 0";
const char* const kRate =
    "learning rate of group 0 (-1: no update): expected the same on all ranks";

struct Training {
  BufferModel model{{{4, 3}, {5}}, NXD_DTYPE_F32, NXD_DTYPE_F32};
  Ddp ddp;
  Optimizer optimizer;

  Training(nxd_context_t* ctx, int32_t zero_stage, int rank,
           nxd_toggle_t overlap = NXD_TOGGLE_DEFAULT) {
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = zero_stage;
    options.overlap = overlap;
    NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
    model.set_gradients(rank, rank + 1);
    set_adamw(0.9);
  }
  void set_adamw(double beta1, nxd_bf16_update_t bf16_update = NXD_BF16_UPDATE_MASTER) {
    nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
    adamw.learning_rate = 0.01;
    adamw.beta1 = beta1;
    adamw.bf16_update = bf16_update;
    nxd_optimizer_t* made = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp.get(), &adamw, &made));
    optimizer.reset(made);
  }
  void set_sgd() {
    nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
    sgd.learning_rate = 0.01;
    nxd_optimizer_t* made = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &sgd, &made));
    optimizer.reset(made);
  }
  nxd_status_t step() { return nxd_optimizer_step(optimizer.get(), nullptr, nullptr); }
};

// Calls that make one rank's update another, and the message; the same call makes those of all
// alike again.
const std::pair<void (*)(Training&), const char*> kChanges[] = {
    {[](Training& t) { NXD_TEST_OK(nxd_optimizer_set_learning_rate(t.optimizer.get(), 0.02)); },
     "learning rate of group 0 (-1: no update): expected the same on all ranks, got 0.01 on rank 0 "
     "and 0.02 on rank 1"},
    {[](Training& t) {
       NXD_TEST_OK(nxd_optimizer_set_hyperparameter(t.optimizer.get(), 0,
                                                    NXD_HYPERPARAMETER_WEIGHT_DECAY, 0.25));
     },
     kDigest},
    {[](Training& t) {
       nxd_lr_schedule_options_t warm_up = NXD_LR_SCHEDULE_OPTIONS_INIT;
       warm_up.warmup_steps = 10;
       NXD_TEST_OK(nxd_optimizer_set_lr_schedule(t.optimizer.get(), &warm_up));
     },
     kRate},
    {[](Training& t) {
       const char* first = "0";
       NXD_TEST_OK(nxd_optimizer_add_group(t.optimizer.get(), &first, 1, nullptr));
     },
     kDigest},
    {[](Training& t) { t.set_adamw(0.95); }, kDigest},
    {[](Training& t) { t.set_adamw(0.9, NXD_BF16_UPDATE_NEAREST); }, kDigest},
    {[](Training& t) { t.set_sgd(); }, kDigest},
};

void settings_that_differ(void**) {
  for (const int32_t zero_stage : {0, 1}) {
    on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
      Training training(ctx, zero_stage, rank);
      for (const auto& [change, message] : kChanges) {
        training.set_adamw(0.9);
        const std::vector<char> before = training.model.bytes();
        if (rank == 1) change(training);
        NXD_TEST_REFUSED(training.step(), NXD_ERROR_INVALID_ARGUMENT, message);
        NXD_TEST_CHECK(training.model.bytes() == before);
        if (rank == 0) change(training);
        NXD_TEST_OK(training.step());
      }
      // As many groups, of other parameters.
      training.set_adamw(0.9);
      const char* const pattern = rank == 0 ? "0" : "1";
      NXD_TEST_OK(nxd_optimizer_add_group(training.optimizer.get(), &pattern, 1, nullptr));
      NXD_TEST_REFUSED(training.step(), NXD_ERROR_INVALID_ARGUMENT, kDigest);
      return 0;
    });
  }
}

// Options of one step, and those that no rank may give.
void options_that_differ(void**) {
  struct Difference {
    void (*apply)(nxd_finish_options_t& options);
    const char* part;
  };
  static const Difference differences[] = {
      {[](nxd_finish_options_t& o) { o.scale = 0.5; }, "scale: expected the same on all ranks"},
      {[](nxd_finish_options_t& o) { o.max_norm = 1; }, "max_norm: expected the same"},
      {[](nxd_finish_options_t& o) { o.norm_type = 1; }, "norm_type: expected the same"},
      {[](nxd_finish_options_t& o) { o.data_parallel_reduce = NXD_REDUCE_AVG; },
       "data_parallel_reduce: expected the same on all ranks, got "},
      {[](nxd_finish_options_t& o) { o.check_finite = NXD_TOGGLE_OFF; },
       "check_finite: expected the same on all ranks"}};
  static const Difference none[] = {{[](nxd_finish_options_t& o) { o.max_norm = INFINITY; },
                                     "max_norm: expected a finite number of at least 0, got inf"},
                                    {[](nxd_finish_options_t& o) { o.norm_type = -INFINITY; },
                                     "norm_type: expected 1, 2 or infinity, got -inf"}};
  for (const int32_t zero_stage : {0, 1}) {
    on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
      Training training(ctx, zero_stage, rank);
      const std::vector<char> before = training.model.bytes();
      const auto step = [&](const Difference& difference, bool applies) {
        nxd_finish_options_t options = NXD_FINISH_OPTIONS_INIT;
        if (applies) difference.apply(options);
        return nxd_optimizer_step(training.optimizer.get(), &options, nullptr);
      };
      for (const Difference& difference : differences) {
        NXD_TEST_REFUSED(step(difference, rank == 1), NXD_ERROR_INVALID_ARGUMENT, difference.part);
      }
      for (const Difference& wrong : none) {
        NXD_TEST_REFUSED(step(wrong, true), NXD_ERROR_INVALID_ARGUMENT, wrong.part);
      }
      NXD_TEST_CHECK(training.model.bytes() == before);
      NXD_TEST_OK(training.step());
      NXD_TEST_CHECK(training.model.bytes() != before);
      return 0;
    });
  }
}

// A state that one rank alone has loaded, and a rank that makes no update.
void histories_that_differ(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/state.safetensors";
  on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
    Training training(ctx, 0, rank);
    NXD_TEST_OK(training.step());
    NXD_TEST_OK(nxd_optimizer_save(training.optimizer.get(), path.c_str()));
    training.set_adamw(0.9);
    const auto load = [&] { return nxd_optimizer_load(training.optimizer.get(), path.c_str()); };
    if (rank == 0) NXD_TEST_OK(load());
    const std::vector<char> before = training.model.bytes();
    NXD_TEST_REFUSED(training.step(), NXD_ERROR_INVALID_ARGUMENT,
                     "updates made so far: expected the same on all ranks, got 0 on rank 1 and 1 "
                     "on rank 0");
    if (rank == 1) NXD_TEST_OK(load());
    NXD_TEST_REFUSED(
        rank == 0 ? nxd_ddp_finish(training.ddp.get(), nullptr, nullptr) : training.step(),
        NXD_ERROR_INVALID_ARGUMENT, kRate);
    NXD_TEST_CHECK(training.model.bytes() == before);
    NXD_TEST_OK(training.step());
    return 0;
  });
}

// Three stages, of which the last has no parameter: it counts its updates all the same.
struct Stage {
  BufferModel model;
  Ddp ddp;
  Optimizer optimizer;

  Stage(nxd_context_t* ctx, int rank)
      : model(rank == 2 ? Shapes{} : Shapes{{3}}, NXD_DTYPE_F32, NXD_DTYPE_F32) {
    DLTensor* params[1] = {};
    DLTensor* grads[1] = {};
    for (size_t i = 0; i < model.params.size(); ++i) {
      params[i] = model.params[i]->tensor();
      grads[i] = model.grads[i]->tensor();
    }
    const std::string own = "stage" + std::to_string(rank);
    const char* const name = own.c_str();
    const nxd_placement_t placement = NXD_PLACEMENT_REPLICATED;
    nxd_ddp_t* made = nullptr;
    NXD_TEST_OK(nxd_ddp_create_buffers(ctx, nullptr, &name, params, grads, model.params.size(),
                                       nullptr, &made));
    ddp.reset(made);
    NXD_TEST_OK(nxd_ddp_set_placements(made, &placement, nullptr, nullptr, model.params.size()));
    set_sgd();
  }
  void set_sgd() {
    nxd_optimizer_t* made = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), nullptr, &made));
    optimizer.reset(made);
  }
  nxd_status_t step(int64_t* updates) {
    nxd_step_report_t report{};
    report.struct_size = sizeof report;
    const nxd_status_t status = nxd_optimizer_step(optimizer.get(), nullptr, &report);
    *updates = report.updates;
    return status;
  }
};

// A state that one stage alone has loaded: rates of a schedule would part. A stage may have no
// optimizer.
void histories_of_stages(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/state.safetensors";
  on_ranks<int>(3, [&](nxd_context_t* ctx, int rank, int) {
    nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
    layout.pipeline_parallel_size = 3;
    if (!NXD_TEST_OK(nxd_init_model_parallel(ctx, &layout))) return 0;
    Stage stage(ctx, rank);
    int64_t updates = -1;
    NXD_TEST_OK(stage.step(&updates));
    NXD_TEST_CHECK(updates == 1);
    NXD_TEST_OK(nxd_optimizer_save(stage.optimizer.get(), path.c_str()));
    stage.set_sgd();
    const auto load = [&] { return nxd_optimizer_load(stage.optimizer.get(), path.c_str()); };
    if (rank == 0) NXD_TEST_OK(load());
    NXD_TEST_REFUSED(stage.step(&updates), NXD_ERROR_INVALID_ARGUMENT,
                     "updates made so far: expected the same on all ranks, got 0 on rank 1 and 1 "
                     "on rank 0");
    if (rank != 0) NXD_TEST_OK(load());
    NXD_TEST_OK(stage.step(&updates));
    NXD_TEST_CHECK(updates == 2);
    NXD_TEST_OK(rank == 1 ? nxd_ddp_finish(stage.ddp.get(), nullptr, nullptr)
                          : stage.step(&updates));
    return 0;
  });
}

// After a rejected step one rank begins anew and another goes on with what it has: the gradients
// that each tells of are those that it brings, so that copies of the parameters stay alike.
void one_rank_that_begins_anew(void**) {
  for (const int32_t zero_stage : {0, 1}) {
    for (const nxd_toggle_t overlap : {NXD_TOGGLE_OFF, NXD_TOGGLE_ON}) {
      const auto ends = on_ranks<std::vector<char>>(2, [&](nxd_context_t* ctx, int rank, int) {
        Training training(ctx, zero_stage, rank, overlap);
        nxd_ddp_t* const ddp = training.ddp.get();
        NXD_TEST_OK(nxd_ddp_mark_unused(ddp, 1));
        nxd_finish_options_t options = NXD_FINISH_OPTIONS_INIT;
        options.max_norm = -1;
        NXD_TEST_REFUSED(nxd_optimizer_step(training.optimizer.get(), &options, nullptr),
                         NXD_ERROR_INVALID_ARGUMENT, "max_norm");
        if (rank == 0) {
          NXD_TEST_OK(nxd_ddp_mark_ready(ddp, 0));
          NXD_TEST_OK(nxd_ddp_mark_unused(ddp, 1));
        }
        NXD_TEST_OK(training.step());
        return training.model.bytes();
      });
      assert_true(ends[0] == ends[1]);
    }
  }
}

nxd_status_t fail_if(const nxd_update_t*, void* fails) {
  return *static_cast<const bool*>(fails) ? NXD_ERROR_USER : NXD_OK;
}

// Rules of a caller's own that keep another number of states: no file could have them all.
void states_that_differ(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/state.safetensors";
  for (const int32_t zero_stage : {0, 1}) {
    on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
      Training training(ctx, zero_stage, rank);
      bool fails = false;
      const auto set_custom = [&](int32_t num_states) {
        nxd_custom_optimizer_options_t options = NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT;
        options.update = fail_if;
        options.user_data = &fails;
        options.num_states = num_states;
        nxd_optimizer_t* made = nullptr;
        NXD_TEST_OK(nxd_optimizer_create_custom_ddp(training.ddp.get(), &options, &made));
        training.optimizer.reset(made);
      };
      set_custom(1 + rank);
      NXD_TEST_REFUSED(training.step(), NXD_ERROR_INVALID_ARGUMENT, kDigest);
      set_custom(2);
      NXD_TEST_OK(training.step());
      NXD_TEST_OK(nxd_optimizer_save(training.optimizer.get(), path.c_str()));
      return 0;
    });
  }
}

// An update that fails on one rank leaves its copy a step behind. The next step says so, until the
// rank has made up for it.
void copies_that_part(void**) {
  on_ranks<int>(2, [](nxd_context_t* ctx, int rank, int) {
    Training training(ctx, 0, rank);
    bool fails = rank == 1;
    nxd_custom_optimizer_options_t options = NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT;
    options.update = fail_if;
    options.user_data = &fails;
    nxd_optimizer_t* made = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_custom_ddp(training.ddp.get(), &options, &made));
    training.optimizer.reset(made);
    NXD_TEST_CHECK(training.step() == (rank == 1 ? NXD_ERROR_USER : NXD_OK));
    fails = false;
    NXD_TEST_REFUSED(training.step(), NXD_ERROR_INVALID_ARGUMENT,
                     "step of the context: expected the same on all ranks, got 0 on rank 1 and 1 "
                     "on rank 0");
    if (rank == 1) NXD_TEST_OK(nxd_optimizer_update(made));
    NXD_TEST_OK(training.step());
    return 0;
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(settings_that_differ),      cmocka_unit_test(options_that_differ),
      cmocka_unit_test(one_rank_that_begins_anew), cmocka_unit_test(histories_that_differ),
      cmocka_unit_test(histories_of_stages),       cmocka_unit_test(copies_that_part),
      cmocka_unit_test(states_that_differ)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
