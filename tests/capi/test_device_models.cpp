// Models on the recorded device train as they do eagerly: losses, gradients, norms and parameters,
// on every layout; and as few graphs as there should be.
#include "capi/model_invariance.h"
#include "support/device.h"
#include "support/pjrt.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

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

// Ranks are threads here, and a plug-in runs one graph of a process at a time.
// Recorded on each layout against eager kernels on one rank.
void check_recorded(const ModelOracle& oracle, const std::string& config, int steps,
                    nxd_dtype_t dtype = NXD_DTYPE_F32, double tol = 1e-5) {
  if (through_a_plugin()) steps = std::min(steps, 5);
  const Run want = run_layout(oracle, Layout{1, false, dtype}, config, steps, 7);
  for (const Layout& layout : {recorded(1, false, dtype), recorded(1, true, dtype),
                               recorded(2, false, dtype), recorded(2, true, dtype)}) {
    if (through_a_plugin() && (layout.tp > 1 || layout.sequence_parallel)) continue;
    NXD_TEST_OK(nxd_device_reset_metrics());
    check_same(layout, run_layout(oracle, layout, config, steps, 7), want, tol);
    check_no_fallbacks(layout);
    const nxd_device_metrics_t m = metrics();
    // A rank's pass is one graph, and ranks that do the same share it.
    if (m.executions != static_cast<uint64_t>(layout.tp * (steps + 1)) ||
        m.compiles + m.loads > static_cast<uint64_t>(2 * layout.tp)) {
      fail_msg("%s: %s", layout.name().c_str(), report().c_str());
    }
  }
}

void llama(void**) {
  const LlamaOracle oracle;
  check_recorded(oracle, oracle.config, 20);
}

