// Every layer against its unsharded form, written with ATen's operators on the whole weights:
// forward, input gradient and weight gradients at TP 1, 2 and 4, in f64, f32 and bf16, through the
// fused kernels and through plain ATen.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "capi/layer_case.h"

extern "C" {
#include <cmocka.h>
}

using namespace nxd_test;

namespace {

Case linear_case(const char* name, bool column, nxd_linear_options_t options) {
  Case c;
  c.name = name;
  c.input = {8, 3, 16};
  c.create = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
    nxd_linear_options_t o = options;
    o.dtype = dtype;
    return column ? nxd_layer_create_column_parallel_linear(ctx, 16, 24, &o, out)
                  : nxd_layer_create_row_parallel_linear(ctx, 16, 24, &o, out);
  };
  c.reference = [](const Weights& w, const Tensor& x) { return linear(x, w, ""); };
  return c;
}

void test_column(void**) {
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  Case c = linear_case("column, gathered", true, options);
  check_layer(c);
  options.gather_output = NXD_TOGGLE_OFF;
  c = linear_case("column, split", true, options);
  c.output_part = 2;
  check_layer(c);
  options.bias = NXD_TOGGLE_OFF;
  c = linear_case("column, no bias", true, options);
  c.output_part = 2;
  check_layer(c);
  options.bias = NXD_TOGGLE_ON;
  options.sequence_parallel = 1;
  c = linear_case("column, sequence parallel", true, options);
  c.input_part = 0;
  c.output_part = 2;
  check_layer(c);
  options.sequence_dim = 1;
  c = linear_case("column, sequence in dimension 1", true, options);
  c.input = {3, 8, 16};
  c.input_part = 1;
  c.output_part = 2;
  check_layer(c);
}

void test_row(void**) {
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  Case c = linear_case("row, whole input", false, options);
  check_layer(c);
  options.input_is_parallel = 1;
  c = linear_case("row, split input", false, options);
  c.input_part = 2;
  check_layer(c);
  options.sequence_parallel = 1;
  c = linear_case("row, sequence parallel", false, options);
  c.input_part = 2;
  c.output_part = 0;
  check_layer(c);
  options.sequence_dim = 1;
  c = linear_case("row, sequence in dimension 1", false, options);
  c.input = {3, 8, 16};
  c.input_part = 2;
  c.output_part = 1;
  check_layer(c);
}

void test_linear(void**) {
  Case c = linear_case("linear", true, NXD_LINEAR_OPTIONS_INIT);
  c.create = [](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
    nxd_linear_options_t o = NXD_LINEAR_OPTIONS_INIT;
    o.dtype = dtype;
    return nxd_layer_create_linear(ctx, 16, 24, &o, out);
  };
  check_layer(c);
}

Case embedding_case(const char* name, nxd_embedding_options_t options) {
  Case c;
  c.name = name;
  c.input = {8, 3};
  c.vocabulary = 20;
  c.create = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
    nxd_embedding_options_t o = options;
    o.dtype = dtype;
    return nxd_layer_create_parallel_embedding(ctx, 20, 12, &o, out);
  };
  c.reference = [=](const Weights& w, const Tensor& ids) {
    return op("embedding",
              {{"weight", w.at("weight")},
               {"indices", ids},
               {"padding_idx", options.has_padding_idx ? options.padding_idx : int64_t{-1}}});
  };
  return c;
}

void test_embedding(void**) {
  nxd_embedding_options_t options = NXD_EMBEDDING_OPTIONS_INIT;
  check_layer(embedding_case("embedding", options));
  options.has_padding_idx = 1;
  options.padding_idx = 3;
  check_layer(embedding_case("embedding, padding row", options));
  options.has_padding_idx = 0;
  options.shard_across_embedding = 1;
  check_layer(embedding_case("embedding, split columns", options));
  options.shard_across_embedding = 0;
  options.sequence_parallel = 1;
  Case c = embedding_case("embedding, sequence parallel", options);
  c.output_part = 0;
  check_layer(c);
  options.sequence_dim = 1;
  c = embedding_case("embedding, sequence in dimension 1", options);
  c.input = {3, 8};
  c.output_part = 1;
  check_layer(c);
  options.shard_across_embedding = 1;
  c = embedding_case("embedding, split columns, sequence in dimension 1", options);
  c.input = {3, 8};
  c.output_part = 1;
  check_layer(c);
  options.sequence_dim = 0;
  c = embedding_case("embedding, split columns, sequence parallel", options);
  c.output_part = 0;
  check_layer(c);
}

