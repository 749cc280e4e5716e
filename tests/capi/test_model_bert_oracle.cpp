// The BERT against Hugging Face's: loss, logits, gradients and twenty AdamW steps, on every layout,
// with ranks as threads and as processes. One oracle has padding tokens among the rest, a sentence
// pair without a label, and a vocabulary that needs padding.
#include <cstdlib>

#include "capi/model_oracle.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

const ModelOracle& oracle(const char* name) {
  static std::map<std::string, ModelOracle> oracles;
  return oracles.try_emplace(name, name).first->second;
}

void check_everywhere(const char* name) {
  check_layouts(oracle(name), kF32, false);
  check_layouts(oracle(name), kF32, true);
  check_layouts(oracle(name), kF64, false);
}

void recorded(void**) { check_everywhere("bert_tiny"); }

void padding(void**) { check_everywhere("bert_pad_tiny"); }

// Logits of the next sentence are the same on all ranks.
void next_sentence(void**) {
  const ModelOracle& bert = oracle("bert_tiny");
  std::vector<double> want;
  for (const auto& row : bert.expected["seq_relationship_logits"]) {
    for (const double logit : row) want.push_back(logit);
  }
  for (const Layout& layout : {Layout{1}, Layout{2}, Layout{4, true}}) {
    on_ranks<int>(layout, 0, [&](nxd_context_t* ctx) {
      const Module model = load_model(ctx, bert.directory, layout);
      const std::vector<Tensor> owned = bert.inputs();
      std::vector<nxd_tensor_t*> inputs = handles(owned);
      nxd_tensor_t* outputs[3] = {};
      NXD_TEST_OK(nxd_module_forward(model.get(), inputs.data(), 5, outputs, 3));
      for (nxd_tensor_t* output : {outputs[0], outputs[1]}) nxd_tensor_destroy(output);
      check_values(layout.name() + ": beside the loss", values(Tensor(outputs[2]).get()), want,
                   3e-6);
      inputs[1] = inputs[4] = nullptr;
      NXD_TEST_OK(nxd_module_forward(model.get(), inputs.data(), 5, outputs, 2));
      nxd_tensor_destroy(outputs[0]);
      check_values(layout.name() + ": alone", values(Tensor(outputs[1]).get()), want, 3e-6);
      return 0;
    });
  }
}

// Without a label of either kind the loss is 0, and so are gradients.
void nothing_to_predict(void**) {
  on_ranks<int>(Layout{2}, 0, [&](nxd_context_t* ctx) {
    const ModelOracle& bert = oracle("bert_tiny");
    const Module model = load_model(ctx, bert.directory, Layout{2});
    std::vector<Tensor> owned = bert.inputs();
    owned[1] = make_i64(std::vector<int64_t>(bert.labels.size(), -100), bert.shape);
    owned[4] =
        make_i64(std::vector<int64_t>(static_cast<size_t>(bert.shape[0]), -100), {bert.shape[0]});
    nxd_tensor_t* out = nullptr;
    NXD_TEST_OK(nxd_module_forward(model.get(), handles(owned).data(), 5, &out, 1));
    const Tensor loss(out);
    NXD_TEST_OK(nxd_backward(&out, nullptr, 1, 0));
    double norm = 1;
    NXD_TEST_OK(nxd_finish_grads(model.get(), nullptr, &norm));
    NXD_TEST_CHECK(item(loss.get()) == 0 && norm == 0);
    return 0;
  });
}

void as_processes(void**) { check_as_processes(); }

void saved_as_hugging_face_does(void**) {
  const Named got = check_saved_file(oracle("bert_pad_tiny"));
  assert_int_equal(got.at("cls.predictions.bias").size(), 67);
  assert_int_equal(got.at("bert.embeddings.token_type_embeddings.weight").size(), 3 * 48);
  assert_int_equal(got.count("cls.predictions.decoder.weight"), 0);
  assert_int_equal(got.count("cls.predictions.decoder.bias"), 0);
}

// Six operations for each weight of a matrix and token, all of attention's scores, and the pooler's
// for one token of each sequence.
void step_flops(void**) {
  on_ranks<int>(Layout{}, 0, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle("bert_tiny").config, Layout{});
    double got = 0;
    NXD_TEST_OK(nxd_model_get_step_flops(model.get(), 2, 32, &got));
    const double matrices = 4 * (4 * 64.0 * 64 + 2 * 64.0 * 256) + 64.0 * 64 + 64.0 * 256;
    const double once = 64.0 * 64 + 64 * 2;
    NXD_TEST_CHECK(got == 64 * (6 * matrices + 12 * 4 * 32 * 64.0) + 2 * 6 * once);
    return 0;
  });
}

}  // namespace

int main() {
  if (std::getenv("RANK")) return run_process(oracle("bert_tiny"));
  const CMUnitTest tests[] = {
      cmocka_unit_test(recorded),      cmocka_unit_test(padding),
      cmocka_unit_test(next_sentence), cmocka_unit_test(nothing_to_predict),
      cmocka_unit_test(as_processes),  cmocka_unit_test(saved_as_hugging_face_does),
      cmocka_unit_test(step_flops),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
