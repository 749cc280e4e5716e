// Parallel cross entropy against aten::cross_entropy_loss on the whole logits, against values
// computed by hand, and with arguments that are bad on all ranks or on one.
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr int64_t kVocabulary = 24;

nxd_cross_entropy_options_t make_options(double smoothing, nxd_reduction_t reduction) {
  nxd_cross_entropy_options_t options = NXD_CROSS_ENTROPY_OPTIONS_INIT;
  options.label_smoothing = smoothing;
  options.reduction = reduction;
  return options;
}

Tensor loss_of(nxd_context_t* ctx, const Tensor& logits, const Tensor& labels,
               const nxd_cross_entropy_options_t& options) {
  Tensor loss;
  NXD_TEST_OK(nxd_parallel_cross_entropy(ctx, logits.get(), labels.get(), &options, loss.out()));
  return loss;
}

struct Setting {
  nxd_dtype_t dtype;
  double smoothing;
  nxd_reduction_t reduction;
  bool own_ignore_index;

  std::string name(int size) const {
    return "tp " + std::to_string(size) + " dtype " + std::to_string(dtype) + " smoothing " +
           std::to_string(smoothing) + " reduction " + std::to_string(reduction) +
           (own_ignore_index ? " ignoring 5" : "");
  }
};

struct Outcome {
  Tensor loss, gradient;
};

// ATen's numbers for reductions: none 0, mean 1, sum 2.
Outcome whole_loss(const Setting& s, const Tensor& logits, const Tensor& labels, const Tensor& g,
                   nxd_dtype_t dtype) {
  const Tensor x = leaf(logits, dtype, true);
  const Tensor rows =
      op("reshape", {{"self", x}, {"shape", std::vector<int64_t>{-1, kVocabulary}}});
  const Tensor targets = op("reshape", {{"self", labels}, {"shape", std::vector<int64_t>{-1}}});
  const int64_t reduction = s.reduction == NXD_REDUCTION_NONE   ? 0
                            : s.reduction == NXD_REDUCTION_MEAN ? 1
                                                                : 2;
  Outcome outcome;
  outcome.loss = op("cross_entropy_loss", {{"self", rows},
                                           {"target", targets},
                                           {"reduction", reduction},
                                           {"ignore_index", s.own_ignore_index ? 5 : -100},
                                           {"label_smoothing", s.smoothing}});
  if (reduction == 0) {
    outcome.loss = op("reshape", {{"self", outcome.loss}, {"shape", labels.shape()}});
  }
  backward(outcome.loss, to(g, dtype));
  outcome.gradient = x.grad();
  return outcome;
}

void check_setting(nxd_context_t* ctx, int rank, int size, const Setting& s) {
  const Tensor logits =
      op("mul", "Scalar", {{"self", wave({3, 5, kVocabulary}, s.dtype, 1)}, {"other", 4.0}});
  const int64_t ignored = s.own_ignore_index ? 5 : -100;
  const Tensor labels = from_ints(
      {0, 23, 7, ignored, 11, 12, 6, ignored, 17, 18, 1, 2, 3, 22, 5 + (ignored == 5)}, {3, 5});
  const Tensor g =
      s.reduction == NXD_REDUCTION_NONE ? wave({3, 5}, NXD_DTYPE_F64, 3) : from_doubles({0.75}, {});
  nxd_cross_entropy_options_t options = make_options(s.smoothing, s.reduction);
  options.has_ignore_index = s.own_ignore_index;
  options.ignore_index = s.own_ignore_index ? 5 : 0;
  const Tensor x = leaf(part(logits, 2, rank, size), s.dtype, true);
  const Tensor before = leaf(x, s.dtype, false);
  const Tensor loss = loss_of(ctx, x, labels, options);
  if (!loss) return;
  const nxd_dtype_t wide = s.dtype == NXD_DTYPE_F64 ? NXD_DTYPE_F64 : NXD_DTYPE_F32;
  NXD_TEST_CHECK(loss.dtype() == wide);
  backward(loss, to(g, wide));
  NXD_TEST_CHECK(max_difference(x, before) == 0);

  const Outcome exact = whole_loss(s, logits, labels, g, NXD_DTYPE_F64);
  const Tensor gradient = part(exact.gradient, 2, rank, size);
  const std::string label = s.name(size);
  if (s.dtype != NXD_DTYPE_BF16) {
    const double tolerance = s.dtype == NXD_DTYPE_F64 ? 1e-12 : 1e-5;
    NXD_TEST_CLOSE(label + " loss", loss, exact.loss, tolerance);
    NXD_TEST_CLOSE(label + " gradient", x.grad(), gradient, tolerance);
    return;
  }
  // The loss is computed in f32 from the rounded logits; only the gradient is rounded again.
  const Outcome unsharded = whole_loss(s, logits, labels, g, NXD_DTYPE_BF16);
  NXD_TEST_CLOSE(label + " loss", loss, exact.loss, 1e-5);
  const double error = max_difference(x.grad(), gradient);
  const double allowed = 2 * max_difference(part(unsharded.gradient, 2, rank, size), gradient);
  if (error > allowed) {
    nxd_test_fail(__FILE__, __LINE__, "%s gradient: error %g, ATen's in bf16 is %g", label.c_str(),
                  error, allowed / 2);
  }
}

