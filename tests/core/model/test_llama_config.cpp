// Parsing Hugging Face configurations of Llama: what the fields mean, and that every bad field is
// named.
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/error.h"
#include "core/model/llama_config.h"
#include "support/check.h"

namespace {

using nlohmann::json;
using nxd::LlamaConfig;

json base() {
  return {{"model_type", "llama"},    {"hidden_size", 64},        {"num_hidden_layers", 4},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"intermediate_size", 176},
          {"vocab_size", 256},        {"pretraining_tp", 7},      {"unknown_field", {1, 2}}};
}

json with(const char* name, json value) {
  json config = base();
  config[name] = std::move(value);
  return config;
}

json with_scaling(json scaling) {
  json config = base();
  config["max_position_embeddings"] = 4096;
  config["rope_theta"] = 500000.0;
  config["rope_scaling"] = std::move(scaling);
  return config;
}

void defaults(void**) {
  const LlamaConfig c = LlamaConfig::parse(base().dump());
  assert_int_equal(c.hidden, 64);
  assert_int_equal(c.layers, 4);
  assert_int_equal(c.heads, 4);
  assert_int_equal(c.kv_heads, 2);
  assert_int_equal(c.head_dim, 16);
  assert_int_equal(c.intermediate, 176);
  assert_int_equal(c.vocabulary, 256);
  assert_int_equal(c.max_positions, 2048);
  assert_true(c.norm_eps == 1e-6 && c.initializer_range == 0.02);
  assert_false(c.tied_embeddings || c.attention_bias || c.mlp_bias);
  assert_int_equal(c.activation, NXD_ACTIVATION_SILU);
  assert_int_equal(c.rope.type, NXD_ROPE_DEFAULT);
  assert_true(c.rope.theta == 10000);
  assert_false(c.padding_idx.has_value());

  json without_kv = base();
  without_kv.erase("num_key_value_heads");
  assert_int_equal(LlamaConfig::parse(without_kv.dump()).kv_heads, 4);
  assert_int_equal(LlamaConfig::parse(with("num_key_value_heads", nullptr).dump()).kv_heads, 4);
  assert_int_equal(LlamaConfig::parse(with("head_dim", 24).dump()).head_dim, 24);
  assert_int_equal(*LlamaConfig::parse(with("pad_token_id", 0).dump()).padding_idx, 0);
  // As torch's Embedding counts it: from the end.
  assert_int_equal(*LlamaConfig::parse(with("pad_token_id", -1).dump()).padding_idx, 255);
  assert_int_equal(*LlamaConfig::parse(with("pad_token_id", -256).dump()).padding_idx, 0);
  assert_true(LlamaConfig::parse(with("rms_norm_eps", 0.0).dump()).norm_eps == 0);
  assert_true(LlamaConfig::parse(with("initializer_range", 0.0).dump()).initializer_range == 0);
  assert_int_equal(LlamaConfig::parse(with("hidden_act", "gelu_new").dump()).activation,
                   NXD_ACTIVATION_GELU_TANH);
  assert_true(LlamaConfig::parse(with("tie_word_embeddings", true).dump()).tied_embeddings);
}

json form(const char* type, json changes = {}) {
  json config = base();
  config["model_type"] = type;
  if (!changes.is_null()) config.update(changes);
  return config;
}

std::vector<int64_t> windows(const json& config) {
  return LlamaConfig::parse(config.dump()).windows;
}

// Biases and norms of Llama's forms, and lengths that they suppose.
void forms(void**) {
  LlamaConfig c = LlamaConfig::parse(form("qwen2").dump());
  assert_true(c.attention_bias);
  assert_false(c.output_bias || c.mlp_bias || c.head_norms || c.tied_embeddings);
  assert_int_equal(c.head_dim, 16);
  assert_int_equal(c.max_positions, 32768);

  c = LlamaConfig::parse(form("qwen3").dump());
  assert_true(c.head_norms);
  assert_false(c.attention_bias || c.output_bias || c.mlp_bias);
  assert_int_equal(c.head_dim, 128);
  c = LlamaConfig::parse(form("qwen3", {{"head_dim", 16}, {"attention_bias", true}}).dump());
  assert_true(c.attention_bias && c.output_bias && c.head_dim == 16);

  assert_int_equal(
      LlamaConfig::parse(form("qwen2", {{"num_key_value_heads", nullptr}}).dump()).kv_heads, 4);
  c = LlamaConfig::parse(form("mistral").dump());
  assert_false(c.attention_bias || c.output_bias || c.mlp_bias || c.head_norms);
  assert_int_equal(c.max_positions, 131072);
  // transformers passes these over.
  c = LlamaConfig::parse(
      form("mistral", {{"attention_bias", true}, {"mlp_bias", true}, {"use_sliding_window", false}})
          .dump());
  assert_false(c.attention_bias || c.output_bias || c.mlp_bias);
  assert_int_equal(c.window, 4096);

  c = LlamaConfig::parse(with("attention_bias", true).dump());
  assert_true(c.attention_bias && c.output_bias);
}

