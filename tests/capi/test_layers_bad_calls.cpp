// Bad calls of layers: NULL for each pointer, sizes that do not divide, options out of
// range, the wrong order, and inputs that are wrong on one rank alone: no rank waits for another,
// and the group can be used afterwards. Norms are in test_layers_norm_bad_calls, mappings in
// test_functional_bad_calls, cross entropy in test_functional_cross_entropy.
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr nxd_status_t kBad = NXD_ERROR_INVALID_ARGUMENT;
#define BAD(call, part) NXD_TEST_REFUSED(call, kBad, part)

// A handle that was never made: a call that leaves it in an output did not clear it.
nxd_module_t* const kSentinel = reinterpret_cast<nxd_module_t*>(uintptr_t{16});

using Create = std::function<nxd_status_t(nxd_context_t*, nxd_module_t**)>;

void refused(int line, nxd_context_t* ctx, nxd_status_t expected, const char* part,
             const Create& create) {
  nxd_module_t* out = kSentinel;
  nxd_test_refused(__FILE__, line, "create", create(ctx, &out), expected, part);
  if (out) nxd_test_fail(__FILE__, line, "the output was not cleared");
}

// One maker per layer, with the options given.
struct Makers {
  nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
  nxd_embedding_options_t embedding = NXD_EMBEDDING_OPTIONS_INIT;
  nxd_norm_options_t norm = NXD_NORM_OPTIONS_INIT;
  nxd_rope_options_t rope = NXD_ROPE_OPTIONS_INIT;
  nxd_attention_options_t attention = NXD_ATTENTION_OPTIONS_INIT;
  nxd_qkv_options_t qkv = NXD_QKV_OPTIONS_INIT;
  nxd_mlp_options_t mlp = NXD_MLP_OPTIONS_INIT;

  Create column(int64_t in = 8, int64_t out_features = 16) const {
    return [=, *this](nxd_context_t* ctx, nxd_module_t** out) {
      return nxd_layer_create_column_parallel_linear(ctx, in, out_features, &linear, out);
    };
  }
  Create row(int64_t in = 16, int64_t out_features = 8) const {
    return [=, *this](nxd_context_t* ctx, nxd_module_t** out) {
      return nxd_layer_create_row_parallel_linear(ctx, in, out_features, &linear, out);
    };
  }
  Create linear_layer(int64_t in = 8, int64_t out_features = 16) const {
    return [=, *this](nxd_context_t* ctx, nxd_module_t** out) {
      return nxd_layer_create_linear(ctx, in, out_features, &linear, out);
    };
  }
  Create table(int64_t rows = 12, int64_t columns = 8) const {
    return [=, *this](nxd_context_t* ctx, nxd_module_t** out) {
      return nxd_layer_create_parallel_embedding(ctx, rows, columns, &embedding, out);
    };
  }
  Create layer_norm(int64_t size = 8) const {
    return [=, *this](nxd_context_t* ctx, nxd_module_t** out) {
      return nxd_layer_create_layer_norm(ctx, size, &norm, out);
    };
  }
  Create rms_norm(int64_t size = 8) const {
    return [=, *this](nxd_context_t* ctx, nxd_module_t** out) {
      return nxd_layer_create_rms_norm(ctx, size, &norm, out);
    };
  }
  Create rotary(int64_t head_dim = 8) const {
    return [=, *this](nxd_context_t* ctx, nxd_module_t** out) {
      return nxd_layer_create_rotary_embedding(ctx, head_dim, &rope, out);
    };
  }
  Create heads(int64_t hidden = 16, int64_t num_heads = 4) const {
    return [=, *this](nxd_context_t* ctx, nxd_module_t** out) {
      return nxd_layer_create_attention(ctx, hidden, num_heads, &attention, out);
    };
  }
  Create projections(int64_t hidden = 16, int64_t num_heads = 4) const {
    return [=, *this](nxd_context_t* ctx, nxd_module_t** out) {
      return nxd_layer_create_qkv_linear(ctx, hidden, num_heads, &qkv, out);
    };
  }
  Create gated(int64_t hidden = 8, int64_t intermediate = 16) const {
    return [=, *this](nxd_context_t* ctx, nxd_module_t** out) {
      return nxd_layer_create_gated_mlp(ctx, hidden, intermediate, &mlp, out);
    };
  }
  static Create dropout(double p, int32_t shard_dim = -1) {
    return [=](nxd_context_t* ctx, nxd_module_t** out) {
      return nxd_layer_create_dropout(ctx, p, "d", shard_dim, out);
    };
  }

