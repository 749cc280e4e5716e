// A model against recorded values: loss, logits, every element of the gradients and twenty AdamW
// steps, on every layout, with ranks as threads and as processes.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "support/model_support.h"
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
  const std::vector<Tensor> owned = oracle.inputs();
  const std::vector<nxd_tensor_t*> inputs = handles(owned);
  std::vector<nxd_tensor_t*> unlabelled = inputs;
  unlabelled[1] = nullptr;
  if (inputs.size() > 4) unlabelled[4] = nullptr;
  nxd_tensor_t* outputs[2] = {nullptr, nullptr};

  NXD_TEST_OK(nxd_module_forward(model, unlabelled.data(), inputs.size(), outputs, 1));
  const Tensor logits(outputs[0]);
  int64_t shape[3] = {0, 0, 0};
  size_t ndim = 0;
  NXD_TEST_OK(nxd_tensor_get_shape(logits.get(), shape, 3, &ndim));
  NXD_TEST_CHECK(ndim == 3 && shape[0] == 2 && shape[1] == 32 &&
                 shape[2] == (oracle.vocabulary + layout.tp - 1) / layout.tp);
  check_values(layout.name() + ": logits", real(logits.get()), want, tol);

  NXD_TEST_OK(nxd_module_forward(model, inputs.data(), inputs.size(), outputs, 2));
  const Tensor loss(outputs[0]), again(outputs[1]);
  check_loss((layout.name() + ": loss").c_str(), item(loss.get()), oracle.expected["loss"], tol);
  check_values(layout.name() + ": logits beside the loss", real(again.get()), want, tol);

  if (inputs.size() > 2) return;
  // A mask that keeps every position changes nothing.
  const Tensor mask = make_i64(std::vector<int64_t>(64, 1), {2, 32});
  nxd_tensor_t* masked[] = {inputs[0], nullptr, mask.get()};
  NXD_TEST_OK(nxd_module_forward(model, masked, 3, outputs, 1));
  check_values(layout.name() + ": masked logits", real(Tensor(outputs[0]).get()), want, tol);
}

// How near a run must be to what was recorded.
struct Bounds {
  nxd_dtype_t dtype;
  double loss;      // of losses, as parts of them
  double gradient;  // of each element of a gradient, as a part of the gradient's largest
  double norm;      // of norms of gradients and of trained parameters, as parts of them
};

// Hugging Face's own values in f32. Measured over all layouts, fused and plain: losses to 1e-6,
// elements of gradients to 1.4e-6 of the largest, norms to 9e-7; sums of other lengths of vectors
// add some of f32's 6e-8 each.
constexpr Bounds kF32{NXD_DTYPE_F32, 3e-6, 5e-6, 3e-6};
// tests/oracles/gradients.py, which is Hugging Face's model in f64. Measured: 2e-15, less than
// 1e-15 and 1e-14. AdamW divides gradients that are all noise by eps at least, 1e-8, which turns
// 1e-18 into steps of 1e-13.
constexpr Bounds kF64{NXD_DTYPE_F64, 1e-12, 1e-13, 1e-12};

// Softmax does not see a bias of keys that nothing turns: its gradient is rounding alone.
inline bool is_rounding(const std::string& name) { return name.ends_with(".key.bias"); }

// Halves of two sentence pairs cancel in this one: f32's rounding of them is left.
inline double floor_of(const std::string& name, double bound) {
  return name == "cls.seq_relationship.bias" && bound >= kF32.norm ? 1e-7 : 0;
}

// Every element of every gradient, by gradients.npy: f64 rounded to f32, in the order of the names.
inline void check_gradients(const ModelOracle& oracle, const std::string& layout,
                            const Named& gradients, const Bounds& bounds) {
  const std::vector<double> recorded = read_npy<double>(oracle.directory + "/gradients.npy").values;
  const double rounding = bounds.dtype == NXD_DTYPE_F64 ? std::ldexp(1.0, -24) : 0;
  size_t begin = 0;
  for (const auto& [name, got] : gradients) {
    const double* want = recorded.data() + begin;
    begin += got.size();
    if (!NXD_TEST_CHECK(begin <= recorded.size())) return;
    if (is_rounding(name)) {
      for (const double x : got) NXD_TEST_CHECK(std::fabs(x) < 1e-7);
      continue;
    }
    double largest = 0;
    for (size_t i = 0; i < got.size(); ++i) largest = std::max(largest, std::fabs(want[i]));
    for (size_t i = 0; i < got.size(); ++i) {
      const double allowed =
          bounds.gradient * largest + rounding * std::fabs(want[i]) + floor_of(name, bounds.norm);
      if (std::fabs(got[i] - want[i]) <= allowed) continue;
      nxd_test_fail(__FILE__, __LINE__,
                    "%s: gradient of %s[%zu]: expected %.9g, got %.9g (largest %.3g)",
                    layout.c_str(), name.c_str(), i, want[i], got[i], largest);
      break;
    }
  }
  NXD_TEST_CHECK(begin == recorded.size());
}

// The norms of what a run has by name.
inline void check_norms(const std::string& what, const Named& got, const nlohmann::json& want,
                        double bound) {
  NXD_TEST_CHECK(got.size() == want.size());
  for (const auto& [name, values] : got) {
    if (is_rounding(name)) continue;
    const double expected = want.value(name, std::nan("")), actual = norm(values);
    if (std::fabs(actual - expected) <= bound * expected + floor_of(name, bound)) continue;
    nxd_test_fail(__FILE__, __LINE__, "%s of %s: expected %.17g, got %.17g", what.c_str(),
                  name.c_str(), expected, actual);
  }
}

