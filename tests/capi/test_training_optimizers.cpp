// Properties of all optimizers over modules: groups, schedules, a step and its report, callers'
// own rules, and their rejections. The rules' own values are in test_training_adamw and
// test_update_rule.
#include <limits>

#include "capi/optimizer_support.h"

#include "support/check.h"
#include "support/temp_dir.h"

namespace {

using namespace nxd_test;

constexpr nxd_status_t kBad = NXD_ERROR_INVALID_ARGUMENT;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A tree with block.weight and block.bias, of two and one elements at 1, with gradients of 1.
struct Tree {
  Module root, block;
  nxd_tensor_t *weight = nullptr, *bias = nullptr;  // borrowed
};

Tree make_tree(nxd_context_t* ctx) {
  Tree t;
  nxd_module_t *root = nullptr, *block = nullptr;
  NXD_TEST_OK(nxd_module_create(ctx, "Tree", nullptr, nullptr, nullptr, &root));
  NXD_TEST_OK(nxd_module_create(ctx, "Block", nullptr, nullptr, nullptr, &block));
  t.root.reset(root);
  t.block.reset(block);
  const auto add = [&](const char* name, int64_t n, nxd_tensor_t** out) {
    nxd_parameter_t* parameter = nullptr;
    nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
    options.init = NXD_INIT_CONSTANT;
    options.init_a = 1;
    NXD_TEST_OK(nxd_module_add_parameter(block, name, &n, 1, &options, &parameter));
    NXD_TEST_OK(nxd_parameter_get_tensor(parameter, out));
    const std::vector<double> ones(static_cast<size_t>(n), 1);
    NXD_TEST_OK(nxd_tensor_set_grad(*out, make(ones, NXD_DTYPE_F32).get()));
  };
  add("weight", 2, &t.weight);
  add("bias", 1, &t.bias);
  NXD_TEST_OK(nxd_module_add_child(root, "block", block));
  return t;
}

// Plain descent: parameters change by rate times gradient.
Optimizer make_sgd(nxd_module_t* root, double rate, double weight_decay = 0) {
  nxd_sgd_options_t options = NXD_SGD_OPTIONS_INIT;
  options.learning_rate = rate;
  options.weight_decay = weight_decay;
  nxd_optimizer_t* out = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_sgd(root, &options, &out));
  return Optimizer(out);
}

int32_t add_group(const Optimizer& optimizer, const std::vector<const char*>& patterns) {
  int32_t group = -7;
  NXD_TEST_OK(nxd_optimizer_add_group(optimizer.get(), patterns.data(), patterns.size(), &group));
  return group;
}

double hyperparameter(const Optimizer& optimizer, int32_t group, nxd_hyperparameter_t which) {
  double value = kNan;
  NXD_TEST_OK(nxd_optimizer_get_hyperparameter(optimizer.get(), group, which, &value));
  return value;
}

void set(const Optimizer& optimizer, int32_t group, nxd_hyperparameter_t which, double value) {
  NXD_TEST_OK(nxd_optimizer_set_hyperparameter(optimizer.get(), group, which, value));
}

void groups(void**) {
  on_one_rank(
      [](nxd_context_t* ctx, int, int, void*) {
        const Tree t = make_tree(ctx);
        const Optimizer sgd = make_sgd(t.root.get(), 0.5, 0.25);
        const int32_t biases = add_group(sgd, {"*.bias"});
        NXD_TEST_CHECK(biases == 1);
        NXD_TEST_CHECK(hyperparameter(sgd, biases, NXD_HYPERPARAMETER_WEIGHT_DECAY) == 0.25);
        set(sgd, biases, NXD_HYPERPARAMETER_WEIGHT_DECAY, 0);
        NXD_TEST_CHECK(hyperparameter(sgd, 0, NXD_HYPERPARAMETER_WEIGHT_DECAY) == 0.25);
        NXD_TEST_OK(nxd_optimizer_update(sgd.get()));
        check_values("decayed", values(t.weight), {0.375, 0.375}, 1e-7);
        check_values("not decayed", values(t.bias), {0.5}, 1e-7);
        // A parameter is in the last group that took it; new groups start as group 0 is now.
        set(sgd, 0, NXD_HYPERPARAMETER_LEARNING_RATE, 2);
        const int32_t all = add_group(sgd, {"block.weig?t", "block.bias"});
        NXD_TEST_CHECK(hyperparameter(sgd, all, NXD_HYPERPARAMETER_LEARNING_RATE) == 2);
        set(sgd, all, NXD_HYPERPARAMETER_LEARNING_RATE, 0.125);
        set(sgd, all, NXD_HYPERPARAMETER_WEIGHT_DECAY, 0);
        NXD_TEST_OK(nxd_optimizer_update(sgd.get()));
        check_values("new group", values(t.weight), {0.25, 0.25}, 1e-7);
        check_values("new group", values(t.bias), {0.375}, 1e-7);
        NXD_TEST_OK(nxd_optimizer_set_learning_rate(sgd.get(), 0.0625));
        for (int32_t group = 0; group < 3; ++group) {
          NXD_TEST_CHECK(hyperparameter(sgd, group, NXD_HYPERPARAMETER_LEARNING_RATE) == 0.0625);
        }
      },
      false);
}

