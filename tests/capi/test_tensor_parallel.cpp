// Column- and row-parallel linear layers over a caller's arrays, and the mappings between regions:
// against plain loops over the undivided layer, for all dtypes, options and layouts in memory, on
// 1, 2 and 4 ranks.
#include <functional>

#include "support/layer_arrays.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

enum class Kind { kColumn, kRow };

struct Case {
  Kind kind;
  nxd_dtype_t dtype;
  Sizes lead;  // of the undivided x, without features
  int64_t in, out;
  bool gather_output, input_is_parallel;
  int sequence_dim;  // -1: no sequence parallelism
  bool transposed, bias, accumulate;
  Layout layout;
  bool arena, workspace;

  std::string text() const {
    std::string shape;
    for (const int64_t size : lead) shape += std::to_string(size) + " ";
    return std::string(kind == Kind::kColumn ? "column" : "row") + " dtype " +
           std::to_string(dtype) + ", [" + shape + "] " + std::to_string(in) + " to " +
           std::to_string(out) + ", gather " + std::to_string(gather_output) + ", parallel input " +
           std::to_string(input_is_parallel) + ", sequence " + std::to_string(sequence_dim) +
           ", transposed " + std::to_string(transposed) + ", bias " + std::to_string(bias) +
           ", accumulate " + std::to_string(accumulate) + ", layout " +
           std::to_string(static_cast<int>(layout)) + ", arena " + std::to_string(arena) +
           ", workspace " + std::to_string(workspace);
  }
};

// A rank's view of the undivided layer.
class Layer {
 public:
  Layer(const Case& c, int rank, int ranks)
      : c_(c),
        rank_(rank),
        ranks_(ranks),
        x(Numbers::pattern(with(c.in), 1, fine())),
        weight(Numbers::pattern({c.out, c.in}, 2, fine())),
        bias(Numbers::pattern({c.out}, 3, fine())),
        dy(Numbers::pattern(with(c.out), 4, fine())) {}

  bool column() const { return c_.kind == Kind::kColumn; }
  Numbers own_x(const Numbers& whole) const {
    if (c_.sequence_dim >= 0 && column()) return whole.part(c_.sequence_dim, rank_, ranks_);
    return !column() && c_.input_is_parallel ? features(whole) : whole;
  }
  Numbers own_y(const Numbers& whole) const {
    if (c_.sequence_dim >= 0 && !column()) return whole.part(c_.sequence_dim, rank_, ranks_);
    return column() && !c_.gather_output ? features(whole) : whole;
  }
  Numbers own_weight(const Numbers& whole) const {
    const Numbers part = whole.part(column() ? 0 : 1, rank_, ranks_);
    return c_.transposed ? part.transposed() : part;
  }
  Numbers own_bias(const Numbers& whole) const {
    return column() && !c_.gather_output ? features(whole) : whole;
  }

  nxd_status_t forward(nxd_context_t* ctx, DLTensor* px, DLTensor* pw, DLTensor* pb, DLTensor* py,
                       Workspace& workspace) {
    size_t bytes = 0;
    if (column()) {
      auto options = column_options();
      if (c_.workspace) {
        NXD_TEST_OK(nxd_column_linear_forward_get_workspace(ctx, px, pw, pb, &options, py, &bytes));
        options.workspace = workspace.take(options.workspace_bytes = bytes);
      }
      return nxd_column_linear_forward(ctx, px, pw, pb, &options, py);
    }
    auto options = row_options();
    if (c_.workspace) {
      NXD_TEST_OK(nxd_row_linear_forward_get_workspace(ctx, px, pw, pb, &options, py, &bytes));
      options.workspace = workspace.take(options.workspace_bytes = bytes);
    }
    return nxd_row_linear_forward(ctx, px, pw, pb, &options, py);
  }

