// A model against recorded values: loss, logits, gradients and twenty AdamW steps, on every layout,
// with ranks as threads and as processes.
#pragma once

#include <algorithm>

#include "engine/model_support.h"
#include "support/npy.h"

#include "support/check.h"

namespace nxd_test {

// This rank's columns of the recorded logits.
inline std::vector<double> recorded_logits(const ModelOracle& oracle, int rank, int size) {
  const auto recorded = read_npy<float>(oracle.directory + "/logits.npy");
  const auto vocabulary = static_cast<size_t>(oracle.vocabulary);
  const size_t columns = (vocabulary + static_cast<size_t>(size) - 1) / static_cast<size_t>(size);
  std::vector<double> out;
  for (size_t row = 0; row < 64; ++row) {
    const size_t first = static_cast<size_t>(rank) * columns;
    for (size_t c = first; c < std::min(first + columns, vocabulary); ++c) {
      out.push_back(recorded.values[row * vocabulary + c]);
    }
  }
  return out;
}

// The values of logits without the columns that a padded vocabulary adds, which must be so small
// that no softmax sees them.
inline std::vector<double> real_logits(const ModelOracle& oracle, nxd_tensor_t* logits, int rank,
                                       int size) {
  const int64_t columns = (oracle.vocabulary + size - 1) / size;
  const std::vector<double> all = values(logits);
  std::vector<double> out;
  for (size_t i = 0; i < all.size(); ++i) {
    if (static_cast<int64_t>(i) % columns + rank * columns < oracle.vocabulary) {
      out.push_back(all[i]);
    } else {
      NXD_TEST_CHECK(all[i] < -1e30);
    }
  }
  return out;
}

// Forward without labels, with labels, and with labels and logits give the same values.
inline void check_forward(const ModelOracle& oracle, nxd_context_t* ctx, nxd_module_t* model,
                          const Layout& layout, double tol) {
  int32_t rank = 0;
  NXD_TEST_OK(nxd_context_get_rank(ctx, &rank));
  const std::vector<double> want = recorded_logits(oracle, rank, layout.tp);
  const auto real = [&](nxd_tensor_t* x) { return real_logits(oracle, x, rank, layout.tp); };
  const Tensor ids = make_i64(oracle.ids, oracle.shape);
  const Tensor labels = make_i64(oracle.labels, oracle.shape);
  nxd_tensor_t* inputs[] = {ids.get(), labels.get()};
  nxd_tensor_t* outputs[2] = {nullptr, nullptr};

  NXD_TEST_OK(nxd_module_forward(model, inputs, 1, outputs, 1));
  const Tensor logits(outputs[0]);
  int64_t shape[3] = {0, 0, 0};
  size_t ndim = 0;
  NXD_TEST_OK(nxd_tensor_get_shape(logits.get(), shape, 3, &ndim));
  NXD_TEST_CHECK(ndim == 3 && shape[0] == 2 && shape[1] == 32 &&
                 shape[2] == (oracle.vocabulary + layout.tp - 1) / layout.tp);
  check_values(layout.name() + ": logits", real(logits.get()), want, tol);

  NXD_TEST_OK(nxd_module_forward(model, inputs, 2, outputs, 2));
  const Tensor loss(outputs[0]), again(outputs[1]);
  check_loss((layout.name() + ": loss").c_str(), item(loss.get()), oracle.expected["loss"], tol);
  check_values(layout.name() + ": logits beside the loss", real(again.get()), want, tol);

  // A mask that keeps every position changes nothing.
  const Tensor mask = make_i64(std::vector<int64_t>(64, 1), {2, 32});
  nxd_tensor_t* masked[] = {ids.get(), nullptr, mask.get()};
  NXD_TEST_OK(nxd_module_forward(model, masked, 3, outputs, 1));
  check_values(layout.name() + ": masked logits", real(Tensor(outputs[0]).get()), want, tol);
}

inline void check_run(const ModelOracle& oracle, const Layout& layout, const Run& run, double tol,
                      const char* trajectory, const char* last) {
  const auto& expected = oracle.expected;
  const double total = expected["grad_norm_total"];
  NXD_TEST_CHECK(run.gradients.size() == expected["grad_norms"].size());
  for (const auto& [name, gradient] : run.gradients) {
    const double want = expected["grad_norms"].value(name, NAN), got = norm(gradient);
    if (!(std::fabs(got - want) <= std::max(tol, 1e-5) * want + 1e-7 * total)) {
      nxd_test_fail(__FILE__, __LINE__, "%s: gradient norm of %s: expected %.9g, got %.9g",
                    layout.name().c_str(), name.c_str(), want, got);
    }
  }
  check_loss((layout.name() + ": norm").c_str(), run.norms[0], total, 1e-5);
  for (size_t i = 0; i < 20; ++i) {
    const std::string what = layout.name() + ": loss " + std::to_string(i);
    check_loss(what.c_str(), run.losses[i], expected[trajectory][i], tol);
  }
  check_loss((layout.name() + ": last loss").c_str(), run.losses[20], expected[last], tol);
  for (const auto& [name, parameter] : run.final) {
    const double want = expected["final_param_norms"].value(name, NAN), got = norm(parameter);
    // Softmax does not see a bias of the keys: its gradient is noise, of which AdamW makes steps.
    const double bound = name.ends_with("c_attn.bias") ? 1e-3 : 1e-5;
    if (!(std::fabs(got - want) <= bound * want)) {
      nxd_test_fail(__FILE__, __LINE__, "%s: final norm of %s: expected %.9g, got %.9g",
                    layout.name().c_str(), name.c_str(), want, got);
    }
  }
}

inline void run_rank(const ModelOracle& oracle, nxd_context_t* ctx, const Layout& layout,
                     double tol, const char* trajectory, const char* last) {
  const Module model = load_model(ctx, oracle.directory, layout);
  if (!model) return;
  check_forward(oracle, ctx, model.get(), layout, 1e-5);
  check_run(oracle, layout, train(model.get(), oracle, 20), tol, trajectory, last);
}

inline void check_layouts(const ModelOracle& oracle, nxd_dtype_t dtype, bool plain, double tol,
                          const char* trajectory, const char* last) {
  for (const int tp : {1, 2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      const Layout layout{tp, sequence_parallel, dtype, plain};
      on_ranks<int>(layout, 0, [&](nxd_context_t* ctx) {
        run_rank(oracle, ctx, layout, tol, trajectory, last);
        return 0;
      });
    }
  }
}

// What each of the processes runs.
inline int run_process(const ModelOracle& oracle) {
  nxd_context_t* ctx = nullptr;
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  parallel.tensor_parallel_size = 2;
  if (NXD_TEST_OK(nxd_context_create(&options, &ctx)) &&
      NXD_TEST_OK(nxd_init_model_parallel(ctx, &parallel))) {
    for (const bool sequence_parallel : {false, true}) {
      run_rank(oracle, ctx, Layout{2, sequence_parallel}, 1e-5, "loss_traj", "loss_after_20");
    }
    NXD_TEST_OK(nxd_context_finalize(ctx));
  }
  nxd_context_destroy(ctx);
  return nxd_test_failures() == 0 ? 0 : 1;
}

// Starts this program again as two ranks, which must call run_process.
inline void check_as_processes() {
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  options.n_processes = 2;
  nxd_job_t* job = nullptr;
  assert_int_equal(nxd_spawn(&options, &job), NXD_OK);
  const nxd_status_t status = nxd_job_wait(job, 120000);
  const std::string message = nxd_last_error();
  nxd_job_destroy(job);
  if (status != NXD_OK) fail_msg("%s: %s", nxd_status_string(status), message.c_str());
}

}  // namespace nxd_test