void bad_groups(void**) {
  on_one_rank(
      [](nxd_context_t* ctx, int, int, void*) {
        const Tree t = make_tree(ctx);
        const Optimizer sgd = make_sgd(t.root.get(), 0.5);
        nxd_optimizer_t* o = sgd.get();
        int32_t group = 5;
        const char* const unknown[] = {"*.bias", "block.weigth"};
        NXD_TEST_REFUSED(nxd_optimizer_add_group(o, unknown, 2, &group), kBad, "block.weight");
        NXD_TEST_CHECK(group == 0 && strstr(nxd_last_error(), "patterns[1]: \"block.weigth\""));
        const char* const holes[] = {nullptr};
        NXD_TEST_REFUSED(nxd_optimizer_add_group(o, holes, 1, &group), kBad, "patterns[0]");
        NXD_TEST_REFUSED(nxd_optimizer_add_group(o, nullptr, 1, &group), kBad, "patterns");
        NXD_TEST_REFUSED(nxd_optimizer_add_group(o, nullptr, 0, &group), kBad, "at least 1");
        NXD_TEST_REFUSED(nxd_optimizer_add_group(nullptr, unknown, 1, &group), kBad, "optimizer");
        // A rejected group took nothing: there is none but the first.
        const nxd_hyperparameter_t rate = NXD_HYPERPARAMETER_LEARNING_RATE;
        NXD_TEST_REFUSED(nxd_optimizer_set_hyperparameter(o, 1, rate, 1), kBad, "group");
        NXD_TEST_REFUSED(nxd_optimizer_set_hyperparameter(o, -2, rate, 1), kBad,
                         "group: expected -1 for all, or 0 to 0, got -2");
        NXD_TEST_REFUSED(nxd_optimizer_set_hyperparameter(o, 0, NXD_HYPERPARAMETER_BETA1, 0.5),
                         kBad, "got beta1");
        NXD_TEST_REFUSED(nxd_optimizer_set_hyperparameter(o, 0, 77, 0.5), kBad, "77");
        NXD_TEST_REFUSED(nxd_optimizer_set_hyperparameter(o, -1, rate, kNan), kBad,
                         "learning_rate");
        NXD_TEST_REFUSED(nxd_optimizer_set_hyperparameter(nullptr, 0, rate, 1), kBad, "optimizer");
        double value = 5;
        NXD_TEST_REFUSED(nxd_optimizer_get_hyperparameter(o, -1, rate, &value), kBad, "group");
        NXD_TEST_CHECK(value == 0);
        NXD_TEST_REFUSED(nxd_optimizer_get_hyperparameter(o, 0, NXD_HYPERPARAMETER_EPS, &value),
                         kBad, "got eps");
        NXD_TEST_REFUSED(nxd_optimizer_get_hyperparameter(o, 0, -1, &value), kBad, "got -1");
        NXD_TEST_REFUSED(nxd_optimizer_get_hyperparameter(o, 0, rate, nullptr), kBad, "out_value");
        NXD_TEST_CHECK(hyperparameter(sgd, 0, rate) == 0.5);
      },
      false);
}

