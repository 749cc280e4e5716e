// Dropout over a caller's arrays: its bits are those of the undivided array for every layout of
// ranks and memory, dtype and step, forward and backward.
#include "support/layer_arrays.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr double kP = 0.25;
constexpr const char* kName = "model.layers.0.mlp.dropout";

nxd_dropout_options_t options_of(double p) {
  nxd_dropout_options_t options = NXD_DROPOUT_OPTIONS_INIT;
  options.p = p;
  return options;
}

// The factors of an array that no rank divides: 0 or 1 / (1 - p), from an array of ones.
Numbers factors_of(nxd_context_t* ctx, const Sizes& shape, const char* name = kName,
                   nxd_dropout_options_t options = options_of(kP)) {
  Numbers ones(shape), factors(shape);
  std::fill(ones.values.begin(), ones.values.end(), 1.0);
  Buffer x(ones, NXD_DTYPE_F64), y(shape, NXD_DTYPE_F64);
  NXD_TEST_OK(nxd_dropout_forward(ctx, name, x.tensor(), &options, y.tensor()));
  for (int64_t i = 0; i < count_of(shape); ++i) factors.at(i) = y.get(i);
  return factors;
}

Numbers times(const Numbers& a, const Numbers& b) {
  Numbers product = a;
  for (size_t i = 0; i < product.values.size(); ++i) product.values[i] *= b.values[i];
  return product;
}

double kept(const Numbers& factors) {
  double count = 0;
  for (const double factor : factors.values) count += factor != 0;
  return count;
}

constexpr nxd_dtype_t kFloats[] = {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16, NXD_DTYPE_F16};

// Factors are 0 or 1 / (1 - p), kept with the probability, and others for another layer or step.
void check_bits(nxd_context_t* ctx, int, int, void*) {
  const Sizes shape{100, 100};
  const Numbers factors = factors_of(ctx, shape);
  for (const double factor : factors.values) {
    NXD_TEST_CHECK(factor == 0 || factor == 1 / (1 - kP));
  }
  // Five standard deviations of the binomial distribution.
  NXD_TEST_CHECK(std::fabs(kept(factors) - 10000 * (1 - kP)) <
                 5 * std::sqrt(10000 * kP * (1 - kP)));
  const auto differs = [&](const Numbers& other) { return other.values != factors.values; };
  NXD_TEST_CHECK(!differs(factors_of(ctx, shape)));
  NXD_TEST_CHECK(differs(factors_of(ctx, shape, "model.layers.1.mlp.dropout")));
  auto options = options_of(kP);
  options.has_position = 1;
  NXD_TEST_CHECK(!differs(factors_of(ctx, shape, kName, options)));
  options.step = 3;
  const Numbers third = factors_of(ctx, shape, kName, options);
  options.microbatch = 2;
  const Numbers later = factors_of(ctx, shape, kName, options);
  NXD_TEST_CHECK(differs(third) && differs(later) && third.values != later.values);
  NXD_TEST_OK(nxd_context_set_step(ctx, 3, 2));
  NXD_TEST_CHECK(factors_of(ctx, shape).values == later.values);
  NXD_TEST_OK(nxd_context_set_step(ctx, 0, 0));
  NXD_TEST_CHECK(kept(factors_of(ctx, shape, kName, options_of(0))) == 10000);
}

// Floats of 16 bits are what F32 gives for the same elements, rounded once.
void check_rounding(nxd_context_t* ctx, int, int, void*) {
  const Sizes shape{40, 40};
  for (const double p : {0.1, kP}) {
    const auto options = options_of(p);
    for (const nxd_dtype_t dtype : {NXD_DTYPE_BF16, NXD_DTYPE_F16}) {
      Buffer x(Numbers::pattern(shape, 1, true), dtype), y(shape, dtype);
      Numbers same(shape);
      for (int64_t i = 0; i < count_of(shape); ++i) same.at(i) = x.get(i);
      Buffer wide(same, NXD_DTYPE_F32);
      for (const auto call : {nxd_dropout_forward, nxd_dropout_backward}) {
        Buffer exact(shape, NXD_DTYPE_F32);
        NXD_TEST_OK(call(ctx, kName, x.tensor(), &options, y.tensor()));
        NXD_TEST_OK(call(ctx, kName, wide.tensor(), &options, exact.tensor()));
        Numbers want(shape);
        for (int64_t i = 0; i < count_of(shape); ++i) want.at(i) = exact.get(i);
        const Buffer rounded(want, dtype);
        int64_t others = 0;
        for (int64_t i = 0; i < count_of(shape); ++i) others += y.get(i) != rounded.get(i);
        NXD_TEST_CHECK(others == 0);
      }
    }
  }
}