void sliding_windows(void**) {
  using Windows = std::vector<int64_t>;
  const Windows none(4, 0);
  assert_true(windows(with("sliding_window", 7)) == none);
  assert_true(windows(form("mistral")) == Windows(4, 4096));
  assert_true(windows(form("mistral", {{"sliding_window", nullptr}})) == none);
  assert_true(windows(form("mistral", {{"sliding_window", 7}})) == Windows(4, 7));
  for (const char* type : {"qwen2", "qwen3"}) {
    json on = form(type, {{"use_sliding_window", true}, {"sliding_window", 7}});
    assert_true(windows(form(type, {{"sliding_window", 7}, {"max_window_layers", 0}})) == none);
    assert_true(windows(on) == none);  // from layer 28 on
    on["max_window_layers"] = 3;
    assert_true(windows(on) == Windows({0, 0, 0, 7}));
    on["max_window_layers"] = 0;
    assert_true(windows(on) == Windows(4, 7));
    on["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention",
                         "full_attention"};
    assert_true(windows(on) == Windows({7, 0, 7, 0}));
    const LlamaConfig c = LlamaConfig::parse(on.dump());
    assert_true(c.window == 7 && c.window_layers == 2);
    on["sliding_window"] = nullptr;
    on.erase("layer_types");
    assert_true(windows(on) == none);
    on.erase("sliding_window");
    assert_true(windows(on) == Windows(4, 4096));
  }
}

void rope_forms(void**) {
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  LlamaConfig c = LlamaConfig::parse(with_scaling(llama3).dump());
  assert_int_equal(c.rope.type, NXD_ROPE_LLAMA3);
  assert_true(c.rope.theta == 500000 && c.rope.factor == 8 && c.rope.low_freq_factor == 1 &&
              c.rope.high_freq_factor == 4 && c.rope.original_max_position_embeddings == 8192);

  json modern = base();
  modern["rope_parameters"] = llama3;
  modern["rope_parameters"]["rope_theta"] = 250000;
  c = LlamaConfig::parse(modern.dump());
  assert_true(c.rope.type == NXD_ROPE_LLAMA3 && c.rope.theta == 250000);

  c = LlamaConfig::parse(with_scaling({{"type", "linear"}, {"factor", 4}}).dump());
  assert_true(c.rope.type == NXD_ROPE_LINEAR && c.rope.factor == 4);

  // Hugging Face stretches from the model's own length, whatever the scaling says.
  c = LlamaConfig::parse(with_scaling({{"rope_type", "dynamic"}, {"factor", 2}}).dump());
  assert_true(c.rope.type == NXD_ROPE_DYNAMIC && c.rope.original_max_position_embeddings == 4096);

  c = LlamaConfig::parse(
      with_scaling({{"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", 16}}).dump());
  assert_true(c.rope.type == NXD_ROPE_YARN && c.rope.beta_fast == 16 && c.rope.beta_slow == 1 &&
              c.rope.attention_factor == 0 && c.rope.original_max_position_embeddings == 4096);
  c = LlamaConfig::parse(
      with_scaling({{"rope_type", "yarn"}, {"factor", 40}, {"mscale", 1}, {"mscale_all_dim", 0.5}})
          .dump());
  assert_true(c.rope.truncate);
  const double l = 0.1 * std::log(40.0);
  assert_true(std::fabs(c.rope.attention_factor - (l + 1) / (0.5 * l + 1)) < 1e-15);
  c = LlamaConfig::parse(
      with_scaling({{"rope_type", "yarn"}, {"factor", 2}, {"truncate", false}}).dump());
  assert_true(!c.rope.truncate);
}