  std::vector<Create> grouped() const {
    return {column(), row(),         table(), layer_norm(),   rms_norm(),
            heads(),  projections(), gated(), dropout(0.5, 0)};
  }
  std::vector<Create> all() const {
    std::vector<Create> makers = grouped();
    makers.push_back(rotary());
    makers.push_back(dropout(0.5));
    return makers;
  }
};

void pointers(nxd_context_t* ctx, int, int, void*) {
  for (const Create& create : Makers().all()) {
    refused(__LINE__, nullptr, kBad, "ctx: expected a context", create);
    BAD(create(ctx, nullptr), "out_module: expected a pointer");
    Module good;
    NXD_TEST_OK(create(ctx, good.out()));
  }
  nxd_tensor_t* weight = reinterpret_cast<nxd_tensor_t*>(uintptr_t{16});
  Module layer, dropout;
  NXD_TEST_OK(Makers().column()(ctx, layer.out()));
  NXD_TEST_OK(Makers::dropout(0.5)(ctx, dropout.out()));
  BAD(nxd_module_get_master_weight(nullptr, &weight), "module: expected a module");
  NXD_TEST_CHECK(weight == nullptr);
  BAD(nxd_module_get_master_weight(layer.get(), nullptr), "out_weight");
  NXD_TEST_REFUSED(nxd_module_get_master_weight(layer.get(), &weight), NXD_ERROR_INVALID_STATE,
                   "keep_master_weight");
  NXD_TEST_REFUSED(nxd_module_get_master_weight(dropout.get(), &weight), NXD_ERROR_INVALID_STATE,
                   "linear");
}

template <class Options>
void check_init(nxd_status_t (*init)(Options*, size_t), const Options& defaults) {
  Options options;
  BAD(init(nullptr, sizeof options), "options: expected");
  NXD_TEST_REFUSED(init(&options, sizeof(size_t)), NXD_ERROR_ABI_MISMATCH, "size");
  NXD_TEST_OK(init(&options, sizeof options));
  NXD_TEST_CHECK(options.struct_size == defaults.struct_size);
}

// A struct of a header that this library does not know is rejected by every maker.
void structs(nxd_context_t* ctx, int, int, void*) {
  Makers m;
  check_init(nxd_linear_options_init, m.linear);
  check_init(nxd_embedding_options_init, m.embedding);
  check_init(nxd_norm_options_init, m.norm);
  check_init(nxd_rope_options_init, m.rope);
  check_init(nxd_attention_options_init, m.attention);
  check_init(nxd_qkv_options_init, m.qkv);
  check_init(nxd_mlp_options_init, m.mlp);
  m.linear.struct_size = m.embedding.struct_size = m.norm.struct_size = m.rope.struct_size =
      m.attention.struct_size = m.qkv.struct_size = m.mlp.struct_size = 4;
  for (const Create& create : {m.column(), m.row(), m.linear_layer(), m.table(), m.layer_norm(),
                               m.rms_norm(), m.rotary(), m.heads(), m.projections(), m.gated()}) {
    refused(__LINE__, ctx, NXD_ERROR_ABI_MISMATCH, "struct_size", create);
  }
  Makers nested;
  nested.attention.rope = &m.rope;
  refused(__LINE__, ctx, NXD_ERROR_ABI_MISMATCH, "options->rope", nested.heads());
}

