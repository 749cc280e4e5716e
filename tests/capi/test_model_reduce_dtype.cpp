// A model in BF16 whose ranks exchange the partial sums of its linear layers in BF16.
#include "support/model_support.h"
#include "support/reduce_dtype_ranks.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

// Losses of a small Llama in BF16: of six steps, near those of an exchange in f32; by kernels and
// by plain operators, which round alike where they add.
std::vector<double> losses_of(int ranks, nxd_dtype_t exchanged, bool sequence_parallel,
                              bool plain) {
  std::vector<double> losses;
  on_ranks_with(ranks, exchanged, [&](nxd_context_t* ctx, int rank, int) {
    NXD_TEST_OK(nxd_context_set_plain_kernels(ctx, plain));
    nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;
    options.dtype = NXD_DTYPE_BF16;
    options.sequence_parallel = sequence_parallel;
    nxd_module_t* made = nullptr;
    NXD_TEST_OK(nxd_model_create(
        ctx,
        R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 128,
            "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 32})",
        &options, &made));
    const Module model(made);
    const Optimizer adamw = make_adamw(model.get());
    std::vector<int64_t> ids(2 * 16);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 37 % 128);
    const Tensor batch = make_i64(ids, {2, 16});
    for (int step = 0; step < 6; ++step) {
      nxd_tensor_t *inputs[] = {batch.get(), batch.get()}, *out = nullptr;
      NXD_TEST_OK(nxd_module_zero_grad(model.get()));
      if (!NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 2, &out, 1))) return;
      const Tensor loss(out);
      nxd_tensor_t* of = loss.get();
      NXD_TEST_OK(nxd_backward(&of, nullptr, 1, 0));
      NXD_TEST_OK(nxd_optimizer_step(adamw.get(), nullptr, nullptr));
      const double value = item(loss.get());  // on all ranks: it may run what they have recorded
      if (rank == 0) losses.push_back(value);
    }
  });
  return losses;
}

void in_a_model(void**) {
  for (const bool sequence_parallel : {false, true}) {
    const std::vector<double> wide = losses_of(2, NXD_DTYPE_F32, sequence_parallel, false);
    const std::vector<double> narrow = losses_of(2, NXD_DTYPE_BF16, sequence_parallel, false);
    const std::vector<double> plain = losses_of(2, NXD_DTYPE_BF16, sequence_parallel, true);
    assert_true(wide.size() == 6 && narrow.size() == 6 && plain.size() == 6);
    assert_true(narrow != wide);
    for (size_t i = 0; i < 6; ++i) {
      if (!(std::abs(narrow[i] / wide[i] - 1) < 0.02 && std::abs(plain[i] / wide[i] - 1) < 0.02)) {
        fail_msg("step %zu: %.6f in f32, %.6f in bf16, %.6f plainly", i, wide[i], narrow[i],
                 plain[i]);
      }
    }
    assert_true(narrow.back() < narrow.front());
  }
  assert_true(losses_of(1, NXD_DTYPE_F32, false, false) ==
              losses_of(1, NXD_DTYPE_BF16, false, false));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(in_a_model)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