void all_settings(nxd_context_t* ctx, int rank, int size, void*) {
  for (const bool plain : {false, true}) {
    NXD_TEST_OK(nxd_context_set_plain_kernels(ctx, plain));
    for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
      for (const double smoothing : {0.0, 0.1, 1.0}) {
        for (const nxd_reduction_t reduction :
             {NXD_REDUCTION_MEAN, NXD_REDUCTION_SUM, NXD_REDUCTION_NONE}) {
          for (const bool own : {false, true}) {
            check_setting(ctx, rank, size, {dtype, smoothing, reduction, own});
          }
        }
      }
    }
  }
}

void test_against_aten(void**) {
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, all_settings, nullptr);
}

// Logits far from 0 have the loss and the gradients that they have near it.
void large_logits(nxd_context_t* ctx, int rank, int size, void*) {
  constexpr double kOffset = 1e6;  // where F32 has steps of 2^-4, and sums of 24 of 2
  const Tensor near_zero = op("round", {{"self", wave({5, kVocabulary}, NXD_DTYPE_F64, 1)}});
  const Tensor steps = op("mul", "Scalar", {{"self", near_zero}, {"other", 1.25}});
  const Tensor logits = op("add", "Scalar", {{"self", steps}, {"other", kOffset}});
  const Tensor labels = from_ints({0, 23, 7, 12, -100}, {5});
  const Tensor g = from_doubles({1}, {});
  for (const bool plain : {false, true}) {
    NXD_TEST_OK(nxd_context_set_plain_kernels(ctx, plain));
    for (const double smoothing : {0.0, 0.1}) {
      const Setting s{NXD_DTYPE_F32, smoothing, NXD_REDUCTION_SUM, false};
      const Outcome exact = whole_loss(s, logits, labels, g, NXD_DTYPE_F64);
      const Tensor x = leaf(part(logits, 1, rank, size), NXD_DTYPE_F32, true);
      const Tensor loss = loss_of(ctx, x, labels, make_options(smoothing, NXD_REDUCTION_SUM));
      if (!loss) return;
      backward(loss);
      const std::string label = s.name(size) + (plain ? ", plain, large" : ", large");
      NXD_TEST_CLOSE(label + " loss", loss, exact.loss, 1e-5);
      NXD_TEST_CLOSE(label + " gradient", x.grad(), part(exact.gradient, 1, rank, size), 1e-6);
    }
  }
}

void test_large_logits(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, large_logits, nullptr);
}

void all_ignored(nxd_context_t* ctx, int, int size, void*) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const nxd_reduction_t reduction :
         {NXD_REDUCTION_MEAN, NXD_REDUCTION_SUM, NXD_REDUCTION_NONE}) {
      const Tensor x = leaf(wave({3, 8 / size}, dtype, 2), dtype, true);
      const Tensor loss =
          loss_of(ctx, x, from_ints({-100, -100, -100}, {3}), make_options(0.1, reduction));
      if (!loss) return;
      NXD_TEST_CHECK(max_abs(values(loss)) == 0);
      backward(loss, leaf(to(loss, NXD_DTYPE_F64), loss.dtype(), false));
      NXD_TEST_CHECK(max_abs(values(x.grad())) == 0);
    }
  }
  // No token at all is the same.
  const Tensor none = from_doubles({}, {0, 8 / size}, NXD_DTYPE_F32);
  const Tensor loss = loss_of(ctx, none, from_ints({}, {0}), make_options(0, NXD_REDUCTION_MEAN));
  if (loss) NXD_TEST_CHECK(loss.item() == 0);
}

