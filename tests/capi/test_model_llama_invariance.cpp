// No layout changes the model: the same initial bits, and the same training, on every one.
#include "capi/model_invariance.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

const LlamaOracle& oracle() {
  static const LlamaOracle value;
  return value;
}

void f64_layouts(void**) { check_all(oracle(), oracle().config, NXD_DTYPE_F64, 5, 1e-9); }

void f32_layouts(void**) { check_all(oracle(), oracle().config, NXD_DTYPE_F32, 50, 5e-5); }

void tied_embeddings(void**) {
  check_all(oracle(), config_with(oracle(), "tie_word_embeddings", true), NXD_DTYPE_F64, 3, 1e-9);
}

// 257 rows over 2 and 4 ranks, alone and tied.
void padded_vocabulary(void**) {
  for (const bool tied : {false, true}) {
    nlohmann::json config = nlohmann::json::parse(oracle().config);
    config["vocab_size"] = 257;
    config["tie_word_embeddings"] = tied;
    check_all(oracle(), config.dump(), NXD_DTYPE_F64, 3, 1e-9);
  }
}

// Key heads that neither divide by the ranks nor are divided by them, and an MLP's features.
void uneven_sizes(void**) {
  nlohmann::json changes = {{"num_attention_heads", 6}, {"head_dim", 12},
                            {"intermediate_size", 177}, {"attention_bias", true},
                            {"mlp_bias", true},         {"vocab_size", 257}};
  for (const int key_heads : {6, 3, 2, 1}) {
    changes["num_key_value_heads"] = key_heads;
    check_uneven(oracle(), changes, {});
  }
  changes["model_type"] = "qwen3";
  changes["num_key_value_heads"] = 3;
  check_uneven(oracle(), changes, {});
}

using Ddp = std::unique_ptr<nxd_ddp_t, Destroyer<nxd_ddp_destroy>>;

// Losses of steps with ZeRO-1, and the norms of all gradients; the state is saved behind them.
// Every copy has the same batch.
Run train_zero1(nxd_context_t* ctx, const ModelOracle& oracle, const Layout& layout,
                int64_t bucket_bytes, const std::string& directory) {
  Run run;
  const Module model = create_model(ctx, oracle.config, layout);
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.zero_stage = 1;
  options.reduce = NXD_REDUCE_AVG;
  options.bucket_bytes = bucket_bytes;
  nxd_ddp_t* made = nullptr;
  if (!NXD_TEST_OK(nxd_ddp_create(model.get(), &options, &made))) return run;
  const Ddp ddp(made);
  nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
  sgd.learning_rate = 0.1;
  sgd.momentum = 0.9;
  nxd_optimizer_t* out = nullptr;
  if (!NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(made, &sgd, &out))) return run;
  const Optimizer optimizer(out);
  for (int step = 0; step < 2; ++step) {
    run.losses.push_back(run_backward(model.get(), oracle));
    nxd_step_report_t report = {};
    report.struct_size = sizeof report;
    if (!NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, &report))) return run;
    run.norms.push_back(report.norm);
  }
  run.final = whole_parameters(model.get());
  nxd_training_state_t* state = nullptr;
  NXD_TEST_OK(nxd_training_state_create(ctx, &state));
  NXD_TEST_OK(nxd_training_state_add_optimizer(state, "optimizer", out));
  NXD_TEST_OK(nxd_training_state_save(state, directory.c_str(), layout.tp, 0));
  int64_t found = 0;
  NXD_TEST_OK(nxd_training_state_load_newest(state, directory.c_str(), 1, &found));
  NXD_TEST_CHECK(found == layout.tp);
  nxd_training_state_destroy(state);
  return run;
}

// Ranks of a copy have shares of different sizes, and copies have parts of a share: what several
// ranks have alike, norms and shared key heads, is summed and saved in equal parts.
void uneven_parts(void**) {
  ModelOracle uneven = oracle();
  uneven.config = config_of(oracle(), {{"num_attention_heads", 6},
                                       {"num_key_value_heads", 3},
                                       {"head_dim", 12},
                                       {"intermediate_size", 177},
                                       {"attention_bias", true},
                                       {"mlp_bias", true},
                                       {"vocab_size", 257}});
  struct Trained {
    const ModelOracle& oracle;
    Layout layout;
    int64_t bucket_bytes;
    std::string directory;
    std::vector<Run> runs;
  };
  const auto train_copies = [&](int copies, const Layout& layout, int64_t bucket_bytes) {
    const TempDir directory;
    const auto ranks = static_cast<size_t>(copies * layout.tp);
    Trained trained{uneven, layout, bucket_bytes, directory.path(), std::vector<Run>(ranks)};
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    options.timeout_ms = 60000;
    options.seed = 7;
    nxd_test_run_ranks_with(
        &options, copies * layout.tp, layout.tp,
        [](nxd_context_t* ctx, int rank, int, void* user_data) {
          auto& of = *static_cast<Trained*>(user_data);
          of.runs[static_cast<size_t>(rank)] =
              train_zero1(ctx, of.oracle, of.layout, of.bucket_bytes, of.directory);
        },
        &trained);
    return trained.runs;
  };
  const Run want = train_copies(1, Layout{1, false, NXD_DTYPE_F64}, 20000)[0];
  assert_true(want.losses.back() < want.losses.front());
  for (const int64_t bucket_bytes : {8000, 20000}) {
    for (const Layout& layout : {Layout{2, true, NXD_DTYPE_F64}, Layout{4, false, NXD_DTYPE_F64}}) {
      for (const Run& got : train_copies(2, layout, bucket_bytes)) {
        check_values(layout.name() + ": losses", got.losses, want.losses, 1e-9);
        check_values(layout.name() + ": norms", got.norms, want.norms, 1e-9);
        check_named(layout.name() + ": final", got.final, want.final, 1e-9);
      }
    }
  }
}

