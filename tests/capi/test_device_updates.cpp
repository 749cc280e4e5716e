// Optimizers on the recorded device beside eager ones: the update is part of the step's graph, with
// the same parameters, states that outlive the device's steps, and errors that leave values whole.
#include <cstring>
#include <fstream>

#include "support/device.h"
#include "support/model_support.h"
#include "support/pjrt.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr int kSteps = 6;
constexpr int64_t kLength = 16;

using Maker = nxd_optimizer_t* (*)(nxd_module_t*);

nxd_optimizer_t* adamw(nxd_module_t* model, nxd_bf16_update_t bf16_update) {
  nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
  options.weight_decay = 0.1;
  options.eps = 1e-6;
  options.bf16_update = bf16_update;
  nxd_optimizer_t* out = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_adamw(model, &options, &out));
  return out;
}

nxd_optimizer_t* sgd(nxd_module_t* model, double momentum, int nesterov,
                     nxd_bf16_update_t bf16_update = NXD_BF16_UPDATE_MASTER) {
  nxd_sgd_options_t options = NXD_SGD_OPTIONS_INIT;
  options.learning_rate = 0.05;
  options.momentum = momentum;
  options.nesterov = nesterov;
  options.bf16_update = bf16_update;
  options.weight_decay = 0.01;
  nxd_optimizer_t* out = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_sgd(model, &options, &out));
  return out;
}

nxd_optimizer_t* adamw(nxd_module_t* model) { return adamw(model, NXD_BF16_UPDATE_MASTER); }
nxd_optimizer_t* stochastic_adamw(nxd_module_t* model) {
  return adamw(model, NXD_BF16_UPDATE_STOCHASTIC);
}
nxd_optimizer_t* plain_sgd(nxd_module_t* model) { return sgd(model, 0, 0); }
nxd_optimizer_t* momentum(nxd_module_t* model) { return sgd(model, 0.9, 0); }
nxd_optimizer_t* stochastic_sgd(nxd_module_t* model) {
  return sgd(model, 0.9, 0, NXD_BF16_UPDATE_STOCHASTIC);
}
nxd_optimizer_t* nesterov(nxd_module_t* model) { return sgd(model, 0.9, 1); }

struct Setting {
  Maker make;
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  double norm_type = 2, max_norm = 1;
  bool reports = true;
};

// Values and states are written where they lie, and a program needs no host.
void check_no_copies() {
  char text[4096];
  size_t needed = 0;
  NXD_TEST_OK(nxd_device_get_report(text, sizeof text, &needed));
  if (!std::strstr(text, "\ncopied_bytes 0\n") || std::strstr(text, "host_call")) {
    fail_msg("%s", text);
  }
}

void pass(nxd_module_t* model, int step, int64_t first_id = 0) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kLength; ++i) ids.push_back((step * 29 + i * i * 17 + 7 * i) % 90);
  ids[0] += first_id;
  std::vector<Tensor> given;
  given.push_back(make_i64(ids, {1, kLength}));
  given.push_back(make_i64(ids, {1, kLength}));
  const std::vector<Tensor> inputs = moved(given, device_of(model));
  nxd_tensor_t* loss = nullptr;
  if (!NXD_TEST_OK(nxd_module_forward(model, handles(inputs).data(), 2, &loss, 1))) return;
  NXD_TEST_OK(nxd_backward(&loss, nullptr, 1, 0));
  nxd_tensor_destroy(loss);
}

nxd_step_report_t empty_report() {
  nxd_step_report_t report = {};
  report.struct_size = sizeof report;
  return report;
}

struct Session {
  nxd_context_t* ctx = nullptr;
  Module model;
  Optimizer optimizer;

  Session(nxd_device_t device, const Setting& setting) {
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    options.seed = 7;
    NXD_TEST_OK(nxd_context_create(&options, &ctx));
    const nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
    NXD_TEST_OK(nxd_init_model_parallel(ctx, &parallel));
    Layout layout{1, false, setting.dtype};
    layout.device = device;
    nlohmann::json config = nlohmann::json::parse(LlamaOracle().config);
    config["num_hidden_layers"] = 1;
    model = create_model(ctx, config.dump(), layout);
    optimizer.reset(setting.make(model.get()));
  }
  ~Session() {
    optimizer.reset();
    model.reset();
    nxd_context_destroy(ctx);
  }
};