void test_all_ignored(void**) {
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, all_ignored, nullptr);
}

// Values and gradients worked out in double precision apart from any of this code.
void by_hand(nxd_context_t* ctx, int rank, int size, void*) {
  const Tensor whole =
      from_doubles({1, 2, 3, 4, 0, 0, 0, 0, -1, 5, 2, .5, 10, -10, 3, 7}, {2, 2, 4}, NXD_DTYPE_F64);
  const Tensor labels = from_ints({3, 1, 0, 2}, {2, 2});
  const Tensor x = leaf(part(whole, 2, rank, size), NXD_DTYPE_F64, true);
  const auto expect = [&](double smoothing, nxd_smoothing_t formula, std::vector<double> want) {
    nxd_cross_entropy_options_t options = make_options(smoothing, NXD_REDUCTION_NONE);
    options.smoothing = formula;
    NXD_TEST_CLOSE("tokens", loss_of(ctx, x, labels, options), from_doubles(want, {2, 2}), 1e-6);
  };
  expect(0, NXD_SMOOTHING_TORCH, {0.440190, 1.386294, 6.061448, 7.049456});
  expect(0, NXD_SMOOTHING_MEGATRON, {0.440190, 1.386294, 6.061448, 7.049456});
  expect(0.1, NXD_SMOOTHING_TORCH, {0.590190, 1.386294, 5.798947, 7.099456});
  expect(0.1, NXD_SMOOTHING_MEGATRON, {0.640190, 1.386294, 5.711448, 7.116122});
  const Tensor loss = loss_of(ctx, x, labels, make_options(0, NXD_REDUCTION_MEAN));
  NXD_TEST_CHECK(std::fabs(loss.item() - (0.440190 + 1.386294 + 6.061448 + 7.049456) / 4) < 1e-6);
  backward(loss);
  const Tensor gradient =
      from_doubles({.0080147, .0217861, .0592207, -.0890214, .0625, -.1875, .0625, .0625, -.2494172,
                    .2351006, .0117050, .0026117, .2379369, 4.9e-10, -.2497830, .0118462},
                   {2, 2, 4});
  NXD_TEST_CLOSE("gradient", x.grad(), part(gradient, 2, rank, size), 1e-6);
}

void test_by_hand(void**) {
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, by_hand, nullptr);
}

// Far out of exp's range, and equal logits: finite and right, in f32 as far as its spacing of 0.002
// around 3e4 goes.
void extremes(nxd_context_t* ctx, int rank, int size, void*) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32}) {
    const Tensor whole = from_doubles({3e4, -3e4, 0, 1, -3e4, -3e4, -3e4, -3e4}, {2, 4}, dtype);
    const Tensor x = leaf(part(whole, 1, rank, size), dtype, true);
    const Tensor loss =
        loss_of(ctx, x, from_ints({1, 2}, {2}), make_options(0, NXD_REDUCTION_NONE));
    if (!loss) return;
    NXD_TEST_CLOSE("loss", loss, from_doubles({6e4, std::log(4.0)}, {2}), 1e-6);
    backward(loss, from_doubles({1, 1}, {2}, dtype));
    const Tensor want = from_doubles({1, -1, 0, 0, .25, .25, -.75, .25}, {2, 4});
    NXD_TEST_CLOSE("gradient", x.grad(), part(want, 1, rank, size),
                   dtype == NXD_DTYPE_F64 ? 1e-9 : 1e-3);
    // Logits that are none, where no label counts: no part of the loss, and no gradient.
    const Tensor none = from_doubles({NAN, INFINITY, -INFINITY, 1, 2, 2, 2, 2}, {2, 4}, dtype);
    const Tensor y = leaf(part(none, 1, rank, size), dtype, true);
    const Tensor sum = loss_of(ctx, y, from_ints({-100, 2}, {2}), make_options(0.1, 0));
    if (!sum) return;
    NXD_TEST_CHECK(std::fabs(sum.item() - std::log(4.0)) < 1e-6);
    backward(sum);
    const Tensor left = from_doubles({0, 0, 0, 0, .225, .225, -.675, .225}, {2, 4});
    NXD_TEST_CLOSE("gradient", y.grad(), part(left, 1, rank, size), 1e-6);
  }
}

