// Linear layer and cross entropy in token blocks, against aten::matmul and aten::cross_entropy_loss
// on all logits; with tied weights, several passes and graphs that are kept; the memory it takes;
// and arguments that are bad on all ranks or on one.
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr int64_t kFeatures = 19;

struct Setting {
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  double smoothing = 0;
  nxd_reduction_t reduction = NXD_REDUCTION_MEAN;
  std::vector<int64_t> tokens{3, 4};
  int sequence_dim = -1;
  int64_t vocabulary = 28;
  int64_t ignored = -100;
  double grad = 1;
  bool plain = false;

  std::string name(int size) const {
    std::string shape;
    for (const int64_t n : tokens) shape += " " + std::to_string(n);
    return "tp " + std::to_string(size) + " dtype " + std::to_string(dtype) + " smoothing " +
           std::to_string(smoothing) + " reduction " + std::to_string(reduction) + " tokens" +
           shape + " sequence dim " + std::to_string(sequence_dim) + " grad " +
           std::to_string(grad) + (plain ? " plain" : "");
  }
  nxd_cross_entropy_options_t options() const {
    nxd_cross_entropy_options_t options = NXD_CROSS_ENTROPY_OPTIONS_INIT;
    options.label_smoothing = smoothing;
    options.reduction = reduction;
    options.has_ignore_index = ignored != -100;
    options.ignore_index = ignored != -100 ? ignored : 0;
    return options;
  }
  int64_t count() const {
    int64_t n = 1;
    for (const int64_t size : tokens) n *= size;
    return n;
  }
};

Tensor labels_of(const Setting& s) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < s.count(); ++i) {
    ids.push_back(i % 5 == 3 ? s.ignored : (i * 11 + 3) % s.vocabulary);
  }
  return from_ints(ids, s.tokens);
}

std::vector<int64_t> with_last(std::vector<int64_t> shape, int64_t last) {
  shape.push_back(last);
  return shape;
}

Tensor loss_of(nxd_context_t* ctx, const Tensor& x, const Tensor& weight, const Tensor& labels,
               const Setting& s) {
  const nxd_cross_entropy_options_t options = s.options();
  Tensor loss;
  NXD_TEST_OK(nxd_linear_cross_entropy(ctx, x.get(), weight.get(), labels.get(), s.sequence_dim,
                                       &options, loss.out()));
  return loss;
}

// The loss of all tokens and the whole vocabulary, through all logits.
Tensor whole_loss(const Tensor& x, const Tensor& weight, const Tensor& labels, const Setting& s) {
  const Tensor rows = op("reshape", {{"self", x}, {"shape", std::vector<int64_t>{-1, kFeatures}}});
  const Tensor across = op("t", {{"self", weight}});
  const Tensor logits = op("matmul", {{"self", rows}, {"other", across}});
  const Tensor targets = op("reshape", {{"self", labels}, {"shape", std::vector<int64_t>{-1}}});
  const int64_t reduction = s.reduction == NXD_REDUCTION_NONE   ? 0
                            : s.reduction == NXD_REDUCTION_MEAN ? 1
                                                                : 2;
  const Tensor loss = op("cross_entropy_loss", {{"self", logits},
                                                {"target", targets},
                                                {"reduction", reduction},
                                                {"ignore_index", s.ignored},
                                                {"label_smoothing", s.smoothing}});
  if (reduction != 0) return loss;
  return op("reshape", {{"self", loss}, {"shape", s.tokens}});
}

struct Outcome {
  Tensor loss, dx, dweight;
};

Outcome reference(const Setting& s, const Tensor& x, const Tensor& weight, const Tensor& labels,
                  nxd_dtype_t dtype) {
  const Tensor in = leaf(x, dtype, true), w = leaf(weight, dtype, true);
  Outcome out;
  out.loss = whole_loss(in, w, labels, s);
  const Tensor grad = s.reduction == NXD_REDUCTION_NONE ? wave(s.tokens, dtype, 3)
                                                        : from_doubles({s.grad}, {}, dtype);
  backward(out.loss, grad);
  out.dx = in.grad();
  out.dweight = w.grad();
  return out;
}