// Sets a field of every options struct.
void each(Makers& m, const std::function<void(nxd_dtype_t&, nxd_device_t&)>& change) {
  change(m.linear.dtype, m.linear.device);
  change(m.embedding.dtype, m.embedding.device);
  change(m.norm.dtype, m.norm.device);
  change(m.attention.dtype, m.attention.device);
  change(m.qkv.dtype, m.qkv.device);
  change(m.mlp.dtype, m.mlp.device);
}

void common_options(nxd_context_t* ctx, int, int, void*) {
  const auto check = [&](nxd_status_t status, const char* part,
                         const std::function<void(nxd_dtype_t&, nxd_device_t&)>& change) {
    Makers m;
    each(m, change);
    for (const Create& create :
         {m.column(), m.row(), m.table(), m.layer_norm(), m.rms_norm(), m.heads(), m.gated()}) {
      refused(__LINE__, ctx, status, part, create);
    }
  };
  for (const nxd_dtype_t wrong : std::vector<nxd_dtype_t>{-1, NXD_DTYPE_F16, NXD_DTYPE_I64, 77}) {
    check(kBad, "dtype: expected F32, F64 or BF16", [&](auto& dtype, auto&) { dtype = wrong; });
  }
  check(kBad, "device", [](auto&, auto& device) { device = NXD_DEVICE_INVALID; });
  check(kBad, "device", [](auto&, auto& device) { device = 4; });
  check(NXD_ERROR_UNSUPPORTED, "device", [](auto&, auto& device) { device = NXD_DEVICE_NEURON; });
}

template <class Options>
void inits(nxd_context_t* ctx, Options Makers::*options,
           Create (Makers::*make)(int64_t, int64_t) const, int64_t a, int64_t b) {
  const auto check = [&](const char* part, nxd_init_t kind, double init_a, double init_b) {
    Makers m;
    (m.*options).init = kind;
    (m.*options).init_a = init_a;
    (m.*options).init_b = init_b;
    refused(__LINE__, ctx, kBad, part, (m.*make)(a, b));
  };
  check("init: expected", NXD_INIT_INVALID, 0, 0);
  check("init: expected", 5, 0, 0);
  check("init_b", NXD_INIT_NORMAL, 0, -1);
  check("init_a", NXD_INIT_UNIFORM, 1, -1);
  check("init_a", NXD_INIT_CONSTANT, NAN, 0);
  check("init_b", NXD_INIT_NORMAL, 0, INFINITY);
}

