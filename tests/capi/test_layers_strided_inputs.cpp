// The memory behind a tensor does not matter: layers give the same for inputs and gradients of any
// strides, for a single vector, for nothing at all, when a graph is gone through twice, and when
// outputs are written to.
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

struct Layer {
  const char* name;
  Module module;
  std::vector<int64_t> input;
  bool per_row = true;  // takes any leading dimensions, also none
};

std::vector<Layer> make_layers(nxd_context_t* ctx, nxd_dtype_t dtype) {
  nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
  nxd_norm_options_t norm = NXD_NORM_OPTIONS_INIT;
  nxd_mlp_options_t mlp = NXD_MLP_OPTIONS_INIT;
  nxd_attention_options_t attention = NXD_ATTENTION_OPTIONS_INIT;
  const nxd_rope_options_t rope = NXD_ROPE_OPTIONS_INIT;
  linear.dtype = norm.dtype = mlp.dtype = attention.dtype = dtype;
  attention.rope = &rope;
  std::vector<Layer> layers;
  const auto add = [&](const char* name, std::vector<int64_t> input, bool per_row,
                       const auto& create) {
    Layer layer{name, {}, std::move(input), per_row};
    NXD_TEST_OK(create(layer.module.out()));
    layers.push_back(std::move(layer));
  };
  const std::vector<int64_t> x{3, 4, 8};
  add("column", x, true, [&](auto** out) {
    return nxd_layer_create_column_parallel_linear(ctx, 8, 12, &linear, out);
  });
  add("row", x, true,
      [&](auto** out) { return nxd_layer_create_row_parallel_linear(ctx, 8, 12, &linear, out); });
  add("layer norm", x, true,
      [&](auto** out) { return nxd_layer_create_layer_norm(ctx, 8, &norm, out); });
  add("RMS norm", x, true,
      [&](auto** out) { return nxd_layer_create_rms_norm(ctx, 8, &norm, out); });
  add("gated MLP", x, true,
      [&](auto** out) { return nxd_layer_create_gated_mlp(ctx, 8, 16, &mlp, out); });
  add("attention", x, false,
      [&](auto** out) { return nxd_layer_create_attention(ctx, 8, 4, &attention, out); });
  add("dropout", x, false,
      [&](auto** out) { return nxd_layer_create_dropout(ctx, 0.5, "d", 1, out); });
  add("rotary embedding", {3, 4, 2, 8}, false,
      [&](auto** out) { return nxd_layer_create_rotary_embedding(ctx, 8, nullptr, out); });
  return layers;
}

// The same values in memory that runs through the first dimension first.
Tensor strided(const Tensor& x) {
  const auto turned = [](const Tensor& t) {
    const auto last = static_cast<int64_t>(t.shape().size()) - 1;
    return op("transpose", "int", {{"self", t}, {"dim0", 0}, {"dim1", last}});
  };
  return turned(op("contiguous", {{"self", turned(x)}}));
}

// f64 and f32 sums may be added in another order, which may round a result in bf16 to its
// neighbour, 2^-8 away; here all have been the same bits.
double tolerance(nxd_dtype_t dtype) {
  return dtype == NXD_DTYPE_F64 ? 1e-12 : dtype == NXD_DTYPE_F32 ? 1e-5 : 1.0 / 256;
}

struct Pass {
  Tensor y;
  std::vector<Tensor> gradients;  // of the input, then of the whole parameters
};

Pass run(const Layer& layer, const Tensor& x, const Tensor& in, const Tensor& g) {
  Pass pass;
  NXD_TEST_OK(nxd_module_zero_grad(layer.module.get()));
  pass.y = layer.module({in});
  if (!pass.y) return pass;
  if (g) {
    backward(pass.y, g);
  } else {
    backward(op("sum", {{"self", pass.y}}));  // a gradient without memory of its own
  }
  pass.gradients.push_back(x.grad());
  for (const auto& [name, parameter] : layer.module.parameters()) {
    const Tensor grad = whole_grad(parameter);
    pass.gradients.push_back(leaf(grad, grad.dtype(), false));
  }
  return pass;
}

void compare(const std::string& what, const Pass& got, const Pass& want, double allowed) {
  NXD_TEST_CLOSE(what + " output", got.y, want.y, allowed);
  if (!NXD_TEST_CHECK(got.gradients.size() == want.gradients.size())) return;
  for (size_t i = 0; i < want.gradients.size(); ++i) {
    NXD_TEST_CLOSE(what + " gradient " + std::to_string(i), got.gradients[i], want.gradients[i],
                   allowed);
  }
}

void check_strides(const Layer& layer, nxd_dtype_t dtype) {
  const Tensor values = wave(layer.input, dtype, 1);
  const auto fresh = [&] { return leaf(values, dtype, true); };
  const Tensor x = fresh(), other = fresh(), sum_x = fresh(), ones_x = fresh();
  const Tensor probe = layer.module({x});
  if (!probe) return;
  const Tensor g = wave(probe.shape(), dtype, 2);
  compare(std::string(layer.name) + ", strided", run(layer, other, strided(other), strided(g)),
          run(layer, x, x, g), tolerance(dtype));
  const Tensor ones = op("ones_like", {{"self", leaf(probe, dtype, false)}});
  compare(std::string(layer.name) + ", summed", run(layer, sum_x, sum_x, {}),
          run(layer, ones_x, ones_x, ones), tolerance(dtype));
}

