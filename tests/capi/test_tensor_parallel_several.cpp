// Several column-parallel weights of one input, over a caller's arrays: against plain loops over
// the undivided layers, and against as many calls with one weight, on 1, 2 and 4 ranks.
#include "support/layer_arrays.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr nxd_dtype_t kFloats[] = {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16, NXD_DTYPE_F16};
constexpr int64_t kOut[] = {12, 20, 4, 0};
constexpr size_t kWeights = std::size(kOut);

struct Mode {
  bool gather_output;
  int sequence_dim;  // -1: no sequence parallelism
};
constexpr Mode kModes[] = {{false, -1}, {true, -1}, {false, 0}, {false, 1}};

struct Case {
  nxd_dtype_t dtype;
  Mode mode;
  Layout layout;
  bool transposed, accumulate, workspace;

  std::string text() const {
    return "dtype " + std::to_string(dtype) + ", gather " + std::to_string(mode.gather_output) +
           ", sequence " + std::to_string(mode.sequence_dim) + ", layout " +
           std::to_string(static_cast<int>(layout)) + ", transposed " + std::to_string(transposed) +
           ", accumulate " + std::to_string(accumulate) + ", workspace " +
           std::to_string(workspace);
  }
  nxd_column_linear_options_t options() const {
    nxd_column_linear_options_t options = NXD_COLUMN_LINEAR_OPTIONS_INIT;
    options.gather_output = mode.gather_output;
    options.sequence_parallel = mode.sequence_dim >= 0;
    options.sequence_dim = std::max(mode.sequence_dim, 0);
    options.transposed_weight = transposed;
    options.accumulate_grads = accumulate;
    return options;
  }
};

// One weight of the undivided layer, and what a rank has of it.
struct Weight {
  Weight(const Case& c, size_t index, const Numbers& x, int rank, int ranks)
      : has_bias(index % 2 == 0),
        weight(Numbers::pattern({kOut[index], x.last()}, 2 + static_cast<int>(index), is_fine(c))),
        bias(Numbers::pattern({kOut[index]}, 3 + static_cast<int>(index), is_fine(c))),
        y(linear(x, weight, has_bias ? &bias : nullptr)),
        dy(Numbers::pattern(y.shape, 4 + static_cast<int>(index), is_fine(c))),
        grads(linear_grads(x, weight, dy)),
        own_weight(own(c, weight, rank, ranks), c.dtype, c.layout),
        own_bias(features(c, bias, rank, ranks), c.dtype, c.layout),
        own_y(features(c, y, rank, ranks).shape, c.dtype, c.layout),
        own_dy(features(c, dy, rank, ranks), c.dtype, c.layout),
        weight_before(Numbers::pattern(own(c, weight, rank, ranks).shape, 5)),
        bias_before(Numbers::pattern(features(c, bias, rank, ranks).shape, 6)),
        own_dweight(weight_before, c.dtype, c.layout),
        own_dbias(bias_before, c.dtype, c.layout) {}

  static bool is_fine(const Case& c) {
    return c.dtype == NXD_DTYPE_F64 || c.dtype == NXD_DTYPE_F32;
  }
  static Numbers own(const Case& c, const Numbers& weight, int rank, int ranks) {
    const Numbers part = weight.part(0, rank, ranks);
    return c.transposed ? part.transposed() : part;
  }
  static Numbers features(const Case& c, const Numbers& of, int rank, int ranks) {
    if (c.mode.gather_output) return of;
    return of.part(static_cast<int>(of.shape.size()) - 1, rank, ranks);
  }

  bool has_bias;
  Numbers weight, bias, y, dy;
  LinearGrads grads;
  Buffer own_weight, own_bias, own_y, own_dy;
  Numbers weight_before, bias_before;
  Buffer own_dweight, own_dbias;
};

struct Lists {
  DLTensor *weights[kWeights], *biases[kWeights], *ys[kWeights], *dys[kWeights];
  DLTensor *dweights[kWeights], *dbiases[kWeights];
};

nxd_status_t forward(nxd_context_t* ctx, const Case& c, DLTensor* x, const Lists& a,
                     Workspace& workspace) {
  auto options = c.options();
  if (c.workspace) {
    size_t bytes = 0;
    NXD_TEST_OK(nxd_column_linears_forward_get_workspace(ctx, x, a.weights, a.biases, kWeights,
                                                         &options, a.ys, &bytes));
    options.workspace = workspace.take(options.workspace_bytes = bytes);
  }
  return nxd_column_linears_forward(ctx, x, a.weights, a.biases, kWeights, &options, a.ys);
}

