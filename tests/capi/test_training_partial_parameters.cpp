// An update that breaks off half-way leaves a module's parameters PARTIAL: forwards, steps and
// saves reject them until weights and optimizer's state are loaded again; then training goes on as
// if nothing had happened.
#include "support/model_support.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

using Ddp = std::unique_ptr<nxd_ddp_t, Destroyer<nxd_ddp_destroy>>;

constexpr int64_t kFeatures = 6;
constexpr int kSteps = 5, kBrokenStep = 3;

struct Case {
  int32_t zero_stage;
  std::string directory;
  bool breaks = false;
  std::vector<Named> weights;  // by rank, at the end
};

// Momentum of one half, and a failure once asked for: after the first run of elements is updated.
struct Rule {
  bool fails = false;
  int calls = 0;
};

nxd_status_t update(const nxd_update_t* run, void* user_data) {
  auto& rule = *static_cast<Rule*>(user_data);
  if (rule.fails && ++rule.calls > 1) return NXD_ERROR_USER;
  auto* param = static_cast<float*>(run->param);
  auto* momentum = static_cast<float*>(run->states[0]);
  const auto* grad = static_cast<const float*>(run->grad);
  for (int64_t i = 0; i < run->count; ++i) {
    momentum[i] = 0.5F * momentum[i] + grad[i] * static_cast<float>(run->grad_scale);
    param[i] -= 0.05F * momentum[i];
  }
  return NXD_OK;
}

struct Trainer {
  Trainer(nxd_context_t* ctx, int of_rank, const Case& of) : rank(of_rank) {
    nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
    nxd_module_t* out = nullptr;
    NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, kFeatures, kFeatures, &linear, &out));
    module.reset(out);
    NXD_TEST_OK(nxd_module_initialize(out, 5));
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = of.zero_stage;
    options.bucket_bytes = 16;
    nxd_ddp_t* of_ddp = nullptr;
    NXD_TEST_OK(nxd_ddp_create(out, &options, &of_ddp));
    ddp.reset(of_ddp);
    nxd_custom_optimizer_options_t custom = NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT;
    custom.update = update;
    custom.user_data = &rule;
    custom.num_states = 1;
    nxd_optimizer_t* handle = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_custom_ddp(of_ddp, &custom, &handle));
    optimizer.reset(handle);
  }

  nxd_status_t forward(Tensor* out_loss) const {
    std::vector<float> data;
    for (int64_t i = 0; i < 2 * kFeatures; ++i) {
      data.push_back(0.1F * static_cast<float>(i % 5 + rank));
    }
    const int64_t shape[] = {2, kFeatures};
    nxd_tensor_t *x = nullptr, *y = nullptr, *loss = nullptr;
    NXD_TEST_OK(nxd_tensor_from_data(data.data(), data.size() * 4, shape, 2, NXD_DTYPE_F32, &x));
    const Tensor input(x);
    const nxd_status_t status = nxd_module_forward(module.get(), &x, 1, &y, 1);
    if (status != NXD_OK) return status;
    const Tensor output(y);
    nxd_tensor_t* squares[] = {y, y};
    NXD_TEST_OK(nxd_op_call("mul", "Tensor", squares, 2, &y, 1));
    const Tensor squared(y);
    NXD_TEST_OK(nxd_op_call("sum", "", &y, 1, &loss, 1));
    out_loss->reset(loss);
    return NXD_OK;
  }
  nxd_status_t step() {
    Tensor loss;
    const nxd_status_t status = forward(&loss);
    if (status != NXD_OK) return status;
    nxd_tensor_t* out = loss.get();
    NXD_TEST_OK(nxd_backward(&out, nullptr, 1, 0));
    const nxd_status_t stepped = nxd_optimizer_step(optimizer.get(), nullptr, nullptr);
    NXD_TEST_OK(nxd_module_zero_grad(module.get()));
    return stepped;
  }

  int rank;
  Rule rule;
  Module module;
  Ddp ddp;
  Optimizer optimizer;
};

void expect_refusals(Trainer& trainer, const std::string& directory) {
  Tensor loss;
  NXD_TEST_REFUSED(trainer.forward(&loss), NXD_ERROR_INVALID_STATE, "PARTIAL");
  NXD_TEST_REFUSED(nxd_optimizer_step(trainer.optimizer.get(), nullptr, nullptr),
                   NXD_ERROR_INVALID_STATE, "PARTIAL");
  NXD_TEST_REFUSED(
      nxd_module_save_safetensors(trainer.module.get(), (directory + "/partial").c_str()),
      NXD_ERROR_INVALID_STATE, "PARTIAL");
  NXD_TEST_REFUSED(nxd_optimizer_save(trainer.optimizer.get(), (directory + "/partial").c_str()),
                   NXD_ERROR_INVALID_STATE, "PARTIAL");
  NXD_TEST_REFUSED(nxd_ddp_mark_reloaded(trainer.ddp.get()), NXD_ERROR_INVALID_STATE, "");
  NXD_TEST_CHECK(!std::filesystem::exists(directory + "/partial"));
}