// The first row of each part of the table holds no numbers, and no id asks for it; one place has no
// numbers for a gradient, and only its id's row gets them.
void infinite_rows(nxd_context_t* ctx, int, int, void*) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    nxd_embedding_options_t options = NXD_EMBEDDING_OPTIONS_INIT;
    options.dtype = dtype;
    Module layer;
    if (!NXD_TEST_OK(nxd_layer_create_parallel_embedding(ctx, 8, 1, &options, layer.out()))) return;
    nxd_parameter_t* const table = layer.parameters()[0].second;
    const Tensor rows = from_doubles({INFINITY, 1, NAN, 3, -INFINITY, 5, INFINITY, 7}, {8, 1});
    NXD_TEST_OK(nxd_parameter_set_full(table, to(rows, dtype).get()));
    const Tensor y = layer({from_ints({1, 7, 3, 5}, {4})});
    if (!y) return;
    NXD_TEST_CHECK(max_difference(y, from_doubles({1, 7, 3, 5}, {4, 1})) == 0);
    backward(y, from_doubles({INFINITY, 1, 2, 3}, {4, 1}, dtype));
    const std::vector<double> got = values(whole_grad(table));
    NXD_TEST_CHECK(got == std::vector<double>({0, INFINITY, 0, 2, 0, 3, 0, 1}));
  }
}

void test_embedding_of_infinite_rows(void**) {
  for (const int size : {1, 2, 4}) {
    for (const nxd_toggle_t plain : {NXD_TOGGLE_OFF, NXD_TOGGLE_ON}) {
      nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
      options.plain_kernels = plain;
      nxd_test_run_ranks_with(&options, size, size, infinite_rows, nullptr);
    }
  }
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  const Tensor squares = op("mul", "Tensor", {{"self", x}, {"other", x}});
  const Tensor mean =
      op("mean", "dim", {{"self", squares}, {"dim", std::vector<int64_t>{-1}}, {"keepdim", true}});
  const Tensor scale =
      op("rsqrt", {{"self", op("add", "Scalar", {{"self", mean}, {"other", eps}})}});
  const Tensor y = op("mul", "Tensor", {{"self", x}, {"other", scale}});
  return op("mul", "Tensor", {{"self", y}, {"other", weight}});
}

void test_norms(void**) {
  for (const bool sequence_parallel : {false, true}) {
    nxd_norm_options_t options = NXD_NORM_OPTIONS_INIT;
    options.sequence_parallel = sequence_parallel;
    Case c;
    c.input = {8, 3, 20};
    if (sequence_parallel) c.input_part = c.output_part = 0;
    c.name = "layer norm";
    c.create = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
      nxd_norm_options_t o = options;
      o.dtype = dtype;
      return nxd_layer_create_layer_norm(ctx, 20, &o, out);
    };
    c.reference = [](const Weights& w, const Tensor& x) {
      return op("layer_norm", {{"input", x},
                               {"normalized_shape", std::vector<int64_t>{20}},
                               {"weight", w.at("weight")},
                               {"bias", w.at("bias")},
                               {"eps", 1e-5}});
    };
    check_layer(c);
    c.name = "layer norm, no bias";
    c.create = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
      nxd_norm_options_t o = options;
      o.dtype = dtype;
      o.bias = NXD_TOGGLE_OFF;
      return nxd_layer_create_layer_norm(ctx, 20, &o, out);
    };
    c.reference = [](const Weights& w, const Tensor& x) {
      return op("layer_norm", {{"input", x},
                               {"normalized_shape", std::vector<int64_t>{20}},
                               {"weight", w.at("weight")},
                               {"eps", 1e-5}});
    };
    check_layer(c);
    c.name = "layer norm, no weight";
    c.create = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
      nxd_norm_options_t o = options;
      o.dtype = dtype;
      o.affine = NXD_TOGGLE_OFF;
      return nxd_layer_create_layer_norm(ctx, 20, &o, out);
    };
    c.reference = [](const Weights&, const Tensor& x) {
      return op("layer_norm",
                {{"input", x}, {"normalized_shape", std::vector<int64_t>{20}}, {"eps", 1e-5}});
    };
    check_layer(c);
    c.name = "RMS norm";
    c.create = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
      nxd_norm_options_t o = options;
      o.dtype = dtype;
      return nxd_layer_create_rms_norm(ctx, 20, &o, out);
    };
    c.reference = [](const Weights& w, const Tensor& x) {
      return rms_norm(x, w.at("weight"), 1e-5);
    };
    check_layer(c);
  }
}

