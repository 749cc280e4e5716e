// Layers over buffers against the modules and functions of libnxd, forward and backward: the same
// bits where both run the same kernels, and ATen's numbers in f64.
#include "support/layer_arrays.h"
#include "support/tensor.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

Tensor tensor_of(const Numbers& numbers, nxd_dtype_t dtype) {
  return from_doubles(numbers.values, numbers.shape, dtype);
}

// Reports a number of a buffer that is not the tensor's, relative to 1 and the number's size.
void same(const Buffer& buffer, const Tensor& tensor, double tolerance, const std::string& what) {
  const std::vector<double> expected = values(tensor);
  for (size_t i = 0; i < expected.size(); ++i) {
    const double got = buffer.get(static_cast<int64_t>(i));
    if (std::fabs(got - expected[i]) <= tolerance * (1 + std::fabs(expected[i]))) continue;
    nxd_test_fail(__FILE__, __LINE__, "%s: element %zu is %.17g, the module's %.17g", what.c_str(),
                  i, got, expected[i]);
    return;
  }
}

Tensor parameter_of(const Module& module, const char* name) {
  for (const auto& [found, parameter] : module.parameters()) {
    if (found != name) continue;
    Tensor tensor;
    nxd_tensor_t* borrowed = nullptr;
    NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &borrowed));
    NXD_TEST_OK(nxd_tensor_retain(borrowed, tensor.out()));
    return tensor;
  }
  nxd_test_fail(__FILE__, __LINE__, "no parameter %s", name);
  return {};
}

// The weight begins as ones, the bias as zeros.
void check_norm(nxd_context_t* ctx, nxd_dtype_t dtype, bool has_mean) {
  const Sizes shape{5, 3, 40};
  const Numbers x = Numbers::pattern(shape, 1, true), dy = Numbers::pattern(shape, 2, true);
  nxd_norm_options_t options = NXD_NORM_OPTIONS_INIT;
  options.dtype = dtype;
  Module module;
  NXD_TEST_OK((has_mean ? nxd_layer_create_layer_norm : nxd_layer_create_rms_norm)(
      ctx, 40, &options, module.out()));
  const Tensor in = leaf(tensor_of(x, dtype), dtype, true);
  const Tensor out = module({in});
  backward(out, tensor_of(dy, dtype));
  const Tensor grad_weight = parameter_of(module, "weight").grad();

  Buffer bx(x, dtype), by(shape, dtype), bdy(dy, dtype), bdx(shape, dtype), bdw({40}, dtype);
  Buffer weight(Numbers::pattern({40}, 0), dtype), bias(Numbers({40}), dtype), bdb({40}, dtype);
  for (int64_t i = 0; i < 40; ++i) weight.set(i, 1);
  const nxd_dtype_t wide = dtype == NXD_DTYPE_F64 ? NXD_DTYPE_F64 : NXD_DTYPE_F32;
  const std::string what =
      (has_mean ? "layer norm of dtype " : "RMS norm of dtype ") + std::to_string(dtype);
  if (has_mean) {
    Buffer rows({2, 5, 3}, wide);
    NXD_TEST_OK(nxd_layer_norm_forward(ctx, bx.tensor(), weight.tensor(), bias.tensor(), nullptr,
                                       by.tensor(), rows.tensor()));
    NXD_TEST_OK(nxd_layer_norm_backward(ctx, bx.tensor(), weight.tensor(), rows.tensor(),
                                        bdy.tensor(), nullptr, bdx.tensor(), bdw.tensor(),
                                        bdb.tensor()));
  } else {
    Buffer rows({5, 3}, wide);
    NXD_TEST_OK(nxd_rms_norm_forward(ctx, bx.tensor(), weight.tensor(), nullptr, by.tensor(),
                                     rows.tensor()));
    NXD_TEST_OK(nxd_rms_norm_backward(ctx, bx.tensor(), weight.tensor(), rows.tensor(),
                                      bdy.tensor(), nullptr, bdx.tensor(), bdw.tensor()));
  }
  const double tolerance = dtype == NXD_DTYPE_F64 ? 1e-12 : 0;
  same(by, out, tolerance, "y of " + what);
  same(bdx, in.grad(), tolerance, "grad_x of " + what);
  same(bdw, grad_weight, tolerance, "grad_weight of " + what);
}

void norms(void**) {
  nxd_test_run_ranks(
      2, 2,
      [](nxd_context_t* ctx, int, int, void*) {
        for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16}) {
          for (const bool has_mean : {false, true}) check_norm(ctx, dtype, has_mean);
        }
      },
      nullptr);
}