nxd_status_t backward(nxd_context_t* ctx, const Case& c, DLTensor* x, const Lists& a, DLTensor* dx,
                      Workspace& workspace) {
  auto options = c.options();
  if (c.workspace) {
    size_t bytes = 0;
    NXD_TEST_OK(nxd_column_linears_backward_get_workspace(
        ctx, x, a.weights, a.dys, kWeights, &options, dx, a.dweights, a.dbiases, &bytes));
    options.workspace = workspace.take(options.workspace_bytes = bytes);
  }
  return nxd_column_linears_backward(ctx, x, a.weights, a.dys, kWeights, &options, dx, a.dweights,
                                     a.dbiases);
}

void check_case(nxd_context_t* ctx, const Case& c, int rank, int ranks) {
  const Numbers x = Numbers::pattern({4, 8, 24}, 1, Weight::is_fine(c));
  const auto own = [&](const Numbers& whole) {
    return c.mode.sequence_dim < 0 ? whole : whole.part(c.mode.sequence_dim, rank, ranks);
  };
  Numbers grad_x(x.shape);
  std::vector<std::unique_ptr<Weight>> weights;
  Lists lists{};
  for (size_t i = 0; i < kWeights; ++i) {
    weights.push_back(std::make_unique<Weight>(c, i, x, rank, ranks));
    Weight& w = *weights.back();
    grad_x = grad_x.plus(w.grads.x);
    lists.weights[i] = w.own_weight.tensor();
    lists.biases[i] = w.has_bias ? w.own_bias.tensor() : nullptr;
    lists.ys[i] = w.own_y.tensor();
    lists.dys[i] = w.own_dy.tensor();
    lists.dweights[i] = w.own_dweight.tensor();
    lists.dbiases[i] = w.has_bias ? w.own_dbias.tensor() : nullptr;
  }
  Buffer in(own(x), c.dtype, c.layout), dx(own(x).shape, c.dtype, c.layout);
  Workspace workspace;
  const std::string what = c.text();
  if (!NXD_TEST_OK(forward(ctx, c, in.tensor(), lists, workspace))) return;
  if (c.workspace) NXD_TEST_CHECK(workspace.is_intact());
  if (!NXD_TEST_OK(backward(ctx, c, in.tensor(), lists, dx.tensor(), workspace))) return;
  if (c.workspace) NXD_TEST_CHECK(workspace.is_intact());

  constexpr double kSize = 400;
  dx.equals(own(grad_x), kSize, "grad_x of " + what);
  const auto expected = [&](const Numbers& grad, const Numbers& before) {
    return c.accumulate ? grad.plus(before) : grad;
  };
  for (size_t i = 0; i < kWeights; ++i) {
    Weight& w = *weights[i];
    const std::string of = " of weight " + std::to_string(i) + ", " + what;
    w.own_y.equals(Weight::features(c, w.y, rank, ranks), kSize, "y" + of);
    w.own_dweight.equals(expected(Weight::own(c, w.grads.weight, rank, ranks), w.weight_before),
                         kSize, "grad_weight" + of);
    if (!w.has_bias) continue;
    w.own_dbias.equals(expected(Weight::features(c, w.grads.bias, rank, ranks), w.bias_before),
                       kSize, "grad_bias" + of);
  }
}

void check_modes(nxd_context_t* ctx, int rank, int ranks, void*) {
  int number = 0;
  for (const nxd_dtype_t dtype : kFloats) {
    for (const Mode& mode : kModes) {
      for (const Layout layout : kLayouts) {
        const int bits = number++ * 3;
        check_case(ctx, {dtype, mode, layout, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0},
                   rank, ranks);
      }
    }
  }
}