void test_gated_mlp(void**) {
  for (const bool sequence_parallel : {false, true}) {
    for (const auto& [activation, name] :
         std::vector<std::pair<nxd_activation_t, const char*>>{{NXD_ACTIVATION_SILU, "silu"},
                                                               {NXD_ACTIVATION_GELU, "gelu"},
                                                               {NXD_ACTIVATION_GELU_TANH, "tanh"},
                                                               {NXD_ACTIVATION_RELU, "relu"}}) {
      Case c;
      c.name = std::string("gated MLP, ") + name + (sequence_parallel ? ", sequence parallel" : "");
      c.input = {8, 3, 16};
      if (sequence_parallel) c.input_part = c.output_part = 0;
      c.create = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
        nxd_mlp_options_t o = NXD_MLP_OPTIONS_INIT;
        o.dtype = dtype;
        o.activation = activation;
        o.bias = NXD_TOGGLE_ON;
        o.sequence_parallel = sequence_parallel;
        return nxd_layer_create_gated_mlp(ctx, 16, 32, &o, out);
      };
      c.reference = [name = std::string(name)](const Weights& w, const Tensor& x) {
        const Tensor in = linear(x, w, "gate_proj.");
        const Tensor gate = name == "tanh" ? op("gelu", {{"self", in}, {"approximate", "tanh"}})
                                           : op(name.c_str(), {{"self", in}});
        const Tensor h = op("mul", "Tensor", {{"self", gate}, {"other", linear(x, w, "up_proj.")}});
        return linear(h, w, "down_proj.");
      };
      check_layer(c);
    }
  }
}

Tensor attention_reference(const Weights& w, const Tensor& x, int sequence_dim, int64_t heads,
                           int64_t kv_heads, int64_t d, bool causal, int64_t rotary_dim) {
  const std::vector<int64_t> in = x.shape();
  const auto view = [&](const Tensor& t, int64_t n) {
    return op("view", {{"self", t}, {"size", std::vector<int64_t>{in[0], in[1], n, d}}});
  };
  const std::vector<int64_t> to_heads =
      sequence_dim == 1 ? std::vector<int64_t>{0, 2, 1, 3} : std::vector<int64_t>{1, 2, 0, 3};
  const std::vector<int64_t> from_heads =
      sequence_dim == 1 ? std::vector<int64_t>{0, 2, 1, 3} : std::vector<int64_t>{2, 0, 1, 3};
  const auto by_head = [&](const Tensor& t, bool repeat) {
    Tensor h = op("permute", {{"self", t}, {"dims", to_heads}});
    if (repeat) {
      h = op("repeat_interleave", "self_int",
             {{"self", h}, {"repeats", heads / kv_heads}, {"dim", 1}});
    }
    return h;
  };
  const Tensor q =
      by_head(rotated(view(linear(x, w, "q_proj."), heads), sequence_dim, rotary_dim), false);
  const Tensor k =
      by_head(rotated(view(linear(x, w, "k_proj."), kv_heads), sequence_dim, rotary_dim), true);
  const Tensor v = by_head(view(linear(x, w, "v_proj."), kv_heads), true);
  const Tensor kt = op("transpose", "int", {{"self", k}, {"dim0", 2}, {"dim1", 3}});
  Tensor scores = op("mul", "Scalar",
                     {{"self", op("matmul", {{"self", q}, {"other", kt}})},
                      {"other", 1.0 / std::sqrt(static_cast<double>(d))}});
  if (causal) {
    const int64_t n = scores.shape()[3];
    std::vector<double> hidden(static_cast<size_t>(n * n), 0.0);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) hidden[static_cast<size_t>(i * n + j)] = -INFINITY;
    }
    scores = op("add", "Tensor",
                {{"self", scores}, {"other", from_doubles(hidden, {n, n}, scores.dtype())}});
  }
  const Tensor weights = op("softmax", "int", {{"self", scores}, {"dim", -1}});
  const Tensor mixed = op(
      "permute", {{"self", op("matmul", {{"self", weights}, {"other", v}})}, {"dims", from_heads}});
  const Tensor flat =
      op("reshape", {{"self", mixed}, {"shape", std::vector<int64_t>{in[0], in[1], heads * d}}});
  return linear(flat, w, "o_proj.");
}

