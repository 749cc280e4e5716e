// Llama's forms against Hugging Face's models: Mistral with a window and one key head for all
// ranks, Qwen2 with biases, tied embeddings and a window in the last layer, Qwen3 with norms of
// heads whose features are more than hidden_size has for each.
#include "capi/model_oracle.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

const ModelOracle& oracle(const char* name) {
  static std::map<std::string, ModelOracle> oracles;
  return oracles.try_emplace(name, name).first->second;
}

void check_form(const char* name) {
  check_layouts(oracle(name), kF32, false);
  check_layouts(oracle(name), kF32, true);
  check_layouts(oracle(name), kF64, false);
}

void mistral(void**) { check_form("mistral_tiny"); }

void qwen2(void**) { check_form("qwen2_tiny"); }

void qwen3(void**) { check_form("qwen3_tiny"); }

// Heads, key heads, features of the MLP and a vocabulary that two and four ranks do not divide.
void qwen3_uneven(void**) {
  check_form("qwen3_uneven_tiny");
  check_saved_file(oracle("qwen3_uneven_tiny"));
}

void saved_as_hugging_face_does(void**) {
  check_saved_file(oracle("mistral_tiny"));
  Named got = check_saved_file(oracle("qwen2_tiny"));
  assert_int_equal(got.at("model.layers.1.self_attn.k_proj.bias").size(), 16);
  assert_int_equal(got.count("model.layers.1.self_attn.o_proj.bias"), 0);
  got = check_saved_file(oracle("qwen3_tiny"));
  assert_int_equal(got.at("model.layers.1.self_attn.q_norm.weight").size(), 12);
}

// A file of another form is none of this one: its names are more or fewer.
void files_of_other_forms(void**) {
  const auto refused = [](const char* name, const char* form, const char* part) {
    on_ranks<int>(Layout{}, 0, [&](nxd_context_t* ctx) {
      nlohmann::json config = nlohmann::json::parse(oracle(name).config);
      config["model_type"] = form;
      const Module model = create_model(ctx, config.dump(), Layout{});
      nxd_load_report_t* report = nullptr;
      const std::string file = oracle(name).directory + "/model.safetensors";
      NXD_TEST_REFUSED(nxd_module_load_safetensors(model.get(), file.c_str(), 1, &report),
                       NXD_ERROR_INVALID_ARGUMENT, part);
      nxd_load_report_destroy(report);
      return 0;
    });
  };
  refused("qwen2_tiny", "llama", "unexpected");
  refused("qwen3_tiny", "mistral", "unexpected");
  refused("mistral_tiny", "qwen2", "missing");
  refused("mistral_tiny", "qwen3", "missing");
}

// Attention's operations with and without a window: a query sees half of the window's keys in its
// first rows, all of them in the others.
void step_flops(void**) {
  const auto flops = [](const nlohmann::json& window, int64_t sequence) {
    nlohmann::json config = nlohmann::json::parse(oracle("mistral_tiny").config);
    config["sliding_window"] = window;
    return on_ranks<double>(Layout{}, 0, [&](nxd_context_t* ctx) {
      const Module model = create_model(ctx, config.dump(), Layout{});
      double out = 0;
      NXD_TEST_OK(nxd_model_get_step_flops(model.get(), 1, sequence, &out));
      return out;
    })[0];
  };
  assert_true(flops(32, 32) == flops(nullptr, 32));
  // 2 layers of 32 features, two products of 2 operations, three times; pairs that are left out.
  assert_true(flops(nullptr, 32) - flops(8, 32) == 3 * 2 * 32 * 4 * (24 * 24 / 2));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(mistral),
      cmocka_unit_test(qwen2),
      cmocka_unit_test(qwen3),
      cmocka_unit_test(qwen3_uneven),
      cmocka_unit_test(saved_as_hugging_face_does),
      cmocka_unit_test(files_of_other_forms),
      cmocka_unit_test(step_flops),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
