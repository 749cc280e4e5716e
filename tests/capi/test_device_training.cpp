// Training on the recorded device beside eager training, over tensor- and data-parallel ranks with
// ZeRO-1: the same losses, norms and parameters, one graph a step, and no compile for a new
// learning rate.
#include "support/device.h"
#include "support/model_support.h"
#include "support/pjrt.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr int kSteps = 20;
constexpr int64_t kLength = 16;

struct Setting {
  int tp = 1, dp = 1;
  bool sequence_parallel = false;
  int stage = -1;  // of ZeRO; -1: no ddp
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  int microbatches = 1;
  bool fp32_grads = false;
  nxd_reduce_t reduce = NXD_REDUCE_SUM;
  nxd_bf16_update_t bf16_update = NXD_BF16_UPDATE_MASTER;
  bool decays_alone = false;  // gradients are too small to move a value
  // Before step 2 another optimizer goes on with a state that is saved in this directory.
  const std::string* saved_at_2 = nullptr;

  std::string name() const {
    return "tp " + std::to_string(tp) + (sequence_parallel ? " sp" : "") + " dp " +
           std::to_string(dp) + " stage " + std::to_string(stage) + " microbatches " +
           std::to_string(microbatches);
  }
};

struct Ddp {
  nxd_ddp_t* handle = nullptr;
  ~Ddp() { nxd_ddp_destroy(handle); }
};

struct Trained {
  std::vector<double> losses, norms;
  Named parameters;
  std::string program;  // of the last step
};

std::string report() {
  char text[4096];
  size_t needed = 0;
  NXD_TEST_OK(nxd_device_get_report(text, sizeof text, &needed));
  return text;
}

// A loss that is read once the step has run.
struct Reading {
  Tensor loss;
  double value = NAN;
};

nxd_status_t read_loss(void* user_data) {
  auto* reading = static_cast<Reading*>(user_data);
  return nxd_tensor_get_item(reading->loss.get(), &reading->value);
}

// Ids and labels; for a BERT, which takes two inputs between that are left out here, also whether
// the second sentence follows.
std::vector<Tensor> batch_of(const nlohmann::json& config, int sequence, int step) {
  const int64_t vocabulary = config["vocab_size"];
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kLength; ++i) {
    ids.push_back((sequence * 131 + step % 3 * 29 + i * i * 17 + 7 * i) % vocabulary);
  }
  std::vector<Tensor> given;
  given.push_back(make_i64(ids, {1, kLength}));
  given.push_back(make_i64(ids, {1, kLength}));
  if (config["model_type"] == "bert") {
    given.resize(4);
    given.push_back(make_i64({step % 2}, {1}));
  }
  return given;
}

// Backward passes of a step's microbatches; the losses are read at its end.
std::vector<Reading> run_passes(nxd_module_t* model, nxd_ddp_t* ddp, const Setting& setting,
                                int copy, int step, const nlohmann::json& config) {
  std::vector<Reading> readings(static_cast<size_t>(setting.microbatches));
  for (int m = 0; m < setting.microbatches; ++m) {
    const std::vector<Tensor> inputs =
        moved(batch_of(config, copy * setting.microbatches + m, step), device_of(model));
    Reading& reading = readings[static_cast<size_t>(m)];
    if (ddp) NXD_TEST_OK(nxd_ddp_set_sync(ddp, m + 1 == setting.microbatches));
    nxd_tensor_t* out = nullptr;
    if (!NXD_TEST_OK(nxd_module_forward(model, handles(inputs).data(), inputs.size(), &out, 1)))
      break;
    reading.loss.reset(out);
    NXD_TEST_OK(nxd_backward(&out, nullptr, 1, 0));
    NXD_TEST_OK(nxd_add_step_closure(read_loss, &reading, nullptr));
  }
  return readings;
}

Optimizer make_optimizer(nxd_module_t* model, nxd_ddp_t* ddp, nxd_bf16_update_t bf16_update) {
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  adamw.bf16_update = bf16_update;
  adamw.weight_decay = 0.1;
  adamw.eps = 1e-6;
  nxd_optimizer_t* made = nullptr;
  if (ddp) {
    NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp, &adamw, &made));
  } else {
    NXD_TEST_OK(nxd_optimizer_create_adamw(model, &adamw, &made));
  }
  return Optimizer(made);
}

