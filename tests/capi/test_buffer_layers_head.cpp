// A head with its loss over a caller's arrays, whose vocabulary is split: against plain loops over
// the undivided logits in f64, for all dtypes, options, layouts in memory and sizes of blocks, on
// 1, 2 and 4 ranks.
#include "support/layer_arrays.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

struct Case {
  nxd_dtype_t dtype;
  Sizes lead;              // of all ranks' tokens
  int64_t features, cols;  // classes of each rank
  int64_t vocab_size = 0;  // 0: all of them
  nxd_reduction_t reduction = NXD_REDUCTION_MEAN;
  double label_smoothing = 0;
  int sequence_dim = -1;  // -1: every rank has all tokens
  int block_tokens = 0;
  bool transposed = false, bias = true, accumulate = false, wide_grads = false, workspace = false;
  bool factor = true;
  nxd_dtype_t labels_dtype = NXD_DTYPE_I64;
  Layout layout = Layout::kDense;

  std::string text() const {
    std::string shape;
    for (const int64_t size : lead) shape += std::to_string(size) + " ";
    return "head dtype " + std::to_string(dtype) + ", tokens [" + shape + "], " +
           std::to_string(features) + " features, columns " + std::to_string(cols) + " of " +
           std::to_string(vocab_size) + ", reduction " + std::to_string(reduction) +
           ", smoothing " + std::to_string(label_smoothing) + ", sequence " +
           std::to_string(sequence_dim) + ", blocks of " + std::to_string(block_tokens) +
           ", transposed " + std::to_string(transposed) + ", bias " + std::to_string(bias) +
           ", accumulate " + std::to_string(accumulate) + ", wide " + std::to_string(wide_grads) +
           ", workspace " + std::to_string(workspace) + ", layout " +
           std::to_string(static_cast<int>(layout));
  }
  nxd_linear_cross_entropy_options_t options() const {
    nxd_linear_cross_entropy_options_t options = NXD_LINEAR_CROSS_ENTROPY_OPTIONS_INIT;
    options.label_smoothing = label_smoothing;
    options.reduction = reduction;
    options.vocab_size = vocab_size;
    options.sequence_parallel = sequence_dim >= 0;
    options.sequence_dim = std::max(sequence_dim, 0);
    options.transposed_weight = transposed;
    options.accumulate_grads = accumulate;
    options.block_tokens = block_tokens;
    return options;
  }
  nxd_dtype_t wide() const { return dtype == NXD_DTYPE_F64 ? NXD_DTYPE_F64 : NXD_DTYPE_F32; }
};

// The undivided loss and its gradients in f64; labels of -100 are ignored.
struct Expected {
  Numbers loss, statistics, dlogits;
};

Expected expected_of(const Case& c, const Numbers& logits, const Numbers& labels,
                     const Numbers& grad_loss, int64_t vocabulary) {
  const bool each = c.reduction == NXD_REDUCTION_NONE;
  Sizes pair = c.lead;
  pair.insert(pair.begin(), 2);
  Expected e{Numbers(each ? c.lead : Sizes{}), Numbers(pair), Numbers(logits.shape)};
  const int64_t rows = count_of(c.lead), cols = logits.last();
  const double s = c.label_smoothing;
  double valid = 0;
  for (int64_t r = 0; r < rows; ++r) valid += labels.at(r) >= 0;
  const double share = c.reduction == NXD_REDUCTION_MEAN ? 1 / std::max(valid, 1.0) : 1;
  for (int64_t r = 0; r < rows; ++r) {
    const auto z = [&](int64_t j) { return logits.at(r * cols + j); };
    double most = -HUGE_VAL, exps = 0, sum = 0;
    for (int64_t j = 0; j < vocabulary; ++j) most = std::max(most, z(j));
    for (int64_t j = 0; j < vocabulary; ++j) exps += std::exp(z(j) - most), sum += z(j);
    e.statistics.at(r) = most;
    e.statistics.at(rows + r) = std::log(exps);
    const auto label = static_cast<int64_t>(labels.at(r));
    if (label < 0) continue;
    const auto v = static_cast<double>(vocabulary);
    e.loss.at(each ? r : 0) +=
        (most + std::log(exps) - (1 - s) * z(label) - s * sum / v) * (each ? 1 : share);
    const double factor = each ? grad_loss.at(r) : grad_loss.at(0) * share;
    for (int64_t j = 0; j < vocabulary; ++j) {
      e.dlogits.at(r * cols + j) =
          (std::exp(z(j) - most) / exps - (j == label ? 1 - s : 0) - s / v) * factor;
    }
  }
  return e;
}

