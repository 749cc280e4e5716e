// The Llama against Hugging Face's: loss, logits, gradients and twenty AdamW steps, on every
// layout, with ranks as threads and as processes.
#include <cstdlib>

#include "engine/llama_support.h"
#include "support/npy.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

const LlamaOracle& oracle() {
  static const LlamaOracle value;
  return value;
}

// This rank's columns of the recorded logits.
std::vector<double> recorded_logits(int rank, int size) {
  const auto recorded = read_npy<float>(oracle().directory + "/logits.npy");
  const size_t columns = 256 / static_cast<size_t>(size);
  std::vector<double> out;
  for (size_t row = 0; row < 64; ++row) {
    for (size_t c = 0; c < columns; ++c) {
      out.push_back(recorded.values[row * 256 + static_cast<size_t>(rank) * columns + c]);
    }
  }
  return out;
}

// Forward without labels, with labels, and with labels and logits give the same values.
void check_forward(nxd_context_t* ctx, nxd_module_t* model, const Layout& layout, double tol) {
  int32_t rank = 0;
  NXD_TEST_OK(nxd_context_get_rank(ctx, &rank));
  const std::vector<double> want = recorded_logits(rank, layout.tp);
  const Tensor ids = make_i64(oracle().ids, oracle().shape);
  const Tensor labels = make_i64(oracle().labels, oracle().shape);
  nxd_tensor_t* inputs[] = {ids.get(), labels.get()};
  nxd_tensor_t* outputs[2] = {nullptr, nullptr};

  NXD_TEST_OK(nxd_module_forward(model, inputs, 1, outputs, 1));
  const Tensor logits(outputs[0]);
  int64_t shape[3] = {0, 0, 0};
  size_t ndim = 0;
  NXD_TEST_OK(nxd_tensor_get_shape(logits.get(), shape, 3, &ndim));
  NXD_TEST_CHECK(ndim == 3 && shape[0] == 2 && shape[1] == 32 && shape[2] == 256 / layout.tp);
  check_values(layout.name() + ": logits", values(logits.get()), want, tol);

  NXD_TEST_OK(nxd_module_forward(model, inputs, 2, outputs, 2));
  const Tensor loss(outputs[0]), again(outputs[1]);
  check_loss((layout.name() + ": loss").c_str(), item(loss.get()), oracle().expected["loss"], tol);
  check_values(layout.name() + ": logits beside the loss", values(again.get()), want, tol);

  // A mask that keeps every position changes nothing.
  const Tensor mask = make_i64(std::vector<int64_t>(64, 1), {2, 32});
  nxd_tensor_t* masked[] = {ids.get(), nullptr, mask.get()};
  NXD_TEST_OK(nxd_module_forward(model, masked, 3, outputs, 1));
  check_values(layout.name() + ": masked logits", values(Tensor(outputs[0]).get()), want, tol);
}

void check_run(const Layout& layout, const Run& run, double tol, const char* trajectory,
               const char* last) {
  const auto& expected = oracle().expected;
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
    if (!(std::fabs(got - want) <= 1e-5 * want)) {
      nxd_test_fail(__FILE__, __LINE__, "%s: final norm of %s: expected %.9g, got %.9g",
                    layout.name().c_str(), name.c_str(), want, got);
    }
  }
}

void run_rank(nxd_context_t* ctx, const Layout& layout, double tol, const char* trajectory,
              const char* last) {
  const Module model = load_model(ctx, oracle().directory, layout);
  if (!model) return;
  check_forward(ctx, model.get(), layout, 1e-5);
  check_run(layout, train(model.get(), oracle(), 20), tol, trajectory, last);
}

void check_layouts(nxd_dtype_t dtype, bool plain, double tol, const char* trajectory,
                   const char* last) {
  for (const int tp : {1, 2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      const Layout layout{tp, sequence_parallel, dtype, plain};
      on_ranks<int>(layout, 0, [&](nxd_context_t* ctx) {
        run_rank(ctx, layout, tol, trajectory, last);
        return 0;
      });
    }
  }
}

void f32_layouts(void**) {
  check_layouts(NXD_DTYPE_F32, false, 1e-5, "loss_traj", "loss_after_20");
}

void f32_plain_layouts(void**) {
  check_layouts(NXD_DTYPE_F32, true, 1e-5, "loss_traj", "loss_after_20");
}

// Hugging Face keeps rotary frequencies in f32 also in an f64 model, which bounds the agreement.
void f64_layouts(void**) {
  check_layouts(NXD_DTYPE_F64, false, 1e-6, "loss_traj_fp64", "loss_after_20_fp64");
}

void step_flops(void**) {
  // 367 GFLOP by the sum of the header's comment: hidden 512, 8 layers, 4 of 8 heads for keys,
  // intermediate 1408, vocabulary 8192, 4 x 512 tokens.
  const std::string config =
      R"({"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 8,
          "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1408,
          "vocab_size": 8192})";
  on_ranks<int>(Layout{}, 0, [&](nxd_context_t* ctx) {
    nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;
    options.device = NXD_DEVICE_META;
    nxd_module_t* out = nullptr;
    NXD_TEST_OK(nxd_model_create(ctx, config.c_str(), &options, &out));
    const Module model(out);
    double flops = 0;
    NXD_TEST_OK(nxd_model_get_step_flops(out, 4, 512, &flops));
    const double matrices = 8 * (512.0 * (512 + 256 + 256 + 512) + 3 * 512.0 * 1408) + 512.0 * 8192;
    NXD_TEST_CHECK(flops == 6 * matrices * 2048 + 6 * 8 * 512.0 * 512 * 2048);
    NXD_TEST_CHECK(std::fabs(flops - 367e9) < 0.5e9);
    NXD_TEST_REFUSED(nxd_model_get_step_flops(out, 0, 512, &flops), NXD_ERROR_INVALID_ARGUMENT,
                     "batch");
    NXD_TEST_REFUSED(nxd_model_get_step_flops(out, 4, -1, &flops), NXD_ERROR_INVALID_ARGUMENT,
                     "sequence");
    return 0;
  });
}

// What each of the processes runs.
int run_process() {
  nxd_context_t* ctx = nullptr;
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  parallel.tensor_parallel_size = 2;
  if (NXD_TEST_OK(nxd_context_create(&options, &ctx)) &&
      NXD_TEST_OK(nxd_init_model_parallel(ctx, &parallel))) {
    for (const bool sequence_parallel : {false, true}) {
      run_rank(ctx, Layout{2, sequence_parallel}, 1e-5, "loss_traj", "loss_after_20");
    }
    NXD_TEST_OK(nxd_context_finalize(ctx));
  }
  nxd_context_destroy(ctx);
  return nxd_test_failures() == 0 ? 0 : 1;
}

void as_processes(void**) {
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  options.n_processes = 2;
  nxd_job_t* job = nullptr;
  assert_int_equal(nxd_spawn(&options, &job), NXD_OK);
  const nxd_status_t status = nxd_job_wait(job, 120000);
  const std::string message = nxd_last_error();
  nxd_job_destroy(job);
  if (status != NXD_OK) fail_msg("%s: %s", nxd_status_string(status), message.c_str());
}

}  // namespace

int main() {
  if (std::getenv("RANK")) return run_process();
  const CMUnitTest tests[] = {
      cmocka_unit_test(f32_layouts), cmocka_unit_test(f32_plain_layouts),
      cmocka_unit_test(f64_layouts), cmocka_unit_test(as_processes),
      cmocka_unit_test(step_flops),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
