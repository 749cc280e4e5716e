// The GPT-2 against Hugging Face's: loss, logits, gradients and twenty AdamW steps, on every
// layout, with ranks as threads and as processes. Its vocabulary of 251 needs padding on two and
// four ranks.
#include <cstdlib>

#include "capi/model_oracle.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

const ModelOracle& oracle() {
  static const ModelOracle value("gpt2_tiny");
  return value;
}

void f32_layouts(void**) { check_layouts(oracle(), kF32, false); }

void f32_plain_layouts(void**) { check_layouts(oracle(), kF32, true); }

void f64_layouts(void**) { check_layouts(oracle(), kF64, false); }

void as_processes(void**) { check_as_processes(); }

void saved_as_hugging_face_does(void**) {
  const Named got = check_saved_file(oracle());
  assert_int_equal(got.at("transformer.h.2.attn.c_attn.weight").size(), 64 * 192);
  assert_int_equal(got.count("lm_head.weight"), 0);
}

double flops_of(const std::string& config, int64_t batch, int64_t sequence) {
  return on_ranks<double>(Layout{}, 0, [&](nxd_context_t* ctx) {
    nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;
    options.device = NXD_DEVICE_META;
    nxd_module_t* out = nullptr;
    NXD_TEST_OK(nxd_model_create(ctx, config.c_str(), &options, &out));
    const Module model(out);
    double flops = 0;
    NXD_TEST_OK(nxd_model_get_step_flops(out, batch, sequence, &flops));
    return flops;
  })[0];
}

// GPT-2 124M on 4 x 64 tokens: 85 M weights of layers and 38.6 M of the head, six operations each,
// and attention.
void step_flops(void**) {
  const double flops = flops_of(
      R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257})",
      4, 64);
  const double matrices = 12 * (768.0 * 2304 + 768.0 * 768 + 2 * 768.0 * 3072) + 768.0 * 50257;
  assert_true(flops == 256 * (6 * matrices + 6 * 12 * 64 * 768.0));
  assert_true(std::fabs(flops - 191e9) < 1e9);
}

}  // namespace

int main() {
  if (std::getenv("RANK")) return run_process(oracle());
  const CMUnitTest tests[] = {
      cmocka_unit_test(f32_layouts),
      cmocka_unit_test(f32_plain_layouts),
      cmocka_unit_test(f64_layouts),
      cmocka_unit_test(as_processes),
      cmocka_unit_test(saved_as_hugging_face_does),
      cmocka_unit_test(step_flops),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