// One vector gives what it gives as a matrix of one row; no row gives none.
void check_rows(const Layer& layer, nxd_dtype_t dtype) {
  const Tensor vector = leaf(wave({8}, dtype, 3), dtype, true), row_x = leaf(vector, dtype, true);
  const Tensor row = op("unsqueeze", {{"self", row_x}, {"dim", 0}});
  const Tensor y = layer.module({vector}), row_y = layer.module({row});
  if (!y || !row_y) return;
  NXD_TEST_CHECK(y.shape().size() == 1);
  NXD_TEST_CLOSE(layer.name, op("unsqueeze", {{"self", y}, {"dim", 0}}), row_y, tolerance(dtype));
  const Tensor g = wave(y.shape(), dtype, 4);
  backward(y, g);
  backward(row_y, op("unsqueeze", {{"self", g}, {"dim", 0}}));
  NXD_TEST_CLOSE(layer.name, vector.grad(), row_x.grad(), tolerance(dtype));
}

void check_empty(const Layer& layer, nxd_dtype_t dtype) {
  std::vector<int64_t> shape = layer.input;
  shape[0] = 0;
  const Tensor x = leaf(from_doubles({}, shape), dtype, true);
  const Tensor y = layer.module({x});
  if (!y) return;
  NXD_TEST_CHECK(y.count() == 0 && y.shape()[0] == 0);
  NXD_TEST_OK(nxd_module_zero_grad(layer.module.get()));
  backward(y, leaf(y, dtype, false));
  for (const auto& [name, parameter] : layer.module.parameters()) {
    const Tensor grad = whole_grad(parameter);
    NXD_TEST_CHECK(!grad || max_abs(values(grad)) == 0);
  }
}

// With retain_graph the second pass adds the same again.
void check_retained(const Layer& layer, nxd_dtype_t dtype) {
  const Tensor x = leaf(wave(layer.input, dtype, 1), dtype, true);
  const Tensor y = layer.module({x});
  if (!y) return;
  const Tensor g = wave(y.shape(), dtype, 2);
  nxd_tensor_t *output = y.get(), *grad = g.get();
  NXD_TEST_OK(nxd_backward(&output, &grad, 1, 1));
  const Tensor once = leaf(x.grad(), dtype, false);
  NXD_TEST_OK(nxd_backward(&output, &grad, 1, 0));
  const Tensor twice = op("mul", "Scalar", {{"self", once}, {"other", 2.0}});
  NXD_TEST_CHECK(max_difference(x.grad(), twice) == 0);
}

Tensor doubled(const Tensor& x) { return op("mul", "Scalar", {{"self", x}, {"other", 2.0}}); }

void check_written(const Layer& layer, nxd_dtype_t dtype) {
  const Tensor x = leaf(wave(layer.input, dtype, 1), dtype, true), other = leaf(x, dtype, true);
  const Tensor y = layer.module({x}), written = layer.module({other});
  if (!y || !written) return;
  op("mul_", "Scalar", {{"self", written}, {"other", 2.0}});
  const Tensor g = wave(y.shape(), dtype, 2);
  backward(y, doubled(g));
  backward(written, g);
  NXD_TEST_CLOSE(std::string(layer.name) + ", written to", other.grad(), x.grad(), 0);
}

void check_written_rows(nxd_context_t* ctx, nxd_dtype_t dtype) {
  nxd_embedding_options_t options = NXD_EMBEDDING_OPTIONS_INIT;
  options.dtype = dtype;
  Module table;
  NXD_TEST_OK(nxd_layer_create_parallel_embedding(ctx, 4, 2, &options, table.out()));
  const Tensor y = table({from_ints({0, 3, 0}, {1, 3})});
  if (!y) return;
  op("mul_", "Scalar", {{"self", y}, {"other", 2.0}});
  backward(op("sum", {{"self", y}}));
  const Tensor want = from_doubles({4, 4, 0, 0, 0, 0, 2, 2}, {4, 2});
  NXD_TEST_CLOSE("embedding, written to", whole_grad(table.parameters()[0].second), want, 0);
}

// An embedding of no ids.
void check_no_ids(nxd_context_t* ctx, nxd_dtype_t dtype) {
  nxd_embedding_options_t options = NXD_EMBEDDING_OPTIONS_INIT;
  options.dtype = dtype;
  Module table;
  NXD_TEST_OK(nxd_layer_create_parallel_embedding(ctx, 12, 8, &options, table.out()));
  const Tensor y = table({from_ints({}, {0, 4})});
  if (!y) return;
  NXD_TEST_CHECK((y.shape() == std::vector<int64_t>{0, 4, 8}));
  backward(op("sum", {{"self", y}}));
  const Tensor grad = whole_grad(table.parameters()[0].second);
  NXD_TEST_CHECK(!grad || max_abs(values(grad)) == 0);
}

void every_layer(nxd_context_t* ctx, int, int, void*) {
  for (const bool plain : {false, true}) {
    NXD_TEST_OK(nxd_context_set_plain_kernels(ctx, plain));
    for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
      check_no_ids(ctx, dtype);
      check_written_rows(ctx, dtype);
      for (const Layer& layer : make_layers(ctx, dtype)) {
        check_strides(layer, dtype);
        if (layer.per_row) check_rows(layer, dtype);
        check_empty(layer, dtype);
        check_retained(layer, dtype);
        check_written(layer, dtype);
      }
    }
  }
}

void test_every_layer(void**) {
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, every_layer, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_every_layer)};
  return cmocka_run_group_tests_name("strided_inputs", tests, nullptr, nullptr);
}