void schedules(void**) {
  on_one_rank(
      [](nxd_context_t* ctx, int, int, void*) {
        const Tree t = make_tree(ctx);
        const Optimizer sgd = make_sgd(t.root.get(), 0.5);
        set(sgd, add_group(sgd, {"*bias"}), NXD_HYPERPARAMETER_LEARNING_RATE, 0.25);
        nxd_lr_schedule_options_t schedule = NXD_LR_SCHEDULE_OPTIONS_INIT;
        schedule.kind = NXD_LR_SCHEDULE_COSINE;
        schedule.warmup_steps = 2;
        schedule.total_steps = 6;
        schedule.final_factor = 0.5;
        NXD_TEST_OK(nxd_optimizer_set_lr_schedule(sgd.get(), &schedule));
        double weight = 1, bias = 1;
        for (int step = 0; step < 9; ++step) {
          double factor = 0, rate = 0;
          NXD_TEST_OK(nxd_lr_schedule_get_factor(&schedule, step, &factor));
          NXD_TEST_OK(nxd_optimizer_get_learning_rate(sgd.get(), &rate));
          NXD_TEST_CHECK(std::fabs(rate - 0.5 * factor) < 1e-15);
          nxd_step_report_t report{sizeof report, 0, 0, 0, 0, 0};
          NXD_TEST_OK(nxd_optimizer_step(sgd.get(), nullptr, &report));
          NXD_TEST_CHECK(report.learning_rate == rate && report.updates == step + 1);
          weight -= 0.5 * factor;
          bias -= 0.25 * factor;
          check_values("weight", values(t.weight), {weight, weight}, 1e-6);
          check_values("bias", values(t.bias), {bias}, 1e-6);
        }
        NXD_TEST_CHECK(hyperparameter(sgd, 0, NXD_HYPERPARAMETER_LEARNING_RATE) == 0.5);
        NXD_TEST_OK(nxd_optimizer_set_lr_schedule(sgd.get(), nullptr));
        double rate = 0;
        NXD_TEST_OK(nxd_optimizer_get_learning_rate(sgd.get(), &rate));
        NXD_TEST_CHECK(rate == 0.5);
        schedule.total_steps = 2;
        NXD_TEST_REFUSED(nxd_optimizer_set_lr_schedule(sgd.get(), &schedule), kBad, "total_steps");
        NXD_TEST_REFUSED(nxd_optimizer_set_lr_schedule(nullptr, &schedule), kBad, "optimizer");
      },
      false);
}

// A file has hyperparameters and schedule of its optimizer, for one that has the same groups.
void settings_in_files(void**) {
  on_one_rank(
      [](nxd_context_t* ctx, int, int, void*) {
        const nxd_hyperparameter_t rate = NXD_HYPERPARAMETER_LEARNING_RATE;
        const TempDir directory;
        const std::string path = directory.path() + "/state.safetensors";
        const Tree t = make_tree(ctx);
        const Optimizer saved = make_sgd(t.root.get(), 0.5, 0.125);
        set(saved, add_group(saved, {"*bias"}), rate, 0.1);
        nxd_lr_schedule_options_t schedule = NXD_LR_SCHEDULE_OPTIONS_INIT;
        schedule.kind = NXD_LR_SCHEDULE_LINEAR;
        schedule.warmup_steps = 2;
        schedule.total_steps = 6;
        schedule.final_factor = 0.3;
        NXD_TEST_OK(nxd_optimizer_set_lr_schedule(saved.get(), &schedule));
        NXD_TEST_OK(nxd_optimizer_step(saved.get(), nullptr, nullptr));
        NXD_TEST_OK(nxd_optimizer_save(saved.get(), path.c_str()));
        const Optimizer loaded = make_sgd(t.root.get(), 7);
        add_group(loaded, {"*bias"});
        NXD_TEST_OK(nxd_optimizer_load(loaded.get(), path.c_str()));
        NXD_TEST_CHECK(hyperparameter(loaded, 0, rate) == 0.5);
        NXD_TEST_CHECK(hyperparameter(loaded, 0, NXD_HYPERPARAMETER_WEIGHT_DECAY) == 0.125);
        NXD_TEST_CHECK(hyperparameter(loaded, 1, rate) == 0.1);
        for (int step = 0; step < 3; ++step) {
          double want = 0, got = 0;
          NXD_TEST_OK(nxd_optimizer_get_learning_rate(saved.get(), &want));
          NXD_TEST_OK(nxd_optimizer_get_learning_rate(loaded.get(), &got));
          NXD_TEST_CHECK(want == got && want < 0.6);
          NXD_TEST_OK(nxd_optimizer_step(saved.get(), nullptr, nullptr));
          NXD_TEST_OK(nxd_optimizer_step(loaded.get(), nullptr, nullptr));
        }
        const Optimizer others = make_sgd(t.root.get(), 7);
        NXD_TEST_REFUSED(nxd_optimizer_load(others.get(), path.c_str()), kBad,
                         "with 1 group of parameters, got one with 2");
        add_group(others, {"*weight"});
        NXD_TEST_REFUSED(nxd_optimizer_load(others.get(), path.c_str()), kBad, "group");
        NXD_TEST_CHECK(hyperparameter(others, 0, rate) == 7);
      },
      false);
}

