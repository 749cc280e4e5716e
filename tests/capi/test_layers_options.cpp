// Options of the linear layers that change what a rank holds or gives, by value: strides of fused
// weights, biases that the caller adds, sums that the caller makes; and a distribution of weights.
#include "capi/layer_case.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr int64_t kIn = 16, kOut = 24;
constexpr int kStride = 2;

// The features of a dimension in the order in which the ranks hold them: a rank's blocks are every
// size-th of size * stride.
std::vector<int64_t> shard_order(int64_t features, int size) {
  const int64_t block = features / (size * kStride);
  std::vector<int64_t> order;
  for (int rank = 0; rank < size; ++rank) {
    for (int k = 0; k < kStride; ++k) {
      for (int64_t i = 0; i < block; ++i) order.push_back((k * size + rank) * block + i);
    }
  }
  return order;
}

Tensor select(const Tensor& x, int dim, const std::vector<int64_t>& which) {
  const Tensor index = from_ints(which, {static_cast<int64_t>(which.size())});
  return op("index_select", {{"self", x}, {"dim", dim}, {"index", index}});
}

std::vector<int64_t> inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> out(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    out[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return out;
}

void check_at(int size, Case c) { nxd_test_run_ranks(size, size, run_case, &c); }

void strided_columns(void**) {
  for (const int size : {1, 2, 4}) {
    Case c;
    c.name = "column, stride 2";
    c.input = {4, 3, kIn};
    c.output_part = 2;
    c.create = [](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
      nxd_linear_options_t o = NXD_LINEAR_OPTIONS_INIT;
      o.dtype = dtype;
      o.gather_output = NXD_TOGGLE_OFF;
      o.stride = kStride;
      return nxd_layer_create_column_parallel_linear(ctx, kIn, kOut, &o, out);
    };
    c.reference = [size](const Weights& w, const Tensor& x) {
      return select(linear(x, w, ""), 2, shard_order(kOut, size));
    };
    check_at(size, c);
  }
}

void strided_rows(void**) {
  for (const int size : {1, 2, 4}) {
    Case c;
    c.name = "row, stride 2";
    c.input = {4, 3, kIn};
    c.input_part = 2;
    c.create = [](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
      nxd_linear_options_t o = NXD_LINEAR_OPTIONS_INIT;
      o.dtype = dtype;
      o.input_is_parallel = 1;
      o.stride = kStride;
      return nxd_layer_create_row_parallel_linear(ctx, kIn, kOut, &o, out);
    };
    // The input comes in the ranks' order.
    c.reference = [size](const Weights& w, const Tensor& x) {
      return linear(select(x, 2, inverse(shard_order(kIn, size))), w, "");
    };
    check_at(size, c);
  }
}

struct Given {
  Tensor weight, bias, x, grad;
};

// A layer with known weights, and what it is called with.
Given prepare(const Module& layer, nxd_dtype_t dtype) {
  Given given{wave({kOut, kIn}, dtype, 1), wave({kOut}, dtype, 2), wave({4, 3, kIn}, dtype, 3),
              wave({4, 3, kOut}, dtype, 4)};
  for (const auto& [name, parameter] : layer.parameters()) {
    NXD_TEST_OK(
        nxd_parameter_set_full(parameter, (name == "bias" ? given.bias : given.weight).get()));
  }
  return given;
}

Tensor grad_of(const Module& layer, const char* name) {
  for (const auto& [known, parameter] : layer.parameters()) {
    if (known == name) return whole_grad(parameter);
  }
  return {};
}

// y = x W^T and, beside it, the bias; both are differentiated.
void skipped_bias(nxd_context_t* ctx, int rank, int size, void*) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32}) {
    for (const bool column : {true, false}) {
      nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
      options.dtype = dtype;
      options.gather_output = NXD_TOGGLE_OFF;
      options.input_is_parallel = 1;
      options.skip_bias_add = 1;
      Module layer;
      NXD_TEST_OK(
          column ? nxd_layer_create_column_parallel_linear(ctx, kIn, kOut, &options, layer.out())
                 : nxd_layer_create_row_parallel_linear(ctx, kIn, kOut, &options, layer.out()));
      const Given g = prepare(layer, dtype);
      const int in_part = column ? -1 : 2, out_part = column ? 2 : -1;
      const Tensor x = leaf(part(g.x, in_part, rank, size), dtype, true);
      nxd_tensor_t *input = x.get(), *outputs[2] = {nullptr, nullptr};
      NXD_TEST_OK(nxd_module_forward(layer.get(), &input, 1, outputs, 2));
      const Tensor y(outputs[0]), bias(outputs[1]);
      const double tol = tolerance(dtype);
      const Tensor weight = leaf(g.weight, NXD_DTYPE_F64, true);
      const Tensor whole_x = leaf(g.x, NXD_DTYPE_F64, true);
      const Tensor product = op("linear", {{"input", whole_x}, {"weight", weight}});
      NXD_TEST_CLOSE("output", y, part(product, out_part, rank, size), tol);
      NXD_TEST_CHECK(max_difference(bias, part(g.bias, column ? 0 : -1, rank, size)) == 0);
      // The caller adds it: sum(y g) + sum(bias g).
      const Tensor own_grad = part(g.grad, out_part, rank, size);
      backward(op("add", "Tensor", {{"self", y}, {"other", bias}}), own_grad);
      NXD_TEST_OK(nxd_finish_grads(layer.get(), nullptr, nullptr));
      backward(product, to(g.grad, NXD_DTYPE_F64));
      NXD_TEST_CLOSE("weight gradient", grad_of(layer, "weight"), weight.grad(), tol);
      NXD_TEST_CLOSE("input gradient", x.grad(), part(whole_x.grad(), in_part, rank, size), tol);
      const Tensor rows =
          op("sum", "dim_IntList",
             {{"self", to(g.grad, NXD_DTYPE_F64)}, {"dim", std::vector<int64_t>{0, 1}}});
      NXD_TEST_CLOSE("bias gradient", grad_of(layer, "bias"), rows, tol);
      // Asked for one output alone it gives no bias, and adds none.
      NXD_TEST_OK(nxd_module_forward(layer.get(), &input, 1, outputs, 1));
      NXD_TEST_CLOSE("one output", Tensor(outputs[0]), part(product, out_part, rank, size), tol);
    }
  }
}

