// Support for tests of pipelines of modules: layouts, and training on ranks of any of them.
#pragma once

#include "support/model_support.h"

#include "support/check.h"

namespace nxd_test {

using Pipeline = std::unique_ptr<nxd_pp_t, Destroyer<nxd_pp_destroy>>;
using Ddp = std::unique_ptr<nxd_ddp_t, Destroyer<nxd_ddp_destroy>>;

struct PipelineLayout {
  int tp = 1, pp = 1, dp = 1, chunks = 1;
  nxd_pp_schedule_kind_t schedule = NXD_PP_SCHEDULE_DEFAULT;
  bool recompute = false;
  bool zero1 = false;

  std::string name() const {
    static const char* const kNames[] = {"default", "1f1b", "interleaved", "gpipe", "zero bubble"};
    return "tp " + std::to_string(tp) + " pp " + std::to_string(pp) + " dp " + std::to_string(dp) +
           " chunks " + std::to_string(chunks) + " " + kNames[schedule] +
           (recompute ? " recompute" : "") + (zero1 ? " zero1" : "");
  }
  int size() const { return tp * pp * dp; }
};

inline int axis_rank(nxd_context_t* ctx, nxd_axis_t axis) {
  int32_t rank = -1;
  NXD_TEST_OK(nxd_parallel_get_rank(ctx, axis, &rank));
  return rank;
}

// Runs fn on every rank of a layout, as threads.
template <class Function>
void on_pipeline_ranks(const PipelineLayout& layout, Function fn) {
  struct Shared {
    const PipelineLayout* layout;
    Function* fn;
  } shared{&layout, &fn};
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  options.seed = 11;
  nxd_test_run_ranks_with(
      &options, layout.size(), 0,
      [](nxd_context_t* ctx, int rank, int, void* user_data) {
        const auto* state = static_cast<Shared*>(user_data);
        nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
        parallel.tensor_parallel_size = state->layout->tp;
        parallel.pipeline_parallel_size = state->layout->pp;
        if (NXD_TEST_OK(nxd_init_model_parallel(ctx, &parallel))) (*state->fn)(ctx, rank);
      },
      &shared);
}

// The parameters of several stages, put together: equal values where several have one name.
class Joined {
 public:
  void add(const std::string& what, const Named& part) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [name, values] : part) {
      const auto [it, is_new] = all_.emplace(name, values);
      if (!is_new && it->second != values) {
        nxd_test_fail(__FILE__, __LINE__, "%s: ranks differ in %s", what.c_str(), name.c_str());
      }
    }
  }
  const Named& all() const { return all_; }

 private:
  std::mutex mutex_;
  Named all_;
};

inline nxd_module_t* local_module(nxd_pp_t* pp) {
  nxd_module_t* local = nullptr;
  NXD_TEST_OK(nxd_pp_get_local_module(pp, &local));
  return local;
}

// Results of a training run over a pipeline: alike on all ranks.
struct PipelineRun {
  std::vector<double> losses;
  std::vector<double> norms;
  Named gradients;  // of the first step, when it is done; none with ZeRO-1
  Named final;
};

struct PipelineTask {
  std::function<Module(nxd_context_t*)> make;
  // The batch of a data-parallel rank.
  std::function<std::vector<Tensor>(int step, int dp_rank, int dp)> batch;
  nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  std::vector<const char*> recomputed;  // names; empty: a built-in model's layers
  bool average = false;                 // gradients over data-parallel ranks; else their sum
  int steps = 3;
  double learning_rate = 0.1;
  bool fp32_grads = false;  // with ZeRO-1
};

inline Pipeline make_pipeline(nxd_module_t* model, const std::vector<Tensor>& batch,
                              const nxd_pp_options_t& options) {
  nxd_pp_t* out = nullptr;
  NXD_TEST_OK(nxd_pp_create(model, handles(batch).data(), batch.size(), &options, &out));
  return Pipeline(out);
}

// Two stages, of which the second begins behind the module of the name that cut points to.
inline nxd_pp_options_t two_stage_options(const char* const* cut, int32_t microbatches,
                                          bool shares_loss) {
  nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  options.num_microbatches = microbatches;
  options.broadcast_and_average_loss = shares_loss ? 1 : 0;
  options.pipeline_cuts = cut;
  options.num_cuts = 1;
  return options;
}

inline Pipeline make_two_stages(nxd_module_t* model, const std::vector<Tensor>& batch,
                                const char* cut, int32_t microbatches, bool shares_loss = false) {
  return make_pipeline(model, batch, two_stage_options(&cut, microbatches, shares_loss));
}