nxd_step_report_t step(const Optimizer& optimizer, const nxd_finish_options_t& options) {
  nxd_step_report_t report{sizeof report, 0, 0, 0, 0, 0};
  NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), &options, &report));
  return report;
}

void step_clips_on_the_fly(void**) {
  for (const bool plain : {false, true}) {
    on_one_rank(
        [](nxd_context_t* ctx, int, int, void*) {
          const Tree t = make_tree(ctx);
          const Optimizer sgd = make_sgd(t.root.get(), 1);
          NXD_TEST_OK(nxd_tensor_set_grad(t.weight, make({12, 0}, NXD_DTYPE_F32).get()));
          NXD_TEST_OK(nxd_tensor_set_grad(t.bias, make({-16}, NXD_DTYPE_F32).get()));
          nxd_finish_options_t options = NXD_FINISH_OPTIONS_INIT;
          options.scale = 0.5;
          options.max_norm = 5;
          const nxd_step_report_t report = step(sgd, options);
          NXD_TEST_CHECK(std::fabs(report.norm - 10) < 1e-12);
          NXD_TEST_CHECK(report.struct_size == sizeof report && report.skipped == 0);
          NXD_TEST_CHECK(report.updates == 1 && report.learning_rate == 1);
          check_values("weight", values(t.weight), {-2, 1}, 1e-6);
          check_values("bias", values(t.bias), {5}, 1e-6);
          nxd_tensor_t* grad = nullptr;
          NXD_TEST_OK(nxd_tensor_share_grad(t.weight, &grad));
          check_values("gradient", values(Tensor(grad).get()), {12, 0}, 0);
        },
        plain);
  }
}

// Nothing moves, and nothing is counted; training goes on at the next step.
void step_skips_what_is_not_finite(void**) {
  on_one_rank(
      [](nxd_context_t* ctx, int, int, void*) {
        const Tree t = make_tree(ctx);
        const Optimizer sgd = make_sgd(t.root.get(), 1);
        const nxd_finish_options_t defaults = NXD_FINISH_OPTIONS_INIT;
        NXD_TEST_OK(nxd_tensor_set_grad(t.bias, make({kNan}, NXD_DTYPE_F32).get()));
        nxd_step_report_t report = step(sgd, defaults);
        NXD_TEST_CHECK(report.skipped == 1 && std::isnan(report.norm) && report.updates == 0);
        check_values("weight", values(t.weight), {1, 1}, 0);
        NXD_TEST_OK(nxd_tensor_set_grad(t.bias, make({1}, NXD_DTYPE_F32).get()));
        report = step(sgd, defaults);
        NXD_TEST_CHECK(report.skipped == 0 && report.updates == 1);
        check_values("weight", values(t.weight), {0, 0}, 0, 1e-7);
        nxd_finish_options_t unchecked = NXD_FINISH_OPTIONS_INIT;
        unchecked.check_finite = NXD_TOGGLE_OFF;
        NXD_TEST_OK(nxd_tensor_set_grad(t.bias, make({kNan}, NXD_DTYPE_F32).get()));
        report = step(sgd, unchecked);
        NXD_TEST_CHECK(report.skipped == 0 && report.updates == 2);
        NXD_TEST_CHECK(std::isnan(values(t.bias)[0]));
        check_values("weight", values(t.weight), {-1, -1}, 1e-7);
      },
      false);
}