// Files with fields of both ages, as transformers reads them.
void rope_of_both_ages(void**) {
  const auto parse = [](json changes) {
    json config = base();
    config["max_position_embeddings"] = 4096;
    config.update(changes);
    return LlamaConfig::parse(config.dump()).rope;
  };
  const json linear = {{"rope_type", "linear"}, {"factor", 4.0}};
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"rope_theta", 7000}};
  // The older name wins, with none of the newer one's fields, unless it is empty.
  nxd::RopeOptions rope = parse({{"rope_scaling", linear}, {"rope_parameters", llama3}});
  assert_true(rope.type == NXD_ROPE_LINEAR && rope.factor == 4 && rope.theta == 10000);
  rope = parse({{"rope_scaling", json::object()}, {"rope_parameters", llama3}});
  assert_true(rope.type == NXD_ROPE_LLAMA3 && rope.theta == 7000);
  rope = parse({{"rope_scaling", linear}, {"rope_parameters", json::object()}});
  assert_true(rope.type == NXD_ROPE_LINEAR && rope.factor == 4);
  rope = parse({{"rope_scaling", linear}, {"rope_theta", 9000}});
  assert_true(rope.type == NXD_ROPE_LINEAR && rope.theta == 9000);
  rope = parse({{"rope_parameters", json::object()}});
  assert_true(rope.type == NXD_ROPE_DEFAULT && rope.theta == 10000);

  // The length that the model was trained for may stand at the top, and then that is it.
  json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
  for (json scaling : {llama3, yarn}) {
    assert_int_equal(parse({{"rope_scaling", scaling}}).original_max_position_embeddings, 4096);
    assert_int_equal(parse({{"rope_scaling", scaling}, {"original_max_position_embeddings", 512}})
                         .original_max_position_embeddings,
                     512);
    scaling["original_max_position_embeddings"] = 1024;
    assert_int_equal(parse({{"rope_scaling", scaling}}).original_max_position_embeddings, 1024);
    assert_int_equal(parse({{"rope_scaling", scaling}, {"original_max_position_embeddings", 512}})
                         .original_max_position_embeddings,
                     512);
  }
}

void expect(const std::string& text, nxd_status_t status, const char* part) {
  try {
    LlamaConfig::parse(text);
  } catch (const nxd::Error& error) {
    assert_int_equal(error.status(), status);
    if (std::string(error.what()).find(part) != std::string::npos) return;
    fail_msg("expected \"%s\" in \"%s\"", part, error.what());
  }
  fail_msg("expected a refusal with \"%s\" of %s", part, text.c_str());
}

void bad_fields(void**) {
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
  expect("", bad, "expected JSON");
  expect("{\"model_type\": ", bad, "expected JSON");
  expect("[1]", bad, "expected an object");
  for (const char* name : {"hidden_size", "num_hidden_layers", "num_attention_heads",
                           "intermediate_size", "vocab_size"}) {
    json missing = base();
    missing.erase(name);
    expect(missing.dump(), bad, name);
    expect(with(name, 0).dump(), bad, name);
    expect(with(name, -3).dump(), bad, name);
    expect(with(name, 1.5).dump(), bad, name);
    expect(with(name, "64").dump(), bad, name);
    expect(with(name, true).dump(), bad, name);
    expect(with(name, uint64_t{1} << 63).dump(), bad, name);
  }
  expect(with("num_key_value_heads", 3).dump(), bad, "num_key_value_heads");
  expect(with("num_attention_heads", 6).dump(), bad, "divisor of hidden_size (64)");
  expect(with("head_dim", 15).dump(), bad, "head_dim");
  expect(with("rms_norm_eps", -1e-5).dump(), bad, "rms_norm_eps: expected a number of at least 0");
  expect(with("num_hidden_layers", 1025).dump(), bad,
         "num_hidden_layers: expected a whole number of 1 to 1024, got 1025");
  for (const char* name :
       {"hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size",
        "vocab_size", "head_dim", "max_position_embeddings"}) {
    const std::string part = std::string(name) + ": expected a whole number of 1 to 16777216, got ";
    expect(with(name, int64_t{1} << 31).dump(), bad, (part + "2147483648").c_str());
    expect(with(name, (1 << 24) + 1).dump(), bad, (part + "16777217").c_str());
  }
  expect(with("hidden_size", "a\x1b[31m").dump(), bad, "got \"a\\u001b[31m\"");
  expect("\xef\xbb\xbf" + base().dump(), bad, "byte-order mark");
  expect(base().dump() + std::string("\0x", 2), bad, "NUL");
  expect(base().dump() + " x", bad, "expected JSON");
  expect(with("rms_norm_eps", "1e-5").dump(), bad, "rms_norm_eps");
  expect(with("initializer_range", -0.02).dump(), bad, "initializer_range");
  expect(with("tie_word_embeddings", 1).dump(), bad, "tie_word_embeddings");
  expect(with("pad_token_id", 256).dump(), bad, "pad_token_id");
  expect(with("pad_token_id", -257).dump(), bad, "pad_token_id");
  expect(with("rope_theta", 0).dump(), bad, "rope_theta");
  expect(with("rope_scaling", 3).dump(), bad, "rope_scaling");
  expect(with_scaling({{"type", "linear"}}).dump(), bad, "rope_scaling.factor");
  expect(with_scaling({{"type", "linear"}, {"factor", 0.5}}).dump(), bad, "rope_scaling.factor");
  expect(with_scaling({{"type", "llama3"}, {"factor", 2}}).dump(), bad, "low_freq_factor");
  json two = {{"type", "linear"}, {"rope_type", "dynamic"}, {"factor", 2}};
  expect(with_scaling(two).dump(), bad, "rope_scaling.type are names of one field");
  two["rope_type"] = "linear";
  assert_int_equal(LlamaConfig::parse(with_scaling(two).dump()).rope.type, NXD_ROPE_LINEAR);
}

