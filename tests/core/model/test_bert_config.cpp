// Parsing Hugging Face configurations of BERT: what the fields mean, and that every bad field is
// named.
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/error.h"
#include "core/model/bert_config.h"
#include "support/check.h"

namespace {

using nlohmann::json;
using nxd::BertConfig;

BertConfig parse(const json& changes) {
  json config = {{"model_type", "bert"},     {"hidden_size", 64},        {"num_hidden_layers", 3},
                 {"num_attention_heads", 4}, {"intermediate_size", 256}, {"vocab_size", 251},
                 {"is_decoder", false},      {"use_cache", true}};
  config.update(changes);
  return BertConfig::parse(config.dump());
}

void defaults(void**) {
  const BertConfig c = parse(json::object());
  assert_int_equal(c.hidden, 64);
  assert_int_equal(c.layers, 3);
  assert_int_equal(c.heads, 4);
  assert_int_equal(c.kv_heads, 4);
  assert_int_equal(c.head_dim, 16);
  assert_int_equal(c.intermediate, 256);
  assert_int_equal(c.vocabulary, 251);
  assert_int_equal(c.positions, 512);
  assert_int_equal(c.token_types, 2);
  assert_true(c.norm_eps == 1e-12 && c.initializer_range == 0.02);
  assert_true(c.attention_bias && c.output_bias && c.mlp_bias && c.norm_bias);
  assert_true(c.tied_embeddings && !c.causal && !c.gated_mlp);
  assert_int_equal(c.activation, NXD_ACTIVATION_GELU);
  assert_true(c.attention_dropout == 0.1 && c.hidden_dropout == 0.1);
  assert_int_equal(*c.padding_idx, 0);
}

void settings(void**) {
  const BertConfig c = parse({{"layer_norm_eps", 1e-3},
                              {"initializer_range", 0.5},
                              {"hidden_act", "gelu_new"},
                              {"tie_word_embeddings", false},
                              {"max_position_embeddings", 99},
                              {"type_vocab_size", 7},
                              {"pad_token_id", -1},
                              {"position_embedding_type", "absolute"},
                              {"attention_probs_dropout_prob", 0.25},
                              {"hidden_dropout_prob", 0.5}});
  assert_true(c.norm_eps == 1e-3 && c.initializer_range == 0.5);
  assert_int_equal(c.activation, NXD_ACTIVATION_GELU_TANH);
  assert_false(c.tied_embeddings);
  assert_int_equal(c.positions, 99);
  assert_int_equal(c.token_types, 7);
  assert_int_equal(*c.padding_idx, 250);
  assert_true(c.attention_dropout == 0.25 && c.hidden_dropout == 0.5);
  assert_false(parse({{"pad_token_id", nullptr}}).padding_idx.has_value());
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
      {{{"intermediate_size", nullptr}}, bad, "intermediate_size: expected"},
      {{{"vocab_size", -1}}, bad, "vocab_size: expected"},
      {{{"max_position_embeddings", 1.5}}, bad, "max_position_embeddings: expected"},
      {{{"type_vocab_size", 0}}, bad, "type_vocab_size: expected"},
      {{{"pad_token_id", 251}}, bad, "pad_token_id: expected a whole number of -251 to 250"},
      {{{"layer_norm_eps", -1e-5}}, bad, "layer_norm_eps: expected"},
      {{{"attention_probs_dropout_prob", 1}}, bad, "attention_probs_dropout_prob: expected a"},
      {{{"attention_probs_dropout_prob", 1.0000001}}, bad, "from 0 to below 1, got 1.0000001"},
      {{{"hidden_dropout_prob", -0.1}}, bad, "hidden_dropout_prob: expected a probability"},
      {{{"tie_word_embeddings", 1}}, bad, "tie_word_embeddings: expected true or false"},
      {{{"hidden_act", "tanh"}}, unsupported, "hidden_act: \"tanh\""},
      {{{"position_embedding_type", "relative_key"}},
       unsupported,
       "position_embedding_type: \"relative_key\""},
      {{{"is_decoder", true}}, unsupported, "is_decoder: a token sees all others"},
      {{{"is_causal", true}}, unsupported, "is_causal: a token sees all others"},
      {{{"add_cross_attention", true}}, unsupported, "add_cross_attention"},
      {{{"model_type", "roberta"}}, unsupported, "model_type: \"roberta\""},
      {{{"quantization_config", {{"bits", 4}}}}, unsupported, "quantization_config"},
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
      cmocka_unit_test(bad_fields),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
