// Pipelines that reduce gradients within the run: as many buckets whatever the schedule, and the
// same bits, also where norms and biases have their gradients before the weights' tasks.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "capi/callback_model.h"
#include "capi/pipeline_support.h"

using namespace nxd_test;

namespace {

constexpr int64_t kSequence = 16;
constexpr int kMicrobatches = 4, kRanks = 2, kSteps = 2;

Tensor ids(int step, int dp_rank) {
  const int64_t rows = kMicrobatches;
  std::vector<int64_t> data;
  for (int64_t i = 0; i < rows * kSequence; ++i) {
    data.push_back((i * i * 11 + i * 37 + dp_rank * 13 + step * 5) % 101);
  }
  return make_i64(data, {rows, kSequence});
}

// Every rank's calls to reduce gradients over copies.
struct Reductions {
  std::vector<int> in_runs, in_steps;
};

// Counts those of the data-parallel group, from its call of number `from` on, which moves behind
// them. The group's calls end in the order in which they are asked for; its record has the last 64.
int reductions_since(nxd_context_t* ctx, int64_t& from) {
  nxd_group_t* data = nullptr;
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_DATA, &data));
  NXD_TEST_OK(nxd_barrier(data));
  std::string record(1 << 20, '\0');
  size_t needed = 0;
  NXD_TEST_OK(nxd_context_get_flight_record(ctx, record.data(), record.size(), &needed));
  record.resize(needed);
  int count = 0;
  const nlohmann::json read = nlohmann::json::parse(record);
  for (const auto& group : read["groups"]) {
    if (group["name"] != "data") continue;
    const auto& operations = group["operations"];
    NXD_TEST_CHECK(from == 0 || operations.front()["sequence"] <= from);
    for (const auto& operation : operations) {
      if (operation["sequence"] < from) continue;
      const std::string name = operation["operation"];
      if (name == "all_reduce" || name == "reduce_scatter") ++count;
    }
    from = operations.back()["sequence"].get<int64_t>() + 1;
  }
  return count;
}

struct Setting {
  std::function<Module(nxd_context_t*)> make;
  std::function<void()> before_run = [] {};
  int zero_stage = 0, chunks = 1;
  nxd_pp_schedule_kind_t schedule = NXD_PP_SCHEDULE_1F1B;
  nxd_pp_schedule_t* custom = nullptr;
  std::vector<const char*> cuts, leaves;
  size_t inputs = 2;  // ids and labels
};

nxd_pp_options_t options_of(const Setting& setting) {
  nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  options.num_microbatches = kMicrobatches;
  options.virtual_size = setting.chunks;
  options.schedule = setting.custom ? NXD_PP_SCHEDULE_DEFAULT : setting.schedule;
  options.custom_schedule = setting.custom;
  options.broadcast_and_average_loss = 1;
  options.pipeline_cuts = setting.cuts.empty() ? nullptr : setting.cuts.data();
  options.num_cuts = setting.cuts.size();
  options.leaf_modules = setting.leaves.empty() ? nullptr : setting.leaves.data();
  options.num_leaf_modules = setting.leaves.size();
  return options;
}

Ddp small_buckets(nxd_module_t* local, int zero_stage) {
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.reduce = NXD_REDUCE_SUM;
  options.bucket_bytes = 40000;
  options.zero_stage = zero_stage;
  nxd_ddp_t* made = nullptr;
  NXD_TEST_OK(nxd_ddp_create(local, &options, &made));
  return Ddp(made);
}

struct Result {
  Reductions reductions;
  std::vector<double> losses;
  Named final;
};

void train_rank(nxd_context_t* ctx, int rank, const Setting& setting, Result& result,
                Joined& final) {
  const int dp_rank = axis_rank(ctx, NXD_AXIS_DATA);
  const Module model = setting.make(ctx);
  const Tensor example = ids(0, dp_rank);
  nxd_tensor_t* inputs[] = {example.get(), example.get()};
  nxd_pp_t* out = nullptr;
  const nxd_pp_options_t options = options_of(setting);
  if (!NXD_TEST_OK(nxd_pp_create(model.get(), inputs, setting.inputs, &options, &out))) return;
  const Pipeline pp(out);
  const Ddp ddp = small_buckets(local_module(pp.get()), setting.zero_stage);
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  nxd_optimizer_t* made = nullptr;
  if (!ddp || !NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp.get(), &adamw, &made))) return;
  const Optimizer optimizer(made);
  NXD_TEST_OK(nxd_pp_set_ddp(pp.get(), ddp.get()));
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  finish.data_parallel_reduce = NXD_REDUCE_SUM;
  for (int step = 0; step < kSteps; ++step) {
    const Tensor batch = ids(step, dp_rank);
    inputs[0] = inputs[1] = batch.get();
    double loss = NAN;
    NXD_TEST_OK(nxd_module_zero_grad(local_module(pp.get())));
    int64_t mark = 0;
    reductions_since(ctx, mark);
    setting.before_run();
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), inputs, setting.inputs, &loss));
    result.reductions.in_runs[static_cast<size_t>(rank)] = reductions_since(ctx, mark);
    NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), &finish, nullptr));
    result.reductions.in_steps[static_cast<size_t>(rank)] = reductions_since(ctx, mark);
    if (rank == 0) result.losses.push_back(loss);
  }
  final.add("final", whole_parameters(local_module(pp.get())));
}

