// No layout changes the model: the same initial bits, and the same training, on every one.
#include "engine/llama_support.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

const LlamaOracle& oracle() {
  static const LlamaOracle value;
  return value;
}

std::string config_with(const char* name, const nlohmann::json& value) {
  nlohmann::json config = nlohmann::json::parse(oracle().config);
  config[name] = value;
  return config.dump();
}

// Trains from initial weights; every rank must see the same losses, norms and whole parameters.
Run run_layout(const Layout& layout, const std::string& config, int steps, uint64_t seed) {
  const std::vector<Run> runs = on_ranks<Run>(layout, seed, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, config, layout);
    return model ? train(model.get(), oracle(), steps) : Run{};
  });
  for (const Run& run : runs) {
    assert_true(run.losses == runs[0].losses);
    assert_true(run.norms == runs[0].norms);
    assert_true(run.final == runs[0].final);
  }
  return runs[0];
}

void check_same(const Layout& layout, const Run& got, const Run& want, double tol) {
  assert_true(got.initial == want.initial);
  check_named(layout.name() + ": gradient", got.gradients, want.gradients, tol,
              1e-7 * want.norms[0]);
  for (size_t i = 0; i < want.losses.size(); ++i) {
    const std::string what = layout.name() + ": loss " + std::to_string(i);
    check_loss(what.c_str(), got.losses[i], want.losses[i], tol);
  }
}

// Every layout against one rank through plain operators.
void check_all(const std::string& config, nxd_dtype_t dtype, int steps, double tol) {
  const int before = nxd_test_failures();
  const Run want = run_layout(Layout{1, false, dtype, true}, config, steps, 7);
  assert_true(want.losses.back() < want.losses.front() - 0.1);
  for (const int tp : {1, 2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      const Layout layout{tp, sequence_parallel, dtype, false};
      check_same(layout, run_layout(layout, config, steps, 7), want, tol);
    }
  }
  assert_int_equal(nxd_test_failures(), before);
}

void f64_layouts(void**) { check_all(oracle().config, NXD_DTYPE_F64, 5, 1e-9); }

void f32_layouts(void**) { check_all(oracle().config, NXD_DTYPE_F32, 50, 5e-5); }

void tied_embeddings(void**) {
  check_all(config_with("tie_word_embeddings", true), NXD_DTYPE_F64, 3, 1e-9);
}

void biases(void**) {
  nlohmann::json config = nlohmann::json::parse(oracle().config);
  config["attention_bias"] = config["mlp_bias"] = true;
  check_all(config.dump(), NXD_DTYPE_F64, 3, 1e-9);
}

void scaled_rotary(void**) {
  const nlohmann::json rope = {{"rope_type", "yarn"},
                               {"factor", 4.0},
                               {"rope_theta", 10000.0},
                               {"original_max_position_embeddings", 64}};
  check_all(config_with("rope_parameters", rope), NXD_DTYPE_F64, 2, 1e-9);
  // The scaling must be seen at all.
  const Layout layout{1, false, NXD_DTYPE_F64, false};
  const Run plain = run_layout(layout, oracle().config, 1, 7);
  const Run scaled = run_layout(layout, config_with("rope_parameters", rope), 1, 7);
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
    // Of n draws the root of the mean square lies within 5 / sqrt(2 n) of the deviation.
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

// bf16 is no further from f64 on two ranks than on one, but for a factor of two.
void bf16_layouts(void**) {
  const auto losses = [&](const Layout& layout) {
    return run_layout(layout, oracle().config, 5, 7).losses;
  };
  const std::vector<double> exact = losses(Layout{1, false, NXD_DTYPE_F64});
  const auto distance = [&](const std::vector<double>& got) {
    double worst = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      worst = std::max(worst, std::fabs(got[i] - exact[i]));
    }
    return worst;
  };
  const double alone = distance(losses(Layout{1, false, NXD_DTYPE_BF16}));
  assert_true(alone < 0.03);
  for (const bool sequence_parallel : {false, true}) {
    const double split = distance(losses(Layout{2, sequence_parallel, NXD_DTYPE_BF16}));
    if (split > 2 * alone + 2e-3) fail_msg("%g on two ranks, %g on one", split, alone);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(initial_weights), cmocka_unit_test(f64_layouts),
      cmocka_unit_test(f32_layouts),     cmocka_unit_test(tied_embeddings),
      cmocka_unit_test(biases),          cmocka_unit_test(scaled_rotary),
      cmocka_unit_test(bf16_layouts),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