// Products of this size, which XLA's plug-in for the CPU may hand to another library.
void llama_with_wide_products(void**) {
  const LlamaOracle oracle;
  check_recorded(oracle,
                 config_of(oracle, {{"hidden_size", 256},
                                    {"head_dim", 64},
                                    {"intermediate_size", 64},
                                    {"num_hidden_layers", 1},
                                    {"vocab_size", 512}}),
                 5);
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

void gpt_neox(void**) {
  for (const char* name : {"gpt_neox_tiny", "gpt_neox_serial_tiny"}) {
    const ModelOracle oracle(name);
    check_recorded(oracle, config_of(oracle, {{"attention_dropout", 0.1}, {"hidden_dropout", 0.1}}),
                   10);
  }
}

void bert(void**) {
  for (const char* name : {"bert_tiny", "bert_pad_tiny"}) {
    const ModelOracle oracle(name);
    check_recorded(oracle, config_of(oracle, {{"hidden_dropout_prob", 0.1}}), 10);
  }
}

// About as far from f64 as the eager model, which rounds elsewhere.
void bf16(void**) {
  const LlamaOracle oracle;
  const auto losses = [&](const Layout& layout) {
    return run_layout(oracle, layout, oracle.config, 5, 7).losses;
  };
  const std::vector<double> exact = losses(Layout{1, false, NXD_DTYPE_F64});
  const auto distance = [&](const Layout& layout) {
    const std::vector<double> got = losses(layout);
    double worst = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      worst = larger_error(worst, got[i] - exact[i]);
    }
    return worst;
  };
  const double eager = distance(Layout{1, false, NXD_DTYPE_BF16});
  for (const bool sequence_parallel : {false, true}) {
    NXD_TEST_OK(nxd_device_reset_metrics());
    const Layout layout = recorded(2, sequence_parallel, NXD_DTYPE_BF16);
    const double there = distance(layout);
    if (!(there <= 2 * eager + 5e-4)) fail_msg("%g on the device, %g eagerly", there, eager);
    check_no_fallbacks(layout);
  }
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

// Files and whole values go by host memory: what the device reads and writes is what the CPU does.
void values_go_in_and_out(void**) {
  const LlamaOracle oracle;
  const TempDir directory;
  on_ranks<int>(Layout{2}, 7, [&](nxd_context_t* ctx) {
    const Module eager = load_model(ctx, oracle.directory, Layout{2});
    const Module model = load_model(ctx, oracle.directory, recorded(2, false));
    const Named stored = whole_parameters(eager.get());
    NXD_TEST_CHECK(whole_parameters(model.get()) == stored);
    const std::string path = directory.path() + "/saved.safetensors";
    NXD_TEST_OK(nxd_module_save_safetensors(model.get(), path.c_str()));
    NXD_TEST_OK(nxd_module_initialize(model.get(), 5));
    NXD_TEST_CHECK(whole_parameters(model.get()) != stored);
    NXD_TEST_OK(nxd_module_load_safetensors(model.get(), path.c_str(), 1, nullptr));
    NXD_TEST_CHECK(whole_parameters(model.get()) == stored);
    // A whole value from the CPU, and one from the device.
    nxd_parameter_t* norm = nullptr;
    nxd_tensor_t *full = nullptr, *there = nullptr;
    NXD_TEST_OK(nxd_module_find_parameter(model.get(), "model.norm.weight", &norm));
    const std::vector<int64_t> shape{static_cast<int64_t>(stored.at("model.norm.weight").size())};
    NXD_TEST_OK(nxd_tensor_create(shape.data(), 1, NXD_DTYPE_F32, NXD_DEVICE_CPU, &full));
    NXD_TEST_OK(nxd_tensor_create(shape.data(), 1, NXD_DTYPE_F64, NXD_DEVICE_XLA, &there));
    const Tensor zeros(full), zeros_there(there);
    for (nxd_tensor_t* value : {full, there}) {
      NXD_TEST_OK(nxd_parameter_set_full(norm, value));
      NXD_TEST_CHECK(whole_parameters(model.get()).at("model.norm.weight") ==
                     std::vector<double>(stored.at("model.norm.weight").size()));
      NXD_TEST_OK(nxd_module_load_safetensors(model.get(), path.c_str(), 1, nullptr));
    }
    check_loss("loss", run_backward(model.get(), oracle), run_backward(eager.get(), oracle), 1e-5);
    return 0;
  });
}

nxd_status_t no_values(const char*, const int64_t*, size_t, int64_t, double*, size_t, void*) {
  return NXD_ERROR_USER;
}

// Values come to the device of the options, also after a move to another that failed.
void a_move_that_fails(void**) {
  const TempDir directory;
  on_ranks<int>(Layout{1}, 7, [&](nxd_context_t* ctx) {
    const std::string path = directory.path() + "/layer.safetensors";
    const auto layer = [&](nxd_device_t device) {
      nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
      options.device = device;
      nxd_module_t* made = nullptr;
      NXD_TEST_OK(nxd_layer_create_linear(ctx, 4, 4, &options, &made));
      return Module(made);
    };
    NXD_TEST_OK(nxd_module_save_safetensors(layer(NXD_DEVICE_CPU).get(), path.c_str()));
    const Module moved = layer(NXD_DEVICE_META);
    NXD_TEST_OK(nxd_module_set_initializer(moved.get(), no_values, nullptr, nullptr));
    NXD_TEST_REFUSED(nxd_move_model_to_device(moved.get(), NXD_DEVICE_XLA), NXD_ERROR_USER, "");
    NXD_TEST_OK(nxd_module_load_safetensors(moved.get(), path.c_str(), 1, nullptr));
    NXD_TEST_CHECK(device_of(moved.get()) == NXD_DEVICE_CPU);
    return 0;
  });
}

// Activations that are computed again, with the same dropout.
void recomputation(void**) {
  const ModelOracle oracle("gpt2_tiny");
  const std::string config = config_of(oracle, {{"attn_pdrop", 0.1}, {"resid_pdrop", 0.3}});
  const auto gradients = [&](const Layout& layout, bool recomputes) {
    return on_ranks<Named>(layout, 7, [&](nxd_context_t* ctx) {
      const Module model = create_model(ctx, config, layout);
      const char* const names[] = {"GPT2Block"};
      if (recomputes) NXD_TEST_OK(nxd_apply_checkpoint(model.get(), names, 1, 1));
      run_backward(model.get(), oracle);
      return whole_gradients(model.get());
    })[0];
  };
  const Named want = gradients(Layout{2, true}, false);
  check_named("recomputed", gradients(recorded(2, true), true), want, 1e-5, 1e-6);
  if (report().find("host_call") != std::string::npos) fail_msg("%s", report().c_str());
}

// Automatic casts give the products of the eager model, rounded elsewhere.
void automatic_casts(void**) {
  const LlamaOracle oracle;
  const auto losses = [&](const Layout& layout, nxd_dtype_t dtype) {
    return on_ranks<std::vector<double>>(layout, 7, [&](nxd_context_t* ctx) {
      const Module model = create_model(ctx, oracle.config, layout);
      NXD_TEST_OK(nxd_set_autocast(dtype, nullptr));
      const std::vector<double> found = train(model.get(), oracle, 5).losses;
      NXD_TEST_OK(nxd_set_autocast(NXD_DTYPE_INVALID, nullptr));
      return found;
    })[0];
  };
  const std::vector<double> want = losses(Layout{2, true}, NXD_DTYPE_BF16);
  const std::vector<double> got = losses(recorded(2, true), NXD_DTYPE_BF16);
  for (size_t i = 0; i < want.size(); ++i) check_loss("autocast", got[i], want[i], 5e-3);
  assert_true(got != losses(recorded(2, true), NXD_DTYPE_INVALID));
}

// Replay calls the kernels that eager layers call, so that a loss has the same bits; plain kernels
// are recorded operator by operator.
void layers_record_kernels(void**) {
  const LlamaOracle oracle;
  const auto loss_of = [&](Layout layout, bool plain) {
    layout.plain = plain;
    return on_ranks<double>(layout, 7, [&](nxd_context_t* ctx) {
      const Module model = create_model(ctx, oracle.config, layout);
      const double loss = run_backward(model.get(), oracle);
      if (layout.device != NXD_DEVICE_XLA) return loss;
      NXD_TEST_OK(nxd_mark_step(1));
      const std::string graph = step_graph(NXD_GRAPH_FORMAT_TEXT);
      for (const char* kernel : {"nxd::attention(", "nxd::rms_norm_backward(", "nxd::rope(",
                                 "nxd::swiglu(", "nxd::matrix_product("}) {
        NXD_TEST_CHECK((graph.find(kernel) == std::string::npos) == plain);
      }
      return loss;
    })[0];
  };
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    const double eager = loss_of(Layout{1, false, dtype}, false);
    NXD_TEST_CHECK(loss_of(recorded(1, false, dtype), false) == eager);
    NXD_TEST_CHECK(std::fabs(loss_of(recorded(1, false, dtype), true) - eager) < 0.05);
  }
}