void layer_options(nxd_context_t* ctx, int, int, void*) {
  inits(ctx, &Makers::linear, &Makers::column, 8, 16);
  inits(ctx, &Makers::linear, &Makers::row, 16, 8);
  inits(ctx, &Makers::linear, &Makers::linear_layer, 8, 16);
  inits(ctx, &Makers::embedding, &Makers::table, 12, 8);
  inits(ctx, &Makers::attention, &Makers::heads, 16, 4);
  inits(ctx, &Makers::qkv, &Makers::projections, 16, 4);
  inits(ctx, &Makers::mlp, &Makers::gated, 8, 16);

  using Change = std::function<void(Makers&)>;
  const auto bad = [&](int line, const char* part, const Change& change, const auto& make) {
    Makers m;
    change(m);
    refused(line, ctx, kBad, part, make(m));
  };
  const auto column = [](const Makers& m) { return m.column(); };
  const auto row = [](const Makers& m) { return m.row(); };
  const auto whole = [](const Makers& m) { return m.linear_layer(); };
  const auto table = [](const Makers& m) { return m.table(); };
  const auto rotary = [](const Makers& m) { return m.rotary(); };
  const auto heads = [](const Makers& m) { return m.heads(); };
  const auto projections = [](const Makers& m) { return m.projections(); };
  const auto gated = [](const Makers& m) { return m.gated(); };

  bad(
      __LINE__, "bias", [](Makers& m) { m.linear.bias = 3; }, column);
  bad(
      __LINE__, "bias", [](Makers& m) { m.linear.bias = NXD_TOGGLE_INVALID; }, row);
  bad(
      __LINE__, "gather_output", [](Makers& m) { m.linear.gather_output = 3; }, column);
  bad(
      __LINE__, "gather_output",
      [](Makers& m) { m.linear.gather_output = m.linear.sequence_parallel = 1; }, column);
  bad(
      __LINE__, "stride", [](Makers& m) { m.linear.stride = -1; }, column);
  bad(
      __LINE__, "stride", [](Makers& m) { m.linear.stride = -1; }, row);
  bad(
      __LINE__, "stride", [](Makers& m) { m.linear.stride = 2; }, column);
  bad(
      __LINE__, "with a stride of 2", [](Makers& m) { m.linear.stride = 2; }, row);
  bad(
      __LINE__, "reduce_output", [](Makers& m) { m.linear.reduce_output = 3; }, row);
  bad(
      __LINE__, "input_is_parallel", [](Makers& m) { m.linear.sequence_parallel = 1; }, row);
  bad(
      __LINE__, "reduce_output",
      [](Makers& m) {
        m.linear.sequence_parallel = m.linear.input_is_parallel = 1;
        m.linear.reduce_output = NXD_TOGGLE_OFF;
      },
      row);
  bad(
      __LINE__, "keep_master_weight", [](Makers& m) { m.linear.keep_master_weight = 1; }, whole);
  refused(__LINE__, ctx, kBad, "in_features", Makers().linear_layer(0, 4));
  refused(__LINE__, ctx, kBad, "out_features", Makers().linear_layer(4, -1));
  for (const int64_t index : {-1, 12}) {
    bad(
        __LINE__, "padding_idx: expected 0 to 11",
        [&](Makers& m) { m.embedding.has_padding_idx = 1, m.embedding.padding_idx = index; },
        table);
  }
  bad(
      __LINE__, "type", [](Makers& m) { m.rope.type = 9; }, rotary);
  bad(
      __LINE__, "type", [](Makers& m) { m.rope.type = NXD_ROPE_INVALID; }, rotary);
  bad(
      __LINE__, "rotary_dim", [](Makers& m) { m.rope.rotary_dim = 10; }, rotary);
  bad(
      __LINE__, "rotary_dim", [](Makers& m) { m.rope.rotary_dim = 3; }, rotary);
  bad(
      __LINE__, "theta", [](Makers& m) { m.rope.theta = -1; }, rotary);
  bad(
      __LINE__, "factor", [](Makers& m) { m.rope.type = NXD_ROPE_LINEAR, m.rope.factor = -2; },
      rotary);
  bad(
      __LINE__, "activation", [](Makers& m) { m.mlp.activation = 4; }, gated);
  bad(
      __LINE__, "activation", [](Makers& m) { m.mlp.activation = NXD_ACTIVATION_INVALID; }, gated);
  bad(
      __LINE__, "bias", [](Makers& m) { m.mlp.bias = 3; }, gated);
  bad(
      __LINE__, "num_kv_heads", [](Makers& m) { m.attention.num_kv_heads = 3; }, heads);
  bad(
      __LINE__, "num_kv_heads", [](Makers& m) { m.attention.num_kv_heads = -1; }, heads);
  bad(
      __LINE__, "head_dim", [](Makers& m) { m.attention.head_dim = -1; }, heads);
  bad(
      __LINE__, "causal", [](Makers& m) { m.attention.causal = 3; }, heads);
  bad(
      __LINE__, "qkv_bias", [](Makers& m) { m.attention.qkv_bias = 3; }, heads);
  bad(
      __LINE__, "output_bias", [](Makers& m) { m.attention.output_bias = 3; }, heads);
  bad(
      __LINE__, "fusion: expected", [](Makers& m) { m.qkv.fusion = 3; }, projections);
  bad(
      __LINE__, "fusion: expected", [](Makers& m) { m.qkv.fusion = NXD_QKV_INVALID; }, projections);
  bad(
      __LINE__, "num_kv_heads", [](Makers& m) { m.qkv.num_kv_heads = 3; }, projections);
  bad(
      __LINE__, "head_dim", [](Makers& m) { m.qkv.head_dim = -1; }, projections);
  bad(
      __LINE__, "bias", [](Makers& m) { m.qkv.bias = 3; }, projections);
  nxd_rope_options_t wrong = NXD_ROPE_OPTIONS_INIT;
  wrong.rotary_dim = 99;
  bad(
      __LINE__, "rotary_dim", [&](Makers& m) { m.attention.rope = &wrong; }, heads);
  for (const double p : {-0.1, 1.0, 2.0, double{NAN}}) {
    refused(__LINE__, ctx, kBad, "p: expected a probability", Makers::dropout(p));
  }
  refused(__LINE__, ctx, kBad, "to below 1, got 1.0000001", Makers::dropout(1.0000001));
  refused(__LINE__, ctx, kBad, "shard_dim", Makers::dropout(0.5, -2));
}