void unknown_names(void**) {
  const nxd_status_t no = NXD_ERROR_UNSUPPORTED;
  expect(with("model_type", "mamba").dump(), no, "known are: llama");
  expect(with("hidden_act", "mish").dump(), no, "silu, swish, gelu");
  expect(with_scaling({{"rope_type", "longrope"}}).dump(), no, "default, linear, dynamic");
  expect(with("attention_dropout", 0.1).dump(), no, "attention_dropout");
  expect(with_scaling({{"type", "default"}, {"partial_rotary_factor", 0.5}}).dump(), no,
         "partial_rotary_factor");
}

void bad_forms(void**) {
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT, no = NXD_ERROR_UNSUPPORTED;
  expect(with("model_type", "qwen2_moe").dump(), no, "known are: llama, mistral, qwen2, qwen3");
  for (const char* type : {"mistral", "qwen2", "qwen3"}) {
    json missing = form(type);
    missing.erase("num_key_value_heads");
    expect(missing.dump(), bad, "num_key_value_heads: expected a positive whole number");
    expect(form(type, {{"attention_dropout", 0.1}}).dump(), no, "attention_dropout");
    expect(form(type, {{"partial_rotary_factor", 0.5}}).dump(), no, "partial_rotary_factor");
    json on = form(type, {{"use_sliding_window", true}, {"sliding_window", 0}});
    expect(on.dump(), bad, "sliding_window: expected a whole number of 1 to 16777216, got 0");
  }
  expect(form("qwen3", {{"attention_bias", 1}}).dump(), bad, "attention_bias");
  expect(form("qwen2", {{"use_sliding_window", 1}}).dump(), bad, "use_sliding_window");
  json on = form("qwen2", {{"use_sliding_window", true}, {"max_window_layers", -1}});
  expect(on.dump(), bad, "max_window_layers: expected a whole number of 0 to 16777216, got -1");
  const auto types = [](json list, bool window) {
    return form("qwen3", {{"layer_types", std::move(list)}, {"use_sliding_window", window}}).dump();
  };
  const json::array_t full(4, "full_attention");
  assert_int_equal(LlamaConfig::parse(types(full, false)).window_layers, 0);
  expect(types(json::array_t(3, "full_attention"), false), bad,
         "layer_types: expected a type of each of the 4 layers, got 3");
  expect(types("full_attention", false), bad, "layer_types: expected a list of strings");
  expect(types({1, 2, 3, 4}, false), bad, "layer_types: expected a list of strings");
  expect(types(json::array_t(4, "sliding_attention"), false), bad,
         "layer_types: sliding_attention needs use_sliding_window and a sliding_window");
  expect(types(json::array_t(4, "linear_attention"), true), no,
         "layer_types: \"linear_attention\" is not known; known are: full_attention, sliding_");
}

// By these transformers would make another model, or read other weights.
void other_models(void**) {
  const nxd_status_t no = NXD_ERROR_UNSUPPORTED;
  expect(with("is_causal", false).dump(), no, "is_causal");
  expect(with("quantization_config", {{"quant_method", "fp8"}}).dump(), no, "quantization_config");
  expect(with("per_layer_config", {{"0", {{"intermediate_size", 8}}}}).dump(), no,
         "per_layer_config");
  expect(with("pruned_heads", {{"1", {0}}}).dump(), no, "pruned_heads");
  expect(with("is_encoder_decoder", true).dump(), no, "is_encoder_decoder");
  expect(with("add_cross_attention", true).dump(), no, "add_cross_attention");
  expect(with("transformers_weights", "other.safetensors").dump(), no, "transformers_weights");
  expect(with("partial_rotary_factor", 0.5).dump(), no, "partial_rotary_factor");
  expect(with("rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}).dump(), no,
         "rope_parameters.full_attention");
  json harmless = base();
  harmless.update({{"is_causal", true},
                   {"quantization_config", nullptr},
                   {"per_layer_config", json::object()},
                   {"pruned_heads", json::object()},
                   {"is_encoder_decoder", false},
                   {"add_cross_attention", false},
                   {"transformers_weights", nullptr},
                   {"chunk_size_feed_forward", 3},
                   {"use_cache", false},
                   {"partial_rotary_factor", 1.0}});
  assert_int_equal(LlamaConfig::parse(harmless.dump()).hidden, 64);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(defaults),      cmocka_unit_test(rope_forms),
      cmocka_unit_test(forms),         cmocka_unit_test(sliding_windows),
      cmocka_unit_test(bad_forms),     cmocka_unit_test(rope_of_both_ages),
      cmocka_unit_test(bad_fields),    cmocka_unit_test(other_models),
      cmocka_unit_test(unknown_names),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
