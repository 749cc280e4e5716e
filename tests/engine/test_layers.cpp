// Every layer against its unsharded twin, written with ATen's operators on the whole weights:
// forward, input gradient and weight gradients at TP 1, 2 and 4, in f64, f32 and bf16, through the
// fused kernels and through plain ATen.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <algorithm>
#include <map>
#include <mutex>

#include "support/tensor.h"

extern "C" {
#include <cmocka.h>
}

using namespace nxd_test;

namespace {

using Weights = std::map<std::string, Tensor>;

struct Case {
  std::string name;
  std::vector<int64_t> input;
  std::function<nxd_status_t(nxd_context_t*, nxd_dtype_t, nxd_module_t**)> create;
  std::function<Tensor(const Weights&, const Tensor&)> twin;
  int input_part = -1;     // dimension of the input that ranks split
  int output_part = -1;    // and of the output
  int64_t vocabulary = 0;  // the input is ids below this
};

double tolerance(nxd_dtype_t dtype) { return dtype == NXD_DTYPE_F64 ? 1e-9 : 1e-5; }

struct Result {
  Tensor y, dx;
  Weights dw;
};

Tensor input_of(const Case& c, nxd_dtype_t dtype) {
  if (c.vocabulary == 0) return wave(c.input, dtype, 1);
  int64_t count = 1;
  for (const int64_t size : c.input) count *= size;
  std::vector<int64_t> ids(static_cast<size_t>(count));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int64_t>(i * 7 + 3) % c.vocabulary;
  }
  return from_ints(ids, c.input);
}

Result run_twin(const Case& c, const Weights& whole_weights, const Tensor& x, const Tensor& g,
                nxd_dtype_t dtype) {
  Weights leaves;
  for (const auto& [name, w] : whole_weights) leaves[name] = leaf(w, dtype, true);
  const Tensor in = c.vocabulary ? x : leaf(x, dtype, true);
  Result r;
  r.y = c.twin(leaves, in);
  backward(r.y, to(g, dtype));
  if (!c.vocabulary) r.dx = in.grad();
  for (const auto& [name, w] : leaves) r.dw[name] = w.grad();
  return r;
}

// Our own 16-bit errors of the unsharded layer, by case and tensor: check_layer starts at TP 1.
class UnshardedErrors {
 public:
  void record(const std::string& key, double error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    errors_[key] = error;
  }
  double of(const std::string& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = errors_.find(key);
    return it == errors_.end() ? 0 : it->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, double> errors_;
};
UnshardedErrors unsharded_errors;

// The error against f64 of a sharded layer is at most twice that of the unsharded one in the same
// 16-bit dtype, ours or ATen's, whichever is larger. That of our unsharded layer is at most twice
// that of ATen's composite, but for the parameters of attention: the gradient of a key bias is a
// sum of terms that nearly cancel, and ours takes softmax's row sum from the rounded output (as Dao
// et al. 2022 do), where the composite sums the unrounded products it keeps.
void check_16_bit(const Case& c, const std::string& what, int size, const Tensor& ours,
                  const Tensor& twin, const Tensor& exact) {
  const std::string key = c.name + " " + what;
  const double error = max_difference(ours, exact);
  const bool attention_parameter = c.name.find("attention") == 0 && what.find("gradient of ") == 0;
  const double factor = size == 1 && attention_parameter ? 4 : 2;
  double unsharded = max_difference(twin, exact);
  if (size == 1) {
    unsharded_errors.record(key, error);
  } else {
    unsharded = std::max(unsharded, unsharded_errors.of(key));
  }
  if (error <= factor * unsharded) return;
  nxd_test_fail(__FILE__, __LINE__, "%s tp %d: error %g against f64, allowed %g x %g", key.c_str(),
                size, error, factor, unsharded);
}

void check_case(const Case& c, nxd_context_t* ctx, int rank, int size, nxd_dtype_t dtype) {
  Module layer;
  if (!NXD_TEST_OK(c.create(ctx, dtype, layer.out()))) return;
  NXD_TEST_OK(nxd_module_initialize(layer.get(), 7));
  Weights weights;
  for (const auto& [name, p] : layer.parameters()) {
    // Biases and norm weights start as constants; nothing is to be trivial.
    const Tensor w = whole(p);
    const Tensor moved =
        op("add", "Tensor", {{"self", w}, {"other", wave(w.shape(), dtype, 5)}, {"alpha", 0.25}});
    NXD_TEST_OK(nxd_parameter_set_whole(p, moved.get()));
    weights[name] = moved;
  }
  const Tensor x = input_of(c, dtype);
  // The shape of the output tells that of the gradient; its values do not matter here.
  const Tensor probe = c.twin(
      [&] {
        Weights plain;
        for (const auto& [name, w] : weights) plain[name] = leaf(w, NXD_DTYPE_F64, false);
        return plain;
      }(),
      c.vocabulary ? x : leaf(x, NXD_DTYPE_F64, false));
  const Tensor g = wave(probe.shape(), dtype, 2);

  const Tensor x_part = part(x, c.input_part, rank, size);
  const Tensor in = c.vocabulary ? x_part : leaf(x_part, dtype, true);
  const Tensor y = layer({in});
  if (!y) return;
  backward(y, part(g, c.output_part, rank, size));
  NXD_TEST_OK(nxd_finish_gradients(layer.get(), nullptr, nullptr));

  const std::string label =
      c.name + " tp " + std::to_string(size) + " dtype " + std::to_string(dtype);
  const Result exact = run_twin(c, weights, x, g, NXD_DTYPE_F64);
  const bool narrow = dtype == NXD_DTYPE_BF16;
  const Result twin = narrow ? run_twin(c, weights, x, g, dtype) : Result{};
  const auto check = [&](const std::string& what, const Tensor& ours, const Tensor& wide,
                         const Tensor& same) {
    if (narrow) {
      check_16_bit(c, what, size, ours, same, wide);
    } else {
      NXD_TEST_CLOSE(label + " " + what, ours, wide, tolerance(dtype));
    }
  };
  const auto mine = [&](const Tensor& t, int dim) { return t ? part(t, dim, rank, size) : t; };
  check("output", y, mine(exact.y, c.output_part), mine(twin.y, c.output_part));
  if (!c.vocabulary) {
    check("input gradient", in.grad(), mine(exact.dx, c.input_part), mine(twin.dx, c.input_part));
  }
  for (const auto& [name, p] : layer.parameters()) {
    const Tensor dw = whole_grad(p);
    const auto same = twin.dw.find(name);
    check("gradient of " + name, dw, exact.dw.at(name),
          same == twin.dw.end() ? Tensor() : same->second);
  }
}

void run_case(nxd_context_t* ctx, int rank, int size, void* user_data) {
  const Case& c = *static_cast<const Case*>(user_data);
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    check_case(c, ctx, rank, size, dtype);
  }
  NXD_TEST_OK(nxd_context_set_plain_kernels(ctx, 1));
  check_case(c, ctx, rank, size, NXD_DTYPE_F32);
}