// Results in halves of one array, and gradients that are not wanted.
void check_parts(nxd_context_t* ctx, int, int ranks, void*) {
  const int64_t part = 8 / ranks;
  Buffer x(Numbers::pattern({3, 4}, 1), NXD_DTYPE_F32), dx({3, 4}, NXD_DTYPE_F32);
  Buffer first(Numbers::pattern({part, 4}, 2), NXD_DTYPE_F32);
  Buffer second(Numbers::pattern({part, 4}, 3), NXD_DTYPE_F32);
  Buffer both({3, 2 * part}, NXD_DTYPE_F32), alone({3, part}, NXD_DTYPE_F32);
  Buffer dsecond({part, 4}, NXD_DTYPE_F32), dalone({part, 4}, NXD_DTYPE_F32);
  int64_t shape[] = {3, part}, strides[] = {2 * part, 1};
  DLTensor left = *both.tensor(), right = *both.tensor();
  left.shape = right.shape = shape;
  left.strides = right.strides = strides;
  right.byte_offset += static_cast<uint64_t>(part) * sizeof(float);
  DLTensor *weights[] = {first.tensor(), second.tensor()}, *ys[] = {&left, &right};
  NXD_TEST_OK(nxd_column_linears_forward(ctx, x.tensor(), weights, nullptr, 2, nullptr, ys));
  NXD_TEST_OK(nxd_column_linear_forward(ctx, x.tensor(), second.tensor(), nullptr, nullptr,
                                        alone.tensor()));
  for (int64_t i = 0; i < 3 * part; ++i) {
    NXD_TEST_CHECK(both.get(i / part * 2 * part + part + i % part) == alone.get(i));
  }
  DLTensor* dweights[] = {nullptr, dsecond.tensor()};
  NXD_TEST_OK(nxd_column_linears_backward(ctx, x.tensor(), weights, ys, 2, nullptr, nullptr,
                                          dweights, nullptr));
  NXD_TEST_OK(nxd_column_linear_backward(ctx, x.tensor(), second.tensor(), &right, nullptr, nullptr,
                                         dalone.tensor(), nullptr));
  NXD_TEST_CHECK(dsecond.bytes() == dalone.bytes());
  NXD_TEST_OK(nxd_column_linears_backward(ctx, x.tensor(), weights, ys, 2, nullptr, dx.tensor(),
                                          nullptr, nullptr));
}

void on_all_ranks(nxd_test_rank_fn body) {
  for (const int ranks : {1, 2, 4}) nxd_test_run_ranks(ranks, ranks, body, nullptr);
}

void all_modes(void**) { on_all_ranks(check_modes); }
void parts_of_one_array(void**) { on_all_ranks(check_parts); }

// A rank whose arguments are bad, or others than its peers'.
void check_slips(nxd_context_t* ctx, int rank, int, void*) {
  Buffer x(Numbers::pattern({3, 4}, 1), NXD_DTYPE_F32);
  Buffer weight(Numbers::pattern({2, 4}, 2), NXD_DTYPE_F32);
  Buffer other(Numbers::pattern({2, 5}, 2), NXD_DTYPE_F32);
  Buffer y({3, 2}, NXD_DTYPE_F32), z({3, 2}, NXD_DTYPE_F32), wide({3, 3}, NXD_DTYPE_F32);
  Buffer bias(Numbers::pattern({3}, 2), NXD_DTYPE_F32);
  const std::vector<char> before = y.bytes();
  struct Slip {
    DLTensor *weight, *bias, *y;
    size_t count;
    const char* why;
  };
  DLTensor *w = weight.tensor(), *good = z.tensor();
  const Slip slips[] = {
      {nullptr, nullptr, good, 2, "weights[1]: expected an array, got NULL"},
      {w, nullptr, nullptr, 2, "ys[1]: expected an array, got NULL"},
      {other.tensor(), nullptr, good, 2, "weights[1]: expected 4 input features, as weights[0]"},
      {w, bias.tensor(), good, 2, "biases[1]: expected the shape [2], got [3]"},
      {w, nullptr, wide.tensor(), 2, "ys[1]: expected the shape [3, 2], got [3, 3]"},
      {w, nullptr, y.tensor(), 2, "ys[1]: expected memory apart from that of ys[0]"},
      {w, nullptr, good, 0, "num_weights: expected at least 1, got 0"},
      {w, nullptr, good, 1, "number of weights: expected the same on all ranks"}};
  for (const Slip& slip : slips) {
    const bool mine = rank == 1;
    DLTensor* weights[] = {w, mine ? slip.weight : w};
    DLTensor* biases[] = {nullptr, mine ? slip.bias : nullptr};
    DLTensor* ys[] = {y.tensor(), mine ? slip.y : good};
    NXD_TEST_REFUSED(nxd_column_linears_forward(ctx, x.tensor(), weights, biases,
                                                mine ? slip.count : 2, nullptr, ys),
                     NXD_ERROR_INVALID_ARGUMENT, slip.why);
    NXD_TEST_CHECK(y.bytes() == before);
  }
  DLTensor *weights[] = {w, w}, *ys[] = {y.tensor(), good};
  NXD_TEST_REFUSED(nxd_column_linears_forward(ctx, x.tensor(), rank == 0 ? nullptr : weights,
                                              nullptr, 2, nullptr, ys),
                   NXD_ERROR_INVALID_ARGUMENT, "weights: expected an array of 2 tensors, got NULL");
  NXD_TEST_OK(nxd_column_linears_forward(ctx, x.tensor(), weights, nullptr, 2, nullptr, ys));
}

void slips_fail_on_all_ranks(void**) { nxd_test_run_ranks(2, 2, check_slips, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(all_modes), cmocka_unit_test(parts_of_one_array),
                              cmocka_unit_test(slips_fail_on_all_ranks)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
