// The cross entropy of logits whose vocabulary is split, over a caller's arrays: against recorded
// values, and the formula in plain loops over the undivided logits, for all dtypes, options and
// layouts in memory, on 1, 2 and 4 ranks.
#include "support/layer_arrays.h"
#include "support/npy.h"
#include "support/paths.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

struct Case {
  nxd_dtype_t dtype;
  Sizes lead;              // of the labels
  int64_t cols;            // of each rank
  int64_t vocab_size = 0;  // 0: all columns
  nxd_reduction_t reduction = NXD_REDUCTION_NONE;
  nxd_smoothing_t smoothing = NXD_SMOOTHING_TORCH;
  double label_smoothing = 0;
  int64_t ignored = -100;
  nxd_dtype_t labels_dtype = NXD_DTYPE_I64;
  Layout layout = Layout::kDense;
  bool in_place = false, workspace = false, factor = true;

  std::string text() const {
    std::string shape;
    for (const int64_t size : lead) shape += std::to_string(size) + " ";
    return "cross entropy dtype " + std::to_string(dtype) + ", labels [" + shape + "], columns " +
           std::to_string(cols) + " of " + std::to_string(vocab_size) + ", reduction " +
           std::to_string(reduction) + ", smoothing " + std::to_string(smoothing) + " of " +
           std::to_string(label_smoothing) + ", ignored " + std::to_string(ignored) + ", layout " +
           std::to_string(static_cast<int>(layout)) + ", in place " + std::to_string(in_place) +
           ", workspace " + std::to_string(workspace);
  }
  nxd_parallel_cross_entropy_options_t options() const {
    nxd_parallel_cross_entropy_options_t options = NXD_PARALLEL_CROSS_ENTROPY_OPTIONS_INIT;
    options.label_smoothing = label_smoothing;
    options.smoothing = smoothing;
    options.reduction = reduction;
    options.vocab_size = vocab_size;
    options.has_ignore_index = ignored != -100;
    options.ignore_index = ignored == -100 ? 1 : ignored;  // which does not count
    return options;
  }
  nxd_dtype_t wide() const { return dtype == NXD_DTYPE_F64 ? NXD_DTYPE_F64 : NXD_DTYPE_F32; }
};

// The undivided loss in f64.
struct Expected {
  Numbers loss, statistics, grad;
};

// Labels, of which every fourth is ignored.
Numbers labels_of(const Case& c, int64_t vocabulary) {
  Numbers labels(c.lead);
  for (size_t i = 0; i < labels.values.size(); ++i) {
    const auto label = static_cast<int64_t>(i * i * 3 + i) % vocabulary;
    labels.values[i] = static_cast<double>(i % 4 == 3 ? c.ignored : label);
  }
  return labels;
}

Expected expected_of(const Case& c, const Numbers& logits, const Numbers& labels,
                     const Numbers& grad_loss, int64_t vocabulary) {
  const bool each = c.reduction == NXD_REDUCTION_NONE;
  Sizes pair = c.lead;
  pair.insert(pair.begin(), 2);
  Expected e{Numbers(each ? c.lead : Sizes{}), Numbers(pair), Numbers(logits.shape)};
  const int64_t rows = count_of(c.lead), cols = logits.last();
  const auto v = static_cast<double>(vocabulary);
  const double s =
      c.label_smoothing * (c.smoothing == NXD_SMOOTHING_MEGATRON && v > 1 ? v / (v - 1) : 1);
  double valid = 0;
  for (int64_t r = 0; r < rows; ++r) valid += static_cast<int64_t>(labels.at(r)) != c.ignored;
  const double share = c.reduction == NXD_REDUCTION_MEAN ? 1 / std::max(valid, 1.0) : 1;
  for (int64_t r = 0; r < rows; ++r) {
    const auto z = [&](int64_t j) { return logits.at(r * cols + j); };
    double most = -HUGE_VAL, exps = 0, sum = 0;
    for (int64_t j = 0; j < vocabulary; ++j) most = std::max(most, z(j));
    for (int64_t j = 0; j < vocabulary; ++j) exps += std::exp(z(j) - most), sum += z(j);
    e.statistics.at(r) = most;
    e.statistics.at(rows + r) = std::log(exps);
    const auto label = static_cast<int64_t>(labels.at(r));
    if (label == c.ignored) continue;
    e.loss.at(each ? r : 0) +=
        (most + std::log(exps) - (1 - s) * z(label) - s * sum / v) * (each ? 1 : share);
    const double factor = each ? grad_loss.at(r) : grad_loss.at(0) * share;
    for (int64_t j = 0; j < vocabulary; ++j) {
      e.grad.at(r * cols + j) =
          (std::exp(z(j) - most) / exps - (j == label ? 1 - s : 0) - s / v) * factor;
    }
  }
  return e;
}

