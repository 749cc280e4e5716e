// Every layer and function gives in a trace the shapes, dtypes and needs for gradients that it has
// in a run, on every layout, and with the same bits when its graph is run.
#include "engine/graph/callback_support.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

struct Setting {
  int tp;
  nxd_dtype_t dtype;
  bool plain;
};

at::ScalarType scalar_type(nxd_dtype_t dtype) {
  return dtype == NXD_DTYPE_F64    ? at::kDouble
         : dtype == NXD_DTYPE_BF16 ? at::kBFloat16
                                   : at::kFloat;
}

// Compares the values of a trace with what a run gives, and a run of the graph with it. The layer's
// inputs need gradients.
void check_module(nxd_context_t* ctx, const std::string& what, const Module& layer,
                  const Tensors& inputs, size_t n_outputs) {
  if (!layer) return;
  const Module module = make_module(ctx, "Root", [=](nxd_module_t* self, const Tensors& in) {
    Tensors given = in;
    for (at::Tensor& x : given) {
      if (x.is_floating_point()) x = x * parameter_of(self, "one").to(x.scalar_type());
    }
    return call_child(self, "layer", given, n_outputs);
  });
  add_parameter(module, "one", {1});
  add_child(module, "layer", layer);
  const auto graph = std::make_shared<Graph>(nxd::trace(module->value, inputs, n_outputs, {}));
  const Tensors real = module->value->call(inputs, n_outputs);
  for (size_t i = 0; i < n_outputs; ++i) {
    const nxd::GraphValue& value = graph->values[static_cast<size_t>(graph->outputs[i])];
    if (at::IntArrayRef(value.shape) != real[i].sizes() || value.dtype != real[i].scalar_type() ||
        value.needs_grad != real[i].requires_grad()) {
      nxd_test_fail(__FILE__, __LINE__, "%s: output %zu", what.c_str(), i);
    }
  }
  const Outcome want = run_whole(*module->value, inputs, n_outputs);
  const Outcome got = run_stages(graph, nxd::partition_at(*graph, {}), *module->value, inputs);
  check_same(what + ": output", got.outputs, want.outputs);
  check_same(what + ": gradient", got.gradients, want.gradients);
}

template <class Create>
Module made(Create create) {
  nxd_module_t* out = nullptr;
  NXD_TEST_OK(create(&out));
  return Module(out);
}

void check_linears(nxd_context_t* ctx, const Setting& set) {
  const at::Tensor x =
      at::arange(2 * 4 * 8, at::kFloat).cos().to(scalar_type(set.dtype)).view({2, 4, 8});
  for (int form = 0; form < 8; ++form) {
    nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
    options.dtype = set.dtype;
    options.bias = form & 1 ? NXD_TOGGLE_ON : NXD_TOGGLE_OFF;
    options.skip_bias_add = (form & 2) != 0;
    options.sequence_parallel = (form & 4) != 0;
    options.sequence_dim = 1;
    const size_t n_outputs = options.skip_bias_add && (form & 1) ? 2 : 1;
    const std::string name = " linear, form " + std::to_string(form);
    check_module(ctx, "column" + name, made([&](nxd_module_t** out) {
                   return nxd_layer_create_column_parallel_linear(ctx, 8, 6, &options, out);
                 }),
                 {x}, n_outputs);
    options.input_is_parallel = options.sequence_parallel;
    const at::Tensor part = options.input_is_parallel ? x.narrow(2, 0, 8 / set.tp) : x;
    check_module(ctx, "row" + name, made([&](nxd_module_t** out) {
                   return nxd_layer_create_row_parallel_linear(ctx, 8, 6, &options, out);
                 }),
                 {part.contiguous()}, n_outputs);
    check_module(ctx, "whole" + name, made([&](nxd_module_t** out) {
                   return nxd_layer_create_linear(ctx, 8, 6, &options, out);
                 }),
                 {x}, n_outputs);
  }
}

// A result that a layer leaves out is none of the graph's values.
void check_missing_output(nxd_context_t* ctx) {
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  options.bias = NXD_TOGGLE_OFF;
  options.skip_bias_add = 1;
  const Module layer = made([&](nxd_module_t** out) {
    return nxd_layer_create_row_parallel_linear(ctx, 8, 6, &options, out);
  });
  const Tensors inputs{at::ones({2, 8})};
  const auto graph = std::make_shared<Graph>(nxd::trace(layer->value, inputs, 2, {}));
  NXD_TEST_CHECK(graph->outputs.size() == 2 && graph->outputs[0] != nxd::kNoValue);
  NXD_TEST_CHECK(graph->outputs[1] == nxd::kNoValue);
  const Tensors want = layer->value->call(inputs, 2);
  const nxd::StageExecutor stage(graph, nxd::partition_at(*graph, {}), 0);
  const Tensors got = stage.run({}, inputs);
  NXD_TEST_CHECK(at::equal(got[0], want[0]) && !got[1].defined() && !want[1].defined());
}