void check_error(const std::string& what, const Tensor& got, const Tensor& unsharded,
                 const Tensor& exact) {
  const double error = max_difference(got, exact), allowed = 2 * max_difference(unsharded, exact);
  if (error <= allowed) return;
  nxd_test_fail(__FILE__, __LINE__, "%s: error %g, ATen's in bf16 is %g", what.c_str(), error,
                allowed / 2);
}

void check_setting(nxd_context_t* ctx, int rank, int size, const Setting& s) {
  const Tensor x = op("mul", "Scalar",
                      {{"self", wave(with_last(s.tokens, kFeatures), s.dtype, 1)}, {"other", 2.0}});
  const Tensor weight = wave({s.vocabulary, kFeatures}, s.dtype, 2);
  const Tensor labels = labels_of(s);
  NXD_TEST_OK(nxd_context_set_plain_kernels(ctx, s.plain));
  const Tensor own_x = leaf(part(x, s.sequence_dim, rank, size), s.dtype, true);
  const Tensor own_weight = leaf(part(weight, 0, rank, size), s.dtype, true);
  const Tensor loss = loss_of(ctx, own_x, own_weight, labels, s);
  NXD_TEST_OK(nxd_context_set_plain_kernels(ctx, false));
  if (!loss) return;
  const nxd_dtype_t wide = s.dtype == NXD_DTYPE_F64 ? NXD_DTYPE_F64 : NXD_DTYPE_F32;
  NXD_TEST_CHECK(loss.dtype() == wide);
  backward(loss, s.reduction == NXD_REDUCTION_NONE ? wave(s.tokens, wide, 3)
                                                   : from_doubles({s.grad}, {}, wide));
  const std::string name = s.name(size);
  const Tensor dx = own_x.grad(), dweight = own_weight.grad();
  NXD_TEST_CHECK(dx.dtype() == s.dtype && dweight.dtype() == s.dtype);
  const Outcome exact = reference(s, x, weight, labels, NXD_DTYPE_F64);
  const Tensor want_dx = part(exact.dx, s.sequence_dim, rank, size);
  const Tensor want_dweight = part(exact.dweight, 0, rank, size);
  if (s.dtype != NXD_DTYPE_BF16) {
    const double tolerance = s.dtype == NXD_DTYPE_F64 ? 1e-12 : 1e-5;
    NXD_TEST_CLOSE(name + " loss", loss, exact.loss, tolerance);
    NXD_TEST_CLOSE(name + " dx", dx, want_dx, tolerance);
    NXD_TEST_CLOSE(name + " dweight", dweight, want_dweight, tolerance);
    return;
  }
  const Outcome unsharded = reference(s, x, weight, labels, NXD_DTYPE_BF16);
  check_error(name + " loss", loss, unsharded.loss, exact.loss);
  check_error(name + " dx", dx, part(unsharded.dx, s.sequence_dim, rank, size), want_dx);
  check_error(name + " dweight", dweight, part(unsharded.dweight, 0, rank, size), want_dweight);
}

void all_settings(nxd_context_t* ctx, int rank, int size, void*) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const nxd_reduction_t reduction :
           {NXD_REDUCTION_MEAN, NXD_REDUCTION_SUM, NXD_REDUCTION_NONE}) {
        for (const int sequence_dim : {-1, 0, 1}) {
          Setting s{dtype, smoothing, reduction, {4, 8}, sequence_dim};
          check_setting(ctx, rank, size, s);
          s.ignored = 5;
          s.grad = 0.75;
          s.plain = smoothing == 0;
          check_setting(ctx, rank, size, s);
        }
      }
    }
  }
  // Ragged numbers of tokens, one and no block's worth; a vocabulary of one per rank.
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    check_setting(ctx, rank, size, {dtype, 0.1, NXD_REDUCTION_MEAN, {1}});
    check_setting(ctx, rank, size, {dtype, 0, NXD_REDUCTION_SUM, {37}});
    check_setting(ctx, rank, size, {dtype, 0, NXD_REDUCTION_SUM, {3, 1, 5}, -1, 4});
  }
}

void test_against_aten(void**) {
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, all_settings, nullptr);
}

// Three blocks of at most 4096 tokens, the last one shorter.
void several_blocks(nxd_context_t* ctx, int rank, int size, void*) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    check_setting(ctx, rank, size, {dtype, 0.1, NXD_REDUCTION_MEAN, {8297}});
    check_setting(ctx, rank, size, {dtype, 0, NXD_REDUCTION_MEAN, {2100, 4}, 0});
  }
}