// Each rank's gradients differ; both end with the same parameters, as finishing and updating give.
void step_on_ranks(void**) {
  nxd_test_run_ranks(
      2, 1,
      [](nxd_context_t* ctx, int rank, int, void*) {
        nxd_finish_options_t options = NXD_FINISH_OPTIONS_INIT;
        options.data_parallel_reduce = NXD_REDUCE_AVG;
        options.max_norm = 1;
        for (const bool whole : {true, false}) {
          const Tree t = make_tree(ctx);
          const Optimizer sgd = make_sgd(t.root.get(), 0.5);
          // One that only one rank has counts as zeros on the other.
          NXD_TEST_OK(nxd_tensor_set_grad(t.weight, make({1.0 + rank, 3}, NXD_DTYPE_F32).get()));
          NXD_TEST_OK(nxd_tensor_set_grad(t.bias, rank ? make({4}, NXD_DTYPE_F32).get() : nullptr));
          double norm = 0;
          if (whole) {
            norm = step(sgd, options).norm;
          } else {
            NXD_TEST_OK(nxd_finish_grads(t.root.get(), &options, &norm));
            NXD_TEST_OK(nxd_optimizer_update(sgd.get()));
          }
          NXD_TEST_CHECK(std::fabs(norm - std::sqrt(1.5 * 1.5 + 9 + 4)) < 1e-12);
          const double f = 0.5 / norm;
          check_values("weight", values(t.weight), {1 - 1.5 * f, 1 - 3 * f}, 1e-6);
          check_values("bias", values(t.bias), {1 - 2 * f}, 1e-6);
        }
      },
      nullptr);
}

// A layout must be there before ranks are summed over.
void step_without_a_layout(void**) {
  nxd_test_run_ranks(
      2, 0,
      [](nxd_context_t* ctx, int, int, void*) {
        const Tree t = make_tree(ctx);
        const Optimizer sgd = make_sgd(t.root.get(), 0.5);
        NXD_TEST_REFUSED(nxd_optimizer_step(sgd.get(), nullptr, nullptr), NXD_ERROR_INVALID_STATE,
                         "nxd_init_model_parallel");
        NXD_TEST_REFUSED(nxd_finish_grads(t.root.get(), nullptr, nullptr), NXD_ERROR_INVALID_STATE,
                         "nxd_init_model_parallel");
        NXD_TEST_OK(nxd_optimizer_update(sgd.get()));
        check_values("weight", values(t.weight), {0.5, 0.5}, 1e-7);
      },
      nullptr);
}

// A frozen parameter is left alone, decay included; a new gradient that is dense but not in C order
// is read as what it is.
void frozen_and_strided(void**) {
  on_one_rank(
      [](nxd_context_t* ctx, int, int, void*) {
        const Tree t = make_tree(ctx);
        const Optimizer sgd = make_sgd(t.root.get(), 0.5, 0.5);
        nxd_parameter_t* bias = nullptr;
        NXD_TEST_OK(nxd_module_find_parameter(t.root.get(), "block.bias", &bias));
        NXD_TEST_OK(nxd_parameter_set_trainable(bias, 0));
        nxd_step_report_t report = step(sgd, NXD_FINISH_OPTIONS_INIT);
        NXD_TEST_CHECK(std::fabs(report.norm - std::sqrt(2)) < 1e-12);
        check_values("frozen", values(t.bias), {1}, 0);
        check_values("free", values(t.weight), {0.25, 0.25}, 1e-7);

        nxd_module_t* module = nullptr;
        NXD_TEST_OK(nxd_module_create(ctx, "M", nullptr, nullptr, nullptr, &module));
        const Module owner(module);
        const int64_t shape[] = {2, 2};
        nxd_parameter_t* parameter = nullptr;
        nxd_tensor_t *value = nullptr, *grad = nullptr;
        NXD_TEST_OK(nxd_module_add_parameter(module, "m", shape, 2, nullptr, &parameter));
        NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &value));
        const float rows[] = {1, 2, 3, 4};
        NXD_TEST_OK(nxd_tensor_from_data(rows, sizeof rows, shape, 2, NXD_DTYPE_F32, &grad));
        const Tensor held(grad);
        nxd_tensor_t* transposed = nullptr;
        NXD_TEST_OK(nxd_op_call("aten::t", "", &grad, 1, &transposed, 1));
        NXD_TEST_OK(nxd_tensor_set_grad(value, Tensor(transposed).get()));
        const Optimizer other = make_sgd(module, 1);
        NXD_TEST_OK(nxd_optimizer_update(other.get()));
        check_values("transposed", values(value), {-1, -3, -2, -4}, 1e-7);
      },
      false);
}