void check_case(nxd_context_t* ctx, const Case& c, int rank, int ranks) {
  const int64_t vocabulary = c.vocab_size ? c.vocab_size : c.cols * ranks;
  const bool each = c.reduction == NXD_REDUCTION_NONE;
  Sizes shape = c.lead;
  shape.push_back(c.cols * ranks);
  const int last = static_cast<int>(c.lead.size());
  Numbers logits = Numbers::pattern(shape, 1);
  for (double& value : logits.values) value *= 16;  // which every dtype holds
  const Numbers labels = labels_of(c, vocabulary);
  Numbers grad_loss = Numbers::pattern(each ? c.lead : Sizes{}, 2);
  if (!c.factor) std::fill(grad_loss.values.begin(), grad_loss.values.end(), 1.0);
  const Expected e = expected_of(c, logits, labels, grad_loss, vocabulary);

  const std::string what = c.text();
  Workspace workspace;
  auto options = c.options();
  Buffer z(logits.part(last, rank, ranks), c.dtype, c.layout), y(labels, c.labels_dtype, c.layout);
  Buffer loss(e.loss.shape, c.wide(), c.layout), statistics(e.statistics.shape, c.wide(), c.layout);
  size_t bytes = 0;
  if (c.workspace) {
    NXD_TEST_OK(nxd_parallel_cross_entropy_forward_get_workspace(
        ctx, z.tensor(), y.tensor(), &options, statistics.tensor(), loss.tensor(), &bytes));
    options.workspace = workspace.take(options.workspace_bytes = bytes);
  }
  if (!NXD_TEST_OK(nxd_parallel_cross_entropy_forward(ctx, z.tensor(), y.tensor(), &options,
                                                      statistics.tensor(), loss.tensor()))) {
    return;
  }
  const double size = 40 + (each ? 0 : 20 * static_cast<double>(count_of(c.lead)));
  loss.equals(e.loss, size, "loss of " + what);
  statistics.equals(e.statistics, 20, "statistics of " + what);
  if (c.workspace) NXD_TEST_CHECK(workspace.is_intact());
  Buffer again(e.loss.shape, c.wide());
  NXD_TEST_OK(nxd_parallel_cross_entropy_forward(ctx, z.tensor(), y.tensor(), &options, nullptr,
                                                 again.tensor()));
  again.equals(e.loss, size, "loss without statistics of " + what);

  Buffer dloss(grad_loss, c.wide(), c.layout);
  Buffer apart(e.grad.part(last, rank, ranks).shape, c.dtype, c.layout);
  Buffer& grad = c.in_place ? z : apart;
  DLTensor* pg = c.factor ? dloss.tensor() : nullptr;
  options = c.options();
  if (c.workspace) {
    NXD_TEST_OK(nxd_parallel_cross_entropy_backward_get_workspace(
        ctx, z.tensor(), y.tensor(), statistics.tensor(), pg, &options, grad.tensor(), &bytes));
    options.workspace = workspace.take(options.workspace_bytes = bytes);
  }
  if (!NXD_TEST_OK(nxd_parallel_cross_entropy_backward(
          ctx, z.tensor(), y.tensor(), statistics.tensor(), pg, &options, grad.tensor()))) {
    return;
  }
  grad.equals(e.grad.part(last, rank, ranks), 8, "grad_logits of " + what);
  if (c.workspace) NXD_TEST_CHECK(workspace.is_intact());
}