inline void check_run(const ModelOracle& oracle, const Layout& layout, const Run& run,
                      const Bounds& bounds) {
  const bool exact = bounds.dtype == NXD_DTYPE_F64;
  const nlohmann::json& expected = exact ? oracle.exact : oracle.expected;
  const std::string name = layout.name();
  check_gradients(oracle, name, run.gradients, bounds);
  check_norms(name + ": gradient norm", run.gradients, expected["grad_norms"], bounds.norm);
  const nlohmann::json& total = exact ? expected["grad_norm_traj"][0] : expected["grad_norm_total"];
  check_loss((name + ": norm").c_str(), run.norms[0], total, bounds.norm);
  for (size_t i = 0; i < 20; ++i) {
    const std::string what = name + ": loss " + std::to_string(i);
    check_loss(what.c_str(), run.losses[i], expected["loss_traj"][i], bounds.loss);
  }
  check_loss((name + ": last loss").c_str(), run.losses[20], expected["loss_after_20"],
             bounds.loss);
  Named final = run.final;
  nlohmann::json wanted = expected["final_param_norms"];
  // Softmax does not see a bias of the keys, nor, where rotary positions turn it, much of the part
  // that turns slowly: its gradient is noise, of which AdamW makes steps.
  for (auto it = final.begin(); it != final.end();) {
    const bool has_noise = it->first.ends_with("c_attn.bias") ||
                           it->first.ends_with("k_proj.bias") ||
                           it->first.ends_with("query_key_value.bias");
    if (has_noise) {
      check_norms(name + ": final norm", {{it->first, it->second}},
                  {{it->first, wanted[it->first]}}, 1e-3);
      wanted.erase(it->first);
    }
    it = has_noise ? final.erase(it) : std::next(it);
  }
  check_norms(name + ": final norm", final, wanted, bounds.norm);
}

// Gives the losses of the training.
inline std::vector<double> run_rank(const ModelOracle& oracle, nxd_context_t* ctx,
                                    const Layout& layout, const Bounds& bounds) {
  const Module model = load_model(ctx, oracle.directory, layout);
  if (!model) return {};
  check_forward(oracle, ctx, model.get(), layout, 3e-6);
  const Run run = train(model.get(), oracle, 20);
  check_run(oracle, layout, run, bounds);
  return run.losses;
}

// Gives visit, which may be empty, every layout and its losses.
inline void check_layouts(
    const ModelOracle& oracle, const Bounds& bounds, bool plain,
    const std::function<void(const Layout&, const std::vector<double>&)>& visit = {}) {
  for (const int tp : {1, 2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      const Layout layout{tp, sequence_parallel, bounds.dtype, plain};
      const auto losses = on_ranks<std::vector<double>>(
          layout, 0, [&](nxd_context_t* ctx) { return run_rank(oracle, ctx, layout, bounds); });
      if (visit) visit(layout, losses[0]);
    }
  }
}

// The file that two ranks write is Hugging Face's again: names, shapes and values, which it gives.
inline Named check_saved_file(const ModelOracle& oracle) {
  const std::string path = "/tmp/nxd_model_" + std::to_string(getpid()) + ".safetensors";
  const Layout two{2};
  on_ranks<int>(two, 0, [&](nxd_context_t* ctx) {
    const Module model = load_model(ctx, oracle.directory, two);
    NXD_TEST_OK(nxd_module_save_safetensors(model.get(), path.c_str()));
    return 0;
  });
  const Named want = on_ranks<Named>(Layout{}, 0, [&](nxd_context_t* ctx) {
    return whole_parameters(load_model(ctx, oracle.directory, Layout{}).get());
  })[0];
  const Named got = on_ranks<Named>(Layout{}, 3, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle.config, Layout{});
    nxd_load_report_t* report = nullptr;
    NXD_TEST_OK(nxd_module_load_safetensors(model.get(), path.c_str(), 1, &report));
    nxd_load_report_destroy(report);
    return whole_parameters(model.get());
  })[0];
  std::remove(path.c_str());
  assert_true(got == want);
  return got;
}

// The body of each of the processes.
inline int run_process(const ModelOracle& oracle) {
  nxd_context_t* ctx = nullptr;
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  parallel.tensor_parallel_size = 2;
  if (NXD_TEST_OK(nxd_context_create(&options, &ctx)) &&
      NXD_TEST_OK(nxd_init_model_parallel(ctx, &parallel))) {
    for (const bool sequence_parallel : {false, true}) {
      run_rank(oracle, ctx, Layout{2, sequence_parallel}, kF32);
    }
    NXD_TEST_OK(nxd_context_finalize(ctx));
  }
  nxd_context_destroy(ctx);
  return nxd_test_failures() == 0 ? 0 : 1;
}

// Starts this program again as two ranks, which must call run_process.
inline void check_as_processes() {
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  options.num_processes = 2;
  nxd_job_t* job = nullptr;
  assert_int_equal(nxd_spawn(&options, &job), NXD_OK);
  const nxd_status_t status = nxd_job_wait(job, 120000);
  const std::string message = nxd_last_error();
  nxd_job_destroy(job);
  if (status != NXD_OK) fail_msg("%s: %s", nxd_status_string(status), message.c_str());
}

}  // namespace nxd_test
