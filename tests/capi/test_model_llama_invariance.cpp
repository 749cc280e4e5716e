// No layout changes the model: the same initial bits, and the same training, on every one.
#include "capi/model_invariance.h"

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
    if (std::fabs(deviation - 0.05) > bound) fail_msg("%s: %g", name.c_str(), deviation);
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
      cmocka_unit_test(uneven_sizes),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