Trained train(nxd_context_t* ctx, const Setting& setting, nxd_device_t device,
              const std::string& config, int steps) {
  Trained run;
  Layout layout{setting.tp, setting.sequence_parallel, setting.dtype};
  layout.device = device;
  const Module model = create_model(ctx, config, layout);
  if (!model) return run;
  const nlohmann::json parsed = nlohmann::json::parse(config);
  int32_t copy = 0;
  NXD_TEST_OK(nxd_parallel_get_rank(ctx, NXD_AXIS_DATA, &copy));
  Ddp ddp;
  if (setting.stage >= 0) {
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = setting.stage;
    options.bucket_bytes = 20000;
    options.fp32_grads = setting.fp32_grads;
    options.reduce = setting.reduce;
    if (!NXD_TEST_OK(nxd_ddp_create(model.get(), &options, &ddp.handle))) return run;
  }
  Optimizer optimizer = make_optimizer(model.get(), ddp.handle, setting.bf16_update);
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  const int summed = setting.reduce == NXD_REDUCE_SUM ? setting.dp : 1;
  finish.scale = 1.0 / (summed * setting.microbatches);
  if (setting.decays_alone) finish.scale = 1e-30;
  finish.max_norm = 1;
  for (int step = 0; step < steps; ++step) {
    if (step == 2 && setting.saved_at_2) {
      const std::string path = *setting.saved_at_2 + "/" + std::to_string(device);
      NXD_TEST_OK(nxd_optimizer_save(optimizer.get(), path.c_str()));
      optimizer = make_optimizer(model.get(), ddp.handle, setting.bf16_update);
      NXD_TEST_OK(nxd_optimizer_load(optimizer.get(), path.c_str()));
    }
    NXD_TEST_OK(nxd_optimizer_set_hyperparameter(
        optimizer.get(), -1, NXD_HYPERPARAMETER_LEARNING_RATE, 1e-3 / (1 + 0.1 * step)));
    const std::vector<Reading> readings =
        run_passes(model.get(), ddp.handle, setting, copy, step, parsed);
    nxd_step_report_t result = {};
    result.struct_size = sizeof result;
    if (!NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), &finish, &result))) break;
    NXD_TEST_OK(nxd_module_zero_grad(model.get()));
    NXD_TEST_OK(nxd_mark_step(1));
    for (const Reading& reading : readings) run.losses.push_back(reading.value);
    run.norms.push_back(result.norm);
  }
  if (device == NXD_DEVICE_XLA) run.program = step_graph(NXD_GRAPH_FORMAT_STABLEHLO);
  run.parameters = whole_parameters(model.get());
  return run;
}

std::vector<Trained> train_on_ranks(const Setting& setting, nxd_device_t device,
                                    const std::string& config, int steps) {
  struct Shared {
    const Setting& setting;
    nxd_device_t device;
    const std::string& config;
    int steps;
    std::vector<Trained> runs;
  } shared{setting, device, config, steps, {}};
  const int ranks = setting.tp * setting.dp;
  shared.runs.resize(static_cast<size_t>(ranks));
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  options.seed = 7;
  nxd_test_run_ranks_with(
      &options, ranks, setting.tp,
      [](nxd_context_t* ctx, int rank, int, void* user_data) {
        auto* s = static_cast<Shared*>(user_data);
        s->runs[static_cast<size_t>(rank)] = train(ctx, s->setting, s->device, s->config, s->steps);
      },
      &shared);
  return shared.runs;
}

// Gives the last step's program of each rank.
std::vector<std::string> check(const Setting& setting, const std::string& config,
                               int steps = kSteps, double tol = 1e-5) {
  const std::string name = setting.name();
  const auto want = train_on_ranks(setting, NXD_DEVICE_CPU, config, steps);
  NXD_TEST_OK(nxd_device_reset_metrics());
  const auto got = train_on_ranks(setting, NXD_DEVICE_XLA, config, steps);
  const nxd_device_metrics_t m = metrics();
  for (size_t rank = 0; rank < want.size(); ++rank) {
    assert_int_equal(got[rank].losses.size(), want[rank].losses.size());
    for (size_t i = 0; i < want[rank].losses.size(); ++i) {
      check_loss((name + ": loss").c_str(), got[rank].losses[i], want[rank].losses[i], tol);
    }
    for (size_t i = 0; i < want[rank].norms.size(); ++i) {
      check_loss((name + ": norm").c_str(), got[rank].norms[i], want[rank].norms[i], 10 * tol);
    }
    check_named(name, got[rank].parameters, want[rank].parameters, 10 * tol, 1e-6);
  }
  // The batches of three steps differ.
  if (steps > 3) assert_true(want[0].losses.back() < want[0].losses.front());
  // A step is one graph on each rank, which ends at the optimizer's report; the closures' reads run
  // nothing.
  const auto all = static_cast<uint64_t>(setting.tp * setting.dp * steps);
  const bool as_many = m.executions == all && m.steps == all && m.implicit_syncs == all &&
                       m.fallbacks == 0 &&
                       m.compiles + m.loads <= static_cast<uint64_t>(2 * setting.tp * setting.dp);
  if (!as_many) fail_msg("%s: %s", name.c_str(), report().c_str());
  std::vector<std::string> programs;
  for (const Trained& run : got) programs.push_back(run.program);
  return programs;
}

