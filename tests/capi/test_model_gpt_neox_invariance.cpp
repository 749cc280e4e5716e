// No layout changes a GPT-NeoX: initial bits, dropout and training are the same on every one.
#include "capi/model_invariance.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

const ModelOracle& oracle() {
  static const ModelOracle value("gpt_neox_tiny");
  return value;
}

void f64_layouts(void**) { check_all(oracle(), oracle().config, NXD_DTYPE_F64, 8, 1e-9); }

// NXD_LONG=1: more steps.
void f32_layouts(void**) {
  check_all(oracle(), oracle().config, NXD_DTYPE_F32, is_long() ? 20 : 8, 1e-5);
}

nlohmann::json rope_of(const nlohmann::json& changes) {
  nlohmann::json rope = nlohmann::json::parse(oracle().config)["rope_parameters"];
  rope.update(changes);
  return {{"rope_parameters", rope}};
}

void other_settings(void**) {
  check_settings(oracle(), {{{"use_parallel_residual", false}},
                            {{"attention_bias", false}, {"vocab_size", 259}},
                            {{"tie_word_embeddings", true}},
                            {{"hidden_act", "relu"}},
                            {{"intermediate_size", 128}},
                            {{"layer_norm_eps", 0.1}},
                            rope_of({{"partial_rotary_factor", 1.0}}),
                            rope_of({{"rope_theta", 100}}),
                            rope_of({{"rope_type", "linear"}, {"factor", 4.0}})});
}

void dropout(void**) { check_dropout(oracle(), {"attention_dropout", "hidden_dropout"}); }

// As Hugging Face draws them: all matrices alike.
void initial_weights(void**) {
  const Named first = on_ranks<Named>(Layout{2}, 1, [&](nxd_context_t* ctx) {
    return whole_parameters(create_model(ctx, oracle().config, Layout{2}).get());
  })[0];
  for (const auto& [name, v] : first) {
    const bool is_bias = name.ends_with(".bias");
    if (is_bias || name.find("norm") != std::string::npos) {
      for (const double x : v) assert_true(x == (is_bias ? 0 : 1));
      continue;
    }
    // The root mean square of n draws lies within 5 / sqrt(2 n) of the deviation.
    const auto n = static_cast<double>(v.size());
    const double got = norm(v) / std::sqrt(n);
    if (!(std::fabs(got - 0.02) <= 0.1 / std::sqrt(2 * n))) fail_msg("%s: %g", name.c_str(), got);
  }
}

void key_mask(void**) { check_key_mask(oracle()); }

void bf16_layouts(void**) { check_bf16(oracle()); }

// Rejected on all ranks, before any of them communicates.
void bad_calls(void**) {
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
  const Layout layout{2, true};
  on_ranks<int>(layout, 7, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle().config, layout);
    const auto refused = [&](const Tensor& ids, const Tensor& labels, const Tensor& mask,
                             const char* part) {
      nxd_tensor_t* inputs[] = {ids.get(), labels.get(), mask.get()};
      nxd_tensor_t* out = nullptr;
      NXD_TEST_REFUSED(nxd_module_forward(model.get(), inputs, 3, &out, 1), bad, part);
      NXD_TEST_CHECK(out == nullptr);
    };
    const auto ones = [](std::vector<int64_t> shape) {
      return make_i64(std::vector<int64_t>(static_cast<size_t>(shape[0] * shape[1]), 1), shape);
    };
    refused(make_i64({256, 1}, {1, 2}), nullptr, nullptr, "expected ids from 0 to 255");
    refused(ones({1, 8}), ones({1, 4}), nullptr, "the shape of the ids");
    refused(ones({1, 8}), nullptr, ones({2, 8}), "key mask");
    return 0;
  });
  on_ranks<int>(Layout{4}, 7, [&](nxd_context_t* ctx) {
    nxd_module_t* out = nullptr;
    for (const auto& [field, size] :
         {std::pair{"num_attention_heads", 2}, std::pair{"intermediate_size", 3}}) {
      const std::string config = config_with(oracle(), field, size);
      NXD_TEST_REFUSED(nxd_model_create(ctx, config.c_str(), nullptr, &out), bad, field);
    }
    return 0;
  });
}

void odd_sequences(void**) {
  check_odd_sequences(oracle(), nlohmann::json::object(), {"attention_dropout", "hidden_dropout"});
}

// Six heads, and an MLP's features, of two and four ranks.
void uneven_sizes(void**) {
  check_uneven(oracle(),
               {{"hidden_size", 60}, {"num_attention_heads", 6}, {"intermediate_size", 83}},
               {"attention_dropout", "hidden_dropout"});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(initial_weights), cmocka_unit_test(f64_layouts),
      cmocka_unit_test(f32_layouts),     cmocka_unit_test(other_settings),
      cmocka_unit_test(dropout),         cmocka_unit_test(key_mask),
      cmocka_unit_test(bf16_layouts),    cmocka_unit_test(bad_calls),
      cmocka_unit_test(odd_sequences),   cmocka_unit_test(uneven_sizes),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