void sizes(nxd_context_t* ctx, int, int size, void*) {
  const Makers m;
  for (const int64_t wrong : {0, -4}) {
    refused(__LINE__, ctx, kBad, "in_features", m.column(wrong, 16));
    refused(__LINE__, ctx, kBad, "out_features", m.column(8, wrong));
    refused(__LINE__, ctx, kBad, "in_features", m.row(wrong, 8));
    refused(__LINE__, ctx, kBad, "out_features", m.row(16, wrong));
    refused(__LINE__, ctx, kBad, "num_embeddings", m.table(wrong, 8));
    refused(__LINE__, ctx, kBad, "embedding_dim", m.table(12, wrong));
    refused(__LINE__, ctx, kBad, "head_dim", m.rotary(wrong));
    refused(__LINE__, ctx, kBad, "hidden", m.heads(wrong, 4));
    refused(__LINE__, ctx, kBad, "num_heads", m.heads(16, wrong));
    refused(__LINE__, ctx, kBad, "expected a positive number", m.gated(wrong, 16));
    refused(__LINE__, ctx, kBad, "expected a positive number", m.gated(8, wrong));
  }
  refused(__LINE__, ctx, kBad, "head_dim", m.heads(18, 4));
  if (size == 1) return;
  refused(__LINE__, ctx, kBad, "divisible by", m.column(8, 15));
  refused(__LINE__, ctx, kBad, "divisible by", m.row(15, 8));
  refused(__LINE__, ctx, kBad, "divisible by", m.table(11, 8));
  refused(__LINE__, ctx, kBad, "at least a feature", m.gated(8, 1));
  refused(__LINE__, ctx, kBad, "num_heads: expected at least", m.heads(15, 1));
  Makers across;
  across.embedding.shard_across_embedding = 1;
  refused(__LINE__, ctx, kBad, "divisible by", across.table(12, 7));
}

// ---- forward

struct Run {
  const char* part;  // of the message
  Create create;
  Tensor good, wrong;
};

