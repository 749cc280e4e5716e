// Models on the recorded device train as they do eagerly: losses, gradients, norms and parameters,
// on every layout; and as few graphs as there should be.
#include "capi/model_invariance.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

nxd_device_metrics_t metrics() {
  nxd_device_metrics_t m = {};
  m.struct_size = sizeof m;
  NXD_TEST_OK(nxd_device_get_metrics(&m));
  return m;
}

std::string report() {
  char text[4096];
  size_t needed = 0;
  NXD_TEST_OK(nxd_device_get_report(text, sizeof text, &needed));
  return text;
}

Layout recorded(int tp, bool sequence_parallel, nxd_dtype_t dtype = NXD_DTYPE_F32) {
  Layout layout{tp, sequence_parallel, dtype};
  layout.device = NXD_DEVICE_XLA;
  return layout;
}

void check_no_fallbacks(const Layout& layout) {
  if (metrics().fallbacks != 0) fail_msg("%s: %s", layout.name().c_str(), report().c_str());
}

// Recorded on each layout against eager kernels on one rank.
void check_recorded(const ModelOracle& oracle, const std::string& config, int steps,
                    nxd_dtype_t dtype = NXD_DTYPE_F32, double tol = 1e-5) {
  const Run want = run_layout(oracle, Layout{1, false, dtype}, config, steps, 7);
  for (const Layout& layout : {recorded(1, false, dtype), recorded(1, true, dtype),
                               recorded(2, false, dtype), recorded(2, true, dtype)}) {
    NXD_TEST_OK(nxd_device_reset_metrics());
    check_same(layout, run_layout(oracle, layout, config, steps, 7), want, tol);
    check_no_fallbacks(layout);
    const nxd_device_metrics_t m = metrics();
    // A rank's pass is one graph, and ranks that do the same share it.
    if (m.executions != static_cast<uint64_t>(layout.tp * (steps + 1)) ||
        m.compiles > static_cast<uint64_t>(2 * layout.tp)) {
      fail_msg("%s: %s", layout.name().c_str(), report().c_str());
    }
  }
}

void llama(void**) {
  const LlamaOracle oracle;
  check_recorded(oracle, oracle.config, 20);
}

void llama_in_f64(void**) {
  const LlamaOracle oracle;
  check_recorded(oracle, config_of(oracle, {{"num_key_value_heads", 1}, {"mlp_bias", true}}), 3,
                 NXD_DTYPE_F64, 1e-9);
}

void gpt2(void**) {
  const ModelOracle oracle("gpt2_tiny");
  check_recorded(oracle, oracle.config, 20);
}

// The same bits are dropped, by another rank and when the graph runs.
void gpt2_with_dropout(void**) {
  const ModelOracle oracle("gpt2_tiny");
  check_recorded(
      oracle, config_of(oracle, {{"embd_pdrop", 0.2}, {"attn_pdrop", 0.1}, {"resid_pdrop", 0.3}}),
      5);
}

// A model that moves to the device and back has the values and gradients that it had.
void models_move(void**) {
  const LlamaOracle oracle;
  for (const nxd_device_t start : {NXD_DEVICE_CPU, NXD_DEVICE_META}) {
    Layout layout{2};
    layout.device = start;
    on_ranks<int>(layout, 7, [&](nxd_context_t* ctx) {
      const Module eager = create_model(ctx, oracle.config, Layout{2});
      const Module model = create_model(ctx, oracle.config, layout);
      NXD_TEST_OK(nxd_move_model_to_device(model.get(), NXD_DEVICE_XLA));
      NXD_TEST_CHECK(device_of(model.get()) == NXD_DEVICE_XLA);
      const Named initial = whole_parameters(eager.get());
      NXD_TEST_CHECK(whole_parameters(model.get()) == initial);
      check_loss("loss", run_backward(model.get(), oracle), run_backward(eager.get(), oracle),
                 1e-5);
      const Named gradients = whole_gradients(model.get());
      check_named("gradient", gradients, whole_gradients(eager.get()), 1e-5, 1e-6);
      NXD_TEST_OK(nxd_move_model_to_device(model.get(), NXD_DEVICE_CPU));
      NXD_TEST_CHECK(device_of(model.get()) == NXD_DEVICE_CPU);
      NXD_TEST_CHECK(whole_parameters(model.get()) == initial);
      NXD_TEST_CHECK(whole_gradients(model.get()) == gradients);
      NXD_TEST_CHECK(run_backward(model.get(), oracle) == run_backward(eager.get(), oracle));
      return 0;
    });
  }
}

// An id that is out of range shows when the graph runs, on all ranks, with the layer's message.
void bad_ids_fail_on_all_ranks(void**) {
  const LlamaOracle oracle;
  on_ranks<int>(Layout{2}, 7, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle.config, recorded(2, false));
    int32_t rank = 0;
    NXD_TEST_OK(nxd_context_get_rank(ctx, &rank));
    std::vector<int64_t> ids = oracle.ids;
    if (rank == 1) ids[3] = 100000;
    std::vector<Tensor> given;
    given.push_back(make_i64(ids, oracle.shape));
    given.push_back(make_i64(oracle.labels, oracle.shape));
    const std::vector<Tensor> inputs = moved(given, NXD_DEVICE_XLA);
    nxd_tensor_t* out = nullptr;
    NXD_TEST_OK(nxd_module_forward(model.get(), handles(inputs).data(), 2, &out, 1));
    const Tensor loss(out);
    NXD_TEST_CHECK(nxd_mark_step(1) == NXD_ERROR_INVALID_ARGUMENT);
    NXD_TEST_CHECK(std::strstr(nxd_last_error(), "expected ids from 0 to") != nullptr);
    double value = 0;
    NXD_TEST_CHECK(nxd_tensor_get_item(out, &value) == NXD_ERROR_INVALID_STATE);
    // The next step is none the worse.
    NXD_TEST_CHECK(std::isfinite(run_backward(model.get(), oracle)));
    return 0;
  });
}

void inputs_on_another_device_are_rejected(void**) {
  const LlamaOracle oracle;
  on_ranks<int>(Layout{2}, 7, [&](nxd_context_t* ctx) {
    for (const nxd_device_t device : {NXD_DEVICE_CPU, NXD_DEVICE_XLA}) {
      Layout layout{2};
      layout.device = device;
      const Module model = create_model(ctx, oracle.config, layout);
      const std::vector<Tensor> inputs =
          moved(oracle.inputs(), device == NXD_DEVICE_CPU ? NXD_DEVICE_XLA : NXD_DEVICE_CPU);
      nxd_tensor_t* out = nullptr;
      NXD_TEST_CHECK(nxd_module_forward(model.get(), handles(inputs).data(), 2, &out, 1) ==
                     NXD_ERROR_INVALID_ARGUMENT);
      NXD_TEST_CHECK(std::strstr(nxd_last_error(), "expected device") != nullptr);
    }
    return 0;
  });
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(llama),
      cmocka_unit_test(llama_in_f64),
      cmocka_unit_test(gpt2),
      cmocka_unit_test(gpt2_with_dropout),
      cmocka_unit_test(models_move),
      cmocka_unit_test(bad_ids_fail_on_all_ranks),
      cmocka_unit_test(inputs_on_another_device_are_rejected),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