inline void train_rank(nxd_context_t* ctx, const PipelineLayout& layout, const PipelineTask& task,
                       PipelineRun& run, Joined& gradients, Joined& final) {
  const int dp_rank = axis_rank(ctx, NXD_AXIS_DATA);
  const Module model = task.make(ctx);
  nxd_pp_options_t options = task.options;
  options.virtual_size = layout.chunks;
  options.schedule = layout.schedule;
  options.broadcast_and_average_loss = 1;
  const Pipeline pp = make_pipeline(model.get(), task.batch(0, dp_rank, layout.dp), options);
  if (!pp) return;
  if (layout.recompute) {
    NXD_TEST_OK(
        nxd_apply_checkpoint(model.get(), task.recomputed.data(), task.recomputed.size(), 1));
  }
  nxd_module_t* local = local_module(pp.get());
  Ddp ddp;
  nxd_optimizer_t* out = nullptr;
  nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
  sgd.learning_rate = task.learning_rate;
  if (layout.zero1) {
    nxd_ddp_options_t ddp_options = NXD_DDP_OPTIONS_INIT;
    ddp_options.zero_stage = 1;
    ddp_options.fp32_grads = task.fp32_grads;
    nxd_ddp_t* made = nullptr;
    if (!NXD_TEST_OK(nxd_ddp_create(local, &ddp_options, &made))) return;
    ddp.reset(made);
    NXD_TEST_OK(nxd_pp_set_ddp(pp.get(), ddp.get()));
    NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &sgd, &out));
  } else {
    NXD_TEST_OK(nxd_optimizer_create_sgd(local, &sgd, &out));
  }
  const Optimizer optimizer(out);
  PipelineRun own;
  for (int step = 0; step < task.steps; ++step) {
    const std::vector<Tensor> batch = task.batch(step, dp_rank, layout.dp);
    double loss = NAN;
    NXD_TEST_OK(nxd_module_zero_grad(local));
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), batch.size(), &loss));
    own.losses.push_back(loss);
    nxd_step_report_t report{};
    report.struct_size = sizeof report;
    nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
    if (task.average) finish.data_parallel_reduce = NXD_REDUCE_AVG;
    NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), &finish, &report));
    // A step leaves the gradients that it has reduced over copies; with ZeRO-1 a rank has parts.
    if (step == 0 && !layout.zero1) {
      gradients.add(layout.name() + ": gradients", whole_gradients(local));
    }
    own.norms.push_back(report.norm);
  }
  final.add(layout.name() + ": final", whole_parameters(local));
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (run.losses.empty()) run = own;
  NXD_TEST_CHECK(run.losses == own.losses);
  NXD_TEST_CHECK(run.norms == own.norms);
}

inline PipelineRun train_pipeline(const PipelineLayout& layout, const PipelineTask& task) {
  PipelineRun run;
  Joined gradients, final;
  on_pipeline_ranks(layout, [&](nxd_context_t* ctx, int) {
    train_rank(ctx, layout, task, run, gradients, final);
  });
  run.gradients = gradients.all();
  run.final = final.all();
  return run;
}

// A compiler fuses the operators of a stage otherwise than those of the whole, and so rounds them.
inline bool is_compiled() {
  const char *device = getenv("NXD_TEST_DEVICE"), *backend = getenv("NXD_XLA_BACKEND");
  return device && backend && strcmp(device, "xla") == 0 && strcmp(backend, "pjrt") == 0;
}

// XLA rounds its products of F64 in another order.
inline double rounding() { return is_compiled() ? 1e-13 : 0; }

// The same bits, where nothing is compiled.
inline void check_equal(const PipelineLayout& layout, const PipelineRun& got,
                        const PipelineRun& want) {
  const std::string name = layout.name();
  const double tolerance = is_compiled() ? 1e-5 : 0;
  for (size_t i = 0; i < want.losses.size(); ++i) {
    if (!(std::fabs(got.losses.at(i) - want.losses[i]) <= tolerance * std::fabs(want.losses[i]))) {
      nxd_test_fail(__FILE__, __LINE__, "%s: loss %zu: expected %.17g, got %.17g", name.c_str(), i,
                    want.losses[i], got.losses[i]);
    }
  }
  // Each parameter counts once, whatever stages have it; sums over stages round otherwise.
  for (size_t i = 0; i < want.norms.size(); ++i) {
    check_loss((name + ": norm").c_str(), got.norms.at(i), want.norms[i], 1e-6);
  }
  // Biases of keys have gradients of 0, but for rounding.
  const double floor = is_compiled() ? 1e-9 : 0;
  check_named(name + ": gradient", got.gradients, want.gradients, tolerance, floor);
  check_named(name + ": parameter", got.final, want.final, tolerance, floor);
}

// Cut behind each of these lists of modules, the task trains as it does in one piece.
inline void check_cuts(PipelineTask task, const std::vector<std::vector<const char*>>& every) {
  const PipelineRun plain = train_pipeline({}, task);
  assert_true(plain.losses.front() > plain.losses.back());
  for (const std::vector<const char*>& cuts : every) {
    task.options.pipeline_cuts = cuts.data();
    task.options.num_cuts = cuts.size();
    PipelineLayout stages;
    stages.pp = static_cast<int>(cuts.size()) + 1;
    check_equal(stages, train_pipeline(stages, task), plain);
  }
}

}  // namespace nxd_test