  nxd_status_t backward(nxd_context_t* ctx, DLTensor* px, DLTensor* pw, DLTensor* pdy,
                        DLTensor* pdx, DLTensor* pdw, DLTensor* pdb, Workspace& workspace) {
    size_t bytes = 0;
    if (column()) {
      auto options = column_options();
      if (c_.workspace) {
        NXD_TEST_OK(nxd_column_linear_backward_get_workspace(ctx, px, pw, pdy, &options, pdx, pdw,
                                                             pdb, &bytes));
        options.workspace = workspace.take(options.workspace_bytes = bytes);
      }
      return nxd_column_linear_backward(ctx, px, pw, pdy, &options, pdx, pdw, pdb);
    }
    auto options = row_options();
    if (c_.workspace) {
      NXD_TEST_OK(
          nxd_row_linear_backward_get_workspace(ctx, px, pw, pdy, &options, pdx, pdw, pdb, &bytes));
      options.workspace = workspace.take(options.workspace_bytes = bytes);
    }
    return nxd_row_linear_backward(ctx, px, pw, pdy, &options, pdx, pdw, pdb);
  }

 private:
  bool fine() const { return c_.dtype == NXD_DTYPE_F64 || c_.dtype == NXD_DTYPE_F32; }
  Sizes with(int64_t last) const {
    Sizes shape = c_.lead;
    shape.push_back(last);
    return shape;
  }
  Numbers features(const Numbers& whole) const {
    return whole.part(static_cast<int>(whole.shape.size()) - 1, rank_, ranks_);
  }
  nxd_column_linear_options_t column_options() const {
    nxd_column_linear_options_t options = NXD_COLUMN_LINEAR_OPTIONS_INIT;
    options.gather_output = c_.gather_output;
    options.sequence_parallel = c_.sequence_dim >= 0;
    options.sequence_dim = c_.sequence_dim < 0 ? 0 : c_.sequence_dim;
    options.transposed_weight = c_.transposed;
    options.accumulate_grads = c_.accumulate;
    return options;
  }
  nxd_row_linear_options_t row_options() const {
    nxd_row_linear_options_t options = NXD_ROW_LINEAR_OPTIONS_INIT;
    options.input_is_parallel = c_.input_is_parallel ? NXD_TOGGLE_DEFAULT : NXD_TOGGLE_OFF;
    options.sequence_parallel = c_.sequence_dim >= 0;
    // From the end.
    options.sequence_dim =
        c_.sequence_dim < 0 ? 0 : c_.sequence_dim - static_cast<int>(c_.lead.size()) - 1;
    options.transposed_weight = c_.transposed;
    options.accumulate_grads = c_.accumulate;
    return options;
  }

  const Case& c_;
  int rank_, ranks_;

 public:
  Numbers x, weight, bias, dy;
};

// The gradients of the weight and the bias may also be in f32.
nxd_dtype_t grad_dtype(const Case& c) {
  const bool narrow = c.dtype == NXD_DTYPE_BF16 || c.dtype == NXD_DTYPE_F16;
  return narrow && c.transposed ? NXD_DTYPE_F32 : c.dtype;
}