std::vector<Run> runs(int size) {
  Makers m, sliced, heads;
  sliced.linear.input_is_parallel = sliced.linear.sequence_parallel = 1;
  const Tensor x8 = wave({4, 3, 8}, NXD_DTYPE_F32, 1), x16 = wave({4, 3, 16}, NXD_DTYPE_F32, 1);
  const Tensor f64 = wave({4, 3, 8}, NXD_DTYPE_F64, 1),
               scalar = from_doubles({1}, {}, NXD_DTYPE_F32);
  const Tensor part16 = wave({4, 3, 16 / size}, NXD_DTYPE_F32, 1);
  const Tensor ids = from_ints({0, 11, 3}, {3});
  std::vector<Run> list;
  list.push_back({"8 features", m.column(), x8, wave({4, 3, 7}, NXD_DTYPE_F32, 1)});
  list.push_back({"dtype", m.column(), x8, f64});
  list.push_back({"features", m.column(), x8, scalar});
  list.push_back({"expected a tensor, got NULL", m.column(), x8, {}});
  list.push_back({"16 features", m.row(), x16, x8});
  list.push_back({"dtype", m.row(), x16, to(x16, NXD_DTYPE_BF16)});
  list.push_back({"expected a tensor, got NULL", m.row(), x16, {}});
  // The summed sequence has to divide by the ranks.
  if (size > 1) {
    list.push_back(
        {"does not divide", sliced.row(), part16, wave({5, 3, 16 / size}, NXD_DTYPE_F32, 1)});
  }
  list.push_back({"ids from 0 to 11", m.table(), ids, from_ints({0, 12, 3}, {3})});
  list.push_back({"ids from 0 to 11", m.table(), ids, from_ints({0, -1, 3}, {3})});
  list.push_back({"dtype i64", m.table(), ids, to(ids, NXD_DTYPE_I32)});
  list.push_back({"dtype i64", m.table(), ids, to(ids, NXD_DTYPE_F32)});
  list.push_back({"expected a tensor, got NULL", m.table(), ids, {}});
  list.push_back({"16 features", m.heads(), x16, x8});
  list.push_back({"three dimensions", m.heads(), x16, wave({4, 16}, NXD_DTYPE_F32, 1)});
  list.push_back({"dtype", m.heads(), x16, to(x16, NXD_DTYPE_F64)});
  list.push_back({"expected a tensor, got NULL", m.heads(), x16, {}});
  list.push_back({"8 features", m.gated(), x8, x16});
  list.push_back({"dtype", m.gated(), x8, f64});
  list.push_back({"expected a tensor, got NULL", m.gated(), x8, {}});
  const Tensor meta8 = without_values({4, 3, 8}, NXD_DTYPE_F32);
  list.push_back({"where the parameters are", m.column(), x8, meta8});
  list.push_back({"where the parameters are", m.gated(), x8, meta8});
  list.push_back(
      {"where the parameters are", m.heads(), x16, without_values({4, 3, 16}, NXD_DTYPE_F32)});
  list.push_back({"where the parameters are", m.table(), ids, without_values({3}, NXD_DTYPE_I64)});
  return list;
}

void check_run(nxd_context_t* ctx, const Run& run, bool mine) {
  Module layer;
  if (!NXD_TEST_OK(run.create(ctx, layer.out()))) return;
  nxd_tensor_t* in = mine ? run.wrong.get() : run.good.get();
  nxd_tensor_t* out = run.good.get();
  // The peers' message names the rank to blame.
  BAD(nxd_module_forward(layer.get(), &in, 1, &out, 1), mine ? run.part : "rank ");
  NXD_TEST_CHECK(out == nullptr);
  const Tensor y = layer({run.good});
  if (y) NXD_TEST_CHECK(std::isfinite(max_abs(values(y))));
}

void forwards(nxd_context_t* ctx, int rank, int size, void*) {
  for (const Run& run : runs(size)) {
    check_run(ctx, run, true);
    if (size > 1) check_run(ctx, run, rank == size - 1);
  }
}

// Layers that do not communicate reject on the rank that is wrong.
void local_forwards(nxd_context_t* ctx, int, int, void*) {
  const Makers m;
  const Tensor x8 = wave({2, 3, 4, 8}, NXD_DTYPE_F32, 1), x7 = wave({2, 3, 4, 7}, NXD_DTYPE_F32, 1),
               flat = wave({3, 8}, NXD_DTYPE_F32, 1), line = wave({8}, NXD_DTYPE_F32, 1),
               ids = from_ints({1, 2}, {2});
  const std::vector<Run> list = {
      {"[batch, sequence, heads, 8]", m.rotary(), x8, x7},
      {"[batch, sequence, heads, 8]", m.rotary(), x8, flat},
      {"[batch, sequence, heads, 8]", m.rotary(), x8, to(x8, NXD_DTYPE_I64)},
      {"float", Makers::dropout(0.5), x8, ids},
      {"shard_dim", Makers::dropout(0.5, 1), x8, line},
      {"expected a tensor, got NULL", m.rotary(), x8, {}},
      {"expected a tensor, got NULL", Makers::dropout(0.5), x8, {}},
  };
  for (const Run& run : list) check_run(ctx, run, true);
}