// Parts of any dimension, in any layout of memory, in place or not, with a workspace or not.
void check_parts(nxd_context_t* ctx, int rank, int ranks, void*) {
  const Sizes shape{4, 8, 12};
  const Numbers factors = factors_of(ctx, shape), x = Numbers::pattern(shape, 1);
  const Numbers expected = times(x, factors);
  int number = 0;
  for (const nxd_dtype_t dtype : kFloats) {
    for (const Layout layout : kLayouts) {
      for (int dim = -1; dim < 3; ++dim) {
        const bool in_place = number % 3 == 0, backward = number % 2, with_workspace = number % 5;
        const auto own = [&](const Numbers& whole) {
          return dim < 0 ? whole : whole.part(dim, rank, ranks);
        };
        auto options = options_of(kP);
        options.has_shard_dim = dim >= 0;
        options.shard_dim = number++ % 2 && dim >= 0 ? dim - 3 : dim;
        Buffer from(own(x), dtype, layout), apart(own(x).shape, dtype, layout);
        Buffer& to = in_place ? from : apart;
        Workspace workspace;
        const auto call = backward ? nxd_dropout_backward : nxd_dropout_forward;
        if (with_workspace) {
          const auto bytes_of =
              backward ? nxd_dropout_backward_get_workspace : nxd_dropout_forward_get_workspace;
          NXD_TEST_OK(
              bytes_of(ctx, kName, from.tensor(), &options, to.tensor(), &options.workspace_bytes));
          options.workspace = workspace.take(options.workspace_bytes);
          --options.workspace_bytes;
          NXD_TEST_REFUSED(call(ctx, kName, from.tensor(), &options, to.tensor()),
                           NXD_ERROR_INVALID_ARGUMENT, "workspace_bytes: expected at least ");
          ++options.workspace_bytes;
        }
        NXD_TEST_OK(call(ctx, kName, from.tensor(), &options, to.tensor()));
        to.equals(own(expected), 1,
                  "dropout of dtype " + std::to_string(dtype) + ", dim " + std::to_string(dim) +
                      ", layout " + std::to_string(static_cast<int>(layout)));
        if (with_workspace) NXD_TEST_CHECK(workspace.is_intact());
      }
    }
  }
}

// [sequence, batch, features] has the bits of [batch, sequence, features].
void check_transposed(nxd_context_t* ctx, int rank, int ranks, void*) {
  const int64_t sequence = 8, batch = 3, features = 5;
  const Numbers factors = factors_of(ctx, {batch, sequence, features});
  Numbers expected({sequence, batch, features}), ones(expected.shape);
  std::fill(ones.values.begin(), ones.values.end(), 1.0);
  for (int64_t s = 0; s < sequence; ++s) {
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t f = 0; f < features; ++f) {
        expected.at((s * batch + b) * features + f) = factors.at((b * sequence + s) * features + f);
      }
    }
  }
  auto options = options_of(kP);
  options.transposed = options.has_shard_dim = 1;
  Buffer x(ones.part(0, rank, ranks), NXD_DTYPE_F32),
      y(ones.part(0, rank, ranks).shape, NXD_DTYPE_F32);
  NXD_TEST_OK(nxd_dropout_forward(ctx, kName, x.tensor(), &options, y.tensor()));
  y.equals(expected.part(0, rank, ranks), 2, "dropout of [sequence, batch, features]");
}

void check_empty(nxd_context_t* ctx, int, int, void*) {
  auto options = options_of(kP);
  Buffer x({0, 3}, NXD_DTYPE_F32), y({0, 3}, NXD_DTYPE_F32), one({}, NXD_DTYPE_F32);
  NXD_TEST_OK(nxd_dropout_forward(ctx, kName, x.tensor(), &options, y.tensor()));
  NXD_TEST_OK(nxd_dropout_forward(ctx, kName, one.tensor(), &options, one.tensor()));
}

// The stride of a dimension of one element means nothing, and frameworks say different ones.
void check_other_strides(nxd_context_t* ctx, int, int, void*) {
  auto options = options_of(kP);
  Buffer x(Numbers::pattern({1, 5}, 1), NXD_DTYPE_F32), y({1, 5}, NXD_DTYPE_F32);
  NXD_TEST_OK(nxd_dropout_forward(ctx, kName, x.tensor(), &options, y.tensor()));
  int64_t strides[] = {1, 1};
  DLTensor same = *x.tensor();
  same.strides = strides;
  NXD_TEST_OK(nxd_dropout_forward(ctx, kName, x.tensor(), &options, &same));
  for (int64_t i = 0; i < 5; ++i) NXD_TEST_CHECK(x.get(i) == y.get(i));
}

void on_all_ranks(nxd_test_rank_fn body) {
  for (const int ranks : {1, 2, 4}) nxd_test_run_ranks(ranks, ranks, body, nullptr);
}

void bits_of_positions(void**) { on_all_ranks(check_bits); }
void rounding(void**) { nxd_test_run_ranks(1, 1, check_rounding, nullptr); }
void parts_of_arrays(void**) { on_all_ranks(check_parts); }
void transposed_arrays(void**) { on_all_ranks(check_transposed); }
void empty_arrays(void**) { on_all_ranks(check_empty); }
void other_strides(void**) { on_all_ranks(check_other_strides); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(bits_of_positions), cmocka_unit_test(parts_of_arrays),
      cmocka_unit_test(transposed_arrays), cmocka_unit_test(empty_arrays),
      cmocka_unit_test(other_strides),     cmocka_unit_test(rounding)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