void check_case(nxd_context_t* ctx, const Case& c, int rank, int ranks) {
  Layer layer(c, rank, ranks);
  nxd_context_t* arena = c.arena ? ctx : nullptr;
  Workspace workspace;
  Buffer x(layer.own_x(layer.x), c.dtype, c.layout);
  Buffer weight(layer.own_weight(layer.weight), c.dtype, c.layout);
  Buffer bias(layer.own_bias(layer.bias), c.dtype, c.layout);
  DLTensor* pb = c.bias ? bias.tensor() : nullptr;
  const Numbers y = linear(layer.x, layer.weight, c.bias ? &layer.bias : nullptr);
  Buffer out(layer.own_y(y).shape, c.dtype, c.layout, arena);
  const std::string what = c.text();
  const auto size = static_cast<double>(c.in + c.out + 8 * layer.x.rows());
  if (NXD_TEST_OK(layer.forward(ctx, x.tensor(), weight.tensor(), pb, out.tensor(), workspace))) {
    out.equals(layer.own_y(y), size, "y of " + what);
  }
  if (c.workspace) NXD_TEST_CHECK(workspace.is_intact());

  const LinearGrads grads = linear_grads(layer.x, layer.weight, layer.dy);
  Buffer dy(layer.own_y(layer.dy), c.dtype, c.layout);
  Buffer dx(layer.own_x(layer.x).shape, c.dtype, c.layout, arena);
  const Numbers weight_before = Numbers::pattern(layer.own_weight(grads.weight).shape, 5);
  const Numbers bias_before = Numbers::pattern(layer.own_bias(grads.bias).shape, 6);
  Buffer dweight(weight_before, grad_dtype(c), c.layout, arena);
  Buffer dbias(bias_before, grad_dtype(c), c.layout);
  if (!NXD_TEST_OK(layer.backward(ctx, x.tensor(), weight.tensor(), dy.tensor(), dx.tensor(),
                                  dweight.tensor(), c.bias ? dbias.tensor() : nullptr,
                                  workspace))) {
    return;
  }
  if (c.workspace) NXD_TEST_CHECK(workspace.is_intact());
  const auto expected = [&](const Numbers& grad, const Numbers& before) {
    return c.accumulate ? grad.plus(before) : grad;
  };
  dx.equals(layer.own_x(grads.x), size, "grad_x of " + what);
  dweight.equals(expected(layer.own_weight(grads.weight), weight_before), size,
                 "grad_weight of " + what);
  if (c.bias) {
    dbias.equals(expected(layer.own_bias(grads.bias), bias_before), size, "grad_bias of " + what);
  }
}

// Options that fit together.
std::vector<Case> modes() {
  std::vector<Case> all;
  const auto add = [&](Kind kind, bool gather, bool parallel, int sequence_dim) {
    all.push_back({kind,
                   NXD_DTYPE_F32,
                   {},
                   0,
                   0,
                   gather,
                   parallel,
                   sequence_dim,
                   false,
                   true,
                   false,
                   Layout::kDense,
                   false,
                   false});
  };
  add(Kind::kColumn, false, true, -1);
  add(Kind::kColumn, true, true, -1);
  add(Kind::kColumn, false, true, 0);
  add(Kind::kColumn, false, true, 1);
  add(Kind::kRow, false, true, -1);
  add(Kind::kRow, false, false, -1);
  add(Kind::kRow, false, true, 0);
  add(Kind::kRow, false, true, 1);
  return all;
}

constexpr nxd_dtype_t kFloats[] = {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16, NXD_DTYPE_F16};

void check_modes(nxd_context_t* ctx, int rank, int ranks, void*) {
  int number = 0;
  for (const nxd_dtype_t dtype : kFloats) {
    for (const Layout layout : kLayouts) {
      for (Case c : modes()) {
        c.dtype = dtype;
        c.layout = layout;
        c.lead = {4, 8};
        c.in = 12;
        c.out = 20;
        // Every pair of these, over the modes.
        const int bits = number++ * 11 + static_cast<int>(layout);
        c.transposed = bits & 1;
        c.accumulate = bits & 2;
        c.bias = !(bits & 4) || (bits & 16);
        c.arena = bits & 8;
        c.workspace = bits & 16;
        check_case(ctx, c, rank, ranks);
        c.transposed = !c.transposed;
        c.workspace = !c.workspace;
        check_case(ctx, c, rank, ranks);
      }
    }
  }
}