void check_layer(const Case& c) {
  for (const int size : {1, 2, 4}) {
    nxd_test_run_ranks(size, size, run_case, const_cast<Case*>(&c));
  }
}

Tensor linear(const Tensor& x, const Weights& w, const std::string& path) {
  const auto bias = w.find(path + "bias");
  return op("linear", {{"input", x},
                       {"weight", w.at(path + "weight")},
                       {"bias", bias == w.end() ? Tensor() : bias->second}});
}

Case linear_case(const char* name, bool column, nxd_linear_options_t options) {
  Case c;
  c.name = name;
  c.input = {8, 3, 16};
  c.create = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
    nxd_linear_options_t o = options;
    o.dtype = dtype;
    return column ? nxd_column_parallel_linear_create(ctx, 16, 24, &o, out)
                  : nxd_row_parallel_linear_create(ctx, 16, 24, &o, out);
  };
  c.twin = [](const Weights& w, const Tensor& x) { return linear(x, w, ""); };
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

Case embedding_case(const char* name, nxd_embedding_options_t options) {
  Case c;
  c.name = name;
  c.input = {8, 3};
  c.vocabulary = 20;
  c.create = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
    nxd_embedding_options_t o = options;
    o.dtype = dtype;
    return nxd_parallel_embedding_create(ctx, 20, 12, &o, out);
  };
  c.twin = [=](const Weights& w, const Tensor& ids) {
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
      return nxd_layer_norm_create(ctx, 20, &o, out);
    };
    c.twin = [](const Weights& w, const Tensor& x) {
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
      return nxd_layer_norm_create(ctx, 20, &o, out);
    };
    c.twin = [](const Weights& w, const Tensor& x) {
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
      return nxd_layer_norm_create(ctx, 20, &o, out);
    };
    c.twin = [](const Weights&, const Tensor& x) {
      return op("layer_norm",
                {{"input", x}, {"normalized_shape", std::vector<int64_t>{20}}, {"eps", 1e-5}});
    };
    check_layer(c);
    c.name = "RMS norm";
    c.create = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
      nxd_norm_options_t o = options;
      o.dtype = dtype;
      return nxd_rms_norm_create(ctx, 20, &o, out);
    };
    c.twin = [](const Weights& w, const Tensor& x) { return rms_norm(x, w.at("weight"), 1e-5); };
    check_layer(c);
  }
}

void test_gated_mlp(void**) {
  for (const bool sequence_parallel : {false, true}) {
    for (const auto& [activation, name] :
         std::vector<std::pair<nxd_activation_t, const char*>>{{NXD_ACTIVATION_SILU, "silu"},
                                                               {NXD_ACTIVATION_GELU, "gelu"},
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
        return nxd_gated_mlp_create(ctx, 16, 32, &o, out);
      };
      c.twin = [name = std::string(name)](const Weights& w, const Tensor& x) {
        const Tensor gate = op(name.c_str(), {{"self", linear(x, w, "gate_proj.")}});
        const Tensor h = op("mul", "Tensor", {{"self", gate}, {"other", linear(x, w, "up_proj.")}});
        return linear(h, w, "down_proj.");
      };
      check_layer(c);
    }
  }
}

