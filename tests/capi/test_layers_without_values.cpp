// Layers and models on tensors of the meta device: outputs and gradients have the shapes and dtypes
// that they have on the CPU.
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr nxd_dtype_t kF32 = NXD_DTYPE_F32;

// A layer on a device, and its input there, with further ones that are not differentiated.
using Create = std::function<nxd_status_t(nxd_device_t device, nxd_module_t** out)>;

struct Case {
  Create create;
  std::vector<int64_t> shape;
  std::vector<int64_t> mask;  // of an attention; empty: none
};

Tensor zeros(const std::vector<int64_t>& shape, nxd_dtype_t dtype, nxd_device_t device) {
  Tensor t;
  NXD_TEST_OK(
      nxd_tensor_create(shape.data(), static_cast<int32_t>(shape.size()), dtype, device, t.out()));
  return t;
}

nxd_device_t device_of(const Tensor& x) {
  nxd_device_t device = NXD_DEVICE_INVALID;
  NXD_TEST_OK(nxd_tensor_get_device(x.get(), &device));
  return device;
}

// Shapes of the output and of the input's gradient.
std::vector<std::vector<int64_t>> shapes(const Case& given, nxd_device_t device) {
  Module layer;
  if (!NXD_TEST_OK(given.create(device, layer.out()))) return {};
  const Tensor x = zeros(given.shape, kF32, device);
  NXD_TEST_OK(nxd_tensor_set_requires_grad(x.get(), 1));
  std::vector<Tensor> inputs{x};
  if (!given.mask.empty()) inputs.push_back(zeros(given.mask, NXD_DTYPE_I64, device));
  const Tensor y = layer(inputs);
  if (!y) return {};
  backward(y, zeros(y.shape(), y.dtype(), device));
  const Tensor grad = x.grad();
  NXD_TEST_CHECK(device_of(y) == device && device_of(grad) == device && y.dtype() == kF32);
  return {y.shape(), grad.shape()};
}

template <class Options, class Make>
Create with(Options options, const Make& make) {
  return [=](nxd_device_t device, nxd_module_t** out) {
    Options there = options;
    there.device = device;
    return make(&there, out);
  };
}

std::vector<Case> cases(nxd_context_t* ctx) {
  const nxd_norm_options_t norm = NXD_NORM_OPTIONS_INIT;
  const nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
  const nxd_mlp_options_t mlp = NXD_MLP_OPTIONS_INIT;
  static const nxd_rope_options_t rope = NXD_ROPE_OPTIONS_INIT;
  nxd_attention_options_t attention = NXD_ATTENTION_OPTIONS_INIT, turned = attention;
  turned.rope = &rope;
  nxd_qkv_options_t qkv = NXD_QKV_OPTIONS_INIT;
  qkv.fusion = NXD_QKV_BY_PART;
  const auto heads = [=](const auto* options, nxd_module_t** out) {
    return nxd_layer_create_attention(ctx, 16, 4, options, out);
  };
  const std::vector<int64_t> x{2, 6, 16};
  return {
      {with(norm, [=](const auto* o,
                      auto** out) { return nxd_layer_create_layer_norm(ctx, 16, o, out); }),
       x,
       {}},
      {with(linear,
            [=](const auto* o, auto** out) {
              return nxd_layer_create_column_parallel_linear(ctx, 16, 24, o, out);
            }),
       x,
       {}},
      {with(mlp, [=](const auto* o,
                     auto** out) { return nxd_layer_create_gated_mlp(ctx, 16, 24, o, out); }),
       x,
       {}},
      {with(qkv, [=](const auto* o,
                     auto** out) { return nxd_layer_create_qkv_linear(ctx, 16, 4, o, out); }),
       x,
       {}},
      {with(attention, heads), x, {}},
      {with(attention, heads), x, {2, 6}},
      {with(turned, heads), x, {}},
      {[=](nxd_device_t, nxd_module_t** out) {
         return nxd_layer_create_rotary_embedding(ctx, 8, nullptr, out);
       },
       {2, 6, 3, 8},
       {}},
      {[=](nxd_device_t, nxd_module_t** out) {
         return nxd_layer_create_dropout(ctx, 0.5, "site", -1, out);
       },
       x,
       {}},
  };
}

void layers(nxd_context_t* ctx, int, int, void*) {
  for (const Case& each : cases(ctx)) {
    const auto there = shapes(each, NXD_DEVICE_META);
    NXD_TEST_CHECK(!there.empty() && there == shapes(each, NXD_DEVICE_CPU));
  }
}

// A rotary embedding that has seen shapes alone has its values on the CPU.
void values_after_shapes(nxd_context_t* ctx, int, int, void*) {
  Module seen, fresh;
  NXD_TEST_OK(nxd_layer_create_rotary_embedding(ctx, 8, nullptr, seen.out()));
  NXD_TEST_OK(nxd_layer_create_rotary_embedding(ctx, 8, nullptr, fresh.out()));
  const Tensor x = wave({2, 6, 3, 8}, kF32, 1);
  NXD_TEST_CHECK(seen({without_values({2, 6, 3, 8}, kF32)}).shape() == x.shape());
  NXD_TEST_CHECK(max_difference(seen({x}), fresh({x})) == 0);
}

// A parameter takes no value from what has none.
void values_of_shapes(nxd_context_t* ctx, int, int, void*) {
  Module norm;
  NXD_TEST_OK(nxd_layer_create_rms_norm(ctx, 8, nullptr, norm.out()));
  nxd_parameter_t* weight = norm.parameters()[0].second;
  NXD_TEST_REFUSED(nxd_parameter_set_full(weight, without_values({8}, kF32).get()),
                   NXD_ERROR_INVALID_ARGUMENT, "parameter weight: expected a whole with values");
  NXD_TEST_CHECK(max_abs(values(whole(weight))) == 1);
}

// Logits of a whole model.
void models(nxd_context_t* ctx, int, int size, void*) {
  const char* const configs[] = {
      R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "vocab_size": 32,
          "num_hidden_layers": 2, "num_attention_heads": 4})",
      R"({"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": 32,
          "n_positions": 16})",
      R"({"model_type": "gpt_neox", "hidden_size": 16, "intermediate_size": 32, "vocab_size": 32,
          "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 16,
          "rotary_pct": 0.5})"};
  for (const char* const config : configs) {
    nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;
    options.device = NXD_DEVICE_META;
    Module model;
    if (!NXD_TEST_OK(nxd_model_create(ctx, config, &options, model.out()))) continue;
    const Tensor logits = model({without_values({1, 8}, NXD_DTYPE_I64)});
    if (!logits) continue;
    NXD_TEST_CHECK((logits.shape() == std::vector<int64_t>{1, 8, 32 / size}));
    NXD_TEST_CHECK(device_of(logits) == NXD_DEVICE_META);
  }
}

template <nxd_test_rank_fn fn>
void on_ranks(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, fn, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(on_ranks<layers>), cmocka_unit_test(on_ranks<values_after_shapes>),
      cmocka_unit_test(on_ranks<values_of_shapes>), cmocka_unit_test(on_ranks<models>)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
