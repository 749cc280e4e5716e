// The GPT-NeoX against Hugging Face's: loss, logits, gradients and twenty AdamW steps, on every
// layout, with ranks as threads and as processes. One oracle has the parallel residual; the other
// has none, no biases of attention, tied embeddings, and a vocabulary that needs padding.
#include <cstdlib>

#include "capi/model_oracle.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

const ModelOracle& parallel() {
  static const ModelOracle value("gpt_neox_tiny");
  return value;
}

const ModelOracle& serial() {
  static const ModelOracle value("gpt_neox_serial_tiny");
  return value;
}

void parallel_residual(void**) {
  check_layouts(parallel(), kF32, false);
  check_layouts(parallel(), kF32, true);
  check_layouts(parallel(), kF64, false);
}

void serial_residual(void**) {
  check_layouts(serial(), kF32, false);
  check_layouts(serial(), kF64, false);
}

void as_processes(void**) { check_as_processes(); }

void saved_as_hugging_face_does(void**) {
  Named got = check_saved_file(parallel());
  assert_int_equal(got.at("gpt_neox.layers.3.attention.query_key_value.weight").size(), 192 * 64);
  assert_int_equal(got.at("embed_out.weight").size(), 256 * 64);
  got = check_saved_file(serial());
  assert_int_equal(got.count("gpt_neox.layers.0.attention.query_key_value.bias"), 0);
  assert_int_equal(got.count("gpt_neox.layers.0.attention.dense.bias"), 0);
  assert_int_equal(got.count("embed_out.weight"), 0);
}

// Six operations for each weight of a matrix and token, and half of attention's scores.
void step_flops(void**) {
  on_ranks<int>(Layout{}, 0, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, parallel().config, Layout{});
    double got = 0;
    NXD_TEST_OK(nxd_model_get_step_flops(model.get(), 2, 32, &got));
    const double matrices = 4 * (4 * 64.0 * 64 + 2 * 64.0 * 256) + 64.0 * 256;
    NXD_TEST_CHECK(got == 64 * (6 * matrices + 6 * 4 * 32 * 64.0));
    return 0;
  });
}

}  // namespace

int main() {
  if (std::getenv("RANK")) return run_process(parallel());
  const CMUnitTest tests[] = {
      cmocka_unit_test(parallel_residual), cmocka_unit_test(serial_residual),
      cmocka_unit_test(as_processes),      cmocka_unit_test(saved_as_hugging_face_does),
      cmocka_unit_test(step_flops),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