// Rotates the two halves of each head's features by angles of the position; x [batch, sequence,
// heads, d].
Tensor rotated(const Tensor& x, int sequence_dim) {
  const std::vector<int64_t> shape = x.shape();
  const int64_t sequence = shape[static_cast<size_t>(sequence_dim)], half = shape[3] / 2;
  std::vector<double> c, s;
  for (int64_t p = 0; p < sequence; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) *
          std::pow(10000.0, -static_cast<double>(2 * i) / static_cast<double>(2 * half));
      c.push_back(std::cos(angle));
      s.push_back(std::sin(angle));
    }
  }
  std::vector<int64_t> table{1, 1, 1, half};
  table[static_cast<size_t>(sequence_dim)] = sequence;
  const Tensor cosines = from_doubles(c, table, x.dtype()),
               sines = from_doubles(s, table, x.dtype());
  const Tensor a = op("narrow", {{"self", x}, {"dim", 3}, {"start", 0}, {"length", half}});
  const Tensor b = op("narrow", {{"self", x}, {"dim", 3}, {"start", half}, {"length", half}});
  const auto mul = [](const Tensor& l, const Tensor& r) {
    return op("mul", "Tensor", {{"self", l}, {"other", r}});
  };
  const Tensor first = op("sub", "Tensor", {{"self", mul(a, cosines)}, {"other", mul(b, sines)}});
  const Tensor second = op("add", "Tensor", {{"self", mul(b, cosines)}, {"other", mul(a, sines)}});
  nxd_op_t* cat = nullptr;
  Tensor y;
  nxd_tensor_t* halves[2] = {first.get(), second.get()};
  NXD_TEST_OK(nxd_op_create("cat", "", &cat));
  NXD_TEST_OK(nxd_op_set_tensors(cat, "tensors", halves, 2));
  NXD_TEST_OK(nxd_op_set_int(cat, "dim", 3));
  NXD_TEST_OK(nxd_op_run(cat));
  NXD_TEST_OK(nxd_op_get_tensor(cat, 0, y.out()));
  nxd_op_destroy(cat);
  return y;
}

Tensor attention_twin(const Weights& w, const Tensor& x, int sequence_dim, int64_t heads,
                      int64_t kv_heads, int64_t d, bool causal) {
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
  const Tensor q = by_head(rotated(view(linear(x, w, "q_proj."), heads), sequence_dim), false);
  const Tensor k = by_head(rotated(view(linear(x, w, "k_proj."), kv_heads), sequence_dim), true);
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

void test_attention(void**) {
  for (const int64_t kv_heads : {4, 2, 1}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const bool causal : {true, false}) {
        Case c;
        c.name = "attention, " + std::to_string(kv_heads) + " key heads" +
                 (sequence_parallel ? ", sequence parallel" : "") + (causal ? ", causal" : "");
        c.input =
            sequence_parallel ? std::vector<int64_t>{8, 2, 24} : std::vector<int64_t>{2, 7, 24};
        if (sequence_parallel) c.input_part = c.output_part = 0;
        c.create = [=](nxd_context_t* ctx, nxd_dtype_t dtype, nxd_module_t** out) {
          nxd_rope_options_t rope = NXD_ROPE_OPTIONS_INIT;
          nxd_attention_options_t o = NXD_ATTENTION_OPTIONS_INIT;
          o.dtype = dtype;
          o.n_kv_heads = kv_heads;
          o.head_dim = 10;
          o.rope = &rope;
          o.qkv_bias = NXD_TOGGLE_ON;
          o.output_bias = NXD_TOGGLE_ON;
          o.causal = causal ? NXD_TOGGLE_ON : NXD_TOGGLE_OFF;
          o.sequence_parallel = sequence_parallel;
          return nxd_attention_create(ctx, 24, 4, &o, out);
        };
        c.twin = [=](const Weights& w, const Tensor& x) {
          return attention_twin(w, x, sequence_parallel ? 0 : 1, 4, kv_heads, 10, causal);
        };
        check_layer(c);
      }
    }
  }
}

void test_rotary(void**) {
  Case c;
  c.name = "rotary embedding";
  c.input = {2, 5, 3, 8};
  c.create = [](nxd_context_t* ctx, nxd_dtype_t, nxd_module_t** out) {
    return nxd_rotary_embedding_create(ctx, 8, nullptr, out);
  };
  c.twin = [](const Weights&, const Tensor& x) { return rotated(x, 1); };
  check_layer(c);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_column),    cmocka_unit_test(test_row),
      cmocka_unit_test(test_embedding), cmocka_unit_test(test_norms),
      cmocka_unit_test(test_gated_mlp), cmocka_unit_test(test_attention),
      cmocka_unit_test(test_rotary),
  };
  return cmocka_run_group_tests_name("layers", tests, nullptr, nullptr);
}
