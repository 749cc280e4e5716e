// No layout changes a GPT-2: initial bits, dropout and training are the same on every one.
#include "capi/model_invariance.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

const ModelOracle& oracle() {
  static const ModelOracle value("gpt2_tiny");
  return value;
}

std::string config_of(const nlohmann::json& changes) {
  return nxd_test::config_of(oracle(), changes);
}

void f64_layouts(void**) { check_all(oracle(), oracle().config, NXD_DTYPE_F64, 8, 1e-9); }

// NXD_LONG=1: more steps.
void f32_layouts(void**) {
  check_all(oracle(), oracle().config, NXD_DTYPE_F32, is_long() ? 20 : 8, 1e-5);
}

void untied_head(void**) {
  check_all(oracle(), config_of({{"tie_word_embeddings", false}}), NXD_DTYPE_F64, 8, 1e-9);
}

void other_settings(void**) {
  check_settings(oracle(), {{{"activation_function", "relu"}},
                            {{"scale_attn_weights", false}, {"initializer_range", 0.3}},
                            {{"scale_attn_by_inverse_layer_idx", true}},
                            {{"n_inner", 128}},
                            {{"layer_norm_epsilon", 0.1}}});
}

void dropout(void**) { check_dropout(oracle(), {"embd_pdrop", "attn_pdrop", "resid_pdrop"}); }

// As Hugging Face draws them: what adds to the residual is smaller by sqrt(2 layers).
void initial_weights(void**) {
  const Named first = on_ranks<Named>(Layout{2}, 1, [&](nxd_context_t* ctx) {
    return whole_parameters(create_model(ctx, oracle().config, Layout{2}).get());
  })[0];
  for (const auto& [name, v] : first) {
    const bool is_bias = name.ends_with(".bias");
    if (is_bias || name.find("ln_") != std::string::npos) {
      for (const double x : v) assert_true(x == (is_bias ? 0 : 1));
      continue;
    }
    // The root mean square of n draws lies within 5 / sqrt(2 n) of the deviation.
    const auto n = static_cast<double>(v.size());
    const double want = name.find("c_proj") != std::string::npos ? 0.02 / std::sqrt(6.0) : 0.02;
    const double got = norm(v) / std::sqrt(n);
    if (!(std::fabs(got - want) <= want * 5 / std::sqrt(2 * n)))
      fail_msg("%s: %g", name.c_str(), got);
  }
  assert_int_equal(first.at("transformer.wte.weight").size(), 251 * 64);
  assert_int_equal(first.at("transformer.wpe.weight").size(), 48 * 64);
}

void bf16_layouts(void**) { check_bf16(oracle()); }

void key_mask(void**) { check_key_mask(oracle()); }

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
    const auto of = [](int64_t value, std::vector<int64_t> shape) {
      int64_t count = 1;
      for (const int64_t extent : shape) count *= extent;
      return make_i64(std::vector<int64_t>(static_cast<size_t>(count), value), shape);
    };
    refused(of(1, {2, 50}), nullptr, nullptr, "expected at most 48 positions, got 50");
    refused(of(1, {8}), nullptr, nullptr, "expected [batch, sequence]");
    refused(of(251, {1, 8}), nullptr, nullptr, "expected ids from 0 to 250");
    // 251 is a column of the padding.
    refused(of(1, {1, 8}), of(251, {1, 8}), nullptr, "labels: expected 0 to 250");
    refused(of(1, {1, 8}), of(1, {1, 4}), nullptr, "the shape of the ids");
    refused(of(1, {1, 8}), nullptr, of(1, {2, 8}), "key mask");
    return 0;
  });
  on_ranks<int>(Layout{4}, 7, [&](nxd_context_t* ctx) {
    nxd_module_t* out = nullptr;
    const std::string heads = config_of({{"n_head", 2}}), inner = config_of({{"n_inner", 3}});
    NXD_TEST_REFUSED(nxd_model_create(ctx, heads.c_str(), nullptr, &out), bad,
                     "n_head: expected at least 4");
    NXD_TEST_REFUSED(nxd_model_create(ctx, inner.c_str(), nullptr, &out), bad,
                     "n_inner: expected at least the 4");
    return 0;
  });
}

void odd_sequences(void**) {
  check_odd_sequences(oracle(), {{"n_positions", 29}}, {"embd_pdrop", "attn_pdrop", "resid_pdrop"});
}

// Six heads, and an MLP's features, of two and four ranks.
void uneven_sizes(void**) {
  check_uneven(oracle(), {{"n_embd", 60}, {"n_head", 6}, {"n_inner", 83}},
               {"embd_pdrop", "attn_pdrop", "resid_pdrop"});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(initial_weights), cmocka_unit_test(f64_layouts),
      cmocka_unit_test(f32_layouts),     cmocka_unit_test(untied_head),
      cmocka_unit_test(other_settings),  cmocka_unit_test(dropout),
      cmocka_unit_test(key_mask),        cmocka_unit_test(bf16_layouts),
      cmocka_unit_test(bad_calls),       cmocka_unit_test(odd_sequences),
      cmocka_unit_test(uneven_sizes),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