// Sizes that are no multiples of vectors, that are 1 or 0, and such that exchanges take a while.
void check_sizes(nxd_context_t* ctx, int rank, int ranks, void*) {
  const struct {
    Sizes lead;
    int64_t in, out;
  } sizes[] = {{{4, 4}, 4, 4}, {{4, 4, 3}, 28, 36},   {{4, 12}, 44, 4},
               {{0, 4}, 8, 4}, {{4, 0}, 4, 8},        {{4, 4}, 0, 8},
               {{8, 4}, 8, 0}, {{128, 12}, 100, 132}, {{4, 8, 1}, 4, 4}};
  for (const nxd_dtype_t dtype : kFloats) {
    for (const auto& [lead, in, out] : sizes) {
      for (Case c : modes()) {
        c.dtype = dtype;
        c.lead = lead;
        c.in = in;
        c.out = out;
        c.accumulate = in % 8 == 4;
        c.arena = out > 100;
        // A layer without inputs has its bias as the output, which the reference leaves out.
        c.bias = in > 0;
        check_case(ctx, c, rank, ranks);
      }
    }
  }
}

// One dimension, and none but the features.
void check_vectors(nxd_context_t* ctx, int rank, int ranks, void*) {
  for (const nxd_dtype_t dtype : kFloats) {
    for (Case c : modes()) {
      if (c.sequence_dim >= 0) continue;
      c.dtype = dtype;
      c.in = 8;
      c.out = 16;
      check_case(ctx, c, rank, ranks);
      c.layout = Layout::kStepped;
      check_case(ctx, c, rank, ranks);
    }
  }
}

// --- Gradients that are not wanted --------------------------------------------------------------

void check_wanted(nxd_context_t* ctx, int rank, int ranks, void*) {
  for (Case c : modes()) {
    c.lead = {4, 4};
    c.in = 8;
    c.out = 12;
    Layer layer(c, rank, ranks);
    const LinearGrads grads = linear_grads(layer.x, layer.weight, layer.dy);
    Buffer x(layer.own_x(layer.x), c.dtype), weight(layer.own_weight(layer.weight), c.dtype);
    Buffer dy(layer.own_y(layer.dy), c.dtype);
    for (int wanted = 0; wanted < 8; ++wanted) {
      Buffer dx(layer.own_x(layer.x).shape, c.dtype);
      Buffer dweight(layer.own_weight(layer.weight).shape, c.dtype);
      Buffer dbias(layer.own_bias(layer.bias).shape, c.dtype);
      Workspace workspace;
      NXD_TEST_OK(layer.backward(ctx, x.tensor(), weight.tensor(), dy.tensor(),
                                 wanted & 1 ? dx.tensor() : nullptr,
                                 wanted & 2 ? dweight.tensor() : nullptr,
                                 wanted & 4 ? dbias.tensor() : nullptr, workspace));
      if (wanted & 1) dx.equals(layer.own_x(grads.x), 50, "grad_x alone of " + c.text());
      if (wanted & 2) {
        dweight.equals(layer.own_weight(grads.weight), 50, "grad_weight alone of " + c.text());
      }
      if (wanted & 4) {
        dbias.equals(layer.own_bias(grads.bias), 50, "grad_bias alone of " + c.text());
      }
    }
  }
}

// --- Mappings -----------------------------------------------------------------------------------

// Each rank's x, and what the mapping makes of all of them.
Numbers summand(const Sizes& shape, int rank) { return Numbers::pattern(shape, 3 + rank); }

Numbers sum_of(const Sizes& shape, int ranks) {
  Numbers sum = summand(shape, 0);
  for (int r = 1; r < ranks; ++r) sum = sum.plus(summand(shape, r));
  return sum;
}

enum class Move { kCopy, kSum, kSplit, kGather, kSumAndSplit };