// Logits that were set to -infinity, among them the first of each rank, have no part in a loss.
void masked(nxd_context_t* ctx, int rank, int size, void*) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    const nxd_dtype_t wide = dtype == NXD_DTYPE_F64 ? NXD_DTYPE_F64 : NXD_DTYPE_F32;
    const Tensor whole = from_doubles({-INFINITY, 1, -INFINITY, 2}, {1, 4}, dtype);
    const Tensor x = leaf(part(whole, 1, rank, size), dtype, true);
    const Tensor loss = loss_of(ctx, x, from_ints({1}, {1}), make_options(0, NXD_REDUCTION_NONE));
    if (!loss) return;
    NXD_TEST_CLOSE("loss", loss, from_doubles({std::log1p(std::exp(1.0))}, {1}), 1e-6);
    backward(loss, from_doubles({1}, {1}, wide));
    const double other = 1 / (1 + std::exp(-1.0));
    const Tensor want = from_doubles({0, -other, 0, other}, {1, 4});
    NXD_TEST_CLOSE("gradient", x.grad(), part(want, 1, rank, size),
                   dtype == NXD_DTYPE_BF16 ? 4e-3 : 1e-6);
  }
}

void by_both_kernels(nxd_test_rank_fn body) {
  for (const int size : {1, 2, 4}) {
    for (const int plain : {0, 1}) {
      nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
      options.plain_kernels = plain;
      nxd_test_run_ranks_with(&options, size, size, body, nullptr);
    }
  }
}

void test_extremes(void**) { by_both_kernels(extremes); }
void test_masked(void**) { by_both_kernels(masked); }

struct Bad {
  const char* part;  // of the message on the rank that is wrong
  Tensor logits, labels;
  nxd_cross_entropy_options_t options = make_options(0, NXD_REDUCTION_MEAN);
};

std::vector<Bad> bad_calls(int size) {
  const int64_t cols = 8 / size;
  const Tensor x = wave({3, cols}, NXD_DTYPE_F32, 1), t = from_ints({0, 1, 2}, {3});
  std::vector<Bad> calls;
  calls.push_back({"labels: expected 0 to 7", x, from_ints({0, 8, 2}, {3})});
  calls.push_back({"labels: expected 0 to 7", x, from_ints({0, -1, 2}, {3})});
  calls.push_back({"labels: expected the shape", x, from_ints({0, 1}, {2})});
  calls.push_back({"labels: expected the shape", x, from_ints({0, 1, 2}, {3, 1})});
  calls.push_back({"labels: expected dtype i64", x, to(t, NXD_DTYPE_I32)});
  calls.push_back({"labels: expected dtype i64", x, to(t, NXD_DTYPE_F32)});
  calls.push_back({"logits: expected a tensor of f32, f64 or bf16", to(x, NXD_DTYPE_F16), t});
  calls.push_back({"logits: expected a tensor of f32, f64 or bf16", to(x, NXD_DTYPE_I64), t});
  calls.push_back({"logits: expected a tensor of f32, f64 or bf16", from_doubles({1}, {}), t});
  calls.push_back({"labels: expected device", x, without_values({3}, NXD_DTYPE_I64)});
  calls.push_back({"logits: expected a tensor, got NULL", {}, t});
  calls.push_back({"labels: expected a tensor, got NULL", x, {}});
  calls.push_back({"label_smoothing: expected 0 to 1", x, t, make_options(1.5, 0)});
  calls.push_back({"label_smoothing: expected 0 to 1", x, t, make_options(-0.1, 0)});
  calls.push_back({"label_smoothing: expected 0 to 1", x, t, make_options(NAN, 0)});
  calls.push_back({"reduction: expected", x, t, make_options(0, 3)});
  calls.push_back({"reduction: expected", x, t, make_options(0, NXD_REDUCTION_INVALID)});
  Bad smoothing{"smoothing: expected", x, t};
  smoothing.options.smoothing = 2;
  calls.push_back(smoothing);
  return calls;
}