Numbers labels_of(const Case& c, int64_t vocabulary) {
  Numbers labels(c.lead);
  for (size_t i = 0; i < labels.values.size(); ++i) {
    const auto label = static_cast<int64_t>(i * i * 3 + i) % vocabulary;
    labels.values[i] = static_cast<double>(i % 4 == 3 ? -100 : label);
  }
  return labels;
}

// With NaN in the rows that pad a vocabulary: nothing may come of them.
Numbers unset_behind(Numbers rows, int64_t vocabulary) {
  const int64_t row = count_of(rows.shape) / rows.shape[0];
  std::fill(rows.values.begin() + vocabulary * row, rows.values.end(), NAN);
  return rows;
}

void check_case(nxd_context_t* ctx, const Case& c, int rank, int ranks) {
  const int64_t all = c.cols * ranks, vocabulary = c.vocab_size ? c.vocab_size : all;
  const bool each = c.reduction == NXD_REDUCTION_NONE;
  Sizes shape = c.lead;
  shape.push_back(c.features);
  const Numbers x = Numbers::pattern(shape, 1), weight = Numbers::pattern({all, c.features}, 2);
  Numbers bias = Numbers::pattern({all}, 3);
  if (!c.bias) std::fill(bias.values.begin(), bias.values.end(), 0.0);
  const Numbers labels = labels_of(c, vocabulary);
  Numbers grad_loss = Numbers::pattern(each ? c.lead : Sizes{}, 4);
  if (!c.factor) std::fill(grad_loss.values.begin(), grad_loss.values.end(), 1.0);
  const Expected e = expected_of(c, linear(x, weight, &bias), labels, grad_loss, vocabulary);
  const LinearGrads grads = linear_grads(x, weight, e.dlogits);

  const auto own = [&](const Numbers& whole) {
    return c.sequence_dim < 0 ? whole : whole.part(c.sequence_dim, rank, ranks);
  };
  const auto stored = [&](const Numbers& whole) {
    const Numbers part = whole.part(0, rank, ranks);
    return c.transposed ? part.transposed() : part;
  };
  const nxd_dtype_t grad_dtype = c.wide_grads ? c.wide() : c.dtype;
  const Numbers weight_before = stored(Numbers::pattern({all, c.features}, 5));
  const Numbers bias_before = Numbers::pattern({c.cols}, 6);
  Buffer px(own(x), c.dtype, c.layout);
  Buffer pw(stored(unset_behind(weight, vocabulary)), c.dtype, c.layout);
  Buffer pb(unset_behind(bias, vocabulary).part(0, rank, ranks), c.dtype, c.layout);
  Buffer pl(labels, c.labels_dtype, c.layout);
  Buffer statistics(e.statistics.shape, c.wide(), c.layout), loss(e.loss.shape, c.wide());
  DLTensor* const b = c.bias ? pb.tensor() : nullptr;
  const std::string what = c.text();
  Workspace workspace;
  auto options = c.options();
  if (c.workspace) {
    NXD_TEST_OK(nxd_linear_cross_entropy_forward_get_workspace(
        ctx, px.tensor(), pw.tensor(), b, pl.tensor(), &options, statistics.tensor(), loss.tensor(),
        &options.workspace_bytes));
    options.workspace = workspace.take(options.workspace_bytes);
  }
  if (!NXD_TEST_OK(nxd_linear_cross_entropy_forward(ctx, px.tensor(), pw.tensor(), b, pl.tensor(),
                                                    &options, statistics.tensor(),
                                                    loss.tensor()))) {
    return;
  }
  if (c.workspace) NXD_TEST_CHECK(workspace.is_intact());
  const double tokens = static_cast<double>(count_of(c.lead));
  loss.equals(e.loss, 40 + (each ? 0 : 20 * tokens), "loss of " + what);
  statistics.equals(e.statistics, 40, "statistics of " + what);

  Buffer pg(grad_loss, c.wide(), c.layout), dx(own(x).shape, c.dtype, c.layout);
  Buffer dw(weight_before, grad_dtype, c.layout), db(bias_before, grad_dtype, c.layout);
  DLTensor* const g = c.factor ? pg.tensor() : nullptr;
  options = c.options();
  if (c.workspace) {
    NXD_TEST_OK(nxd_linear_cross_entropy_backward_get_workspace(
        ctx, px.tensor(), pw.tensor(), b, pl.tensor(), statistics.tensor(), g, &options,
        dx.tensor(), dw.tensor(), db.tensor(), &options.workspace_bytes));
    options.workspace = workspace.take(options.workspace_bytes);
  }
  if (!NXD_TEST_OK(nxd_linear_cross_entropy_backward(ctx, px.tensor(), pw.tensor(), b, pl.tensor(),
                                                     statistics.tensor(), g, &options, dx.tensor(),
                                                     dw.tensor(), db.tensor()))) {
    return;
  }
  if (c.workspace) NXD_TEST_CHECK(workspace.is_intact());
  // Gradients of logits are rounded to 16 bits before their products.
  const bool narrow = c.dtype == NXD_DTYPE_BF16 || c.dtype == NXD_DTYPE_F16;
  const auto check = [&](Buffer& grad, const Numbers& expected, double size, const char* name) {
    if (!narrow) return (void)grad.equals(expected, size, name + (" of " + what));
    const double rounding = c.dtype == NXD_DTYPE_BF16 ? 1.0 / 64 : 1.0 / 512;
    for (int64_t i = 0; i < count_of(expected.shape); ++i) {
      const double error = std::fabs(grad.get(i) - expected.at(i));
      if (error <= rounding * (1 + std::fabs(expected.at(i)))) continue;
      nxd_test_fail(__FILE__, __LINE__, "%s of %s: element %lld is %g, expected %g", name,
                    what.c_str(), static_cast<long long>(i), grad.get(i), expected.at(i));
      return;
    }
  };
  check(dx, own(grads.x), 20 * static_cast<double>(all), "grad_x");
  const Numbers weight_grad = stored(grads.weight), bias_grad = grads.bias.part(0, rank, ranks);
  check(dw, c.accumulate ? weight_grad.plus(weight_before) : weight_grad, 20 + 20 * tokens,
        "grad_weight");
  check(db, c.accumulate ? bias_grad.plus(bias_before) : bias_grad, 20 + 20 * tokens, "grad_bias");
  // One gradient alone.
  Buffer alone(own(x).shape, c.dtype);
  options = c.options();
  NXD_TEST_OK(nxd_linear_cross_entropy_backward(ctx, px.tensor(), pw.tensor(), b, pl.tensor(),
                                                statistics.tensor(), g, &options, alone.tensor(),
                                                nullptr, nullptr));
  check(alone, own(grads.x), 20 * static_cast<double>(all), "grad_x alone");
}