void test_several_blocks(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, several_blocks, nullptr);
}

void nothing_to_learn(nxd_context_t* ctx, int rank, int size, void*) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const nxd_reduction_t reduction : {NXD_REDUCTION_MEAN, NXD_REDUCTION_SUM}) {
      for (const int64_t tokens : {0, 6}) {
        const Setting s{dtype, 0.1, reduction, {tokens}};
        const Tensor x = leaf(wave({tokens, kFeatures}, dtype, 1), dtype, true);
        const Tensor w =
            leaf(part(wave({s.vocabulary, kFeatures}, dtype, 2), 0, rank, size), dtype, true);
        const Tensor labels =
            from_ints(std::vector<int64_t>(static_cast<size_t>(tokens), -100), {tokens});
        const Tensor loss = loss_of(ctx, x, w, labels, s);
        if (!loss) return;
        NXD_TEST_CHECK(loss.item() == 0);
        backward(loss);
        NXD_TEST_CHECK(max_abs(values(x.grad())) == 0);
        NXD_TEST_CHECK(max_abs(values(w.grad())) == 0);
      }
    }
  }
}

void test_nothing_to_learn(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, nothing_to_learn, nullptr);
}

// The weight is also the table that x was looked up in, and gradients of several passes add up.
void shared_weight(nxd_context_t* ctx, int, int, void*) {
  const Setting s{NXD_DTYPE_F32, 0, NXD_REDUCTION_MEAN, {6}};
  const Tensor table = wave({s.vocabulary, kFeatures}, NXD_DTYPE_F32, 2);
  const Tensor ids = from_ints({0, 2, 4, 4, 6, 1}, {6}), labels = labels_of(s);
  const auto look_up = [&](const Tensor& w) {
    return op("embedding", {{"weight", w}, {"indices", ids}});
  };
  const Tensor exact = leaf(table, NXD_DTYPE_F64, true), own = leaf(table, NXD_DTYPE_F32, true);
  for (int pass = 0; pass < 3; ++pass) {
    backward(whole_loss(look_up(exact), exact, labels, s));
    backward(loss_of(ctx, look_up(own), own, labels, s));
    NXD_TEST_CLOSE("tied weight", own.grad(), exact.grad(), 1e-5);
  }
}

void test_shared_weight(void**) { nxd_test_run_ranks(1, 1, shared_weight, nullptr); }

// A leaf's gradient of a kept graph is its own: adding to it must not change what is kept.
void kept_graph_of_leaves(nxd_context_t* ctx, int rank, int size, void*) {
  const Setting s{};
  const Tensor x = leaf(wave(with_last(s.tokens, kFeatures), s.dtype, 1), s.dtype, true);
  const Tensor w =
      leaf(part(wave({s.vocabulary, kFeatures}, s.dtype, 2), 0, rank, size), s.dtype, true);
  const Tensor loss = loss_of(ctx, x, w, labels_of(s), s);
  nxd_tensor_t* outputs[] = {loss.get()};
  NXD_TEST_OK(nxd_backward(outputs, nullptr, 1, 1));
  const Tensor dx = op("clone", {{"self", x.grad()}}), dw = op("clone", {{"self", w.grad()}});
  for (int pass = 2; pass <= 4; ++pass) {
    NXD_TEST_OK(nxd_backward(outputs, nullptr, 1, pass < 4));
    const double times = pass;
    NXD_TEST_CLOSE("dx", x.grad(), op("mul", "Scalar", {{"self", dx}, {"other", times}}), 1e-6);
    NXD_TEST_CLOSE("dweight", w.grad(), op("mul", "Scalar", {{"self", dw}, {"other", times}}),
                   1e-6);
  }
  NXD_TEST_REFUSED(nxd_backward(outputs, nullptr, 1, 0), NXD_ERROR_INVALID_STATE, "second time");
}

void test_kept_graph_of_leaves(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, kept_graph_of_leaves, nullptr);
}