struct Trained {
  std::vector<double> norms;
  Named parameters;
};

Trained train(nxd_device_t device, const Setting& setting) {
  Session session(device, setting);
  Trained out;
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  finish.max_norm = setting.max_norm;
  finish.norm_type = setting.norm_type;
  for (int step = 0; step < kSteps; ++step) {
    pass(session.model.get(), step);
    nxd_step_report_t report = empty_report();
    NXD_TEST_OK(
        nxd_optimizer_step(session.optimizer.get(), &finish, setting.reports ? &report : nullptr));
    NXD_TEST_OK(nxd_module_zero_grad(session.model.get()));
    NXD_TEST_OK(nxd_mark_step(1));
    out.norms.push_back(report.norm);
  }
  out.parameters = whole_parameters(session.model.get());
  return out;
}

void check(const std::string& name, const Setting& setting, double tol = 1e-5) {
  const Trained want = train(NXD_DEVICE_CPU, setting);
  NXD_TEST_OK(nxd_device_reset_metrics());
  const Trained got = train(NXD_DEVICE_XLA, setting);
  check_named(name, got.parameters, want.parameters, 10 * tol, 1e-6);
  for (size_t i = 0; setting.reports && i < want.norms.size(); ++i) {
    check_loss((name + ": norm").c_str(), got.norms[i], want.norms[i], 10 * tol);
  }
  const nxd_device_metrics_t m = metrics();
  assert_int_equal(m.executions, kSteps);
  assert_int_equal(m.steps, kSteps);
  assert_int_equal(m.implicit_syncs, setting.reports ? kSteps : 0);
  assert_int_equal(m.fallbacks, 0);
  assert_true(m.compiles + m.loads <= 2);
  check_no_copies();
  const bool updates = step_graph(NXD_GRAPH_FORMAT_TEXT).find("nxd::adamw") != std::string::npos ||
                       step_graph(NXD_GRAPH_FORMAT_TEXT).find("nxd::sgd") != std::string::npos;
  if (!updates) fail_msg("%s: no update in the graph", name.c_str());
}

void rules(void**) {
  check("adamw", {adamw});
  check("sgd", {plain_sgd, NXD_DTYPE_F32, 1, 0.5});
  check("momentum", {momentum, NXD_DTYPE_F32, INFINITY, 0.01});
  check("nesterov", {nesterov, NXD_DTYPE_F32, 2, 0});
}

void bf16(void**) {
  check("bf16 with masters", {momentum, NXD_DTYPE_BF16}, 5e-3);
  check("bf16, rounded stochastically", {stochastic_sgd, NXD_DTYPE_BF16}, 5e-3);
}

// Values after a step that moves each of them by less than a unit in the last place.
Named after_a_step(nxd_device_t device, Maker make, int64_t number) {
  Session session(device, {make, NXD_DTYPE_BF16});
  NXD_TEST_OK(nxd_context_set_step(session.ctx, number, 0));
  pass(session.model.get(), 0);
  NXD_TEST_OK(nxd_optimizer_step(session.optimizer.get(), nullptr, nullptr));
  NXD_TEST_OK(nxd_mark_step(1));
  return whole_parameters(session.model.get());
}

double share_that_differs(const Named& a, const Named& b) {
  size_t all = 0, differ = 0;
  for (const auto& [name, values] : a) {
    const std::vector<double>& others = b.at(name);
    for (size_t i = 0; i < values.size(); ++i) differ += values[i] != others[i];
    all += values.size();
  }
  return static_cast<double>(differ) / static_cast<double>(all);
}

// XLA's gradients are others in their last bits, which rounds few values elsewhere.
void stochastic_bits(void**) {
  for (const Maker make : {stochastic_sgd, stochastic_adamw}) {
    const Named want = after_a_step(NXD_DEVICE_CPU, make, 3);
    const double same = share_that_differs(after_a_step(NXD_DEVICE_XLA, make, 3), want);
    const double other = share_that_differs(after_a_step(NXD_DEVICE_XLA, make, 4), want);
    std::printf("%g of the values differ, %g in another step\n", same, other);
    assert_true(same < 0.02 && other > 0.2);
  }
}