// The stride of a dimension of one element means nothing, and frameworks say different ones.
void check_other_strides(nxd_context_t* ctx, int, int, void*) {
  Buffer z(Numbers::pattern({1, 7}, 1), NXD_DTYPE_F32), apart({1, 7}, NXD_DTYPE_F32);
  Buffer y(Numbers(Sizes{1}), NXD_DTYPE_I64), statistics({2, 1}, NXD_DTYPE_F32),
      loss({}, NXD_DTYPE_F32);
  NXD_TEST_OK(nxd_parallel_cross_entropy_forward(ctx, z.tensor(), y.tensor(), nullptr,
                                                 statistics.tensor(), loss.tensor()));
  int64_t strides[] = {1, 1};
  DLTensor same = *z.tensor();
  same.strides = strides;
  for (DLTensor* grad : {apart.tensor(), &same}) {
    NXD_TEST_OK(nxd_parallel_cross_entropy_backward(ctx, z.tensor(), y.tensor(),
                                                    statistics.tensor(), nullptr, nullptr, grad));
  }
  for (int64_t i = 0; i < 7; ++i) NXD_TEST_CHECK(z.get(i) == apart.get(i));
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
        for (int twice = 0; twice < 2; ++twice) {
          Case c{dtype, {3, 5}, 7};
          c.layout = layout;
          c.reduction = reduction;
          const int bits = number++ * 11 + static_cast<int>(layout);
          c.labels_dtype = bits & 1 ? NXD_DTYPE_I32 : NXD_DTYPE_I64;
          c.label_smoothing = bits & 2 ? 0.1 : 0;
          c.smoothing = bits & 4 ? NXD_SMOOTHING_MEGATRON : NXD_SMOOTHING_TORCH;
          c.in_place = bits & 8;
          c.workspace = bits & 16;
          c.ignored = bits & 32 ? 2 : -100;
          c.vocab_size = bits & 64 ? 7 * ranks - 4 : 0;  // a vocabulary that is padded
          c.factor = !(bits & 128);
          check_case(ctx, c, rank, ranks);
        }
      }
    }
  }
}

// Sizes that are 1 or 0, a single token, ranks whose columns are all padding, wide rows.
void check_sizes(nxd_context_t* ctx, int rank, int ranks, void*) {
  for (const nxd_dtype_t dtype : kFloats) {
    for (Case c : {Case{dtype, {4}, 1}, Case{dtype, {}, 6}, Case{dtype, {0, 3}, 5},
                   Case{dtype, {5}, 4, 2}, Case{dtype, {2, 1, 3}, 33}, Case{dtype, {9}, 1000}}) {
      for (const nxd_reduction_t reduction : kReductions) {
        c.reduction = reduction;
        c.label_smoothing = reduction == NXD_REDUCTION_SUM ? 0.3 : 0;
        check_case(ctx, c, rank, ranks);
      }
    }
  }
}

// Where every label is ignored the mean is 0.
void check_ignored(nxd_context_t* ctx, int, int, void*) {
  Buffer z(Numbers::pattern({3, 4}, 1), NXD_DTYPE_F32), grad({3, 4}, NXD_DTYPE_F32);
  Numbers none({3});
  for (double& label : none.values) label = -100;
  Buffer labels(none, NXD_DTYPE_I64), loss(Sizes{}, NXD_DTYPE_F32), rows({2, 3}, NXD_DTYPE_F32);
  NXD_TEST_OK(nxd_parallel_cross_entropy_forward(ctx, z.tensor(), labels.tensor(), nullptr,
                                                 rows.tensor(), loss.tensor()));
  loss.equals(Numbers(Sizes{}), 0, "loss of ignored labels");
  NXD_TEST_OK(nxd_parallel_cross_entropy_backward(ctx, z.tensor(), labels.tensor(), rows.tensor(),
                                                  nullptr, nullptr, grad.tensor()));
  grad.equals(Numbers({3, 4}), 0, "gradient of ignored labels");
}

void on_all_ranks(nxd_test_rank_fn body) {
  for (const int ranks : {1, 2, 4}) nxd_test_run_ranks(ranks, ranks, body, nullptr);
}

void all_modes(void**) { on_all_ranks(check_modes); }
void all_sizes(void**) { on_all_ranks(check_sizes); }
void ignored_labels(void**) { on_all_ranks(check_ignored); }

template <class T>
Numbers recorded(const std::string& name, const std::string& array, int rank) {
  const auto read = read_npy<T>(oracles() + "/nxd/" + name + "/" + array + ".rank" +
                                std::to_string(rank) + ".npy");
  Numbers numbers(read.shape);
  numbers.values.assign(read.values.begin(), read.values.end());
  return numbers;
}

