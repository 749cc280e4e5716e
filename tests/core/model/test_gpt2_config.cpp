// Parsing Hugging Face configurations of GPT-2: what the fields mean, and that every bad field is
// named.
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/error.h"
#include "core/model/gpt2_config.h"
#include "support/check.h"

namespace {

using nlohmann::json;
using nxd::Gpt2Config;

json with(const json& changes) {
  json config = {{"model_type", "gpt2"}, {"n_embd", 64},        {"n_layer", 3},
                 {"n_head", 4},          {"vocab_size", 251},   {"n_ctx", 1024},
                 {"bos_token_id", 1},    {"summary_type", "x"}, {"use_cache", true}};
  config.update(changes);
  return config;
}

Gpt2Config parse(const json& changes) { return Gpt2Config::parse(with(changes).dump()); }

void defaults(void**) {
  const Gpt2Config c = parse(json::object());
  assert_int_equal(c.hidden, 64);
  assert_int_equal(c.layers, 3);
  assert_int_equal(c.heads, 4);
  assert_int_equal(c.intermediate, 256);
  assert_int_equal(c.vocabulary, 251);
  assert_int_equal(c.positions, 1024);
  assert_true(c.norm_eps == 1e-5 && c.initializer_range == 0.02);
  assert_true(c.tied_embeddings && c.scale_by_head_dim && !c.scale_by_layer_index);
  assert_int_equal(c.activation, NXD_ACTIVATION_GELU_TANH);
  assert_true(c.embedding_dropout == 0.1 && c.attention_dropout == 0.1);
  assert_true(c.residual_dropout == 0.1);
}

void settings(void**) {
  const Gpt2Config c = parse({{"n_inner", 100},
                              {"n_positions", 48},
                              {"layer_norm_epsilon", 1e-3},
                              {"initializer_range", 0.5},
                              {"activation_function", "gelu"},
                              {"tie_word_embeddings", false},
                              {"scale_attn_weights", false},
                              {"scale_attn_by_inverse_layer_idx", true},
                              {"reorder_and_upcast_attn", true},
                              {"embd_pdrop", 0},
                              {"attn_pdrop", 0.25},
                              {"resid_pdrop", 0.5}});
  assert_int_equal(c.intermediate, 100);
  assert_int_equal(c.positions, 48);
  assert_true(c.norm_eps == 1e-3 && c.initializer_range == 0.5);
  assert_int_equal(c.activation, NXD_ACTIVATION_GELU);
  assert_true(!c.tied_embeddings && !c.scale_by_head_dim && c.scale_by_layer_index);
  assert_true(c.embedding_dropout == 0 && c.attention_dropout == 0.25);
  assert_true(c.residual_dropout == 0.5);
  assert_int_equal(parse({{"n_inner", nullptr}}).intermediate, 256);
  assert_true(parse({{"layer_norm_epsilon", 0.0}}).norm_eps == 0);
  // The names that all families have stand for GPT-2's own.
  const Gpt2Config other = parse({{"n_embd", nullptr},
                                  {"hidden_size", 32},
                                  {"n_layer", nullptr},
                                  {"num_hidden_layers", 2},
                                  {"n_head", 2},
                                  {"num_attention_heads", 2},
                                  {"max_position_embeddings", 99}});
  assert_true(other.hidden == 32 && other.layers == 2 && other.heads == 2);
  assert_int_equal(other.positions, 99);
}

void bad_fields(void**) {
  const struct {
    json changes;
    nxd_status_t status;
    const char* message;
  } cases[] = {
      {{{"n_embd", nullptr}}, NXD_ERROR_INVALID_ARGUMENT, "n_embd: expected"},
      {{{"n_layer", 0}}, NXD_ERROR_INVALID_ARGUMENT, "n_layer: expected"},
      {{{"n_head", 5}}, NXD_ERROR_INVALID_ARGUMENT, "n_head: expected a divisor of n_embd (64)"},
      {{{"n_inner", "many"}}, NXD_ERROR_INVALID_ARGUMENT, "n_inner: expected"},
      {{{"vocab_size", -1}}, NXD_ERROR_INVALID_ARGUMENT, "vocab_size: expected"},
      {{{"n_positions", 1.5}}, NXD_ERROR_INVALID_ARGUMENT, "n_positions: expected"},
      {{{"n_layer", 1025}},
       NXD_ERROR_INVALID_ARGUMENT,
       "n_layer: expected a whole number of 1 to 1024"},
      {{{"num_hidden_layers", 1 << 30}},
       NXD_ERROR_INVALID_ARGUMENT,
       "n_layer and num_hidden_layers"},
      {{{"num_attention_heads", 8}},
       NXD_ERROR_INVALID_ARGUMENT,
       "n_head and num_attention_heads are names of one field: expected one value, got 4 and 8"},
      {{{"hidden_size", 32}}, NXD_ERROR_INVALID_ARGUMENT, "n_embd and hidden_size"},
      {{{"n_positions", 8}, {"max_position_embeddings", 9}},
       NXD_ERROR_INVALID_ARGUMENT,
       "n_positions and max_position_embeddings"},
      {{{"is_causal", false}}, NXD_ERROR_UNSUPPORTED, "is_causal"},
      {{{"quantization_config", {{"bits", 4}}}}, NXD_ERROR_UNSUPPORTED, "quantization_config"},
      {{{"layer_norm_epsilon", -1e-5}}, NXD_ERROR_INVALID_ARGUMENT, "layer_norm_epsilon: expected"},
      {{{"attn_pdrop", 1}}, NXD_ERROR_INVALID_ARGUMENT, "attn_pdrop: expected a probability"},
      {{{"embd_pdrop", -0.1}}, NXD_ERROR_INVALID_ARGUMENT, "embd_pdrop: expected a probability"},
      {{{"scale_attn_weights", 1}}, NXD_ERROR_INVALID_ARGUMENT, "scale_attn_weights: expected"},
      {{{"activation_function", "tanh"}}, NXD_ERROR_UNSUPPORTED, "activation_function: \"tanh\""},
      {{{"model_type", "gptj"}}, NXD_ERROR_UNSUPPORTED, "model_type: \"gptj\""},
      {{{"add_cross_attention", true}}, NXD_ERROR_UNSUPPORTED, "add_cross_attention"},
  };
  for (const auto& bad : cases) {
    try {
      parse(bad.changes);
      fail_msg("%s was taken", bad.changes.dump().c_str());
    } catch (const nxd::Error& error) {
      assert_int_equal(error.status(), bad.status);
      if (!std::strstr(error.what(), bad.message)) fail_msg("%s", error.what());
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(defaults),
      cmocka_unit_test(settings),
      cmocka_unit_test(bad_fields),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
