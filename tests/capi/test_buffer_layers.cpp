// Norms over a caller's arrays: against the formulas in plain loops over the undivided rows, for
// all dtypes, options and layouts in memory, on 1, 2 and 4 ranks.
#include "support/layer_arrays.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

struct Case {
  nxd_dtype_t dtype;
  bool has_mean;  // a layer norm
  Sizes lead;     // of each rank's rows
  int64_t features;
  bool sequence_parallel = false, weight = true, bias = true, accumulate = false,
       wide_grads = false;
  bool workspace = false, fine = false;
  double eps = 0;
  Layout layout = Layout::kDense;

  std::string text() const {
    std::string shape;
    for (const int64_t size : lead) shape += std::to_string(size) + " ";
    return std::string(has_mean ? "layer norm" : "RMS norm") + " dtype " + std::to_string(dtype) +
           ", rows [" + shape + "], features " + std::to_string(features) + ", sequence parallel " +
           std::to_string(sequence_parallel) + ", weight " + std::to_string(weight) + ", bias " +
           std::to_string(bias) + ", accumulate " + std::to_string(accumulate) + ", wide grads " +
           std::to_string(wide_grads) + ", workspace " + std::to_string(workspace) + ", layout " +
           std::to_string(static_cast<int>(layout));
  }
  nxd_dtype_t wide() const { return dtype == NXD_DTYPE_F64 ? NXD_DTYPE_F64 : NXD_DTYPE_F32; }
  nxd_dtype_t grad_dtype() const { return wide_grads ? wide() : dtype; }
};

struct Expected {
  Numbers y, statistics, grad_x, grad_weight, grad_bias;
};

// In f64, of all rows. Statistics are those of one kind after another.
Expected expected_of(const Case& c, const Numbers& x, const Numbers& weight, const Numbers& bias,
                     const Numbers& dy) {
  const int64_t n = c.features, rows = count_of(x.shape) / n;
  Sizes per_row(x.shape.begin(), x.shape.end() - 1);
  if (c.has_mean) per_row.insert(per_row.begin(), 2);
  Expected e{Numbers(x.shape), Numbers(per_row), Numbers(x.shape), Numbers({n}), Numbers({n})};
  const double eps = c.eps == 0 ? 1e-5 : c.eps;
  for (int64_t r = 0; r < rows; ++r) {
    const auto size = static_cast<double>(n);
    double mean = 0, square = 0, sum = 0, product = 0;
    for (int64_t i = 0; c.has_mean && i < n; ++i) mean += x.at(r * n + i) / size;
    for (int64_t i = 0; i < n; ++i) square += std::pow(x.at(r * n + i) - mean, 2) / size;
    const double inv = 1 / std::sqrt(square + eps);
    if (c.has_mean) e.statistics.at(r) = mean;
    e.statistics.at((c.has_mean ? rows : 0) + r) = inv;
    const auto normal = [&](int64_t i) { return (x.at(r * n + i) - mean) * inv; };
    for (int64_t i = 0; i < n; ++i) {
      e.y.at(r * n + i) = normal(i) * weight.at(i) + bias.at(i);
      e.grad_weight.at(i) += dy.at(r * n + i) * normal(i);
      e.grad_bias.at(i) += dy.at(r * n + i);
      sum += dy.at(r * n + i) * weight.at(i) / size;
      product += dy.at(r * n + i) * weight.at(i) * normal(i) / size;
    }
    for (int64_t i = 0; i < n; ++i) {
      e.grad_x.at(r * n + i) =
          inv * (dy.at(r * n + i) * weight.at(i) - (c.has_mean ? sum : 0) - normal(i) * product);
    }
  }
  return e;
}

// The tensors of one case on this rank.
struct Tensors {
  Buffer x, weight, bias, dy, y, statistics, grad_x, grad_weight, grad_bias;
  DLTensor *pw, *pb;
};

nxd_status_t forward(nxd_context_t* ctx, const Case& c, Tensors& t,
                     const nxd_normalization_options_t& options, DLTensor* statistics) {
  if (!c.has_mean) {
    return nxd_rms_norm_forward(ctx, t.x.tensor(), t.pw, &options, t.y.tensor(), statistics);
  }
  return nxd_layer_norm_forward(ctx, t.x.tensor(), t.pw, t.pb, &options, t.y.tensor(), statistics);
}

size_t forward_bytes(nxd_context_t* ctx, const Case& c, Tensors& t,
                     const nxd_normalization_options_t& options) {
  size_t bytes = 0;
  if (!c.has_mean) {
    NXD_TEST_OK(nxd_rms_norm_forward_get_workspace(ctx, t.x.tensor(), t.pw, &options, t.y.tensor(),
                                                   t.statistics.tensor(), &bytes));
  } else {
    NXD_TEST_OK(nxd_layer_norm_forward_get_workspace(ctx, t.x.tensor(), t.pw, t.pb, &options,
                                                     t.y.tensor(), t.statistics.tensor(), &bytes));
  }
  return bytes;
}