void check_usable(nxd_context_t* ctx, int size) {
  const Tensor x = wave({3, 8 / size}, NXD_DTYPE_F32, 1);
  const Tensor loss =
      loss_of(ctx, x, from_ints({0, 1, 2}, {3}), make_options(0, NXD_REDUCTION_MEAN));
  if (loss) NXD_TEST_CHECK(std::isfinite(loss.item()));
}

// Wrong everywhere, then wrong on the last rank alone: all ranks are told, and can go on.
void refusals(nxd_context_t* ctx, int rank, int size, void*) {
  const Tensor x = wave({3, 8 / size}, NXD_DTYPE_F32, 1), t = from_ints({0, 1, 2}, {3});
  for (const bool everywhere : {true, false}) {
    for (const Bad& bad : bad_calls(size)) {
      const bool mine = everywhere || rank == size - 1;
      const auto options = make_options(0, NXD_REDUCTION_MEAN);
      nxd_tensor_t* out = x.get();
      NXD_TEST_REFUSED(nxd_parallel_cross_entropy(ctx, mine ? bad.logits.get() : x.get(),
                                                  mine ? bad.labels.get() : t.get(),
                                                  mine ? &bad.options : &options, &out),
                       NXD_ERROR_INVALID_ARGUMENT, mine ? bad.part : "rank ");
      NXD_TEST_CHECK(out == nullptr);
      check_usable(ctx, size);
    }
    if (size == 1) return;
  }
}

void test_refusals(void**) {
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, refusals, nullptr);
}

// A rank with another number of rows, or another share of the vocabulary, than its peers.
void disagreements(nxd_context_t* ctx, int rank, int size, void*) {
  const auto refused = [&](const Tensor& logits, const Tensor& labels) {
    const auto options = make_options(0, NXD_REDUCTION_MEAN);
    nxd_tensor_t* out = nullptr;
    NXD_TEST_REFUSED(nxd_parallel_cross_entropy(ctx, logits.get(), labels.get(), &options, &out),
                     NXD_ERROR_INVALID_ARGUMENT, nullptr);
    NXD_TEST_CHECK(out == nullptr);
    check_usable(ctx, size);
  };
  const int64_t rows = rank == 0 ? 2 : 3;
  refused(wave({rows, 4}, NXD_DTYPE_F32, 1),
          from_ints(std::vector<int64_t>(static_cast<size_t>(rows), 1), {rows}));
  refused(wave({3, rank == 0 ? 3 : 4}, NXD_DTYPE_F32, 1), from_ints({0, 1, 2}, {3}));
}

// The labels of the forward are those of the backward.
void overwritten(nxd_context_t* ctx, int, int size, void*) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64}) {
    const Tensor x = leaf(wave({3, 8 / size}, dtype, 1), dtype, true);
    const Tensor labels = from_ints({0, 1, 2}, {3});
    const Tensor loss = loss_of(ctx, x, labels, make_options(0, NXD_REDUCTION_MEAN));
    const int64_t others[] = {3, 4, 5};
    NXD_TEST_OK(nxd_tensor_copy_from_host(labels.get(), others, sizeof others));
    nxd_tensor_t* output = loss.get();
    NXD_TEST_REFUSED(nxd_backward(&output, nullptr, 1, 0), NXD_ERROR_INVALID_STATE, "modified");
    NXD_TEST_CHECK(!x.grad());
  }
}

void test_overwritten_labels(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, overwritten, nullptr);
}

void test_disagreements(void**) { nxd_test_run_ranks(2, 2, disagreements, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_against_aten),       cmocka_unit_test(test_large_logits),
      cmocka_unit_test(test_all_ignored),        cmocka_unit_test(test_by_hand),
      cmocka_unit_test(test_extremes),           cmocka_unit_test(test_masked),
      cmocka_unit_test(test_refusals),           cmocka_unit_test(test_disagreements),
      cmocka_unit_test(test_overwritten_labels),
  };
  return cmocka_run_group_tests_name("cross_entropy_loss", tests, nullptr, nullptr);
}