void meta_parameters(void**) {
  on_one_rank(
      [](nxd_context_t* ctx, int, int, void*) {
        nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
        options.device = NXD_DEVICE_META;
        nxd_module_t* linear = nullptr;
        NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 4, 4, &options, &linear));
        const Module owner(linear);
        const Optimizer sgd = make_sgd(linear, 1);
        NXD_TEST_REFUSED(nxd_optimizer_update(sgd.get()), NXD_ERROR_INVALID_STATE,
                         "parameter weight: it has no values");
      },
      false);
}

// Calls that a caller's rule has got.
struct Told {
  int calls = 0, destroyed = 0;
  nxd_status_t answer = NXD_OK;
};

// Descent with a momentum, as states[0] = 0.5 states[0] + grad.
nxd_status_t heavy_ball(const nxd_update_t* u, void* user_data) {
  auto& told = *static_cast<Told*>(user_data);
  ++told.calls;
  if (told.answer != NXD_OK) return told.answer;
  for (int64_t i = 0; i < u->count; ++i) {
    float& v = static_cast<float*>(u->states[0])[i];
    v = 0.5F * v + static_cast<float>(u->grad_scale) * static_cast<const float*>(u->grad)[i];
    static_cast<float*>(u->param)[i] -= static_cast<float>(u->learning_rate) * v;
  }
  return NXD_OK;
}

nxd_custom_optimizer_options_t heavy_ball_options(Told& told) {
  nxd_custom_optimizer_options_t options = NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT;
  options.update = heavy_ball;
  options.user_data = &told;
  options.destroy = [](void* data) { ++static_cast<Told*>(data)->destroyed; };
  options.learning_rate = 0.25;
  options.num_states = 1;
  return options;
}

void callers_rule(void**) {
  on_one_rank(
      [](nxd_context_t* ctx, int, int, void*) {
        Told told;
        {
          const Tree t = make_tree(ctx);
          nxd_custom_optimizer_options_t options = heavy_ball_options(told);
          nxd_optimizer_t* out = nullptr;
          NXD_TEST_OK(nxd_optimizer_create_custom(t.root.get(), &options, &out));
          const Optimizer optimizer(out);
          nxd_finish_options_t halved = NXD_FINISH_OPTIONS_INIT;
          halved.scale = 0.5;
          step(optimizer, halved);
          step(optimizer, halved);
          NXD_TEST_CHECK(told.calls == 4);
          const double want = 1 - 0.25 * 0.5 - 0.25 * 0.75;
          check_values("weight", values(t.weight), {want, want}, 1e-7);
          uint64_t bytes = 0;
          NXD_TEST_OK(nxd_optimizer_get_state_bytes(out, &bytes));
          NXD_TEST_CHECK(bytes == 3 * sizeof(float));
          // A failure of the caller's passes through; at the first call it may go on.
          told.answer = -77;
          NXD_TEST_REFUSED(nxd_optimizer_update(out), -77, "update of block.weight");
          told.answer = NXD_OK;
          NXD_TEST_OK(nxd_optimizer_update(out));
          NXD_TEST_CHECK(told.destroyed == 0);
        }
        NXD_TEST_CHECK(told.destroyed == 1);
      },
      false);
}