// Every ATen operator of a step has a lowering, and so have masks; collectives and checks are calls
// of the host. A compiler is given plain operators, not the kernels that replay calls.
void steps_become_stablehlo(void**) {
  const std::pair<const char*, nlohmann::json> models[] = {
      {"llama_tiny", nlohmann::json::object()},
      {"gpt2_tiny", {{"attn_pdrop", 0.1}, {"resid_pdrop", 0.3}}},
      {"gpt_neox_tiny", {{"attention_dropout", 0.1}, {"hidden_dropout", 0.1}}},
      {"bert_pad_tiny", {{"hidden_dropout_prob", 0.1}}}};
  for (const auto& [name, changes] : models) {
    const ModelOracle oracle(name);
    const std::string config = config_of(oracle, changes);
    for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
      Layout layout = recorded(2, true, dtype);
      layout.plain = true;
      on_ranks<int>(layout, 7, [&](nxd_context_t* ctx) {
        const Module model = create_model(ctx, config, layout);
        run_backward(model.get(), oracle);
        NXD_TEST_OK(nxd_mark_step(1));
        const std::string text = step_graph(NXD_GRAPH_FORMAT_STABLEHLO);
        NXD_TEST_CHECK(text.find("operator = \"nxd::all_") != std::string::npos);
        NXD_TEST_CHECK(text.find("operator = \"nxd::keep_mask") == std::string::npos);
        for (size_t at = text.find("operator = \"aten::"); at != std::string::npos;
             at = text.find("operator = \"aten::", at + 1)) {
          std::printf("%s: no lowering of %s\n", name, text.substr(at, 60).c_str());
          NXD_TEST_CHECK(false);
        }
        return 0;
      });
    }
  }
}

void expect_one_text(const std::string& what, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    if (text == texts[0] && !text.empty()) continue;
    nxd_test_fail(__FILE__, __LINE__, "%s: another graph", what.c_str());
  }
}