void break_off(Trainer& trainer, const std::string& directory) {
  NXD_TEST_OK(nxd_module_save_safetensors(trainer.module.get(), (directory + "/weights").c_str()));
  NXD_TEST_OK(nxd_optimizer_save(trainer.optimizer.get(), (directory + "/state").c_str()));
  trainer.rule.fails = true;
  // Where the other rank's failure came first, its news has.
  const nxd_status_t status = trainer.step();
  NXD_TEST_REFUSED(status, status == NXD_ERROR_USER ? NXD_ERROR_USER : NXD_ERROR_INVALID_ARGUMENT,
                   "PARTIAL");
  nxd_parameter_state_t state = NXD_PARAMETER_STATE_INVALID;
  int64_t step = -1;
  NXD_TEST_OK(nxd_optimizer_get_parameter_state(trainer.optimizer.get(), &state, &step));
  NXD_TEST_CHECK(state == NXD_PARAMETER_STATE_PARTIAL && step == kBrokenStep);
  trainer.rule.fails = false;
  expect_refusals(trainer, directory);
  NXD_TEST_OK(nxd_module_load_safetensors(trainer.module.get(), (directory + "/weights").c_str(), 1,
                                          nullptr));
  Tensor loss;
  NXD_TEST_OK(trainer.forward(&loss));
  NXD_TEST_REFUSED(nxd_optimizer_step(trainer.optimizer.get(), nullptr, nullptr),
                   NXD_ERROR_INVALID_STATE, "state");
  NXD_TEST_OK(nxd_optimizer_load(trainer.optimizer.get(), (directory + "/state").c_str()));
  NXD_TEST_OK(nxd_optimizer_get_parameter_state(trainer.optimizer.get(), &state, &step));
  NXD_TEST_CHECK(state == NXD_PARAMETER_STATE_NONE);
}

void train(nxd_context_t* ctx, int rank, int, void* user_data) {
  auto& of = *static_cast<Case*>(user_data);
  Trainer trainer(ctx, rank, of);
  for (int step = 0; step < kSteps; ++step) {
    if (of.breaks && step == kBrokenStep) break_off(trainer, of.directory);
    NXD_TEST_OK(trainer.step());
  }
  of.weights[static_cast<size_t>(rank)] = whole_parameters(trainer.module.get());
}

std::vector<Named> run(Case of, bool breaks) {
  constexpr int kCopies = 2;
  of.breaks = breaks;
  of.weights.resize(kCopies);
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 20000;
  nxd_test_run_ranks_with(&options, kCopies, 1, train, &of);
  return of.weights;
}

void goes_on_after_a_reload(void**) {
  for (const int32_t zero_stage : {0, 1}) {
    const TempDir directory;
    const Case of{zero_stage, directory.path(), false, {}};
    const std::vector<Named> undisturbed = run(of, false), reloaded = run(of, true);
    assert_true(!undisturbed[0].empty());
    assert_true(undisturbed == reloaded);
  }
}

// Whatever gives a parameter a whole value makes it whole: each by itself.
void ways_to_reload(nxd_context_t* ctx, int rank, int, void*) {
  for (const bool initialise : {true, false}) {
    Trainer trainer(ctx, rank, Case{0, "", false, {}});
    trainer.rule.fails = true;
    NXD_TEST_REFUSED(trainer.step(), NXD_ERROR_USER, "PARTIAL");
    if (initialise) {
      NXD_TEST_OK(nxd_module_initialize(trainer.module.get(), 1));
    } else {
      for_each_parameter(trainer.module.get(), [&](nxd_parameter_t* parameter, const std::string&) {
        Tensor loss;
        NXD_TEST_REFUSED(trainer.forward(&loss), NXD_ERROR_INVALID_STATE, "PARTIAL");
        nxd_tensor_t* whole = nullptr;
        NXD_TEST_OK(nxd_parameter_gather_full(parameter, &whole));
        NXD_TEST_OK(nxd_parameter_set_full(parameter, Tensor(whole).get()));
      });
    }
    Tensor loss;
    NXD_TEST_OK(trainer.forward(&loss));
  }
}

// A cast and a move keep what values there are, and so what they lack.
void changes_of_form(nxd_context_t* ctx, int rank, int, void*) {
  Trainer trainer(ctx, rank, Case{0, "", false, {}});
  nxd_module_t* const module = trainer.module.get();
  trainer.rule.fails = true;
  NXD_TEST_REFUSED(trainer.step(), NXD_ERROR_USER, "PARTIAL");
  trainer.optimizer.reset();
  trainer.ddp.reset();
  Tensor loss;
  const auto check = [&] {
    NXD_TEST_REFUSED(trainer.forward(&loss), NXD_ERROR_INVALID_STATE, "PARTIAL");
  };
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32}) {
    NXD_TEST_OK(nxd_module_cast(module, dtype));
    check();
  }
  for (const nxd_device_t device : {NXD_DEVICE_XLA, NXD_DEVICE_CPU}) {
    NXD_TEST_OK(nxd_move_model_to_device(module, device));
    check();
  }
  // An optimizer that has not seen the update break off is rejected, too.
  nxd_optimizer_t* made = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_sgd(module, nullptr, &made));
  const Optimizer other(made);
  NXD_TEST_REFUSED(nxd_optimizer_step(made, nullptr, nullptr), NXD_ERROR_INVALID_STATE, "PARTIAL");
  nxd_module_t* wrapped = nullptr;
  NXD_TEST_OK(nxd_module_create_sequential(ctx, &module, 1, &wrapped));
  NXD_TEST_REFUSED(nxd_pad_model(wrapped, 1, 3, nullptr, 0, nullptr, nullptr),
                   NXD_ERROR_INVALID_STATE, "PARTIAL");
  nxd_module_destroy(wrapped);
  // Values that are drawn anew are whole.
  NXD_TEST_OK(nxd_move_model_to_device(module, NXD_DEVICE_META));
  NXD_TEST_OK(nxd_move_model_to_device(module, NXD_DEVICE_CPU));
  NXD_TEST_OK(trainer.forward(&loss));
}

void each_way_makes_whole(void**) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 20000;
  nxd_test_run_ranks_with(&options, 1, 1, ways_to_reload, nullptr);
}

void stays_partial(void**) { nxd_test_run_ranks(1, 1, changes_of_form, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(goes_on_after_a_reload),
      cmocka_unit_test(each_way_makes_whole),
      cmocka_unit_test(stays_partial),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
