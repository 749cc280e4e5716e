// Runs that fail on one copy of a pipeline, or that one copy rejects, while a ddp reduces gradients
// within them: the calls of all copies end, and those that begin again train as if nothing had
// been.
#include <utility>

#include "capi/pipeline_support.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr int kSteps = 3, kFailingStep = 1, kMicrobatches = 2;

enum class Failure { kNone, kFirstStage, kLastStage, kMissingInput, kOddBatch };

struct Setting {
  Failure failure = Failure::kNone;
  int32_t zero_stage = 0;
  bool shares_loss = false;
  bool steps = false;  // the ranks come to the step's end with what they have
};

Tensor ids(int step, int copy, int64_t rows) {
  std::vector<int64_t> data(static_cast<size_t>(rows * 8));
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<int64_t>(i * i * 11 + i * 37) % 89 + copy * 7 + step;
  }
  return make_i64(data, {rows, 8});
}

nxd_status_t fail_once(nxd_parameter_t*, void* user_data) {
  bool& fails = *static_cast<bool*>(user_data);
  return std::exchange(fails, false) ? NXD_ERROR_USER : NXD_OK;
}

// True on all ranks if it is on one.
bool any(nxd_context_t* ctx, bool own) {
  nxd_group_t* world = nullptr;
  int32_t found = own ? 1 : 0;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_all_reduce(world, &found, &found, 1, NXD_DTYPE_I32, NXD_REDUCE_MAX));
  return found != 0;
}

struct Copy {
  nxd_context_t* ctx;
  const Setting& setting;
  int copy, stage;
  Module model;
  Pipeline pp;
  Ddp ddp;
  Optimizer optimizer;
  bool fails = false;

  Copy(nxd_context_t* context, const Setting& given)
      : ctx(context),
        setting(given),
        copy(axis_rank(ctx, NXD_AXIS_DATA)),
        stage(axis_rank(ctx, NXD_AXIS_PIPELINE)) {
    nlohmann::json json = nlohmann::json::parse(read_file(oracles() + "/llama_tiny/config.json"));
    json["tie_word_embeddings"] = setting.zero_stage == 0;
    model = create_model(ctx, json.dump(), Layout{});
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = kMicrobatches;
    options.broadcast_and_average_loss = setting.shares_loss ? 1 : 0;
    std::vector<Tensor> batch;
    for (int i = 0; i < 2; ++i) batch.push_back(ids(0, copy, 4));
    pp = make_pipeline(model.get(), batch, options);
    if (pp) make_optimizer();
  }
  // The hook is the caller's as long as the module.
  ~Copy() { set_hook(nullptr); }

  void make_optimizer() {
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.bucket_bytes = 4096;
    options.zero_stage = setting.zero_stage;
    nxd_ddp_t* reduced = nullptr;
    nxd_optimizer_t* made = nullptr;
    if (!NXD_TEST_OK(nxd_ddp_create(local_module(pp.get()), &options, &reduced))) return;
    ddp.reset(reduced);
    NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(reduced, nullptr, &made));
    optimizer.reset(made);
    NXD_TEST_OK(nxd_pp_set_ddp(pp.get(), reduced));
    set_hook(fail_once);
  }

  // On one whose gradient comes when some buckets have started, and others have not.
  void set_hook(nxd_grad_hook_fn hook) {
    nxd_parameter_t* parameter = nullptr;
    if (!pp) return;
    NXD_TEST_OK(nxd_module_get_parameter(local_module(pp.get()), 1, &parameter, nullptr));
    NXD_TEST_OK(nxd_parameter_set_grad_hook(parameter, hook, &fails, nullptr));
  }

  nxd_status_t run(int step, bool is_disturbed) {
    const bool is_own = is_disturbed && copy == 1;
    const Failure failure = is_own ? setting.failure : Failure::kNone;
    const Tensor batch = ids(step, copy, failure == Failure::kOddBatch ? 3 : 4);
    nxd_tensor_t* inputs[] = {batch.get(), batch.get()};
    if (failure == Failure::kMissingInput && stage == 1) inputs[1] = nullptr;
    fails = failure == (stage == 0 ? Failure::kFirstStage : Failure::kLastStage);
    NXD_TEST_OK(nxd_module_zero_grad(local_module(pp.get())));
    NXD_TEST_OK(nxd_context_set_step(ctx, step, 0));
    return nxd_pp_run_train(pp.get(), inputs, 2, nullptr);
  }

  void train(int step) {
    const bool is_disturbed = setting.failure != Failure::kNone && step == kFailingStep;
    const nxd_status_t first = run(step, is_disturbed);
    NXD_TEST_CHECK(any(ctx, first != NXD_OK) == is_disturbed);
    if (is_disturbed && setting.steps) {
      NXD_TEST_REFUSED(nxd_optimizer_step(optimizer.get(), nullptr, nullptr),
                       NXD_ERROR_INVALID_STATE, "the gradients of this step are lost: ");
    }
    if (is_disturbed) NXD_TEST_OK(run(step, false));
    NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
  }
};

Named train(const Setting& setting) {
  Joined final;
  on_pipeline_ranks({1, 2, 2}, [&](nxd_context_t* ctx, int) {
    Copy copy(ctx, setting);
    if (!copy.optimizer) return;
    for (int step = 0; step < kSteps; ++step) copy.train(step);
    final.add("final", whole_parameters(local_module(copy.pp.get())));
  });
  return final.all();
}

void runs_that_fail_on_one_copy(void**) {
  for (const int32_t zero_stage : {0, 1}) {
    Setting setting;
    setting.zero_stage = zero_stage;
    const Named want = train(setting);
    assert_false(want.empty());
    for (const bool shares_loss : {false, true}) {
      for (const Failure failure : {Failure::kFirstStage, Failure::kLastStage,
                                    Failure::kMissingInput, Failure::kOddBatch}) {
        setting.failure = failure;
        setting.shares_loss = shares_loss;
        setting.steps = failure == Failure::kLastStage;
        check_named("final", train(setting), want, 0, 0);
      }
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(runs_that_fail_on_one_copy)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