// Layers whose parameters, or whose children's, have no values name one of them.
void no_values(nxd_context_t* ctx, int, int, void*) {
  Makers m;
  m.linear.device = m.embedding.device = m.attention.device = m.qkv.device = m.mlp.device =
      NXD_DEVICE_META;
  const Tensor x8 = wave({4, 3, 8}, NXD_DTYPE_F32, 1), x16 = wave({4, 3, 16}, NXD_DTYPE_F32, 1);
  const std::vector<std::pair<Create, Tensor>> layers = {{m.column(), x8},
                                                         {m.table(), from_ints({0, 1}, {2})},
                                                         {m.heads(), x16},
                                                         {m.projections(), x16},
                                                         {m.gated(), x8}};
  for (const auto& [create, x] : layers) {
    Module layer;
    NXD_TEST_OK(create(ctx, layer.out()));
    nxd_tensor_t *in = x.get(), *out = x.get();
    NXD_TEST_REFUSED(nxd_module_forward(layer.get(), &in, 1, &out, 1), NXD_ERROR_INVALID_STATE,
                     "weight: it has no values");
    NXD_TEST_CHECK(out == nullptr);
  }
}

// A layer whose forward does not communicate: the peers are told where they do so next.
void late_peers(nxd_context_t* ctx, int rank, int size, void*) {
  Makers m;
  m.linear.gather_output = NXD_TOGGLE_OFF;
  m.linear.input_is_parallel = 1;
  Module up, down;
  NXD_TEST_OK(m.column()(ctx, up.out()));
  NXD_TEST_OK(m.row()(ctx, down.out()));
  const Tensor good = wave({3, 8}, NXD_DTYPE_F32, 1), bad = wave({3, 7}, NXD_DTYPE_F32, 1);
  nxd_tensor_t* out = nullptr;
  if (rank == size - 1) {
    nxd_tensor_t* in = bad.get();
    BAD(nxd_module_forward(up.get(), &in, 1, &out, 1), "8 features");
  } else {
    const Tensor h = up({good});
    nxd_tensor_t* in = h.get();
    BAD(nxd_module_forward(down.get(), &in, 1, &out, 1), "rank ");
  }
  NXD_TEST_CHECK(out == nullptr);
  const Tensor y = down({up({good})});
  if (y) NXD_TEST_CHECK(std::isfinite(max_abs(values(y))));
}

// Arrays and outputs that one rank alone does not give.
void missing_arrays(nxd_context_t* ctx, int rank, int size, void*) {
  Makers m;
  m.linear.input_is_parallel = 1;
  Module layer;
  NXD_TEST_OK(m.row()(ctx, layer.out()));
  const Tensor x = wave({3, 16 / size}, NXD_DTYPE_F32, 1);
  nxd_tensor_t *in = x.get(), *out = nullptr, *full = nullptr;
  nxd_parameter_t* weight = nullptr;
  NXD_TEST_OK(nxd_module_find_parameter(layer.get(), "weight", &weight));
  const bool mine = rank == size - 1;
  const char* const told = size > 1 ? "rank " : "";
  BAD(nxd_module_forward(layer.get(), mine ? nullptr : &in, 1, &out, 1), mine ? "inputs" : told);
  BAD(nxd_module_forward(layer.get(), &in, 1, mine ? nullptr : &out, 1), mine ? "outputs" : told);
  nxd_tape_t* tape = nullptr;
  BAD(nxd_module_forward_tape(layer.get(), &in, 1, &out, 1, mine ? nullptr : &tape),
      mine ? "out_tape" : told);
  BAD(nxd_parameter_gather_full(weight, mine ? nullptr : &full), mine ? "out_full" : told);
  BAD(nxd_parameter_gather_full_grad(weight, mine ? nullptr : &full), mine ? "out_full" : told);
  NXD_TEST_CHECK(!out && !tape && !full);
  NXD_TEST_CHECK(!values(layer({x})).empty());
}