void bad_optimizers(void**) {
  on_one_rank(
      [](nxd_context_t* ctx, int, int, void*) {
        const Tree t = make_tree(ctx);
        Told told;
        nxd_optimizer_t* out = nullptr;
        nxd_custom_optimizer_options_t custom = heavy_ball_options(told);
        const auto refused = [&](nxd_status_t status, const char* part) {
          out = reinterpret_cast<nxd_optimizer_t*>(&custom);
          NXD_TEST_REFUSED(nxd_optimizer_create_custom(t.root.get(), &custom, &out), status, part);
          NXD_TEST_CHECK(out == nullptr && told.destroyed == 0);
          custom = heavy_ball_options(told);
        };
        custom.update = nullptr;
        refused(kBad, "update");
        custom.num_states = 9;
        refused(kBad, "num_states: expected 0 to 8, got 9");
        custom.struct_size = 8;
        refused(NXD_ERROR_ABI_MISMATCH, "struct_size");
        NXD_TEST_REFUSED(nxd_optimizer_create_custom(nullptr, &custom, &out), kBad, "root");
        NXD_TEST_REFUSED(nxd_optimizer_create_custom(t.root.get(), nullptr, &out), kBad, "update");
        NXD_TEST_REFUSED(nxd_optimizer_create_custom(t.root.get(), &custom, nullptr), kBad,
                         "out_optimizer");
        NXD_TEST_CHECK(told.destroyed == 0);
        nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
        sgd.nesterov = 1;
        NXD_TEST_REFUSED(nxd_optimizer_create_sgd(t.root.get(), &sgd, &out), kBad, "momentum");
        NXD_TEST_REFUSED(nxd_optimizer_create_sgd(nullptr, nullptr, &out), kBad, "root");
        NXD_TEST_REFUSED(nxd_optimizer_create_sgd(t.root.get(), nullptr, nullptr), kBad,
                         "out_optimizer");
        NXD_TEST_REFUSED(nxd_optimizer_create_adamw_ddp(nullptr, nullptr, &out), kBad, "ddp");
        NXD_TEST_REFUSED(nxd_optimizer_create_sgd_ddp(nullptr, nullptr, &out), kBad, "ddp");
        NXD_TEST_REFUSED(nxd_optimizer_create_custom_ddp(nullptr, &custom, &out), kBad, "ddp");
      },
      false);
}

void bad_steps(void**) {
  on_one_rank(
      [](nxd_context_t* ctx, int, int, void*) {
        const Tree t = make_tree(ctx);
        const Optimizer sgd = make_sgd(t.root.get(), 1);
        nxd_step_report_t report{8, 0, 0, 0, 0, 0};
        NXD_TEST_REFUSED(nxd_optimizer_step(sgd.get(), nullptr, &report), NXD_ERROR_ABI_MISMATCH,
                         "out_report->struct_size");
        report = {sizeof report, 1, 1, 1, 1, 1};
        NXD_TEST_REFUSED(nxd_optimizer_step(nullptr, nullptr, &report), kBad, "optimizer");
        NXD_TEST_CHECK(report.norm == 0 && report.updates == 0 && report.skipped == 0);
        nxd_finish_options_t options = NXD_FINISH_OPTIONS_INIT;
        options.max_norm = -1;
        NXD_TEST_REFUSED(nxd_optimizer_step(sgd.get(), &options, &report), kBad, "max_norm");
        NXD_TEST_REFUSED(nxd_optimizer_update(nullptr), kBad, "optimizer");
        uint64_t bytes = 5;
        NXD_TEST_REFUSED(nxd_optimizer_get_state_bytes(nullptr, &bytes), kBad, "optimizer");
        NXD_TEST_CHECK(bytes == 0);
        NXD_TEST_REFUSED(nxd_optimizer_get_state_bytes(sgd.get(), nullptr), kBad, "out_bytes");
        NXD_TEST_REFUSED(nxd_optimizer_save(nullptr, "x"), kBad, "optimizer");
        NXD_TEST_REFUSED(nxd_optimizer_save(sgd.get(), nullptr), kBad, "path");
        NXD_TEST_REFUSED(nxd_optimizer_load(nullptr, "x"), kBad, "optimizer");
        NXD_TEST_REFUSED(nxd_optimizer_load(sgd.get(), nullptr), kBad, "path");
        check_values("untouched", values(t.weight), {1, 1}, 0);
        NXD_TEST_OK(nxd_optimizer_step(sgd.get(), nullptr, nullptr));
        check_values("without a report", values(t.weight), {0, 0}, 0, 1e-7);
      },
      false);
}

