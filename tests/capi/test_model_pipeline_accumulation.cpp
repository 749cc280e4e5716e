// Several runs of a pipeline whose gradients add up before one step: the same model as one rank's
// over all the batches.
#include "capi/callback_model.h"
#include "capi/pipeline_support.h"

using namespace nxd_test;

namespace {

constexpr int kRuns = 3, kSteps = 2, kRows = 4, kMicrobatches = 4, kCopies = 2;
constexpr int64_t kSequence = 16;

// The batch of a copy, or of all copies where there is one rank.
Tensor batch_of(int step, int run, int copy, int copies) {
  std::vector<int64_t> data;
  const int end = copies == 1 ? kCopies : copy + 1;
  for (int c = copies == 1 ? 0 : copy; c < end; ++c) {
    const int place = (step * kRuns + run) * kCopies + c;
    for (int64_t i = 0; i < kRows * kSequence; ++i) {
      data.push_back((i * i * 11 + i * 37 + place * 13) % 101);
    }
  }
  return make_i64(data, {static_cast<int64_t>(data.size()) / kSequence, kSequence});
}

struct Setting {
  PipelineLayout layout;
  bool tied = false, reduces = false;  // by a ddp that the pipeline knows
  int zero_stage = 0;
};

Module model_of(nxd_context_t* ctx, const Setting& setting) {
  nlohmann::json json = nlohmann::json::parse(read_file(oracles() + "/llama_tiny/config.json"));
  json["tie_word_embeddings"] = setting.tied;
  nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;
  options.dtype = NXD_DTYPE_F64;
  nxd_module_t* made = nullptr;
  NXD_TEST_OK(nxd_model_create(ctx, json.dump().c_str(), &options, &made));
  return Module(made);
}

Ddp ddp_over(nxd_module_t* local, const Setting& setting) {
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.bucket_bytes = 40000;
  options.zero_stage = setting.zero_stage;
  nxd_ddp_t* made = nullptr;
  NXD_TEST_OK(nxd_ddp_create(local, &options, &made));
  return Ddp(made);
}

Optimizer sgd_over(nxd_module_t* local, nxd_ddp_t* ddp) {
  nxd_sgd_options_t options = NXD_SGD_OPTIONS_INIT;
  options.learning_rate = 0.5;
  options.momentum = 0.9;
  nxd_optimizer_t* made = nullptr;
  NXD_TEST_OK(ddp ? nxd_optimizer_create_sgd_ddp(ddp, &options, &made)
                  : nxd_optimizer_create_sgd(local, &options, &made));
  return Optimizer(made);
}

void run(nxd_pp_t* pp, const Tensor& batch) {
  nxd_tensor_t* const inputs[] = {batch.get(), batch.get()};
  double loss = 0;
  NXD_TEST_OK(nxd_pp_run_train(pp, inputs, 2, &loss));
}

// An evaluation in between changes nothing of it.
void evaluate(nxd_pp_t* pp, const Tensor& batch) {
  nxd_tensor_t* const inputs[] = {batch.get(), batch.get()};
  double loss = 0;
  NXD_TEST_OK(nxd_pp_run_eval(pp, inputs, 2, &loss, nullptr, 0));
}

void train(nxd_context_t* ctx, const Setting& setting, Joined& final) {
  const int copy = axis_rank(ctx, NXD_AXIS_DATA), copies = setting.layout.dp;
  const Module model = model_of(ctx, setting);
  nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  options.num_microbatches = kMicrobatches * kCopies / copies;
  options.schedule = setting.layout.schedule;
  const Tensor first = batch_of(0, 0, copy, copies);
  nxd_tensor_t* const inputs[] = {first.get(), first.get()};
  nxd_pp_t* made = nullptr;
  if (!NXD_TEST_OK(nxd_pp_create(model.get(), inputs, 2, &options, &made))) return;
  const Pipeline pp(made);
  nxd_module_t* local = local_module(pp.get());
  const Ddp ddp = copies > 1 ? ddp_over(local, setting) : Ddp();
  if (setting.reduces) NXD_TEST_OK(nxd_pp_set_ddp(pp.get(), ddp.get()));
  const Optimizer optimizer = sgd_over(local, ddp.get());
  for (int step = 0; step < kSteps; ++step) {
    NXD_TEST_OK(nxd_module_zero_grad(local));
    for (int i = 0; i < kRuns; ++i) {
      if (ddp) NXD_TEST_OK(nxd_ddp_set_sync(ddp.get(), i + 1 == kRuns));
      const Tensor batch = batch_of(step, i, copy, copies);
      run(pp.get(), batch);
      if (i == 0) evaluate(pp.get(), batch);
    }
    nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
    NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), &finish, nullptr));
  }
  final.add("final", whole_parameters(local));
}

Named train_on(const Setting& setting) {
  Joined final;
  on_pipeline_ranks(setting.layout, [&](nxd_context_t* ctx, int) { train(ctx, setting, final); });
  return final.all();
}

void check(Setting setting) {
  setting.reduces = true;
  Setting alone;
  alone.tied = setting.tied;
  const Named want = train_on(alone);
  assert_false(want.empty());
  check_named("final", train_on(setting), want, 1e-9, 1e-12);
}

void copies(void**) { check({.layout = {.dp = 2}}); }

void stages(void**) {
  check({.layout = {.pp = 2, .dp = 2}});
  check({.layout = {.pp = 2, .dp = 2, .schedule = NXD_PP_SCHEDULE_ZERO_BUBBLE}});
}

void tied_stages(void**) { check({.layout = {.pp = 2, .dp = 2}, .tied = true}); }

void parts_of_the_state(void**) {
  check({.layout = {.pp = 2, .dp = 2}, .tied = true, .zero_stage = 1});
}