constexpr nxd_dtype_t kFloats[] = {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16, NXD_DTYPE_F16};
constexpr nxd_reduction_t kReductions[] = {NXD_REDUCTION_NONE, NXD_REDUCTION_MEAN,
                                           NXD_REDUCTION_SUM};

// Options and layouts in memory, in turn.
void check_modes(nxd_context_t* ctx, int rank, int ranks, void*) {
  int number = 0;
  for (const nxd_dtype_t dtype : kFloats) {
    for (const Layout layout : kLayouts) {
      for (const nxd_reduction_t reduction : kReductions) {
        Case c{dtype, {4, 8}, 6, 7};
        c.layout = layout;
        c.reduction = reduction;
        const int bits = number++ * 37 + static_cast<int>(layout);
        c.labels_dtype = bits & 1 ? NXD_DTYPE_I32 : NXD_DTYPE_I64;
        c.label_smoothing = bits & 2 ? 0.1 : 0;
        c.sequence_dim = bits & 4 ? (bits & 8 ? 1 : 0) : -1;
        c.block_tokens = bits & 16 ? 5 : 0;
        c.transposed = bits & 32;
        c.bias = !(bits & 64);
        c.accumulate = bits & 128;
        c.wide_grads = bits & 256;
        c.workspace = bits & 512;
        c.vocab_size = bits & 1024 ? 7 * ranks - 4 : 0;
        c.factor = !(bits & 2048);
        check_case(ctx, c, rank, ranks);
      }
    }
  }
}