struct Moves {
  nxd_region_mapping_t mapping;
  Move forward, backward;
};
constexpr Moves kMappings[] = {
    {NXD_REGION_MAPPING_COPY_TO, Move::kCopy, Move::kSum},
    {NXD_REGION_MAPPING_REDUCE_FROM, Move::kSum, Move::kCopy},
    {NXD_REGION_MAPPING_SCATTER_TO, Move::kSplit, Move::kGather},
    {NXD_REGION_MAPPING_GATHER_FROM, Move::kGather, Move::kSplit},
    {NXD_REGION_MAPPING_GATHER_FOR_SHARDS, Move::kGather, Move::kSumAndSplit},
    {NXD_REGION_MAPPING_REDUCE_SCATTER_TO, Move::kSumAndSplit, Move::kGather}};

using Pass = nxd_status_t (*)(nxd_context_t*, nxd_region_mapping_t, int32_t, const DLTensor*,
                              DLTensor*);

void check_move(nxd_context_t* ctx, Pass pass, nxd_region_mapping_t mapping, Move move, int dim,
                nxd_dtype_t dtype, Layout layout, int rank, int ranks) {
  const Sizes shape{4, 8, 12};
  const Numbers whole = Numbers::pattern(shape, 9), own = summand(shape, rank);
  const bool sums = move == Move::kSum || move == Move::kSumAndSplit;
  Numbers from = sums ? own : whole, to = sums ? sum_of(shape, ranks) : whole;
  if (move == Move::kGather) from = from.part(dim, rank, ranks);
  if (move == Move::kSplit || move == Move::kSumAndSplit) to = to.part(dim, rank, ranks);
  if (dtype == NXD_DTYPE_I64) {
    for (double& value : from.values) value *= 16;
    for (double& value : to.values) value *= 16;
  }
  Buffer source(from, dtype, layout), target(to.shape, dtype, layout);
  if (!NXD_TEST_OK(pass(ctx, mapping, dim % 2 ? dim - 3 : dim, source.tensor(), target.tensor()))) {
    return;
  }
  target.equals(to, 1,
                "mapping " + std::to_string(mapping) + " move " +
                    std::to_string(static_cast<int>(move)) + " dim " + std::to_string(dim) +
                    " dtype " + std::to_string(dtype) + " layout " +
                    std::to_string(static_cast<int>(layout)));
}

void check_mappings(nxd_context_t* ctx, int rank, int ranks, void*) {
  for (const Moves& moves : kMappings) {
    for (int dim = 0; dim < 3; ++dim) {
      for (const Layout layout : kLayouts) {
        for (const nxd_dtype_t dtype : kFloats) {
          check_move(ctx, nxd_region_mapping_forward, moves.mapping, moves.forward, dim, dtype,
                     layout, rank, ranks);
          check_move(ctx, nxd_region_mapping_backward, moves.mapping, moves.backward, dim, dtype,
                     layout, rank, ranks);
        }
        if (moves.mapping == NXD_REGION_MAPPING_SCATTER_TO) {
          check_move(ctx, nxd_region_mapping_forward, moves.mapping, moves.forward, dim,
                     NXD_DTYPE_I64, layout, rank, ranks);
          check_move(ctx, nxd_region_mapping_backward, moves.mapping, moves.backward, dim,
                     NXD_DTYPE_I64, layout, rank, ranks);
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
void vectors(void**) { on_all_ranks(check_vectors); }
void wanted_gradients(void**) { on_all_ranks(check_wanted); }
void mappings(void**) { on_all_ranks(check_mappings); }

// The tensor-parallel group of several is each one's own: two data-parallel ranks, of two each.
void two_groups(void**) {
  nxd_test_run_ranks(
      4, 2,
      [](nxd_context_t* ctx, int rank, int, void*) {
        for (Case c : modes()) {
          c.lead = {rank < 2 ? 4 : 6, 4};  // which the other group need not have alike
          c.in = 8;
          c.out = 4;
          check_case(ctx, c, rank % 2, 2);
        }
      },
      nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(all_modes), cmocka_unit_test(all_sizes),
                              cmocka_unit_test(vectors),   cmocka_unit_test(wanted_gradients),
                              cmocka_unit_test(mappings),  cmocka_unit_test(two_groups)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
