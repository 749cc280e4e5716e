// The Llama against Hugging Face's: loss, logits, gradients and twenty AdamW steps, on every
// layout, with ranks as threads and as processes.
#include <cstdlib>

#include "capi/model_oracle.h"
#include "support/paths.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

const LlamaOracle& oracle() {
  static const LlamaOracle value;
  return value;
}

// NxD Core's own losses on two tensor-parallel ranks lie as near.
void f32_layouts(void**) {
  const auto nxd = nlohmann::json::parse(read_file(oracles() + "/nxd/llama_tiny_tp2.json"));
  check_layouts(oracle(), kF32, false, [&](const Layout& layout, const auto& losses) {
    if (layout.tp != 2) return;
    const auto& want = nxd[layout.sequence_parallel ? "tp_sp" : "tp"]["loss_traj"];
    for (size_t i = 0; i < 20; ++i) {
      check_loss((layout.name() + ": NxD Core's loss").c_str(), losses.at(i), want.at(i), 1e-5);
    }
  });
}

void f32_plain_layouts(void**) { check_layouts(oracle(), kF32, true); }

void f64_layouts(void**) { check_layouts(oracle(), kF64, false); }

void step_flops(void**) {
  // 367 GFLOP by the sum of the header's comment: hidden 512, 8 layers, 4 of 8 heads for keys,
  // intermediate 1408, vocabulary 8192, 4 x 512 tokens.
  const std::string config =
      R"({"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 8,
          "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1408,
          "vocab_size": 8192})";
  on_ranks<int>(Layout{}, 0, [&](nxd_context_t* ctx) {
    nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;
    options.device = NXD_DEVICE_META;
    nxd_module_t* out = nullptr;
    NXD_TEST_OK(nxd_model_create(ctx, config.c_str(), &options, &out));
    const Module model(out);
    double flops = 0;
    NXD_TEST_OK(nxd_model_get_step_flops(out, 4, 512, &flops));
    const double matrices = 8 * (512.0 * (512 + 256 + 256 + 512) + 3 * 512.0 * 1408) + 512.0 * 8192;
    NXD_TEST_CHECK(flops == 6 * matrices * 2048 + 6 * 8 * 512.0 * 512 * 2048);
    NXD_TEST_CHECK(std::fabs(flops - 367e9) < 0.5e9);
    NXD_TEST_REFUSED(nxd_model_get_step_flops(out, 0, 512, &flops), NXD_ERROR_INVALID_ARGUMENT,
                     "batch");
    NXD_TEST_REFUSED(nxd_model_get_step_flops(out, 4, -1, &flops), NXD_ERROR_INVALID_ARGUMENT,
                     "sequence");
    return 0;
  });
}

void as_processes(void**) { check_as_processes(); }

}  // namespace

int main() {
  if (std::getenv("RANK")) return run_process(oracle());
  const CMUnitTest tests[] = {
      cmocka_unit_test(f32_layouts), cmocka_unit_test(f32_plain_layouts),
      cmocka_unit_test(f64_layouts), cmocka_unit_test(as_processes),
      cmocka_unit_test(step_flops),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