// Two products, each with a dropout behind it. The loss is the mean of squares.
Module dropping(nxd_context_t* ctx) {
  const Module first = column_linear(ctx, 8, 8, true, true),
               second = column_linear(ctx, 8, 8, true, true);
  Module drops[2];
  for (const size_t i : {0, 1}) {
    nxd_module_t* made = nullptr;
    NXD_TEST_OK(nxd_layer_create_dropout(ctx, 0.5, i == 0 ? "first" : "second", -1, &made));
    drops[i].reset(made);
  }
  const Module loss = callback_module(
      ctx, "Loss", [](nxd_module_t*, const Handles& inputs, nxd_tensor_t** outputs, size_t) {
        Tensor squares, mean;
        NXD_TEST_TRY(call_op("mul", "Tensor", {inputs[0], inputs[0]}, squares));
        NXD_TEST_TRY(call_op("mean", "", {squares.get()}, mean));
        outputs[0] = mean.release();
        return nxd_status_t{NXD_OK};
      });
  nxd_module_t* const children[] = {first.get(), drops[0].get(), second.get(), drops[1].get(),
                                    loss.get()};
  nxd_module_t* made = nullptr;
  NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 5, &made));
  NXD_TEST_OK(nxd_module_initialize(made, 5));
  return Module(made);
}

Tensor rows(int first, int count) {
  std::vector<float> data;
  for (int i = first * 8; i < (first + count) * 8; ++i) {
    data.push_back(static_cast<float>(std::sin(0.4 * i)));
  }
  const int64_t shape[] = {count, 8};
  nxd_tensor_t* made = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(data.data(), data.size() * sizeof(float), shape, 2,
                                   NXD_DTYPE_F32, &made));
  return Tensor(made);
}

void check_position(nxd_context_t* ctx, int64_t step, int64_t microbatch) {
  int64_t at_step = -1, at_microbatch = -1;
  NXD_TEST_OK(nxd_context_get_step(ctx, &at_step, &at_microbatch));
  NXD_TEST_CHECK(at_step == step && at_microbatch == microbatch);
}

// Gradients of four microbatches in so many runs of one step.
Named gradients_of(int runs, int stages) {
  Joined joined;
  on_pipeline_ranks({.pp = stages}, [&](nxd_context_t* ctx, int) {
    static const char* const cuts[] = {"1"};
    const Module model = dropping(ctx);
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 4 / runs;
    options.pipeline_cuts = cuts;
    options.num_cuts = static_cast<size_t>(stages - 1);
    NXD_TEST_OK(nxd_context_set_step(ctx, 3, 0));
    const Tensor example = rows(0, 4 / runs);
    nxd_tensor_t* const inputs[] = {example.get()};
    nxd_pp_t* made = nullptr;
    if (!NXD_TEST_OK(nxd_pp_create(model.get(), inputs, 1, &options, &made))) return;
    const Pipeline pp(made);
    for (int i = 0; i < runs; ++i) {
      const Tensor batch = rows(i * 4 / runs, 4 / runs);
      nxd_tensor_t* const given[] = {batch.get()};
      check_position(ctx, 3, i * 4 / runs);
      NXD_TEST_OK(nxd_pp_run_eval(made, given, 1, nullptr, nullptr, 0));
      NXD_TEST_REFUSED(nxd_pp_run_train(made, given, 0, nullptr), NXD_ERROR_INVALID_ARGUMENT, "");
      check_position(ctx, 3, i * 4 / runs);
      NXD_TEST_OK(nxd_pp_run_train(made, given, 1, nullptr));
    }
    check_position(ctx, 3, 4);
    joined.add("gradients", whole_gradients(local_module(made)));
    const Optimizer optimizer = sgd_over(local_module(made), nullptr);
    NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
    check_position(ctx, 4, 0);
  });
  return joined.all();
}

// Each microbatch of a step drops bits of its own, whichever run it is in.
void dropped(void**) {
  Named want = gradients_of(1, 1);
  assert_int_equal(want.size(), 4);
  check_named("gradients", gradients_of(1, 2), want, 0, 0);
  // Each run gives a mean over its own microbatches.
  for (auto& [name, values] : want) {
    for (double& value : values) value *= 2;
  }
  for (const int stages : {1, 2})
    check_named("gradients", gradients_of(2, stages), want, 1e-6, 1e-8);
}

// A ddp that is told of no further run says which call it was.
void second_run_of_a_step(void**) {
  const Setting setting{.layout = {.dp = 2}};
  on_pipeline_ranks(setting.layout, [&](nxd_context_t* ctx, int) {
    const Module model = model_of(ctx, setting);
    const Tensor batch = batch_of(0, 0, 0, kCopies);
    nxd_tensor_t* const inputs[] = {batch.get(), batch.get()};
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = kMicrobatches;
    nxd_pp_t* made = nullptr;
    if (!NXD_TEST_OK(nxd_pp_create(model.get(), inputs, 2, &options, &made))) return;
    const Pipeline pp(made);
    const Ddp ddp = ddp_over(local_module(pp.get()), setting);
    NXD_TEST_OK(nxd_pp_set_ddp(pp.get(), ddp.get()));
    run(pp.get(), batch);
    NXD_TEST_REFUSED(nxd_pp_run_train(pp.get(), inputs, 2, nullptr), NXD_ERROR_INVALID_STATE,
                     "nxd_ddp_set_sync");
  });
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(copies),      cmocka_unit_test(stages),
      cmocka_unit_test(tied_stages), cmocka_unit_test(parts_of_the_state),
      cmocka_unit_test(dropped),     cmocka_unit_test(second_run_of_a_step),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
