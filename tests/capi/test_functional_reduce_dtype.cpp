// A head with its loss in BF16, whose ranks exchange the parts of its input's gradient in F32 or in
// BF16. With logits of 0 their gradients are 1/classes, less 1 at the label. The weights are
// multiples of 1/16, so that f32 holds each rank's part exactly.
#include "support/reduce_dtype_ranks.h"
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr int64_t kClasses = 64, kFeatures = 16, kTokens = 8;
constexpr int kRanks = 2;
const std::vector<int64_t> kLabels{0, 9, 63, 17, 31, 32, 48, 5};

std::vector<double> rounded(const std::vector<double>& numbers) {
  return values(from_doubles(numbers, {static_cast<int64_t>(numbers.size())}, NXD_DTYPE_BF16));
}

std::vector<double> weights() {
  std::vector<double> weight;
  for (int64_t i = 0; i < kClasses * kFeatures; ++i) {
    weight.push_back(static_cast<double>(i * 37 % 101 - 50) / 16);
  }
  return weight;
}

// By a token and a feature, of the classes that rank r has.
double part(int64_t token, int64_t feature, int r) {
  const std::vector<double> weight = weights();
  double sum = 0;
  for (int64_t j = r * kClasses / kRanks; j < (r + 1) * kClasses / kRanks; ++j) {
    const double dlogit = 1.0 / kClasses - (kLabels[static_cast<size_t>(token)] == j ? 1 : 0);
    sum += dlogit * weight[static_cast<size_t>(j * kFeatures + feature)];
  }
  return sum;
}

std::vector<double> expected_dx(nxd_dtype_t exchanged) {
  std::vector<double> dx(kTokens * kFeatures);
  for (int r = 0; r < kRanks; ++r) {
    std::vector<double> own;
    for (int64_t i = 0; i < kTokens * kFeatures; ++i) {
      own.push_back(part(i / kFeatures, i % kFeatures, r));
    }
    if (exchanged == NXD_DTYPE_BF16) own = rounded(own);
    for (size_t i = 0; i < dx.size(); ++i) dx[i] += own[i];
  }
  return rounded(dx);
}

// split: ranks have parts of the tokens.
void check_head(nxd_dtype_t exchanged, bool split) {
  const std::vector<double> all = expected_dx(exchanged), weight = weights();
  on_ranks_with(kRanks, exchanged, [&](nxd_context_t* ctx, int rank, int) {
    const auto own = [&](const std::vector<double>& whole) {
      const auto size = static_cast<ptrdiff_t>(whole.size() / kRanks);
      return std::vector<double>(whole.begin() + rank * size, whole.begin() + (rank + 1) * size);
    };
    const int64_t tokens = split ? kTokens / kRanks : kTokens;
    const std::vector<double> zeros(static_cast<size_t>(tokens * kFeatures));
    const Tensor x =
        leaf(from_doubles(zeros, {tokens, kFeatures}, NXD_DTYPE_F32), NXD_DTYPE_BF16, true);
    const Tensor w = from_doubles(own(weight), {kClasses / kRanks, kFeatures}, NXD_DTYPE_BF16);
    const Tensor labels = from_ints(kLabels, {kTokens});
    nxd_cross_entropy_options_t options = NXD_CROSS_ENTROPY_OPTIONS_INIT;
    options.reduction = NXD_REDUCTION_SUM;
    Tensor loss;
    if (!NXD_TEST_OK(nxd_linear_cross_entropy(ctx, x.get(), w.get(), labels.get(), split ? 0 : -1,
                                              &options, loss.out()))) {
      return;
    }
    backward(loss);
    NXD_TEST_CHECK(values(x.grad()) == (split ? own(all) : all));
  });
}

void in_the_dtype(void**) {
  assert_true(expected_dx(NXD_DTYPE_F32) != expected_dx(NXD_DTYPE_BF16));
  for (const nxd_dtype_t exchanged : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const bool split : {false, true}) check_head(exchanged, split);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(in_the_dtype)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