Result train(const Setting& setting) {
  Result result;
  const PipelineLayout layout{1, kRanks, 2};
  result.reductions.in_runs.resize(static_cast<size_t>(layout.size()));
  result.reductions.in_steps = result.reductions.in_runs;
  Joined final;
  on_pipeline_ranks(
      layout, [&](nxd_context_t* ctx, int rank) { train_rank(ctx, rank, setting, result, final); });
  result.final = final.all();
  return result;
}

// Tied weights are summed over stages when a run is over, so that their bucket, and those behind
// it, are left to the step.
void check_like(const Setting& setting, const Result& want, bool tied) {
  const Result got = train(setting);
  for (size_t rank = 0; rank < want.reductions.in_runs.size(); ++rank) {
    assert_true(want.reductions.in_runs[rank] > 4);

    assert_int_equal(got.reductions.in_runs[rank], want.reductions.in_runs[rank]);
    assert_int_equal(got.reductions.in_steps[rank], want.reductions.in_steps[rank]);
    assert_true(tied || want.reductions.in_steps[rank] <= 1);  // which copies had gradients
  }
  assert_true(got.losses == want.losses);
  assert_false(want.final.empty());
  check_named("final", got.final, want.final, 0, 0);
}

std::function<Module(nxd_context_t*)> llama(bool tied) {
  nlohmann::json json = nlohmann::json::parse(read_file(oracles() + "/llama_tiny/config.json"));
  json["num_hidden_layers"] = 4;
  json["tie_word_embeddings"] = tied;
  return [config = json.dump()](nxd_context_t* ctx) { return create_model(ctx, config, Layout{}); };
}

void zero_bubble(void**) {
  for (const bool tied : {false, true}) {
    for (const int zero_stage : {0, 1}) {
      Setting setting;
      setting.make = llama(tied);
      setting.zero_stage = zero_stage;
      const Result want = train(setting);
      setting.schedule = NXD_PP_SCHEDULE_ZERO_BUBBLE;
      check_like(setting, want, tied);
    }
  }
}

using Schedule = std::unique_ptr<nxd_pp_schedule_t, Destroyer<nxd_pp_schedule_destroy>>;

// All forwards, then all input gradients, then all weight gradients, over two chunks.
Schedule split_chunks() {
  std::vector<nxd_pp_task_t> tasks;
  const auto add = [&](nxd_pp_task_kind_t kind, int chunk) {
    for (int i = 0; i < kMicrobatches; ++i) tasks.push_back({kind, i, chunk});
  };
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const int chunk : {0, 1}) add(NXD_PP_TASK_FORWARD, chunk);
    for (const int chunk : {1, 0}) add(NXD_PP_TASK_INPUT_GRAD, chunk);
    for (const int chunk : {1, 0}) add(NXD_PP_TASK_WEIGHT_GRAD, chunk);
  }
  const std::vector<size_t> counts(kRanks, tasks.size() / kRanks);
  nxd_pp_schedule_t* made = nullptr;
  NXD_TEST_OK(
      nxd_pp_schedule_create_tasks(kRanks, 2, kMicrobatches, tasks.data(), counts.data(), &made));
  return Schedule(made);
}

void chunks(void**) {
  for (const int zero_stage : {0, 1}) {
    Setting setting;
    setting.make = llama(false);
    setting.zero_stage = zero_stage;
    setting.chunks = 2;
    setting.schedule = NXD_PP_SCHEDULE_INTERLEAVED;
    const Result want = train(setting);
    const Schedule split = split_chunks();
    setting.custom = split.get();
    check_like(setting, want, false);
  }
}

// The weight's product can be put off in all microbatches but the last, which applies the weight by
// an operator. The first ones' products come after the last one's input gradients.
Module turning(nxd_context_t* ctx, const std::shared_ptr<std::atomic<int>>& calls) {
  Module turning = callback_module(
      ctx, "Turning",
      [calls](nxd_module_t* self, const Handles& inputs, nxd_tensor_t** outputs, size_t) {
        Tensor out;
        if (++*calls % kMicrobatches != 0) {
          NXD_TEST_TRY(call_child(self, "a", {inputs[0]}, out));
        } else {
          nxd_parameter_t* weight = nullptr;
          nxd_tensor_t* value = nullptr;
          NXD_TEST_TRY(nxd_module_find_parameter(self, "a.weight", &weight));
          NXD_TEST_TRY(nxd_parameter_get_tensor(weight, &value));
          NXD_TEST_TRY(call_op("linear", nullptr, {inputs[0], value, nullptr}, out));
        }
        outputs[0] = out.release();
        return nxd_status_t{NXD_OK};
      });
  add_child(turning, "a", column_linear(ctx, 8, 8, false, true));
  return turning;
}