std::string changed(const std::string& config, const nlohmann::json& changes) {
  nlohmann::json out = nlohmann::json::parse(config);
  out.update(changes);
  return out.dump();
}

void llama(void**) {
  const std::string config = LlamaOracle().config;
  for (const Setting& setting :
       {Setting{1, 1, false, -1}, Setting{2, 1, false, -1}, Setting{2, 1, true, -1},
        Setting{1, 2, false, -1}, Setting{1, 2, false, 0}, Setting{1, 2, false, 1},
        Setting{2, 2, true, 1}}) {
    check(setting, config);
  }
}

std::string small_config() {
  return changed(LlamaOracle().config, {{"hidden_size", 16}, {"intermediate_size", 44}});
}

// The program of replicas, which exchange by StableHLO and need no host.
void check_one_program(const std::vector<std::string>& programs) {
  for (const std::string& program : programs) {
    assert_true(program == programs[0]);
    assert_true(program.find("replica_groups") != std::string::npos);
    assert_true(program.find("nxd_call") == std::string::npos);
  }
}

// Ranks are threads here, which a plug-in runs as replicas of one program: they call no collective
// of the host's. Five ranks cut each parameter into parts of one size, with padding behind the last
// elements; of a norm's 16 the fifth has none.
void data_parallel_threads(void**) {
  check(Setting{1, 2, false, 0}, LlamaOracle().config, 5);
  Setting mean{1, 2, false, 1};
  mean.reduce = NXD_REDUCE_AVG;
  for (const Setting& setting : {mean, Setting{1, 5, false, 1}, Setting{2, 2, true, 1}}) {
    check_one_program(check(setting, small_config(), 5));
  }
}

// Every family: ranks that differ in their place in the sequence and the vocabulary, which they do
// not divide, and in the masks that they draw. Tied embeddings are read from both ends.
void families_of_threads(void**) {
  const nlohmann::json small = {{"vocab_size", 67},
                                {"hidden_size", 16},
                                {"intermediate_size", 40},
                                {"num_hidden_layers", 1},
                                {"head_dim", 4}};
  const std::pair<const char*, nlohmann::json> families[] = {
      {"llama_tiny", {{"num_key_value_heads", 1}}},
      {"gpt2_tiny",
       {{"n_embd", 16},
        {"n_layer", 1},
        {"embd_pdrop", 0.1},
        {"attn_pdrop", 0.1},
        {"resid_pdrop", 0.1}}},
      {"gpt_neox_serial_tiny", {{"attention_dropout", 0.1}, {"hidden_dropout", 0.1}}},
      {"bert_pad_tiny", {{"attention_probs_dropout_prob", 0.1}, {"hidden_dropout_prob", 0.1}}}};
  for (const auto& [name, own] : families) {
    const std::string config = changed(changed(ModelOracle(name).config, small), own);
    for (const Setting& setting :
         {Setting{2, 1, false, -1}, Setting{2, 1, true, -1}, Setting{2, 2, true, 1}}) {
      check_one_program(check(setting, config, 3));
    }
  }
}

// Parts of parameters are rounded by the words that the whole ones are, in any of these layouts.
void stochastic_parts_of_threads(void**) {
  for (Setting setting : {Setting{2, 2, false, 1}, Setting{1, 3, false, 1}}) {
    setting.dtype = NXD_DTYPE_BF16;
    setting.bf16_update = NXD_BF16_UPDATE_STOCHASTIC;
    setting.decays_alone = true;
    const auto got = train_on_ranks(setting, NXD_DEVICE_XLA, small_config(), 5);
    check_one_program({got[0].program, got[1].program});
    setting.tp = setting.dp = 1;
    setting.stage = -1;
    const auto want = train_on_ranks(setting, NXD_DEVICE_CPU, small_config(), 5);
    assert_true(want[0].parameters == got[0].parameters);
  }
}

// States of parts with padding, and of parts that are padding alone.
void parts_that_are_saved(void**) {
  const TempDir directory;
  const std::string path = directory.path();
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    Setting setting{1, 5, false, 1, dtype};
    setting.saved_at_2 = &path;
    check(setting, small_config(), 5, dtype == NXD_DTYPE_F32 ? 1e-5 : 5e-3);
  }
}