void skip_bias_add(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, skipped_bias, nullptr);
}

// Each rank's part of the sum, and the whole once the caller sums it; the bias is the caller's too.
void partial_sums(nxd_context_t* ctx, int rank, int size, void*) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32}) {
    nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
    options.dtype = dtype;
    options.input_is_parallel = 1;
    options.reduce_output = NXD_TOGGLE_OFF;
    Module layer;
    NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, kIn, kOut, &options, layer.out()));
    const Given g = prepare(layer, dtype);
    const Tensor x = leaf(part(g.x, 2, rank, size), dtype, true);
    const Tensor y = layer({x});
    const double tol = tolerance(dtype);
    const Tensor own_x = leaf(part(g.x, 2, rank, size), NXD_DTYPE_F64, false);
    const Tensor own_weight = leaf(part(g.weight, 1, rank, size), NXD_DTYPE_F64, false);
    NXD_TEST_CLOSE("partial sum", y, op("linear", {{"input", own_x}, {"weight", own_weight}}), tol);
    Tensor sum;
    NXD_TEST_OK(nxd_reduce_from_tensor_region(ctx, y.get(), sum.out()));
    const Tensor weight = leaf(g.weight, NXD_DTYPE_F64, true);
    const Tensor whole_x = leaf(g.x, NXD_DTYPE_F64, true);
    const Tensor product = op("linear", {{"input", whole_x}, {"weight", weight}});
    NXD_TEST_CLOSE("sum", sum, product, tol);
    backward(sum, g.grad);
    NXD_TEST_OK(nxd_finish_grads(layer.get(), nullptr, nullptr));
    backward(product, to(g.grad, NXD_DTYPE_F64));
    NXD_TEST_CLOSE("weight gradient", grad_of(layer, "weight"), weight.grad(), tol);
    NXD_TEST_CLOSE("input gradient", x.grad(), part(whole_x.grad(), 2, rank, size), tol);
  }
}

void reduce_output(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, partial_sums, nullptr);
}