// A key mask of another shape or dtype, on all ranks and on one.
void key_mask(nxd_context_t* ctx, int rank, int size, void*) {
  Module layer;
  NXD_TEST_OK(Makers().heads()(ctx, layer.out()));
  const Tensor x = wave({2, 3, 16}, NXD_DTYPE_F32, 1);
  const Tensor good = from_ints({1, 1, 0, 1, 1, 1}, {2, 3});
  for (const Tensor& bad : {from_ints({1, 1}, {2, 1}), to(good, NXD_DTYPE_F32),
                            without_values({2, 3}, NXD_DTYPE_I64)}) {
    for (const bool everywhere : {true, false}) {
      const bool mine = everywhere || rank == size - 1;
      nxd_tensor_t* in[2] = {x.get(), mine ? bad.get() : good.get()};
      nxd_tensor_t* out = x.get();
      BAD(nxd_module_forward(layer.get(), in, 2, &out, 1), mine ? "key mask" : "rank ");
      NXD_TEST_CHECK(out == nullptr);
      NXD_TEST_CHECK(!values(layer({x, good})).empty());
    }
  }
}

// ---- order

void too_early(nxd_context_t* ctx, int, int, void*) {
  for (const Create& create : Makers().grouped()) {
    refused(__LINE__, ctx, NXD_ERROR_INVALID_STATE, "nxd_init_model_parallel", create);
  }
  nxd_cross_entropy_options_t options = NXD_CROSS_ENTROPY_OPTIONS_INIT;
  check_init(nxd_cross_entropy_options_init, options);
}

// Layers made before the layout was destroyed keep their group.
void after_destroy(nxd_context_t* ctx, int, int, void*) {
  Module layer;
  const Tensor x = wave({4, 8}, NXD_DTYPE_F32, 1);
  NXD_TEST_OK(Makers().gated()(ctx, layer.out()));
  const Tensor before = layer({x});
  NXD_TEST_OK(nxd_destroy_model_parallel(ctx));
  const Tensor after = layer({x});
  if (after) NXD_TEST_CHECK(max_difference(before, after) == 0);
  refused(__LINE__, ctx, NXD_ERROR_INVALID_STATE, "nxd_init_model_parallel", Makers().column());
}

template <nxd_test_rank_fn fn>
void on_one(void**) {
  nxd_test_run_ranks(1, 1, fn, nullptr);
}
template <nxd_test_rank_fn fn>
void on_all_sizes(void**) {
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, fn, nullptr);
}
template <nxd_test_rank_fn fn>
void on_several(void**) {
  for (const int size : {2, 4}) nxd_test_run_ranks(size, size, fn, nullptr);
}
template <nxd_test_rank_fn fn>
void before_layout(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, 0, fn, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(on_one<pointers>),
                              cmocka_unit_test(on_one<structs>),
                              cmocka_unit_test(on_one<common_options>),
                              cmocka_unit_test(on_one<layer_options>),
                              cmocka_unit_test(on_all_sizes<sizes>),
                              cmocka_unit_test(on_all_sizes<forwards>),
                              cmocka_unit_test(on_one<local_forwards>),
                              cmocka_unit_test(on_all_sizes<key_mask>),
                              cmocka_unit_test(before_layout<too_early>),
                              cmocka_unit_test(on_all_sizes<after_destroy>),
                              cmocka_unit_test(on_several<late_peers>),
                              cmocka_unit_test(on_one<no_values>),
                              cmocka_unit_test(on_all_sizes<missing_arrays>)};
  return cmocka_run_group_tests_name("bad_calls_layers", tests, nullptr, nullptr);
}