// The step's graph sums over the copies, of which the first alone writes.
void save_recorded_step(nxd_context_t* ctx, int rank, int, void* user_data) {
  const std::string path = *static_cast<std::string*>(user_data) + "/model.safetensors";
  Layout layout{1, false, NXD_DTYPE_F32};
  layout.device = NXD_DEVICE_XLA;
  const Module model = create_model(ctx, small_config(), layout);
  Ddp ddp;
  NXD_TEST_OK(nxd_ddp_create(model.get(), nullptr, &ddp.handle));
  const Optimizer optimizer = make_optimizer(model.get(), ddp.handle, NXD_BF16_UPDATE_MASTER);
  const std::vector<Reading> readings = run_passes(model.get(), ddp.handle, Setting{}, rank, 0,
                                                   nlohmann::json::parse(small_config()));
  NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
  NXD_TEST_OK(nxd_module_save_safetensors(model.get(), path.c_str()));
  // The other copy waits for the file.
  nxd_group_t* world = nullptr;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_barrier(world));
  NXD_TEST_OK(nxd_mark_step(1));
  const Named want = whole_parameters(model.get());
  if (rank != 0) return;
  const Module again = create_model(ctx, small_config(), layout);
  NXD_TEST_OK(nxd_module_load_safetensors(again.get(), path.c_str(), 1, nullptr));
  NXD_TEST_CHECK(whole_parameters(again.get()) == want);
}

void a_recorded_step_is_saved(void**) {
  const TempDir directory;
  std::string path = directory.path();
  nxd_test_run_ranks(2, 1, save_recorded_step, &path);
}

void microbatches(void**) {
  const std::string config = LlamaOracle().config;
  check(Setting{1, 2, false, 1, NXD_DTYPE_F32, 3}, config, 5);
  check(Setting{1, 1, false, -1, NXD_DTYPE_F32, 3}, config, 5);
}

// F32 gradients of BF16 parameters, which add up over microbatches.
void bf16_with_f32_gradients(void**) {
  const Setting setting{1, 2, false, 1, NXD_DTYPE_BF16, 2, true};
  check(setting, LlamaOracle().config, 5, 5e-3);
}

void gpt2_with_dropout(void**) {
  const ModelOracle oracle("gpt2_tiny");
  const std::string config =
      changed(oracle.config, {{"embd_pdrop", 0.1}, {"attn_pdrop", 0.1}, {"resid_pdrop", 0.1}});
  for (const Setting& setting :
       {Setting{1, 1, false, -1}, Setting{2, 1, true, -1}, Setting{1, 2, false, 1}}) {
    check(setting, config);
  }
}

// Forty steps, each with another learning rate.
void compiles_at_most_twice(void**) {
  check(Setting{}, LlamaOracle().config, 40, 5e-5);
  if (graphs_made() > 2) fail_msg("%s", report().c_str());
}

// Runs that differ by four steps: what these copy are batches and numbers, wherever parameters and
// states lie.
void values_stay_on_the_device(void**) {
  for (const Setting& setting : {Setting{}, Setting{1, 2, false, 1}}) {
    const auto counts_of = [&](int steps) {
      NXD_TEST_OK(nxd_device_reset_metrics());
      train_on_ranks(setting, NXD_DEVICE_XLA, small_config(), steps);
      return metrics();
    };
    const nxd_device_metrics_t few = counts_of(5), more = counts_of(9);
    const uint64_t taken = more.argument_bytes - few.argument_bytes;
    const uint64_t copied = more.copied_bytes - few.copied_bytes;
    if (copied * 20 > taken) {
      fail_msg("%s: %llu bytes of %llu were copied", setting.name().c_str(),
               static_cast<unsigned long long>(copied), static_cast<unsigned long long>(taken));
    }
  }
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(llama),
      cmocka_unit_test(a_recorded_step_is_saved),
      cmocka_unit_test(parts_that_are_saved),
      cmocka_unit_test(microbatches),
      cmocka_unit_test(bf16_with_f32_gradients),
      cmocka_unit_test(gpt2_with_dropout),
      cmocka_unit_test(compiles_at_most_twice),
  };
  // Each layout takes seconds to compile; tests/scripts/test_device_backends.sh has several ranks.
  const struct CMUnitTest of_a_plugin[] = {
      cmocka_unit_test(data_parallel_threads),
      cmocka_unit_test(families_of_threads),
      cmocka_unit_test(stochastic_parts_of_threads),
      cmocka_unit_test(parts_that_are_saved),
      cmocka_unit_test(microbatches),
      cmocka_unit_test(bf16_with_f32_gradients),
      cmocka_unit_test(values_stay_on_the_device),
  };
  if (through_a_plugin()) {
    return cmocka_run_group_tests(of_a_plugin, nullptr, nullptr);
  }
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