// He et al. 2015: uniform within sqrt(6 / ((1 + a^2) fan_in)), fan_in that of the whole weight.
void kaiming(nxd_context_t* ctx, int, int, void* user_data) {
  const auto draw = [&](bool column, nxd_init_t init, double a, double b) {
    nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
    options.name = "layer";
    options.dtype = NXD_DTYPE_F64;
    options.init = init;
    options.init_a = a;
    options.init_b = b;
    Module layer;
    NXD_TEST_OK(column ? nxd_layer_create_column_parallel_linear(ctx, 64, 96, &options, layer.out())
                       : nxd_layer_create_row_parallel_linear(ctx, 64, 96, &options, layer.out()));
    Weights out;
    for (const auto& [name, parameter] : layer.parameters()) out[name] = whole(parameter);
    return out;
  };
  auto& seen = *static_cast<std::map<std::string, std::vector<double>>*>(user_data);
  for (const bool column : {true, false}) {
    for (const double a : {0.0, 2.0}) {
      const double bound = std::sqrt(6 / ((1 + a * a) * 64));
      const Weights got = draw(column, NXD_INIT_KAIMING_UNIFORM, a, 0);
      const std::vector<double> v = values(got.at("weight"));
      double sum = 0, squares = 0;
      for (const double x : v) {
        sum += x;
        squares += x * x;
      }
      const auto n = static_cast<double>(v.size());
      // The mean of n draws deviates by bound / sqrt(3 n), that of squares by bound^2 sqrt(4/45 /
      // n).
      NXD_TEST_CHECK(max_abs(v) <= bound && max_abs(v) > 0.99 * bound);
      NXD_TEST_CHECK(std::fabs(sum / n) < 5 * bound / std::sqrt(3 * n));
      NXD_TEST_CHECK(std::fabs(squares / n - bound * bound / 3) <
                     5 * bound * bound * std::sqrt(4.0 / 45 / n));
      NXD_TEST_CHECK(max_abs(values(got.at("bias"))) == 0);
      NXD_TEST_CLOSE("as uniform", got.at("weight"),
                     draw(column, NXD_INIT_UNIFORM, -bound, bound).at("weight"), 1e-15);
      // Every layout draws the same.
      static std::mutex mutex;
      const std::lock_guard<std::mutex> lock(mutex);
      const auto [it, is_new] = seen.emplace(std::to_string(column) + std::to_string(a), v);
      NXD_TEST_CHECK(is_new || it->second == v);
    }
  }
}

void kaiming_uniform(void**) {
  std::map<std::string, std::vector<double>> seen;
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, kaiming, &seen);
  assert_int_equal(seen.size(), 4);
}

// Ranks have parts of a dimension of the ids, however the table is split and on any number of
// ranks; what fails otherwise says no more than that.
void scattered_dimensions(nxd_context_t* ctx, int, int size, void*) {
  for (const int32_t columns : {0, 1}) {
    const auto refused = [&](int32_t dim, const std::vector<int64_t>& shape, const char* part) {
      nxd_embedding_options_t options = NXD_EMBEDDING_OPTIONS_INIT;
      options.shard_across_embedding = columns;
      options.sequence_parallel = 1;
      options.sequence_dim = dim;
      Module table;
      NXD_TEST_OK(nxd_layer_create_parallel_embedding(ctx, 8, 4, &options, table.out()));
      const Tensor ids =
          from_ints(std::vector<int64_t>(static_cast<size_t>(shape[0] * shape[1])), shape);
      nxd_tensor_t *in = ids.get(), *out = nullptr;
      NXD_TEST_REFUSED(nxd_module_forward(table.get(), &in, 1, &out, 1), NXD_ERROR_INVALID_ARGUMENT,
                       part);
      char message[512];
      nxd_last_error_copy(message, sizeof message);
      NXD_TEST_CHECK(!std::strstr(message, "a key is"));
    };
    for (const int32_t features : {2, -1}) {
      refused(features, {2, 4}, "sequence_dim: expected a dimension of the ids, which have 2, got");
    }
    if (size > 1) refused(0, {1, 4}, "dimension 0 of size 1 does not divide by the 2 ranks");
  }
}

// The same for linear layers, whose features no sequence's dimension is: one rank says so too.
void features_for_a_sequence(nxd_context_t* ctx, int, int size, void*) {
  for (const int32_t dim : {2, -1}) {
    nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
    options.sequence_parallel = 1;
    options.sequence_dim = dim;
    Module column, row;
    NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 4, 8, &options, column.out()));
    options.input_is_parallel = 1;
    NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, 8, 4, &options, row.out()));
    const Tensor x = wave({2, 2, 4}, NXD_DTYPE_F32, 1),
                 wide = wave({2, 2, 8 / size}, NXD_DTYPE_F32, 1);
    const auto refused = [](const Module& layer, const Tensor& input) {
      nxd_tensor_t *in = input.get(), *out = nullptr;
      NXD_TEST_REFUSED(nxd_module_forward(layer.get(), &in, 1, &out, 1), NXD_ERROR_INVALID_ARGUMENT,
                       "sequence_dim: expected a dimension before the features");
    };
    refused(column, x);
    refused(row, wide);
  }
}

void linear_sequence_dim(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, features_for_a_sequence, nullptr);
}

void embedding_sequence_dim(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, scattered_dimensions, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(strided_columns),     cmocka_unit_test(strided_rows),
      cmocka_unit_test(skip_bias_add),       cmocka_unit_test(reduce_output),
      cmocka_unit_test(kaiming_uniform),     cmocka_unit_test(embedding_sequence_dim),
      cmocka_unit_test(linear_sequence_dim),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