void biases(void**) {
  nlohmann::json config = nlohmann::json::parse(oracle().config);
  config["attention_bias"] = config["mlp_bias"] = true;
  check_all(oracle(), config.dump(), NXD_DTYPE_F64, 3, 1e-9);
}

// The oracle's Llama as one of its forms, with one key head for all ranks and windows.
ModelOracle form(const char* type) {
  ModelOracle out = oracle();
  nlohmann::json config = nlohmann::json::parse(out.config);
  config.update({{"model_type", type},
                 {"num_key_value_heads", 1},
                 {"use_sliding_window", true},
                 {"sliding_window", 6},
                 {"max_window_layers", 2}});
  out.config = config.dump();
  return out;
}

void forms(void**) {
  for (const char* type : {"mistral", "qwen2", "qwen3"}) {
    const ModelOracle each = form(type);
    check_all(each, each.config, NXD_DTYPE_F64, 3, 1e-9);
    check_bf16(each, 2.5);
  }
}

void scaled_rotary(void**) {
  const nlohmann::json rope = {{"rope_type", "yarn"},
                               {"factor", 4.0},
                               {"rope_theta", 10000.0},
                               {"original_max_position_embeddings", 64}};
  check_all(oracle(), config_with(oracle(), "rope_parameters", rope), NXD_DTYPE_F64, 2, 1e-9);
  // The scaling must be seen at all.
  const Layout layout{1, false, NXD_DTYPE_F64, false};
  const Run plain = run_layout(oracle(), layout, oracle().config, 1, 7);
  const Run scaled =
      run_layout(oracle(), layout, config_with(oracle(), "rope_parameters", rope), 1, 7);
  assert_true(std::fabs(plain.losses[1] - scaled.losses[1]) > 1e-6);
}

// Initial weights as Hugging Face draws them, and a function of the seed.
void initial_weights(void**) {
  nlohmann::json config = nlohmann::json::parse(oracle().config);
  config["attention_bias"] = config["mlp_bias"] = true;
  config["pad_token_id"] = 5;
  config["initializer_range"] = 0.05;
  const auto initial = [&](uint64_t seed) {
    return on_ranks<Named>(Layout{2}, seed, [&](nxd_context_t* ctx) {
      return whole_parameters(create_model(ctx, config.dump(), Layout{2}).get());
    })[0];
  };
  const Named first = initial(1);
  assert_true(first == initial(1));
  assert_false(first.at("lm_head.weight") == initial(2).at("lm_head.weight"));
  for (const auto& [name, v] : first) {
    const bool is_norm = name.find("norm") != std::string::npos;
    const bool is_bias = name.find(".bias") != std::string::npos;
    for (const double x : v) {
      if (is_norm) assert_true(x == 1);
      if (is_bias) assert_true(x == 0);
    }
    if (is_norm || is_bias) continue;
    // The root mean square of n draws lies within 5 / sqrt(2 n) of the deviation.
    const auto n = static_cast<double>(v.size());
    const double deviation = norm(v) / std::sqrt(n);
    const double bound = 0.05 * (5 / std::sqrt(2 * n)) + (name.find("embed") == 5 ? 1e-3 : 0);
    if (!(std::fabs(deviation - 0.05) <= bound)) fail_msg("%s: %g", name.c_str(), deviation);
  }
  const std::vector<double>& table = first.at("model.embed_tokens.weight");
  for (size_t i = 0; i < 64; ++i) assert_true(table[5 * 64 + i] == 0);
  assert_int_equal(first.count("model.layers.3.mlp.down_proj.bias"), 1);
  assert_int_equal(first.count("model.layers.0.self_attn.o_proj.bias"), 1);
}

void bf16_layouts(void**) { check_bf16(oracle()); }

void odd_sequences(void**) { check_odd_sequences(oracle(), nlohmann::json::object(), {}); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(initial_weights), cmocka_unit_test(f64_layouts),
      cmocka_unit_test(f32_layouts),     cmocka_unit_test(tied_embeddings),
      cmocka_unit_test(biases),          cmocka_unit_test(padded_vocabulary),
      cmocka_unit_test(scaled_rotary),   cmocka_unit_test(bf16_layouts),
      cmocka_unit_test(forms),           cmocka_unit_test(odd_sequences),
      cmocka_unit_test(uneven_sizes),    cmocka_unit_test(uneven_parts),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
