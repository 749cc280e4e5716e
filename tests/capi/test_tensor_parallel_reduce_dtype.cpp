// Partial sums of BF16 linear layers that are exchanged in BF16: each rank's part is rounded once,
// and their sum once; other dtypes are left as they are.
#include "support/layer_arrays.h"
#include "support/reduce_dtype_ranks.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

double rounded(double value) {
  return nxd::bf16_to_f32(nxd::f32_to_bf16(static_cast<float>(value)));
}

Numbers each_rounded(Numbers numbers) {
  for (double& value : numbers.values) value = rounded(value);
  return numbers;
}

// a [m, k] b^T, b [n, k]. The numbers are multiples of 1/16, so that f32 holds their sums exactly.
Numbers product(const Numbers& a, const Numbers& b) {
  Numbers out({a.size(0), b.size(0)});
  for (int64_t i = 0; i < a.size(0); ++i) {
    for (int64_t j = 0; j < b.size(0); ++j) {
      for (int64_t k = 0; k < a.size(1); ++k) {
        out.at(i * b.size(0) + j) += a.at(i * a.size(1) + k) * b.at(j * b.size(1) + k);
      }
    }
  }
  return out;
}

void check_exact(const Buffer& got, const Numbers& wanted, const char* what) {
  for (int64_t i = 0; i < count_of(wanted.shape); ++i) {
    if (got.get(i) == wanted.at(i)) continue;
    nxd_test_fail(__FILE__, __LINE__, "%s: element %lld is %.9g, expected %.9g", what,
                  static_cast<long long>(i), got.get(i), wanted.at(i));
    return;
  }
}

// Sums of the ranks' products, of which rank r has factors [., k / ranks].
Numbers summed(const Numbers& a, const Numbers& b, int ranks, bool narrow) {
  Numbers sum({a.size(0), b.size(0)});
  for (int r = 0; r < ranks; ++r) {
    const Numbers part = product(a.part(1, r, ranks), b.part(1, r, ranks));
    sum = sum.plus(narrow ? each_rounded(part) : part);
  }
  return each_rounded(sum);
}

void rows_over_arrays(void**) {
  const Numbers x = Numbers::pattern({8, 64}, 1), weight = Numbers::pattern({24, 64}, 2),
                bias = Numbers::pattern({24}, 3);
  for (const int ranks : {1, 2, 4}) {
    const Numbers wanted = summed(x, weight, ranks, ranks > 1);
    assert_true((wanted.values == summed(x, weight, ranks, false).values) == (ranks == 1));
    on_ranks_with(ranks, NXD_DTYPE_BF16, [&](nxd_context_t* ctx, int rank, int) {
      Buffer own_x(x.part(1, rank, ranks), NXD_DTYPE_BF16);
      Buffer own_weight(weight.part(1, rank, ranks), NXD_DTYPE_BF16);
      Buffer own_bias(bias, NXD_DTYPE_BF16), y({8, 24}, NXD_DTYPE_BF16);
      NXD_TEST_OK(nxd_row_linear_forward(ctx, own_x.tensor(), own_weight.tensor(), nullptr, nullptr,
                                         y.tensor()));
      check_exact(y, wanted, "y");
      NXD_TEST_OK(nxd_row_linear_forward(ctx, own_x.tensor(), own_weight.tensor(),
                                         own_bias.tensor(), nullptr, y.tensor()));
      Numbers with_bias = ranks > 1 ? wanted : product(x, weight);
      for (int64_t i = 0; i < 8 * 24; ++i) with_bias.at(i) += bias.at(i % 24);
      check_exact(y, each_rounded(with_bias), "y with a bias");
      nxd_row_linear_options_t options = NXD_ROW_LINEAR_OPTIONS_INIT;
      options.sequence_parallel = 1;
      Buffer slice({8 / ranks, 24}, NXD_DTYPE_BF16);
      size_t bytes = 0;
      NXD_TEST_OK(nxd_row_linear_forward_get_workspace(ctx, own_x.tensor(), own_weight.tensor(),
                                                       nullptr, &options, slice.tensor(), &bytes));
      std::vector<char> workspace(bytes + 64);
      options.workspace =
          workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64);
      options.workspace_bytes = bytes;
      NXD_TEST_OK(nxd_row_linear_forward(ctx, own_x.tensor(), own_weight.tensor(), nullptr,
                                         &options, slice.tensor()));
      check_exact(slice, wanted.part(0, rank, ranks), "a slice of y");
    });
  }
}