// Two updates with constant gradients, by torch.optim's formulas.
void momentum(void**) {
  on_one_rank(
      [](nxd_context_t* ctx, int, int, void*) {
        for (const bool nesterov : {false, true}) {
          nxd_module_t* made = nullptr;
          NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, &made));
          const Module holder(made);
          const int64_t shape[] = {2};
          nxd_parameter_t* parameter = nullptr;
          NXD_TEST_OK(nxd_module_add_parameter(made, "p", shape, 1, nullptr, &parameter));
          nxd_tensor_t *value = nullptr, *grad = nullptr;
          NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &value));
          const float gradient[] = {1, 2};
          NXD_TEST_OK(
              nxd_tensor_from_data(gradient, sizeof gradient, shape, 1, NXD_DTYPE_F32, &grad));
          NXD_TEST_OK(nxd_tensor_set_grad(value, Tensor(grad).get()));
          nxd_sgd_options_t options = NXD_SGD_OPTIONS_INIT;
          options.learning_rate = options.momentum = 0.5;
          options.dampening = nesterov ? 0 : 0.25;
          options.nesterov = nesterov;
          nxd_optimizer_t* out = nullptr;
          NXD_TEST_OK(nxd_optimizer_create_sgd(made, &options, &out));
          const Optimizer optimizer(out);
          for (int step = 0; step < 2; ++step) NXD_TEST_OK(nxd_optimizer_update(out));
          // The first buffer is the gradient itself; then 0.5 of it, and 0.75 or all of the next.
          const double sum = nesterov ? 1.5 + 1.75 : 1 + 1.25;
          NXD_TEST_CHECK(values(value) == (std::vector<double>{-0.5 * sum, -0.5 * sum * 2}));
        }
      },
      false);
}

// A graph that has saved weights finds that a step has changed them since.
void graphs_before_a_step(void**) {
  on_one_rank(
      [](nxd_context_t* ctx, int, int, void*) {
        nxd_module_t* made = nullptr;
        NXD_TEST_OK(nxd_layer_create_linear(ctx, 2, 3, nullptr, &made));
        const Module linear(made);
        nxd_optimizer_t* out = nullptr;
        NXD_TEST_OK(nxd_optimizer_create_sgd(made, nullptr, &out));
        const Optimizer optimizer(out);
        const int64_t shape[] = {1, 2};
        nxd_tensor_t *x = nullptr, *y[2] = {}, *grad = nullptr;
        NXD_TEST_OK(nxd_tensor_create(shape, 2, NXD_DTYPE_F32, NXD_DEVICE_CPU, &x));
        const Tensor input(x);
        NXD_TEST_OK(nxd_tensor_set_requires_grad(x, 1));
        for (nxd_tensor_t*& each : y) NXD_TEST_OK(nxd_module_forward(made, &x, 1, &each, 1));
        const Tensor first(y[0]), second(y[1]);
        const int64_t sizes[] = {1, 3};
        NXD_TEST_OK(nxd_tensor_create(sizes, 2, NXD_DTYPE_F32, NXD_DEVICE_CPU, &grad));
        const Tensor ones(grad);
        NXD_TEST_OK(nxd_backward(&y[0], &grad, 1, 0));
        NXD_TEST_OK(nxd_optimizer_step(out, nullptr, nullptr));
        NXD_TEST_REFUSED(nxd_backward(&y[1], &grad, 1, 0), NXD_ERROR_INVALID_STATE, "modified");
      },
      false);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(groups),
      cmocka_unit_test(bad_groups),
      cmocka_unit_test(schedules),
      cmocka_unit_test(settings_in_files),
      cmocka_unit_test(step_clips_on_the_fly),
      cmocka_unit_test(step_skips_what_is_not_finite),
      cmocka_unit_test(step_on_ranks),
      cmocka_unit_test(step_without_a_layout),
      cmocka_unit_test(frozen_and_strided),
      cmocka_unit_test(meta_parameters),
      cmocka_unit_test(callers_rule),
      cmocka_unit_test(momentum),
      cmocka_unit_test(graphs_before_a_step),
      cmocka_unit_test(bad_optimizers),
      cmocka_unit_test(bad_steps),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