void check_embeddings(nxd_context_t* ctx, const Setting& set) {
  const at::Tensor ids = at::arange(8).remainder(6).view({2, 4});
  for (int form = 0; form < 8; ++form) {
    nxd_embedding_options_t options = NXD_EMBEDDING_OPTIONS_INIT;
    options.dtype = set.dtype;
    options.shard_across_embedding = (form & 1) != 0;
    options.sequence_parallel = (form & 2) != 0;
    options.sequence_dim = 1;
    options.has_padding_idx = (form & 4) != 0;
    check_module(ctx, "embedding, form " + std::to_string(form), made([&](nxd_module_t** out) {
                   return nxd_layer_create_parallel_embedding(ctx, 6, 4, &options, out);
                 }),
                 {ids}, 1);
  }
}

void check_others(nxd_context_t* ctx, const Setting& set) {
  const at::Tensor x =
      at::arange(2 * 4 * 16, at::kFloat).sin().to(scalar_type(set.dtype)).view({2, 4, 16});
  for (int form = 0; form < 4; ++form) {
    nxd_norm_options_t norm = NXD_NORM_OPTIONS_INIT;
    norm.dtype = set.dtype;
    norm.affine = form & 1 ? NXD_TOGGLE_ON : NXD_TOGGLE_OFF;
    const Tensors inputs = form & 2 ? Tensors{x, x * 2} : Tensors{x};
    for (const size_t n_outputs : {1, 2}) {
      const std::string name = " norm, form " + std::to_string(form);
      check_module(ctx, "layer" + name, made([&](nxd_module_t** out) {
                     return nxd_layer_create_layer_norm(ctx, 16, &norm, out);
                   }),
                   inputs, n_outputs);
      check_module(ctx, "rms" + name, made([&](nxd_module_t** out) {
                     return nxd_layer_create_rms_norm(ctx, 16, &norm, out);
                   }),
                   inputs, n_outputs);
    }
    nxd_rope_options_t rope = NXD_ROPE_OPTIONS_INIT;
    nxd_attention_options_t attention = NXD_ATTENTION_OPTIONS_INIT;
    attention.dtype = set.dtype;
    attention.num_kv_heads = form & 1 ? 1 : 2;
    attention.rope = form & 1 ? &rope : nullptr;
    attention.sequence_parallel = (form & 2) != 0;
    const int64_t sequence = attention.sequence_parallel ? 2 * set.tp : 4;
    const int64_t batch = attention.sequence_parallel ? 4 : 2;
    const at::Tensor mask = at::ones({batch, sequence}, at::kLong);
    for (const Tensors& in : {Tensors{x}, Tensors{x, mask}}) {
      check_module(ctx, "attention, form " + std::to_string(form), made([&](nxd_module_t** out) {
                     return nxd_layer_create_attention(ctx, 16, 4, &attention, out);
                   }),
                   in, 1);
    }
    nxd_qkv_options_t qkv = NXD_QKV_OPTIONS_INIT;
    qkv.dtype = set.dtype;
    qkv.num_kv_heads = form & 1 ? 4 : 2;
    qkv.fusion = NXD_QKV_SEPARATE + form % 3;
    qkv.sequence_parallel = (form & 2) != 0;
    check_module(ctx, "qkv, form " + std::to_string(form), made([&](nxd_module_t** out) {
                   return nxd_layer_create_qkv_linear(ctx, 16, 4, &qkv, out);
                 }),
                 {x}, 3);
    nxd_mlp_options_t mlp = NXD_MLP_OPTIONS_INIT;
    mlp.dtype = set.dtype;
    mlp.activation = NXD_ACTIVATION_SILU + form;
    mlp.sequence_parallel = (form & 1) != 0;
    check_module(ctx, "mlp, form " + std::to_string(form), made([&](nxd_module_t** out) {
                   return nxd_layer_create_gated_mlp(ctx, 16, 8, &mlp, out);
                 }),
                 {x}, 1);
  }
  check_module(ctx, "rotary embedding", made([&](nxd_module_t** out) {
                 return nxd_layer_create_rotary_embedding(ctx, 4, nullptr, out);
               }),
               {x.view({2, 4, 4, 4})}, 1);
  for (const int32_t shard_dim : {-1, 1}) {
    check_module(ctx, "dropout", made([&](nxd_module_t** out) {
                   return nxd_layer_create_dropout(ctx, 0.5, "drop", shard_dim, out);
                 }),
                 {x}, 1);
  }
}