// Without a report nothing is read before the step ends.
void no_report(void**) { check("adamw", {adamw, NXD_DTYPE_F32, 2, 1, false}); }

void check_skipped_by(const nxd_finish_options_t& finish) {
  const Setting setting{adamw};
  Session session(NXD_DEVICE_XLA, setting);
  const Named before = whole_parameters(session.model.get());
  nxd_lr_schedule_options_t schedule = NXD_LR_SCHEDULE_OPTIONS_INIT;
  schedule.warmup_steps = 10;
  NXD_TEST_OK(nxd_optimizer_set_lr_schedule(session.optimizer.get(), &schedule));
  double first_rate = 0, rate = -1;
  NXD_TEST_OK(nxd_optimizer_get_learning_rate(session.optimizer.get(), &first_rate));
  for (const bool reports : {true, false}) {
    pass(session.model.get(), 0);
    nxd_step_report_t report = empty_report();
    NXD_TEST_OK(nxd_optimizer_step(session.optimizer.get(), &finish, reports ? &report : nullptr));
    NXD_TEST_OK(nxd_module_zero_grad(session.model.get()));
    NXD_TEST_OK(nxd_mark_step(1));
    if (reports) assert_int_equal(report.skipped, 1);
    NXD_TEST_OK(nxd_optimizer_get_learning_rate(session.optimizer.get(), &rate));
    assert_true(rate == first_rate);
    check_named("skipped", whole_parameters(session.model.get()), before, 0, 0);
    nxd_parameter_state_t state;
    NXD_TEST_OK(nxd_optimizer_get_parameter_state(session.optimizer.get(), &state, nullptr));
    assert_int_equal(state, NXD_PARAMETER_STATE_OLD);
  }
  pass(session.model.get(), 0);
  nxd_step_report_t report = empty_report();
  NXD_TEST_OK(nxd_optimizer_step(session.optimizer.get(), nullptr, &report));
  assert_int_equal(report.skipped, 0);
  assert_int_equal(report.updates, 1);
  NXD_TEST_OK(nxd_optimizer_get_learning_rate(session.optimizer.get(), &rate));
  assert_true(rate > first_rate);
}

void a_norm_that_is_not_finite(void**) {
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  finish.scale = 3e38;
  check_skipped_by(finish);
}

// F32 has no normal number that small, so that gradients would lose their digits.
void a_factor_that_vanishes(void**) {
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  finish.max_norm = 1e-40;
  check_skipped_by(finish);
}

// An id out of range is found when the graph runs, before it updates anything.
void a_graph_that_fails(void**) {
  const Setting setting{adamw};
  Session session(NXD_DEVICE_XLA, setting), untouched(NXD_DEVICE_XLA, setting);
  for (int step = 0; step < 2; ++step) {
    for (Session* each : {&session, &untouched}) {
      pass(each->model.get(), step);
      NXD_TEST_OK(nxd_optimizer_step(each->optimizer.get(), nullptr, nullptr));
      NXD_TEST_OK(nxd_module_zero_grad(each->model.get()));
      NXD_TEST_OK(nxd_mark_step(1));
    }
    if (step == 1) break;
    for (const bool reports : {true, false}) {
      pass(session.model.get(), step, 100000);
      nxd_step_report_t report = empty_report();
      const nxd_status_t stepped =
          nxd_optimizer_step(session.optimizer.get(), nullptr, reports ? &report : nullptr);
      const nxd_status_t marked = nxd_mark_step(1);
      assert_int_equal(reports ? stepped : marked, NXD_ERROR_INVALID_ARGUMENT);
      NXD_TEST_OK(nxd_module_zero_grad(session.model.get()));
      nxd_parameter_state_t state;
      NXD_TEST_OK(nxd_optimizer_get_parameter_state(session.optimizer.get(), &state, nullptr));
      assert_int_equal(state, NXD_PARAMETER_STATE_OLD);
    }
  }
  check_named("after a graph that failed", whole_parameters(session.model.get()),
              whole_parameters(untouched.model.get()), 1e-6, 1e-7);
}

