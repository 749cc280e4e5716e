// No layout changes a BERT: initial bits, dropout and training are the same on every one.
#include "capi/model_invariance.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

const ModelOracle& oracle() {
  static const ModelOracle value("bert_tiny");
  return value;
}

void f64_layouts(void**) { check_all(oracle(), oracle().config, NXD_DTYPE_F64, 8, 1e-9); }

// NXD_LONG=1: more steps.
void f32_layouts(void**) {
  check_all(oracle(), oracle().config, NXD_DTYPE_F32, is_long() ? 20 : 8, 1e-5);
}

void other_settings(void**) {
  check_settings(oracle(), {{{"tie_word_embeddings", false}},
                            {{"vocab_size", 259}},
                            {{"pad_token_id", 4}},
                            {{"hidden_act", "relu"}},
                            {{"intermediate_size", 128}},
                            {{"layer_norm_eps", 0.1}}});
}

void dropout(void**) {
  check_dropout(oracle(), {"attention_probs_dropout_prob", "hidden_dropout_prob"});
}

// As Hugging Face draws them: all matrices alike, and zeros for padding.
void initial_weights(void**) {
  const Named first = on_ranks<Named>(Layout{2}, 1, [&](nxd_context_t* ctx) {
    return whole_parameters(create_model(ctx, oracle().config, Layout{2}).get());
  })[0];
  for (const auto& [name, v] : first) {
    const bool is_bias = name.ends_with("bias");
    if (is_bias || name.find("Norm") != std::string::npos) {
      for (const double x : v) assert_true(x == (is_bias ? 0 : 1));
      continue;
    }
    const bool padded = name.ends_with("word_embeddings.weight");
    for (size_t i = 0; padded && i < 64; ++i) assert_true(v[i] == 0);
    // The root mean square of n draws lies within 5 / sqrt(2 n) of the deviation.
    const auto n = static_cast<double>(v.size() - (padded ? 64 : 0));
    const double got = norm(v) / std::sqrt(n);
    if (!(std::fabs(got - 0.02) <= 0.1 / std::sqrt(2 * n))) fail_msg("%s: %g", name.c_str(), got);
  }
}

// No token sees one that the mask hides: hidden tokens may be any.
void key_mask(void**) {
  for (const bool sequence_parallel : {false, true}) {
    const Layout layout{2, sequence_parallel};
    on_ranks<int>(layout, 7, [&](nxd_context_t* ctx) {
      const Module model = create_model(ctx, oracle().config, layout);
      // The recorded mask hides the second row's last eight.
      std::vector<int64_t> other = oracle().ids, labels = oracle().labels;
      for (size_t i = 56; i < 64; ++i) {
        other[i] = (other[i] + 17) % 256;
        labels[i] = -100;
      }
      double loss[2];
      for (int i = 0; i < 2; ++i) {
        std::vector<Tensor> inputs = oracle().inputs();
        if (i == 1) inputs[0] = make_i64(other, oracle().shape);
        inputs[1] = make_i64(labels, oracle().shape);
        nxd_tensor_t* out = nullptr;
        NXD_TEST_OK(nxd_module_forward(model.get(), handles(inputs).data(), 5, &out, 1));
        loss[i] = item(Tensor(out).get());
      }
      NXD_TEST_CHECK(loss[0] == loss[1]);
      return 0;
    });
  }
}

void bf16_layouts(void**) { check_bf16(oracle(), 1.5, 0.02); }

// Without token types all are the first.
void absent_token_types(void**) {
  on_ranks<int>(Layout{2}, 7, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle().config, Layout{2});
    std::vector<Tensor> inputs = oracle().inputs();
    double loss[2];
    for (double& value : loss) {
      nxd_tensor_t* out = nullptr;
      inputs[3].reset();
      if (&value != loss) inputs[3] = make_i64(std::vector<int64_t>(64, 0), oracle().shape);
      NXD_TEST_OK(nxd_module_forward(model.get(), handles(inputs).data(), 5, &out, 1));
      value = item(Tensor(out).get());
    }
    NXD_TEST_CHECK(loss[0] == loss[1]);
    return 0;
  });
}

// Rejected on all ranks, before any of them communicates.
void bad_calls(void**) {
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
  const Layout layout{2, true};
  on_ranks<int>(layout, 7, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle().config, layout);
    const auto refused = [&](size_t index, Tensor value, const char* part, size_t outputs = 1) {
      std::vector<Tensor> inputs = oracle().inputs();
      inputs[index] = std::move(value);
      nxd_tensor_t* out[3] = {};
      NXD_TEST_REFUSED(nxd_module_forward(model.get(), handles(inputs).data(), 5, out, outputs),
                       bad, part);
      for (const nxd_tensor_t* output : out) NXD_TEST_CHECK(output == nullptr);
    };
    const auto of = [](int64_t value, std::vector<int64_t> shape) {
      int64_t count = 1;
      for (const int64_t extent : shape) count *= extent;
      return make_i64(std::vector<int64_t>(static_cast<size_t>(count), value), shape);
    };
    refused(0, of(1, {2, 130}), "expected at most 128 positions, got 130");
    refused(0, of(256, {2, 32}), "expected ids from 0 to 255");
    refused(1, of(256, {2, 32}), "labels: expected 0 to 255");
    refused(1, of(1, {2, 16}), "labels: expected dtype i64 and the shape of the ids");
    refused(1, nullptr, "expected both or neither, got next_sentence_label alone");
    refused(2, of(1, {1, 32}), "key mask");
    refused(3, of(2, {2, 32}), "token_type_ids: expected 0 to 1, got 2");
    refused(3, of(-1, {2, 32}), "token_type_ids: expected 0 to 1, got -1");
    refused(3, of(1, {2, 16}), "token_type_ids: expected dtype i64 and the shape of the ids");
    refused(4, nullptr, "expected both or neither, got labels alone");
    refused(4, of(1, {2, 1}), "next_sentence_label: expected [2] of dtype i64");
    refused(4, of(2, {2}), "next_sentence_label: expected 0 or 1, or -100");
    std::vector<Tensor> inputs = oracle().inputs();
    inputs[1].reset();
    inputs[4].reset();
    nxd_tensor_t* out[3] = {};
    NXD_TEST_REFUSED(nxd_module_forward(model.get(), handles(inputs).data(), 5, out, 3), bad,
                     "two outputs at most without labels, 3 were asked for");
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
  check_odd_sequences(oracle(), {{"max_position_embeddings", 29}},
                      {"attention_probs_dropout_prob", "hidden_dropout_prob"});
}

// Six heads, and an MLP's features, of two and four ranks.
void uneven_sizes(void**) {
  check_uneven(oracle(),
               {{"hidden_size", 60}, {"num_attention_heads", 6}, {"intermediate_size", 83}},
               {"attention_probs_dropout_prob", "hidden_dropout_prob"});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(initial_weights), cmocka_unit_test(f64_layouts),
      cmocka_unit_test(f32_layouts),     cmocka_unit_test(other_settings),
      cmocka_unit_test(dropout),         cmocka_unit_test(key_mask),
      cmocka_unit_test(bf16_layouts),    cmocka_unit_test(absent_token_types),
      cmocka_unit_test(bad_calls),       cmocka_unit_test(odd_sequences),
      cmocka_unit_test(uneven_sizes),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