// Region mappings and losses, on a product with a parameter so that there are gradients.
void check_functions(nxd_context_t* ctx, const Setting& set) {
  const at::ScalarType dtype = scalar_type(set.dtype);
  const at::Tensor x = at::arange(2 * 4 * 8, at::kFloat).sin().to(dtype).view({2, 4, 8});
  const at::Tensor labels = at::arange(8).remainder(5).sub(1).view({2, 4}).contiguous();
  using Function = std::function<nxd_status_t(nxd_tensor_t*, nxd_tensor_t*, nxd_tensor_t**)>;
  const auto check = [&](const std::string& what, const Function& function) {
    const Module module = make_module(ctx, "Function", [&](nxd_module_t* self, const Tensors& in) {
      const at::Tensor scale = parameter_of(self, "scale").to(in[0].scalar_type());
      nxd_tensor scaled{in[0] * scale}, target{in[1]};
      nxd_tensor_t* out = nullptr;
      nxd::CallbackWatch().check(function(&scaled, &target, &out), "function");
      return Tensors{Tensor(out)->value};
    });
    add_parameter(module, "scale", {8});
    check_module(ctx, what, module, {x, labels}, 1);
  };
  check("copy",
        [&](auto* in, auto*, auto** out) { return nxd_copy_to_tensor_region(ctx, in, out); });
  check("reduce",
        [&](auto* in, auto*, auto** out) { return nxd_reduce_from_tensor_region(ctx, in, out); });
  check("scatter",
        [&](auto* in, auto*, auto** out) { return nxd_scatter_to_tensor_region(ctx, in, out); });
  check("gather",
        [&](auto* in, auto*, auto** out) { return nxd_gather_from_tensor_region(ctx, in, out); });
  for (const int dim : {0, 1}) {
    check("scatter sequence", [&](auto* in, auto*, auto** out) {
      return nxd_scatter_to_sequence_region(ctx, in, dim, out);
    });
    check("gather sequence", [&](auto* in, auto*, auto** out) {
      return nxd_gather_from_sequence_region(ctx, in, dim, dim, out);
    });
    check("reduce scatter", [&](auto* in, auto*, auto** out) {
      return nxd_reduce_scatter_to_sequence_region(ctx, in, dim, out);
    });
  }
  for (const nxd_reduction_t reduction :
       {NXD_REDUCTION_MEAN, NXD_REDUCTION_SUM, NXD_REDUCTION_NONE}) {
    nxd_cross_entropy_options_t options = NXD_CROSS_ENTROPY_OPTIONS_INIT;
    options.reduction = reduction;
    options.ignore_index = -1;
    options.has_ignore_index = 1;
    check("cross entropy", [&](auto* in, auto* target, auto** out) {
      return nxd_parallel_cross_entropy(ctx, in, target, &options, out);
    });
    const at::Tensor weight = at::arange(8 * 8, at::kFloat).cos().to(dtype).view({8, 8});
    check("linear cross entropy", [&](auto* in, auto* target, auto** out) {
      nxd_tensor rows{weight};
      return nxd_linear_cross_entropy(ctx, in, &rows, target, -1, &options, out);
    });
  }
}

void test_layers(void**) {
  for (const Setting& set : {Setting{1, NXD_DTYPE_F32, false}, Setting{2, NXD_DTYPE_F32, false},
                             Setting{2, NXD_DTYPE_BF16, false}, Setting{2, NXD_DTYPE_F64, false},
                             Setting{1, NXD_DTYPE_F32, true}}) {
    const Layout layout{set.tp, false, set.dtype, set.plain};
    on_ranks<int>(layout, 3, [&](nxd_context_t* ctx) {
      try {
        check_linears(ctx, set);
        if (set.dtype == NXD_DTYPE_F32) check_missing_output(ctx);
        check_embeddings(ctx, set);
        check_others(ctx, set);
        check_functions(ctx, set);
      } catch (const std::exception& error) {
        nxd_test_fail(__FILE__, __LINE__, "%s: %s", layout.name().c_str(), error.what());
      }
      return 0;
    });
  }
}

}  // namespace

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layers),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