// A state that was saved after recorded steps goes on in an eager optimizer, and back.
void states_are_saved(void**) {
  const Setting setting{adamw};
  const TempDir directory;
  const std::string path = directory.path() + "/state";
  const Trained want = train(NXD_DEVICE_CPU, setting);
  Session recorded(NXD_DEVICE_XLA, setting), eager(NXD_DEVICE_CPU, setting);
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  finish.max_norm = setting.max_norm;
  const auto step_of = [&](Session& session, int step) {
    pass(session.model.get(), step);
    NXD_TEST_OK(nxd_optimizer_step(session.optimizer.get(), &finish, nullptr));
    NXD_TEST_OK(nxd_module_zero_grad(session.model.get()));
  };
  for (int step = 0; step < 2; ++step) step_of(recorded, step);
  // The graph of the last step runs here.
  NXD_TEST_OK(nxd_optimizer_save(recorded.optimizer.get(), path.c_str()));
  for (int step = 0; step < 4; ++step) step_of(eager, step);
  NXD_TEST_OK(nxd_optimizer_save(eager.optimizer.get(), (path + "2").c_str()));
  for (int step = 2; step < 4; ++step) step_of(recorded, step);
  NXD_TEST_OK(nxd_optimizer_load(recorded.optimizer.get(), (path + "2").c_str()));
  for (int step = 4; step < kSteps; ++step) step_of(recorded, step);
  NXD_TEST_OK(nxd_mark_step(1));
  check_named("saved states", whole_parameters(recorded.model.get()), want.parameters, 1e-4, 1e-6);
}

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A snapshot that was taken before the parameters came to the device has the states of its moment.
void a_snapshot_before_the_device(void**) {
  const TempDir directory;
  const std::string at_once = directory.path() + "/state", run = directory.path() + "/run";
  Session session(NXD_DEVICE_CPU, {adamw});
  nxd_module_t* const model = session.model.get();
  nxd_optimizer_t* const optimizer = session.optimizer.get();
  nxd_checkpoint_t* checkpoint = nullptr;
  NXD_TEST_OK(nxd_checkpoint_create(session.ctx, run.c_str(), 1, &checkpoint));
  for (int step = 0; step < 3; ++step) {
    pass(model, step);
    NXD_TEST_OK(nxd_optimizer_step(optimizer, nullptr, nullptr));
    NXD_TEST_OK(nxd_module_zero_grad(model));
    NXD_TEST_OK(nxd_mark_step(1));
    if (step > 0) continue;
    NXD_TEST_OK(nxd_optimizer_save(optimizer, at_once.c_str()));
    NXD_TEST_OK(nxd_optimizer_snapshot(optimizer, checkpoint, "state"));
    NXD_TEST_OK(nxd_move_model_to_device(model, NXD_DEVICE_XLA));
  }
  NXD_TEST_OK(nxd_checkpoint_publish(checkpoint, 0));
  char path[4096] = "";
  size_t needed = 0;
  NXD_TEST_OK(nxd_checkpoint_get_path(checkpoint, "state", path, sizeof path, &needed));
  assert_true(content_of(path) == content_of(at_once));
  nxd_checkpoint_destroy(checkpoint);
}

// Values that the program gives between steps take the place of the wide copies that were made of
// the ones before, wherever these lie by then.
void replaced_values(void**) {
  const Setting setting{momentum, NXD_DTYPE_BF16};
  Session recorded(NXD_DEVICE_XLA, setting), eager(NXD_DEVICE_CPU, setting);
  for (Session* session : {&recorded, &eager}) {
    nxd_module_t* const model = session->model.get();
    for (int step = 0; step < 4; ++step) {
      if (step == 2) NXD_TEST_OK(nxd_module_initialize(model, 12345));
      pass(model, step);
      NXD_TEST_OK(nxd_optimizer_step(session->optimizer.get(), nullptr, nullptr));
      NXD_TEST_OK(nxd_module_zero_grad(model));
      NXD_TEST_OK(nxd_mark_step(1));
    }
  }
  check_named("replaced values", whole_parameters(recorded.model.get()),
              whole_parameters(eager.model.get()), 5e-2, 1e-3);
}