nxd_status_t backward(nxd_context_t* ctx, const Case& c, Tensors& t,
                      const nxd_normalization_options_t& options, bool input, bool parameters) {
  DLTensor* const dx = input ? t.grad_x.tensor() : nullptr;
  DLTensor* const dw = parameters ? t.grad_weight.tensor() : nullptr;
  DLTensor* const db = parameters ? t.grad_bias.tensor() : nullptr;
  DLTensor* const rows = t.statistics.tensor();
  if (!c.has_mean) {
    return nxd_rms_norm_backward(ctx, t.x.tensor(), t.pw, rows, t.dy.tensor(), &options, dx, dw);
  }
  return nxd_layer_norm_backward(ctx, t.x.tensor(), t.pw, rows, t.dy.tensor(), &options, dx, dw,
                                 db);
}

size_t backward_bytes(nxd_context_t* ctx, const Case& c, Tensors& t,
                      const nxd_normalization_options_t& options) {
  size_t bytes = 0;
  DLTensor *const rows = t.statistics.tensor(), *const dx = t.grad_x.tensor();
  if (!c.has_mean) {
    NXD_TEST_OK(nxd_rms_norm_backward_get_workspace(ctx, t.x.tensor(), t.pw, rows, t.dy.tensor(),
                                                    &options, dx, t.grad_weight.tensor(), &bytes));
  } else {
    NXD_TEST_OK(nxd_layer_norm_backward_get_workspace(ctx, t.x.tensor(), t.pw, rows, t.dy.tensor(),
                                                      &options, dx, t.grad_weight.tensor(),
                                                      t.grad_bias.tensor(), &bytes));
  }
  return bytes;
}

void check_case(nxd_context_t* ctx, const Case& c, int rank, int ranks) {
  Sizes shape = c.lead;
  const bool parts = c.sequence_parallel && !c.lead.empty();
  if (parts) shape[0] *= ranks;
  shape.push_back(c.features);
  const Numbers x = Numbers::pattern(shape, 1, c.fine), dy = Numbers::pattern(shape, 2, c.fine);
  Numbers weight = Numbers::pattern({c.features}, 3), bias = Numbers::pattern({c.features}, 4);
  if (!c.weight) std::fill(weight.values.begin(), weight.values.end(), 1.0);
  const bool has_bias = c.has_mean && c.bias;
  if (!has_bias) std::fill(bias.values.begin(), bias.values.end(), 0.0);
  const Expected e = expected_of(c, x, weight, bias, dy);
  const auto own = [&](const Numbers& whole, int dim) {
    return parts ? whole.part(dim, rank, ranks) : whole;
  };
  const Numbers before = Numbers::pattern({c.features}, 5);
  Tensors t{{own(x, 0), c.dtype, c.layout},
            {weight, c.dtype, c.layout},
            {bias, c.dtype, c.layout},
            {own(dy, 0), c.dtype, c.layout},
            {own(x, 0).shape, c.dtype, c.layout},
            {own(e.statistics, c.has_mean ? 1 : 0).shape, c.wide(), c.layout},
            {own(x, 0).shape, c.dtype, c.layout},
            {before, c.grad_dtype(), c.layout},
            {before, c.grad_dtype(), c.layout},
            nullptr,
            nullptr};
  t.pw = c.weight ? t.weight.tensor() : nullptr;
  t.pb = has_bias ? t.bias.tensor() : nullptr;

  const std::string what = c.text();
  Workspace workspace;
  nxd_normalization_options_t options = NXD_NORMALIZATION_OPTIONS_INIT;
  options.eps = c.eps;
  options.sequence_parallel = c.sequence_parallel;
  options.accumulate_grads = c.accumulate;
  if (c.workspace) {
    options.workspace_bytes = forward_bytes(ctx, c, t, options);
    options.workspace = workspace.take(options.workspace_bytes);
  }
  if (!NXD_TEST_OK(forward(ctx, c, t, options, t.statistics.tensor()))) return;
  t.y.equals(own(e.y, 0), 20, "y of " + what);
  t.statistics.equals(own(e.statistics, c.has_mean ? 1 : 0), 200, "statistics of " + what);
  if (c.workspace) NXD_TEST_CHECK(workspace.is_intact());
  options.workspace = nullptr;
  options.workspace_bytes = 0;
  NXD_TEST_OK(forward(ctx, c, t, options, nullptr));
  t.y.equals(own(e.y, 0), 20, "y without statistics of " + what);

  if (c.workspace) {
    options.workspace_bytes = backward_bytes(ctx, c, t, options);
    options.workspace = workspace.take(options.workspace_bytes);
  }
  if (!NXD_TEST_OK(backward(ctx, c, t, options, true, true))) return;
  if (c.workspace) NXD_TEST_CHECK(workspace.is_intact());
  const double rows = static_cast<double>(count_of(x.shape)) / static_cast<double>(c.features);
  t.grad_x.equals(own(e.grad_x, 0), 200, "grad_x of " + what);
  const double size = 20 + 20 * rows;
  t.grad_weight.equals(c.accumulate ? e.grad_weight.plus(before) : e.grad_weight, size,
                       "grad_weight of " + what);
  t.grad_bias.equals(!c.has_mean    ? before
                     : c.accumulate ? e.grad_bias.plus(before)
                                    : e.grad_bias,
                     size, "grad_bias of " + what);
  // One kind of gradient alone.
  options.workspace = nullptr;
  options.workspace_bytes = 0;
  NXD_TEST_OK(backward(ctx, c, t, options, true, false));
  t.grad_x.equals(own(e.grad_x, 0), 200, "grad_x alone of " + what);
  options.accumulate_grads = 0;
  NXD_TEST_OK(backward(ctx, c, t, options, false, true));
  t.grad_weight.equals(e.grad_weight, size, "grad_weight alone of " + what);
}