// Ranks differ in inputs of their graph alone, also where a plug-in would be given it: their place
// in the sequence, in the vocabulary and in a table of positions, that padding follows in each.
void ranks_record_one_graph(void**) {
  for (const char* name : {"llama_tiny", "qwen2_tiny", "qwen3_tiny", "mistral_tiny", "gpt2_tiny",
                           "gpt_neox_tiny", "gpt_neox_serial_tiny", "bert_tiny", "bert_pad_tiny"}) {
    const ModelOracle given(name);
    const char* positions =
        std::strcmp(name, "gpt2_tiny") == 0 ? "n_positions" : "max_position_embeddings";
    for (const int64_t length : {32, 29}) {
      const ModelOracle oracle =
          shortened(given, length,
                    config_of(given, {{"vocab_size", given.vocabulary | 1}, {positions, length}}));
      for (Layout layout : {recorded(2, false), recorded(2, true), recorded(4, true)}) {
        layout.plain = true;
        const auto texts = on_ranks<std::string>(layout, 7, [&](nxd_context_t* ctx) {
          const Module model = create_model(ctx, oracle.config, layout);
          const Tensor loss = backward_loss(model.get(), oracle);
          NXD_TEST_OK(nxd_mark_step(1));
          return step_graph(NXD_GRAPH_FORMAT_STABLEHLO);
        });
        expect_one_text(
            std::string(name) + ", " + layout.name() + ", length " + std::to_string(length), texts);
      }
    }
  }
}

// Features that the ranks do not divide, and moves between whole features and parts.
void padded_layers_record_one_graph(void**) {
  for (const int whole : {0, 1}) {
    Layout layout = recorded(2, false);
    layout.plain = true;
    expect_one_text(
        whole ? "whole" : "parts", on_ranks<std::string>(layout, 7, [&](auto* ctx) {
          nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
          options.device = layout.device;
          options.pad = 1;
          options.gather_output = whole ? NXD_TOGGLE_ON : NXD_TOGGLE_OFF;
          options.input_is_parallel = !whole;
          nxd_module_t *up = nullptr, *down = nullptr;
          NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 4, 13, &options, &up));
          NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, 13, 4, &options, &down));
          const Module column(up), row(down);
          std::vector<Tensor> given;
          const std::vector<float> ones(8, 1);
          const int64_t shape[] = {2, 4};
          nxd_tensor_t *x = nullptr, *middle = nullptr, *y = nullptr;
          NXD_TEST_OK(nxd_tensor_from_data(ones.data(), 32, shape, 2, NXD_DTYPE_F32, &x));
          given.emplace_back(x);
          const std::vector<Tensor> inputs = moved(given, layout.device);
          nxd_tensor_t* const in = inputs[0].get();
          NXD_TEST_OK(nxd_module_forward(up, &in, 1, &middle, 1));
          NXD_TEST_OK(nxd_module_forward(down, &middle, 1, &y, 1));
          const Tensor kept_middle(middle), kept_y(y);
          NXD_TEST_OK(nxd_backward(&y, &in, 1, 0));
          NXD_TEST_OK(nxd_mark_step(1));
          return step_graph(NXD_GRAPH_FORMAT_STABLEHLO);
        }));
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
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(llama),
      cmocka_unit_test(llama_with_wide_products),
      cmocka_unit_test(llama_in_f64),
      cmocka_unit_test(gpt2),
      cmocka_unit_test(gpt2_with_dropout),
      cmocka_unit_test(gpt_neox),
      cmocka_unit_test(bert),
      cmocka_unit_test(bf16),
      cmocka_unit_test(models_move),
      cmocka_unit_test(values_go_in_and_out),
      cmocka_unit_test(a_move_that_fails),
      cmocka_unit_test(recomputation),
      cmocka_unit_test(automatic_casts),
      cmocka_unit_test(layers_record_kernels),
      cmocka_unit_test(steps_become_stablehlo),
      cmocka_unit_test(ranks_record_one_graph),
      cmocka_unit_test(padded_layers_record_one_graph),
      cmocka_unit_test(bad_ids_fail_on_all_ranks),
      cmocka_unit_test(inputs_on_another_device_are_rejected),
  };
  const struct CMUnitTest of_families[] = {
      cmocka_unit_test(llama),
      cmocka_unit_test(llama_with_wide_products),
      cmocka_unit_test(gpt2_with_dropout),
      cmocka_unit_test(gpt_neox),
      cmocka_unit_test(bert),
      cmocka_unit_test(recomputation),
  };
  if (through_a_plugin()) return cmocka_run_group_tests(of_families, nullptr, nullptr);
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