Case attention_case(int64_t kv_heads, bool sequence_parallel, bool causal, int32_t rotary_dim) {
  Case c;
  c.name = "attention, " + std::to_string(kv_heads) + " key heads" +
           (sequence_parallel ? ", sequence parallel" : "") + (causal ? ", causal" : "") +
           (rotary_dim ? ", " + std::to_string(rotary_dim) + " features turn" : "");
  c.input = sequence_parallel ? std::vector<int64_t>{8, 2, 24} : std::vector<int64_t>{2, 7, 24};
  if (sequence_parallel) c.input_part = c.output_part = 0;
  c.create = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
    nxd_rope_options_t rope = NXD_ROPE_OPTIONS_INIT;
    rope.rotary_dim = rotary_dim;
    nxd_attention_options_t o = NXD_ATTENTION_OPTIONS_INIT;
    o.dtype = dtype;
    o.num_kv_heads = kv_heads;
    o.head_dim = 10;
    o.rope = &rope;
    o.qkv_bias = NXD_TOGGLE_ON;
    o.output_bias = NXD_TOGGLE_ON;
    o.causal = causal ? NXD_TOGGLE_ON : NXD_TOGGLE_OFF;
    o.sequence_parallel = sequence_parallel;
    return nxd_layer_create_attention(ctx, 24, 4, &o, out);
  };
  c.reference = [=](const Weights& w, const Tensor& x) {
    return attention_reference(w, x, sequence_parallel ? 0 : 1, 4, kv_heads, 10, causal,
                               rotary_dim);
  };
  return c;
}

void test_attention(void**) {
  for (const int64_t kv_heads : {4, 2, 1}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const bool causal : {true, false}) {
        check_layer(attention_case(kv_heads, sequence_parallel, causal, 0));
      }
    }
  }
  for (const bool sequence_parallel : {false, true}) {
    check_layer(attention_case(2, sequence_parallel, true, 4));
  }
}

void test_rotary(void**) {
  Case c;
  c.name = "rotary embedding";
  c.input = {2, 5, 3, 8};
  c.create = [](nxd_context_t* ctx, nxd_dtype_t, nxd_module_t** out) {
    return nxd_layer_create_rotary_embedding(ctx, 8, nullptr, out);
  };
  c.reference = [](const Weights&, const Tensor& x) { return rotated(x, 1); };
  check_layer(c);
  c.name = "rotary embedding, 6 of 8 features turn";
  c.create = [](nxd_context_t* ctx, nxd_dtype_t, nxd_module_t** out) {
    nxd_rope_options_t rope = NXD_ROPE_OPTIONS_INIT;
    rope.rotary_dim = 6;
    return nxd_layer_create_rotary_embedding(ctx, 8, &rope, out);
  };
  c.reference = [](const Weights&, const Tensor& x) { return rotated(x, 1, 6); };
  check_layer(c);
}

// Tables of one dtype are not those of another, of the same length.
void test_rotary_dtypes(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        Module used, fresh;
        NXD_TEST_OK(nxd_layer_create_rotary_embedding(ctx, 8, nullptr, used.out()));
        NXD_TEST_OK(nxd_layer_create_rotary_embedding(ctx, 8, nullptr, fresh.out()));
        used({wave({1, 40, 1, 8}, NXD_DTYPE_F32, 1)});
        const Tensor x = wave({1, 40, 1, 8}, NXD_DTYPE_F64, 1);
        NXD_TEST_CHECK(max_difference(used({x}), fresh({x})) == 0);
      },
      nullptr);
}

// A query that sees no key gives zero, to which the output's bias is added; any number but 0 shows
// a key.
void test_hidden_keys(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32}) {
          nxd_attention_options_t options = NXD_ATTENTION_OPTIONS_INIT;
          options.dtype = dtype;
          options.output_bias = NXD_TOGGLE_ON;
          Module layer;
          NXD_TEST_OK(nxd_layer_create_attention(ctx, 12, 2, &options, layer.out()));
          nxd_parameter_t* bias = nullptr;
          NXD_TEST_OK(nxd_module_find_parameter(layer.get(), "o_proj.bias", &bias));
          const Tensor x = wave({2, 4, 12}, dtype, 1);
          const Tensor y = layer({x, from_ints({0, 0, 1, 1, 1, 1, 1, 1}, {2, 4})});
          const std::vector<double> all = values(y), want = values(whole(bias));
          for (size_t i = 0; i < 24; ++i) {
            NXD_TEST_CHECK(std::fabs(all[i] - want[i % 12]) < 1e-7);
          }
          NXD_TEST_CHECK(std::fabs(all[24] - want[0]) > 1e-4);
          const Tensor again = layer({x, from_ints({0, 0, 7, -1, 2, 1, 256, 1}, {2, 4})});
          NXD_TEST_CHECK(max_difference(again, y) == 0);
        }
      },
      nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_column),      cmocka_unit_test(test_row),
      cmocka_unit_test(test_embedding),   cmocka_unit_test(test_embedding_of_infinite_rows),
      cmocka_unit_test(test_norms),       cmocka_unit_test(test_linear),
      cmocka_unit_test(test_gated_mlp),   cmocka_unit_test(test_attention),
      cmocka_unit_test(test_rotary),      cmocka_unit_test(test_rotary_dtypes),
      cmocka_unit_test(test_hidden_keys),
  };
  return cmocka_run_group_tests_name("layers", tests, nullptr, nullptr);
}