constexpr nxd_dtype_t kFloats[] = {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16, NXD_DTYPE_F16};

// Options and layouts in memory, in turn.
void check_modes(nxd_context_t* ctx, int rank, int ranks, void*) {
  int number = 0;
  for (const nxd_dtype_t dtype : kFloats) {
    for (const Layout layout : kLayouts) {
      for (const bool has_mean : {false, true}) {
        for (int twice = 0; twice < 2; ++twice) {
          Case c{dtype, has_mean, {3, 2}, 9};
          c.layout = layout;
          const int bits = number++ * 11 + static_cast<int>(layout);
          c.sequence_parallel = bits & 1;
          c.weight = !(bits & 2);
          c.bias = !(bits & 4);
          c.accumulate = bits & 8;
          c.wide_grads = bits & 16;
          c.workspace = bits & 32;
          c.eps = bits & 64 ? 0.25 : 0;
          check_case(ctx, c, rank, ranks);
        }
      }
    }
  }
}

// No rows, one row, one feature, and more rows and features than a kernel takes at a time.
void check_sizes(nxd_context_t* ctx, int rank, int ranks, void*) {
  for (const nxd_dtype_t dtype : kFloats) {
    for (const bool has_mean : {false, true}) {
      for (Case c : {Case{dtype, has_mean, {}, 6}, Case{dtype, has_mean, {0, 3}, 5},
                     Case{dtype, has_mean, {4}, 1}, Case{dtype, has_mean, {2, 1, 3}, 33},
                     Case{dtype, has_mean, {300}, 70}}) {
        c.eps = 0.5;  // a single feature has no variance
        for (const bool sequence_parallel : {false, true}) {
          if (sequence_parallel && c.lead.empty()) continue;
          c.sequence_parallel = sequence_parallel;
          check_case(ctx, c, rank, ranks);
        }
      }
    }
  }
}

// f64 in numbers that are no sums of few bits.
void check_f64(nxd_context_t* ctx, int rank, int ranks, void*) {
  for (const bool has_mean : {false, true}) {
    Case c{NXD_DTYPE_F64, has_mean, {5, 3}, 64};
    c.fine = c.sequence_parallel = true;
    check_case(ctx, c, rank, ranks);
  }
}

// Ranks may have unequally many rows of their own.
void check_ragged(nxd_context_t* ctx, int rank, int ranks, void*) {
  const int64_t rows = rank;  // none on the first
  Numbers x({rows, 4}), expected({4});
  for (int64_t i = 0; i < rows * 4; ++i) x.at(i) = 1;
  for (double& value : expected.values) value = ranks * (ranks - 1) / 2.0;
  Buffer in(x, NXD_DTYPE_F64), y({rows, 4}, NXD_DTYPE_F64), inv({rows}, NXD_DTYPE_F64);
  Buffer grad({4}, NXD_DTYPE_F64);
  nxd_normalization_options_t options = NXD_NORMALIZATION_OPTIONS_INIT;
  options.sequence_parallel = 1;
  options.eps = 1e-300;
  NXD_TEST_OK(nxd_rms_norm_forward(ctx, in.tensor(), nullptr, &options, y.tensor(), inv.tensor()));
  NXD_TEST_OK(nxd_rms_norm_backward(ctx, in.tensor(), nullptr, inv.tensor(), in.tensor(), &options,
                                    nullptr, grad.tensor()));
  grad.equals(expected, 1, "gradient of ragged rows");
}

void on_all_ranks(nxd_test_rank_fn body) {
  for (const int ranks : {1, 2, 4}) nxd_test_run_ranks(ranks, ranks, body, nullptr);
}

void all_modes(void**) { on_all_ranks(check_modes); }
void all_sizes(void**) { on_all_ranks(check_sizes); }
void f64_numbers(void**) { on_all_ranks(check_f64); }
void ragged_rows(void**) { on_all_ranks(check_ragged); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(all_modes), cmocka_unit_test(all_sizes),
                              cmocka_unit_test(f64_numbers), cmocka_unit_test(ragged_rows)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