// A single token and class, no token, ranks whose classes are all padding, more than one block.
void check_sizes(nxd_context_t* ctx, int rank, int ranks, void*) {
  for (const nxd_dtype_t dtype : kFloats) {
    for (Case c : {Case{dtype, {4}, 3, 1}, Case{dtype, {}, 5, 6}, Case{dtype, {0, 3}, 4, 5},
                   Case{dtype, {5}, 2, 4, 2}, Case{dtype, {8, 2}, 1, 33}}) {
      for (const bool accumulate : {false, true}) {
        c.accumulate = accumulate;
        for (const int block : {0, 1, 3}) {
          c.block_tokens = block;
          check_case(ctx, c, rank, ranks);
        }
      }
    }
  }
}

void on_all_ranks(nxd_test_rank_fn body) {
  for (const int ranks : {1, 2, 4}) nxd_test_run_ranks(ranks, ranks, body, nullptr);
}

void all_modes(void**) { on_all_ranks(check_modes); }
void all_sizes(void**) { on_all_ranks(check_sizes); }

// The loss and the gradients are those of a column-parallel head and a cross entropy of its logits.
void check_against_parts(nxd_context_t* ctx, int rank, int ranks, void*) {
  const int64_t tokens = 600, features = 12, cols = 9;
  const Numbers x = Numbers::pattern({tokens, features}, 1, true);
  const Numbers weight = Numbers::pattern({cols * ranks, features}, 2, true);
  Numbers labels({tokens});
  for (int64_t i = 0; i < tokens; ++i) labels.at(i) = static_cast<double>(i % (cols * ranks));
  Buffer px(x, NXD_DTYPE_F64), pw(weight.part(0, rank, ranks), NXD_DTYPE_F64);
  Buffer pl(labels, NXD_DTYPE_I64), z({tokens, cols}, NXD_DTYPE_F64);
  Buffer rows({2, tokens}, NXD_DTYPE_F64), loss(Sizes{}, NXD_DTYPE_F64);
  Buffer fused_rows({2, tokens}, NXD_DTYPE_F64), fused(Sizes{}, NXD_DTYPE_F64);
  NXD_TEST_OK(
      nxd_column_linear_forward(ctx, px.tensor(), pw.tensor(), nullptr, nullptr, z.tensor()));
  NXD_TEST_OK(nxd_parallel_cross_entropy_forward(ctx, z.tensor(), pl.tensor(), nullptr,
                                                 rows.tensor(), loss.tensor()));
  NXD_TEST_OK(nxd_parallel_cross_entropy_backward(ctx, z.tensor(), pl.tensor(), rows.tensor(),
                                                  nullptr, nullptr, z.tensor()));
  Buffer dx({tokens, features}, NXD_DTYPE_F64), dw({cols, features}, NXD_DTYPE_F64);
  NXD_TEST_OK(nxd_column_linear_backward(ctx, px.tensor(), pw.tensor(), z.tensor(), nullptr,
                                         dx.tensor(), dw.tensor(), nullptr));
  Buffer fused_dx({tokens, features}, NXD_DTYPE_F64), fused_dw({cols, features}, NXD_DTYPE_F64);
  nxd_linear_cross_entropy_options_t options = NXD_LINEAR_CROSS_ENTROPY_OPTIONS_INIT;
  options.block_tokens = 100;
  NXD_TEST_OK(nxd_linear_cross_entropy_forward(ctx, px.tensor(), pw.tensor(), nullptr, pl.tensor(),
                                               &options, fused_rows.tensor(), fused.tensor()));
  NXD_TEST_OK(nxd_linear_cross_entropy_backward(ctx, px.tensor(), pw.tensor(), nullptr, pl.tensor(),
                                                fused_rows.tensor(), nullptr, &options,
                                                fused_dx.tensor(), fused_dw.tensor(), nullptr));
  const auto same = [](const Buffer& a, const Buffer& b, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      NXD_TEST_CHECK(std::fabs(a.get(i) - b.get(i)) <= 1e-12 * (1 + std::fabs(b.get(i))));
    }
  };
  same(fused, loss, 1);
  same(fused_rows, rows, 2 * tokens);
  same(fused_dx, dx, tokens * features);
  same(fused_dw, dw, cols * features);
}

void against_parts(void**) { on_all_ranks(check_against_parts); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(against_parts), cmocka_unit_test(all_modes),
                              cmocka_unit_test(all_sizes)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