void turning_weights(void**) {
  // Each thread is a rank.
  static thread_local std::shared_ptr<std::atomic<int>> calls;
  Setting setting;
  setting.make = [](nxd_context_t* ctx) {
    calls = std::make_shared<std::atomic<int>>(0);
    const Module table = embedding(ctx, 101, 8), block = residual_block(ctx, 8, 16),
                 last = turning(ctx, calls), norm = layer_norm(ctx, 8);
    const Module loss = callback_module(
        ctx, "Loss", [](nxd_module_t*, const Handles& inputs, nxd_tensor_t** outputs, size_t) {
          Tensor squared, mean;
          NXD_TEST_TRY(call_op("mul", "Tensor", {inputs[0], inputs[0]}, squared));
          NXD_TEST_TRY(call_op("mean", nullptr, {squared.get()}, mean));
          outputs[0] = mean.release();
          return nxd_status_t{NXD_OK};
        });
    nxd_module_t* const children[] = {table.get(), block.get(), last.get(), norm.get(), loss.get()};
    nxd_module_t* made = nullptr;
    NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 5, &made));
    NXD_TEST_OK(nxd_module_initialize(made, 5));
    return Module(made);
  };
  setting.before_run = [] { *calls = 0; };
  setting.cuts = {"1"};
  setting.leaves = {"Turning"};
  setting.inputs = 1;
  const Result want = train(setting);
  setting.schedule = NXD_PP_SCHEDULE_ZERO_BUBBLE;
  const Result got = train(setting);
  assert_true(got.losses == want.losses);
  check_named("final", got.final, want.final, 0, 0);
}

// The gradient of a weight that the first stage and the last share, after so many runs.
Named wide_gradients(int stages, int runs, bool finishes,
                     nxd_pp_schedule_kind_t schedule = NXD_PP_SCHEDULE_DEFAULT) {
  Joined joined;
  nlohmann::json json = nlohmann::json::parse(read_file(oracles() + "/llama_tiny/config.json"));
  json["tie_word_embeddings"] = true;
  on_pipeline_ranks({1, stages, 2}, [&](nxd_context_t* ctx, int) {
    nxd_model_options_t of_model = NXD_MODEL_OPTIONS_INIT;
    of_model.dtype = NXD_DTYPE_BF16;
    nxd_module_t* model = nullptr;
    if (!NXD_TEST_OK(nxd_model_create(ctx, json.dump().c_str(), &of_model, &model))) return;
    const Module owned(model);
    const Tensor batch = ids(0, 0);
    nxd_tensor_t* const inputs[] = {batch.get(), batch.get()};
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = kMicrobatches;
    options.schedule = schedule;
    nxd_pp_t* made = nullptr;
    if (!NXD_TEST_OK(nxd_pp_create(model, inputs, 2, &options, &made))) return;
    const Pipeline pp(made);
    nxd_module_t* const local = local_module(made);
    nxd_ddp_options_t of_ddp = NXD_DDP_OPTIONS_INIT;
    of_ddp.fp32_grads = 1;
    of_ddp.reduce = NXD_REDUCE_SUM;
    nxd_ddp_t* reduced = nullptr;
    if (!NXD_TEST_OK(nxd_ddp_create(local, &of_ddp, &reduced))) return;
    const Ddp ddp(reduced);
    NXD_TEST_OK(nxd_pp_set_ddp(made, reduced));
    for (int i = 0; i < runs; ++i) {
      NXD_TEST_OK(nxd_ddp_set_sync(reduced, i + 1 == runs));
      NXD_TEST_OK(nxd_pp_run_train(made, inputs, 2, nullptr));
    }
    nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
    finish.data_parallel_reduce = NXD_REDUCE_SUM;
    if (finishes) NXD_TEST_OK(nxd_ddp_finish(reduced, &finish, nullptr));
    const std::string name = "model.embed_tokens.weight";
    joined.add("gradients", {{name, whole_gradients(local).at(name)}});
    NXD_TEST_OK(nxd_pp_set_ddp(made, nullptr));
  });
  return joined.all();
}

bool fits_bf16(double value) {
  const auto narrow = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &narrow, sizeof bits);
  return (bits & 0xffffU) == 0;
}

// The gradient of a weight that stages share is in F32 as that of any other, in all its sums.
void wide_gradients_of_shared_weights(void**) {
  for (const int stages : {1, 2}) {
    Named want = wide_gradients(stages, 1, false);
    std::vector<double>& once = want.begin()->second;
    const auto narrow = std::count_if(once.begin(), once.end(), fits_bf16);
    assert_true(narrow < static_cast<int64_t>(once.size()) / 2);
    check_named("zero bubble", wide_gradients(stages, 1, false, NXD_PP_SCHEDULE_ZERO_BUBBLE), want,
                0, 0);
    for (double& value : once) value *= 2;
    check_named("two runs", wide_gradients(stages, 2, false), want, 0, 0);
    check_named("two copies", wide_gradients(stages, 1, true), want, 0, 0);
    for (double& value : once) value *= 2;
    check_named("two runs of two copies", wide_gradients(stages, 2, true), want, 0, 0);
  }
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(zero_bubble),
      cmocka_unit_test(chunks),
      cmocka_unit_test(turning_weights),
      cmocka_unit_test(wide_gradients_of_shared_weights),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