// The products of several weights are added in f32, and rounded once.
void columns_over_arrays(void**) {
  const Numbers x = Numbers::pattern({8, 16}, 1);
  std::vector<Numbers> weights, dys;
  for (const int i : {0, 1, 2}) {
    weights.push_back(Numbers::pattern({32, 16}, 2 + i));
    dys.push_back(Numbers::pattern({8, 32}, 5 + i));
  }
  for (const int ranks : {1, 2, 4}) {
    for (const size_t count : {size_t{1}, size_t{3}}) {
      Numbers sum({8, 16});
      for (int r = 0; r < ranks; ++r) {
        Numbers part({8, 16});
        for (size_t i = 0; i < count; ++i) {
          part = part.plus(
              product(dys[i].part(1, r, ranks), weights[i].part(0, r, ranks).transposed()));
        }
        sum = sum.plus(ranks > 1 ? each_rounded(part) : part);
      }
      const Numbers wanted = each_rounded(sum);
      for (const bool splits : {false, true}) {
        on_ranks_with(ranks, NXD_DTYPE_BF16, [&](nxd_context_t* ctx, int rank, int) {
          const auto own = [&](const Numbers& whole) {
            return splits ? whole.part(0, rank, ranks) : whole;
          };
          Buffer own_x(own(x), NXD_DTYPE_BF16), dx(own(x).shape, NXD_DTYPE_BF16);
          std::vector<std::unique_ptr<Buffer>> buffers;
          std::vector<DLTensor*> w, dy;
          for (size_t i = 0; i < count; ++i) {
            buffers.push_back(
                std::make_unique<Buffer>(weights[i].part(0, rank, ranks), NXD_DTYPE_BF16));
            w.push_back(buffers.back()->tensor());
            buffers.push_back(
                std::make_unique<Buffer>(dys[i].part(1, rank, ranks), NXD_DTYPE_BF16));
            dy.push_back(buffers.back()->tensor());
          }
          nxd_column_linear_options_t options = NXD_COLUMN_LINEAR_OPTIONS_INIT;
          options.sequence_parallel = splits;
          NXD_TEST_OK(nxd_column_linears_backward(ctx, own_x.tensor(), w.data(), dy.data(), count,
                                                  &options, dx.tensor(), nullptr, nullptr));
          check_exact(dx, own(wanted), splits ? "a slice of dx" : "dx");
        });
      }
    }
  }
}

// The gradient of zeros by a head's loss: all logits are 0, and so their gradients are 1/classes,
// less 1 at the label, which bf16 holds exactly.
Numbers uniform_dlogits(const std::vector<int64_t>& labels, int64_t classes) {
  Numbers dlogits({static_cast<int64_t>(labels.size()), classes});
  for (size_t i = 0; i < labels.size(); ++i) {
    for (int64_t j = 0; j < classes; ++j) {
      dlogits.at(static_cast<int64_t>(i) * classes + j) =
          1.0 / static_cast<double>(classes) - (labels[i] == j ? 1 : 0);
    }
  }
  return dlogits;
}

void heads_over_arrays(void**) {
  constexpr int64_t kClasses = 64, kFeatures = 16;
  const Numbers x({8, kFeatures}), weight = Numbers::pattern({kClasses, kFeatures}, 2);
  const std::vector<int64_t> labels{0, 9, 63, 17, 31, 32, 48, 5};
  Numbers label_numbers({8});
  std::copy(labels.begin(), labels.end(), label_numbers.values.begin());
  const Numbers dlogits = uniform_dlogits(labels, kClasses);
  for (const int ranks : {1, 2, 4}) {
    const Numbers wanted = summed(dlogits, weight.transposed(), ranks, ranks > 1);
    assert_true((wanted.values == summed(dlogits, weight.transposed(), ranks, false).values) ==
                (ranks == 1));
    for (const bool splits : {false, true}) {
      on_ranks_with(ranks, NXD_DTYPE_BF16, [&](nxd_context_t* ctx, int rank, int) {
        const auto own = [&](const Numbers& whole) {
          return splits ? whole.part(0, rank, ranks) : whole;
        };
        Buffer own_x(own(x), NXD_DTYPE_BF16), dx(own(x).shape, NXD_DTYPE_BF16);
        Buffer own_weight(weight.part(0, rank, ranks), NXD_DTYPE_BF16);
        Buffer ids(label_numbers, NXD_DTYPE_I64);
        Buffer statistics({2, 8}, NXD_DTYPE_F32), loss(Sizes{}, NXD_DTYPE_F32);
        nxd_linear_cross_entropy_options_t options = NXD_LINEAR_CROSS_ENTROPY_OPTIONS_INIT;
        options.reduction = NXD_REDUCTION_SUM;
        options.sequence_parallel = splits;
        options.block_tokens = 3;
        NXD_TEST_OK(nxd_linear_cross_entropy_forward(ctx, own_x.tensor(), own_weight.tensor(),
                                                     nullptr, ids.tensor(), &options,
                                                     statistics.tensor(), loss.tensor()));
        NXD_TEST_OK(nxd_linear_cross_entropy_backward(
            ctx, own_x.tensor(), own_weight.tensor(), nullptr, ids.tensor(), statistics.tensor(),
            nullptr, &options, dx.tensor(), nullptr, nullptr));
        check_exact(dx, own(wanted), splits ? "a slice of a head's dx" : "a head's dx");
      });
    }
  }
}

void other_dtypes(void**) {
  const Numbers x = Numbers::pattern({4, 64}, 1, true), weight = Numbers::pattern({8, 64}, 2, true);
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_F16}) {
    std::vector<double> results[2];
    for (const nxd_dtype_t exchanged : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
      on_ranks_with(2, exchanged, [&](nxd_context_t* ctx, int rank, int ranks) {
        Buffer own_x(x.part(1, rank, ranks), dtype), own_weight(weight.part(1, rank, ranks), dtype);
        Buffer y({4, 8}, dtype);
        NXD_TEST_OK(nxd_row_linear_forward(ctx, own_x.tensor(), own_weight.tensor(), nullptr,
                                           nullptr, y.tensor()));
        if (rank != 0) return;
        for (int64_t i = 0; i < 32; ++i) results[exchanged == NXD_DTYPE_BF16].push_back(y.get(i));
      });
    }
    assert_true(results[0].size() == 32 && results[0] == results[1]);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(rows_over_arrays),
                              cmocka_unit_test(columns_over_arrays),
                              cmocka_unit_test(heads_over_arrays), cmocka_unit_test(other_dtypes)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