void check_dropout(nxd_context_t* ctx, int rank, int ranks, void*) {
  const Sizes shape{4, 6, 8};
  const Numbers x = Numbers::pattern(shape, 1);
  NXD_TEST_OK(nxd_context_set_step(ctx, 5, 1));
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16}) {
    for (int dim = -1; dim < 3; ++dim) {
      const Numbers own = dim < 0 ? x : x.part(dim, rank, ranks);
      Module module;
      NXD_TEST_OK(nxd_layer_create_dropout(ctx, 0.3, "block.dropout", dim, module.out()));
      nxd_dropout_options_t options = NXD_DROPOUT_OPTIONS_INIT;
      options.p = 0.3;
      options.has_shard_dim = dim >= 0;
      options.shard_dim = dim;
      Buffer from(own, dtype), to(own.shape, dtype);
      NXD_TEST_OK(nxd_dropout_forward(ctx, "block.dropout", from.tensor(), &options, to.tensor()));
      same(to, module({tensor_of(own, dtype)}), 0, "dropout of dtype " + std::to_string(dtype));
    }
  }
}

void dropout(void**) { nxd_test_run_ranks(2, 2, check_dropout, nullptr); }

void check_head(nxd_context_t* ctx, int rank, int ranks, void*) {
  const int64_t tokens = 40, features = 24, cols = 11;
  const Numbers x = Numbers::pattern({tokens, features}, 1, true);
  const Numbers weight = Numbers::pattern({cols * ranks, features}, 2, true);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(i % 5 == 4 ? -100 : i % (cols * ranks));
  Numbers labels({tokens});
  labels.values.assign(ids.begin(), ids.end());
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64}) {
    const Numbers own = weight.part(0, rank, ranks);
    const Tensor in = leaf(tensor_of(x, dtype), dtype, true);
    const Tensor w = leaf(tensor_of(own, dtype), dtype, true);
    nxd_cross_entropy_options_t smooth = NXD_CROSS_ENTROPY_OPTIONS_INIT;
    smooth.label_smoothing = 0.1;
    Tensor loss;
    NXD_TEST_OK(nxd_linear_cross_entropy(ctx, in.get(), w.get(), from_ints(ids, {tokens}).get(), -1,
                                         &smooth, loss.out()));
    backward(loss);
    nxd_linear_cross_entropy_options_t options = NXD_LINEAR_CROSS_ENTROPY_OPTIONS_INIT;
    options.label_smoothing = 0.1;
    Buffer bx(x, dtype), bw(own, dtype), bt(labels, NXD_DTYPE_I64), rows({2, tokens}, dtype);
    Buffer bl(Sizes{}, dtype), bdx(x.shape, dtype), bdw(own.shape, dtype);
    NXD_TEST_OK(nxd_linear_cross_entropy_forward(
        ctx, bx.tensor(), bw.tensor(), nullptr, bt.tensor(), &options, rows.tensor(), bl.tensor()));
    NXD_TEST_OK(nxd_linear_cross_entropy_backward(ctx, bx.tensor(), bw.tensor(), nullptr,
                                                  bt.tensor(), rows.tensor(), nullptr, &options,
                                                  bdx.tensor(), bdw.tensor(), nullptr));
    const double tolerance = dtype == NXD_DTYPE_F64 ? 1e-12 : 1e-6;
    same(bl, loss, tolerance, "loss");
    same(bdx, in.grad(), tolerance, "grad_x of the head");
    same(bdw, w.grad(), tolerance, "grad_weight of the head");
  }
}

void head(void**) {
  for (const int ranks : {1, 2}) nxd_test_run_ranks(ranks, ranks, check_head, nullptr);
}

void check_initial(nxd_context_t* ctx, int rank, int ranks, void*) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16}) {
    for (const nxd_init_t init :
         {NXD_INIT_NORMAL, NXD_INIT_UNIFORM, NXD_INIT_CONSTANT, NXD_INIT_KAIMING_UNIFORM}) {
      nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
      linear.name = "net.fc";
      linear.dtype = dtype;
      linear.init = init;
      linear.init_a = 0.25;
      linear.init_b = 0.5;
      linear.gather_output = NXD_TOGGLE_OFF;
      Module column, row;
      NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 12, 16, &linear, column.out()));
      NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, 16, 12, &linear, row.out()));
      for (int dim = 0; dim < 2; ++dim) {
        nxd_shard_options_t options = NXD_SHARD_OPTIONS_INIT;
        options.has_dim = 1;
        options.dim = dim;
        const Sizes whole = dim == 0 ? Sizes{16, 12} : Sizes{12, 16};
        Buffer shard(Numbers(whole).part(dim, rank, ranks).shape, dtype, Layout::kGaps);
        NXD_TEST_OK(
            nxd_shard_initialize(ctx, "net.fc.weight", init, 0.25, 0.5, &options, shard.tensor()));
        same(shard, parameter_of(dim == 0 ? column : row, "weight"), 0, "initial weight");
      }
    }
  }
}

void initial_weights(void**) {
  for (const int ranks : {1, 2, 4}) nxd_test_run_ranks(ranks, ranks, check_initial, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(norms), cmocka_unit_test(dropout),
                              cmocka_unit_test(head), cmocka_unit_test(initial_weights)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