// A tensor that requires no gradient gets none, and the loss is the same.
void frozen(nxd_context_t* ctx, int rank, int size, void*) {
  const Setting s{};
  const Tensor x = wave(with_last(s.tokens, kFeatures), s.dtype, 1);
  const Tensor weight = part(wave({s.vocabulary, kFeatures}, s.dtype, 2), 0, rank, size);
  double want = NAN;
  for (const bool learn_x : {true, false}) {
    for (const bool learn_weight : {true, false}) {
      const Tensor in = leaf(x, s.dtype, learn_x), w = leaf(weight, s.dtype, learn_weight);
      const Tensor loss = loss_of(ctx, in, w, labels_of(s), s);
      if (!loss) return;
      if (learn_x && learn_weight) want = loss.item();
      NXD_TEST_CHECK(loss.item() == want);
      if (!learn_x && !learn_weight) continue;
      backward(loss);
      NXD_TEST_CHECK(!in.grad() == !learn_x && !w.grad() == !learn_weight);
    }
  }
}

void test_frozen(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, frozen, nullptr);
}

// 8192 x 2048 logits would be 64 MiB in f32; a block of 2048 tokens has 16 MiB.
void memory(nxd_context_t* ctx, int, int, void*) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    const Setting s{dtype, 0, NXD_REDUCTION_MEAN, {8192}, -1, 2048};
    const Tensor x = leaf(wave({8192, kFeatures}, dtype, 1), dtype, true);
    const Tensor w = leaf(wave({2048, kFeatures}, dtype, 2), dtype, true);
    nxd_memory_stats_t before{}, after{};
    before.struct_size = after.struct_size = sizeof before;
    NXD_TEST_OK(nxd_memory_get_stats(&before));
    const Tensor loss = loss_of(ctx, x, w, labels_of(s), s);
    if (!loss) return;
    backward(loss);
    NXD_TEST_OK(nxd_memory_get_stats(&after));
    const uint64_t most = after.peak_bytes_in_use - before.bytes_in_use;
    // A processor without products of BF16 widens a block, and the operands beside it.
    const uint64_t bound = (dtype == NXD_DTYPE_F32 ? 32 : 48) * kMiB;
    NXD_TEST_CHECK(most >= 16 * kMiB && most < bound);
  }
}

void test_memory(void**) { nxd_test_run_ranks(1, 1, memory, nullptr); }

struct Bad {
  const char* part;  // of the message on the rank that is wrong
  Tensor x, weight, labels;
  int sequence_dim = -1;
  nxd_cross_entropy_options_t options = NXD_CROSS_ENTROPY_OPTIONS_INIT;
};

std::vector<Bad> bad_calls(int size) {
  const Tensor x = wave({3, 5}, NXD_DTYPE_F32, 1), t = from_ints({0, 1, 2}, {3});
  const Tensor w = wave({8 / size, 5}, NXD_DTYPE_F32, 2);
  std::vector<Bad> calls;
  calls.push_back({"x: expected a tensor, got NULL", {}, w, t});
  calls.push_back({"weight: expected a tensor, got NULL", x, {}, t});
  calls.push_back({"labels: expected a tensor, got NULL", x, w, {}});
  calls.push_back({"x: expected", wave({3, 4}, NXD_DTYPE_F32, 1), w, t});
  calls.push_back({"x: expected", to(x, NXD_DTYPE_F64), w, t});
  calls.push_back({"x: expected", from_doubles({1}, {}, NXD_DTYPE_F32), w, t});
  calls.push_back({"weight: expected", x, wave({5}, NXD_DTYPE_F32, 1), t});
  calls.push_back({"weight: expected", x, to(w, NXD_DTYPE_I64), t});
  calls.push_back({"weight: expected", x, to(w, NXD_DTYPE_F16), t});
  calls.push_back({"labels: expected 0 to 7", x, w, from_ints({0, 8, 2}, {3})});
  calls.push_back({"labels: expected 0 to 7", x, w, from_ints({0, -1, 2}, {3})});
  calls.push_back({"labels: expected the whole x's shape", x, w, from_ints({0, 1}, {2})});
  calls.push_back({"labels: expected the whole x's shape", x, w, from_ints({0, 1, 2}, {3, 1})});
  calls.push_back({"labels: expected dtype i64", x, w, to(t, NXD_DTYPE_I32)});
  calls.push_back({"weight, labels: expected device", x, w, without_values({3}, NXD_DTYPE_I64)});
  calls.push_back(
      {"weight, labels: expected device", x, without_values({8 / size, 5}, NXD_DTYPE_F32), t});
  calls.push_back({"sequence_dim: expected", x, w, t, 1});
  calls.push_back({"sequence_dim: expected", x, w, t, -2});
  Bad smoothing{"label_smoothing: expected 0 to 1", x, w, t};
  smoothing.options.label_smoothing = 1.5;
  calls.push_back(smoothing);
  Bad reduction{"reduction: expected", x, w, t};
  reduction.options.reduction = 3;
  calls.push_back(reduction);
  return calls;
}

