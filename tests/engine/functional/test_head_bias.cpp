// A model's head with a bias, over several blocks of tokens: loss and gradients as ATen has them in
// double precision.
#include <ATen/ATen.h>

#include "capi/engine_handles.h"
#include "engine/functional/linear_cross_entropy.h"
#include "engine/layers/layer_support.h"
#include "support/ranks.h"

#include "support/check.h"

namespace {

constexpr int64_t kTokens = 2 * 4096 + 5, kFeatures = 3, kVocabulary = 5;

at::Tensor wave(at::IntArrayRef sizes, double phase) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return (at::arange(count, at::kDouble) * 0.37 + phase).sin().view(sizes);
}

void heads(nxd_context_t* ctx, int, int, void*) {
  nxd::ParallelLinearPlan plan;
  plan.context = ctx->value;
  plan.group = nxd::tensor_group(*ctx->value);
  const at::Tensor labels = (at::arange(kTokens) * 7).remainder(kVocabulary);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const auto leaf = [&](const at::Tensor& x, bool exact) {
      const at::Tensor rounded = x.to(dtype);
      return (exact ? rounded.to(at::kDouble) : rounded.clone()).set_requires_grad(true);
    };
    std::vector<at::Tensor> given, exact;
    for (const at::Tensor& x : {wave({kTokens, kFeatures}, 1), wave({kVocabulary, kFeatures}, 2),
                                wave({kVocabulary}, 3)}) {
      given.push_back(leaf(x, false));
      exact.push_back(leaf(x, true));
    }
    const at::Tensor loss =
        nxd::linear_cross_entropy(plan, given[0], given[1], given[2], labels, nxd::LossFormula());
    const at::Tensor want =
        at::cross_entropy_loss(at::linear(exact[0], exact[1], exact[2]), labels);
    loss.backward();
    want.backward();
    const double tolerance = dtype == at::kBFloat16 ? 1e-2 : 1e-5;
    NXD_TEST_CHECK(std::fabs(loss.item<double>() - want.item<double>()) < tolerance);
    for (size_t i = 0; i < given.size(); ++i) {
      const at::Tensor difference = given[i].grad().to(at::kDouble) - exact[i].grad();
      NXD_TEST_CHECK(difference.abs().max().item<double>() <=
                     tolerance * exact[i].grad().abs().max().item<double>());
    }
  }
}

void test_head_bias(void**) { nxd_test_run_ranks(1, 1, heads, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_head_bias)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
