// Parsing Hugging Face configurations of GPT-NeoX: what the fields mean, and that every bad field
// is named.
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/error.h"
#include "core/model/gpt_neox_config.h"
#include "support/check.h"

namespace {

using nlohmann::json;
using nxd::GptNeoxConfig;

GptNeoxConfig parse(const json& changes) {
  json config = {
      {"model_type", "gpt_neox"}, {"hidden_size", 64},        {"num_hidden_layers", 3},
      {"num_attention_heads", 4}, {"intermediate_size", 256}, {"vocab_size", 251},
      {"is_decoder", false},      {"bos_token_id", 0},        {"classifier_dropout", 0.1}};
  config.update(changes);
  return GptNeoxConfig::parse(config.dump());
}

void defaults(void**) {
  const GptNeoxConfig c = parse(json::object());
  assert_int_equal(c.hidden, 64);
  assert_int_equal(c.layers, 3);
  assert_int_equal(c.heads, 4);
  assert_int_equal(c.kv_heads, 4);
  assert_int_equal(c.head_dim, 16);
  assert_int_equal(c.intermediate, 256);
  assert_int_equal(c.vocabulary, 251);
  assert_int_equal(c.positions, 0);
  assert_true(c.norm_eps == 1e-5 && c.initializer_range == 0.02);
  assert_true(c.parallel_residual && c.attention_bias && c.output_bias && c.mlp_bias);
  assert_true(c.norm_bias && !c.tied_embeddings && !c.gated_mlp);
  assert_int_equal(c.activation, NXD_ACTIVATION_GELU);
  assert_true(c.attention_dropout == 0 && c.hidden_dropout == 0);
  assert_int_equal(c.rope.type, NXD_ROPE_DEFAULT);
  assert_int_equal(c.rope.rotary_dim, 4);
  assert_true(c.rope.theta == 10000);
}

void settings(void**) {
  const GptNeoxConfig c = parse({{"layer_norm_eps", 1e-3},
                                 {"initializer_range", 0.5},
                                 {"hidden_act", "gelu_fast"},
                                 {"tie_word_embeddings", true},
                                 {"use_parallel_residual", false},
                                 {"attention_bias", false},
                                 {"attention_dropout", 0.25},
                                 {"hidden_dropout", 0.5}});
  assert_true(c.norm_eps == 1e-3 && c.initializer_range == 0.5);
  assert_int_equal(c.activation, NXD_ACTIVATION_GELU_TANH);
  assert_true(c.tied_embeddings && !c.parallel_residual);
  assert_false(c.attention_bias || c.output_bias);
  assert_true(c.attention_dropout == 0.25 && c.hidden_dropout == 0.5);
}

// Both generations of files.
void rotary(void**) {
  const nxd::RopeOptions old = parse({{"rotary_pct", 0.5},
                                      {"rotary_emb_base", 5000},
                                      {"max_position_embeddings", 512},
                                      {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}})
                                   .rope;
  assert_int_equal(old.rotary_dim, 8);
  assert_int_equal(old.type, NXD_ROPE_DYNAMIC);
  assert_int_equal(old.original_max_position_embeddings, 512);
  assert_true(old.theta == 5000 && old.factor == 2);
  const json parameters = {
      {"rope_type", "linear"}, {"factor", 3}, {"rope_theta", 7000}, {"partial_rotary_factor", 1.0}};
  const nxd::RopeOptions rope = parse({{"rope_parameters", parameters}}).rope;
  assert_int_equal(rope.rotary_dim, 16);
  assert_int_equal(rope.type, NXD_ROPE_LINEAR);
  assert_true(rope.theta == 7000 && rope.factor == 3);
  // A share is rounded down to whole features, as in transformers.
  assert_int_equal(parse({{"rotary_pct", 0.13}}).rope.rotary_dim, 2);
  // Two names of one value.
  assert_int_equal(parse({{"rotary_pct", 1}, {"rope_parameters", parameters}}).rope.rotary_dim, 16);
  assert_true(parse({{"rotary_emb_base", 5}, {"rope_theta", 5}}).rope.theta == 5);
  assert_int_equal(parse({{"rotary_pct", 0.5}, {"partial_rotary_factor", 0.5}}).rope.rotary_dim, 8);
}

void bad_fields(void**) {
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT, unsupported = NXD_ERROR_UNSUPPORTED;
  const struct {
    json changes;
    nxd_status_t status;
    const char* message;
  } cases[] = {
      {{{"hidden_size", nullptr}}, bad, "hidden_size: expected"},
      {{{"num_hidden_layers", 0}}, bad, "num_hidden_layers: expected"},
      {{{"num_attention_heads", 5}}, bad, "expected a divisor of hidden_size (64), got 5"},
      {{{"head_dim", 8}}, bad, "hidden_size / num_attention_heads, 16, got 8"},
      {{{"intermediate_size", nullptr}}, bad, "intermediate_size: expected"},
      {{{"vocab_size", -1}}, bad, "vocab_size: expected"},
      {{{"layer_norm_eps", -1e-5}}, bad, "layer_norm_eps: expected"},
      {{{"attention_dropout", 1}}, bad, "attention_dropout: expected a probability"},
      {{{"hidden_dropout", -0.1}}, bad, "hidden_dropout: expected a probability"},
      {{{"use_parallel_residual", 1}}, bad, "use_parallel_residual: expected true or false"},
      {{{"attention_bias", "no"}}, bad, "attention_bias: expected true or false"},
      {{{"attention_bias", nullptr}}, bad, "attention_bias: expected true or false, got null"},
      {{{"rotary_pct", 0}}, bad, "rotary_pct: expected a positive number"},
      {{{"rotary_pct", 0.2}}, bad, "rotary_pct: expected a share"},  // 3 features
      {{{"rotary_pct", 0.05}}, bad, "rotary_pct: expected a share"},
      {{{"rotary_pct", 1.1}}, bad, "rotary_pct: expected a share"},
      {{{"rotary_pct", 0.5}, {"rope_parameters", {{"partial_rotary_factor", 0.25}}}},
       bad,
       "rope_parameters.partial_rotary_factor: expected the value of rotary_pct, 0.5, got 0.25"},
      {{{"partial_rotary_factor", 0.5}, {"rope_parameters", {{"partial_rotary_factor", 0.25}}}},
       bad,
       "partial_rotary_factor: expected the value of rotary_pct, 0.25, got 0.5"},
      {{{"partial_rotary_factor", 0.5}},
       bad,
       "partial_rotary_factor: expected the value of rotary_pct, 0.25, got 0.5"},
      {{{"rotary_emb_base", 100}, {"rope_theta", 200}},
       bad,
       "rope_theta: expected the value of rotary_emb_base, 100, got 200"},
      {{{"rope_theta", 200}},
       bad,
       "rope_theta: expected the value of rotary_emb_base, 10000, got 200"},
      {{{"rotary_emb_base", -1}}, bad, "rotary_emb_base: expected a positive number"},
      {{{"rope_scaling", {{"type", "longrope"}}}}, unsupported, "rope_scaling.type: \"longrope\""},
      {{{"hidden_act", "tanh"}}, unsupported, "hidden_act: \"tanh\""},
      {{{"model_type", "gpt_neox_japanese"}}, unsupported, "model_type: \"gpt_neox_japanese\""},
      {{{"is_causal", false}}, unsupported, "is_causal"},
      {{{"quantization_config", {{"bits", 4}}}}, unsupported, "quantization_config"},
      {{{"pruned_heads", {{"0", {1}}}}}, unsupported, "pruned_heads"},
  };
  for (const auto& bad_case : cases) {
    try {
      parse(bad_case.changes);
      fail_msg("%s was taken", bad_case.changes.dump().c_str());
    } catch (const nxd::Error& error) {
      assert_int_equal(error.status(), bad_case.status);
      if (!std::strstr(error.what(), bad_case.message)) fail_msg("%s", error.what());
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(defaults),
      cmocka_unit_test(settings),
      cmocka_unit_test(rotary),
      cmocka_unit_test(bad_fields),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