// A move is no write: F32 masters of BF16 values stay, whichever device the updates are made on.
// A value that was written before a move is the new one behind it.
void moves_between_steps(void**) {
  const Setting setting{adamw, NXD_DTYPE_BF16};
  for (const nxd_device_t home : {NXD_DEVICE_CPU, NXD_DEVICE_XLA}) {
    const nxd_device_t away = home == NXD_DEVICE_CPU ? NXD_DEVICE_XLA : NXD_DEVICE_CPU;
    Named parameters[2];
    for (const bool moves : {false, true}) {
      Session session(home, setting);
      nxd_module_t* const model = session.model.get();
      for (int step = 0; step < kSteps; ++step) {
        if (step == 4) NXD_TEST_OK(nxd_module_initialize(model, 12345));
        if (moves) {
          NXD_TEST_OK(nxd_move_model_to_device(model, away));
          NXD_TEST_OK(nxd_move_model_to_device(model, home));
        }
        pass(model, step);
        NXD_TEST_OK(nxd_optimizer_step(session.optimizer.get(), nullptr, nullptr));
        NXD_TEST_OK(nxd_module_zero_grad(model));
        NXD_TEST_OK(nxd_mark_step(1));
      }
      parameters[moves ? 1 : 0] = whole_parameters(model);
    }
    check_named("moved", parameters[1], parameters[0], 0, 0);
  }
}

// A state takes the place of one that a recorded step is still to write: the step runs before, and
// neither its count nor its values come into the state that was loaded.
void a_load_before_the_graph_runs(void**) {
  const Setting setting{adamw};
  const TempDir directory;
  const std::string path = directory.path() + "/state";
  for (const double scale : {1.0, 3e38}) {
    Session recorded(NXD_DEVICE_XLA, setting), eager(NXD_DEVICE_CPU, setting);
    for (Session* session : {&recorded, &eager}) {
      nxd_module_t* const model = session->model.get();
      nxd_optimizer_t* const optimizer = session->optimizer.get();
      pass(model, 0);
      NXD_TEST_OK(nxd_optimizer_step(optimizer, nullptr, nullptr));
      NXD_TEST_OK(nxd_module_zero_grad(model));
      NXD_TEST_OK(nxd_optimizer_save(optimizer, path.c_str()));
      pass(model, 1);
      nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
      finish.scale = scale;
      NXD_TEST_OK(nxd_optimizer_step(optimizer, &finish, nullptr));
      NXD_TEST_OK(nxd_module_zero_grad(model));
      NXD_TEST_OK(nxd_optimizer_load(optimizer, path.c_str()));
      for (int step = 2; step < 4; ++step) {
        pass(model, step);
        nxd_step_report_t report = empty_report();
        NXD_TEST_OK(nxd_optimizer_step(optimizer, nullptr, &report));
        NXD_TEST_OK(nxd_module_zero_grad(model));
        assert_int_equal(report.updates, step);
      }
    }
    check_named("after a load", whole_parameters(recorded.model.get()),
                whole_parameters(eager.model.get()), 1e-4, 1e-6);
  }
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rules),
      cmocka_unit_test(bf16),
      cmocka_unit_test(stochastic_bits),
      cmocka_unit_test(no_report),
      cmocka_unit_test(a_norm_that_is_not_finite),
      cmocka_unit_test(a_factor_that_vanishes),
      cmocka_unit_test(a_graph_that_fails),
      cmocka_unit_test(states_are_saved),
      cmocka_unit_test(replaced_values),
      cmocka_unit_test(moves_between_steps),
      cmocka_unit_test(a_snapshot_before_the_device),
      cmocka_unit_test(a_load_before_the_graph_runs),
  };
  // A graph takes seconds to compile.
  const struct CMUnitTest few[] = {
      cmocka_unit_test(bf16),
      cmocka_unit_test(stochastic_bits),
      cmocka_unit_test(no_report),
      cmocka_unit_test(a_factor_that_vanishes),
      cmocka_unit_test(a_graph_that_fails),
      cmocka_unit_test(replaced_values),
  };
  if (through_a_plugin()) {
    return cmocka_run_group_tests(few, nullptr, nullptr);
  }
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