void check_usable(nxd_context_t* ctx, int size) {
  Setting s{};
  s.tokens = {3};
  const Tensor x = wave({3, kFeatures}, NXD_DTYPE_F32, 1);
  const Tensor loss =
      loss_of(ctx, x, wave({8 / size, kFeatures}, NXD_DTYPE_F32, 2), from_ints({0, 1, 2}, {3}), s);
  if (loss) NXD_TEST_CHECK(std::isfinite(loss.item()));
}

// Wrong everywhere, then wrong on the last rank alone: all ranks are told, and can go on.
void refusals(nxd_context_t* ctx, int rank, int size, void*) {
  const Tensor x = wave({3, 5}, NXD_DTYPE_F32, 1), t = from_ints({0, 1, 2}, {3});
  const Tensor w = wave({8 / size, 5}, NXD_DTYPE_F32, 2);
  for (const bool everywhere : {true, false}) {
    for (const Bad& bad : bad_calls(size)) {
      const bool mine = everywhere || rank == size - 1;
      const nxd_cross_entropy_options_t options = NXD_CROSS_ENTROPY_OPTIONS_INIT;
      nxd_tensor_t* out = x.get();
      NXD_TEST_REFUSED(nxd_linear_cross_entropy(
                           ctx, mine ? bad.x.get() : x.get(), mine ? bad.weight.get() : w.get(),
                           mine ? bad.labels.get() : t.get(), mine ? bad.sequence_dim : -1,
                           mine ? &bad.options : &options, &out),
                       NXD_ERROR_INVALID_ARGUMENT, mine ? bad.part : "rank ");
      NXD_TEST_CHECK(out == nullptr);
      check_usable(ctx, size);
    }
    if (size == 1) break;
  }
  nxd_tensor_t* out = nullptr;
  NXD_TEST_REFUSED(nxd_linear_cross_entropy(nullptr, x.get(), w.get(), t.get(), -1, nullptr, &out),
                   NXD_ERROR_INVALID_ARGUMENT, "ctx");
  NXD_TEST_REFUSED(nxd_linear_cross_entropy(ctx, x.get(), w.get(), t.get(), -1, nullptr, nullptr),
                   NXD_ERROR_INVALID_ARGUMENT, "out_loss");
}

void test_refusals(void**) {
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, refusals, nullptr);
}

// A rank with another number of tokens, or another share of the vocabulary, than its peers.
void disagreements(nxd_context_t* ctx, int rank, int size, void*) {
  const auto refused = [&](int64_t rows, int64_t cols) {
    const Tensor labels = from_ints(std::vector<int64_t>(static_cast<size_t>(rows), 1), {rows});
    nxd_tensor_t* out = nullptr;
    NXD_TEST_REFUSED(nxd_linear_cross_entropy(ctx, wave({rows, 5}, NXD_DTYPE_F32, 1).get(),
                                              wave({cols, 5}, NXD_DTYPE_F32, 2).get(), labels.get(),
                                              -1, nullptr, &out),
                     NXD_ERROR_INVALID_ARGUMENT, nullptr);
    NXD_TEST_CHECK(out == nullptr);
    check_usable(ctx, size);
  };
  refused(rank == 0 ? 2 : 3, 4);
  refused(3, rank == 0 ? 3 : 4);
}

void test_disagreements(void**) { nxd_test_run_ranks(2, 2, disagreements, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      // First, as the peak is the process's.
      cmocka_unit_test(test_memory),         cmocka_unit_test(test_against_aten),
      cmocka_unit_test(test_several_blocks), cmocka_unit_test(test_nothing_to_learn),
      cmocka_unit_test(test_shared_weight),  cmocka_unit_test(test_kept_graph_of_leaves),
      cmocka_unit_test(test_frozen),         cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_disagreements),
  };
  return cmocka_run_group_tests_name("linear_cross_entropy", tests, nullptr, nullptr);
}