// Where NxD Core smooths labels its values depend on the rank, so that of its second recording only
// the inputs count, and torch's values for them without smoothing.
void check_recorded(nxd_context_t* ctx, int rank, int ranks, void*) {
  const std::pair<const char*, const char*> cases[] = {
      {"xent_ls0.0", ""}, {"xent_ls0.0", "torch_plain_"}, {"xent_ls0.1", "torch_plain_"}};
  for (const auto& [name, prefix] : cases) {
    const Numbers whole = recorded<double>(name, "logits_full", rank);
    const int last = static_cast<int>(whole.shape.size()) - 1;
    const std::string what = std::string(name) + " " + prefix;
    Buffer logits(whole.part(last, rank, ranks), NXD_DTYPE_F32);
    Buffer labels(recorded<int64_t>(name, "target", rank), NXD_DTYPE_I64);
    const Numbers want = recorded<double>(name, std::string(prefix) + "loss", rank);
    Numbers grad = recorded<double>(name, std::string(prefix) + "dlogits", rank);
    if (grad.last() == whole.last()) grad = grad.part(last, rank, ranks);
    Sizes pair = want.shape;
    pair.insert(pair.begin(), 2);
    Buffer loss(want.shape, NXD_DTYPE_F32), statistics(pair, NXD_DTYPE_F32);
    Buffer gout(recorded<double>(name, "gout", rank), NXD_DTYPE_F32);
    nxd_parallel_cross_entropy_options_t options = NXD_PARALLEL_CROSS_ENTROPY_OPTIONS_INIT;
    options.reduction = NXD_REDUCTION_NONE;
    NXD_TEST_OK(nxd_parallel_cross_entropy_forward(ctx, logits.tensor(), labels.tensor(), &options,
                                                   statistics.tensor(), loss.tensor()));
    loss.equals(want, 10, "loss of " + what);
    NXD_TEST_OK(nxd_parallel_cross_entropy_backward(ctx, logits.tensor(), labels.tensor(),
                                                    statistics.tensor(), gout.tensor(), &options,
                                                    logits.tensor()));
    logits.equals(grad, 10, "dlogits of " + what);
  }
}

void recorded_values(void**) { nxd_test_run_ranks(2, 2, check_recorded, nullptr); }

// Values of NxD Core's documentation, and of both formulas of smoothing, for four tokens.
void check_formulas(nxd_context_t* ctx, int rank, int ranks, void*) {
  Numbers logits({2, 2, 4}), targets({2, 2});
  logits.values = {1, 2, 3, 4, 0, 0, 0, 0, -1, 5, 2, .5, 10, -10, 3, 7};
  targets.values = {3, 1, 0, 2};
  const struct {
    double label_smoothing;
    nxd_smoothing_t smoothing;
    std::vector<double> loss;
  } cases[] = {{0.1, NXD_SMOOTHING_MEGATRON, {0.640190, 1.386294, 5.711448, 7.116122}},
               {0.1, NXD_SMOOTHING_TORCH, {0.590190, 1.386294, 5.798947, 7.099456}}};
  for (const auto& [label_smoothing, smoothing, want] : cases) {
    Buffer z(logits.part(2, rank, ranks), NXD_DTYPE_F64), labels(targets, NXD_DTYPE_I32);
    Buffer loss({2, 2}, NXD_DTYPE_F64);
    nxd_parallel_cross_entropy_options_t options = NXD_PARALLEL_CROSS_ENTROPY_OPTIONS_INIT;
    options.reduction = NXD_REDUCTION_NONE;
    options.label_smoothing = label_smoothing;
    options.smoothing = smoothing;
    NXD_TEST_OK(nxd_parallel_cross_entropy_forward(ctx, z.tensor(), labels.tensor(), &options,
                                                   nullptr, loss.tensor()));
    Numbers numbers({2, 2});
    numbers.values = want;
    loss.equals(numbers, 1e9, "loss with smoothing");  // to 1e-6
  }
}

void formulas(void**) { on_all_ranks(check_formulas); }
void other_strides(void**) { on_all_ranks(check_other_strides); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(recorded_values), cmocka_unit_test(formulas),
                              cmocka_unit_test(ignored_labels),  cmocka_unit_test(all_modes),
                              cmocka_unit_test(all_sizes),       cmocka_unit_test(other_strides)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
