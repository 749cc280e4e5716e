// nxd_pad_model: the values and sizes of NxD Core, what is rejected, and what stays as it was.
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/npy.h"
#include "support/paths.h"
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr nxd_status_t kArgument = NXD_ERROR_INVALID_ARGUMENT, kState = NXD_ERROR_INVALID_STATE;

// ---- The recording of NxD Core: a wrapped pair of layers, and one behind it that is not.

Tensor recorded(const char* name, int rank) {
  const auto array = read_npy<double>(oracles() + "/nxd/pad_model/" + std::string(name) + ".rank" +
                                      std::to_string(rank) + ".npy");
  return from_doubles(array.values, array.shape, NXD_DTYPE_F32);
}

Tensor cat(const Tensor& a, const Tensor& b, int dim) {
  nxd_op_t* call = nullptr;
  Tensor y;
  nxd_tensor_t* const parts[2] = {a.get(), b.get()};
  NXD_TEST_OK(nxd_op_create("cat", "", &call));
  NXD_TEST_OK(nxd_op_set_tensors(call, "tensors", parts, 2));
  NXD_TEST_OK(nxd_op_set_int(call, "dim", dim));
  NXD_TEST_OK(nxd_op_run(call));
  NXD_TEST_OK(nxd_op_share_tensor(call, 0, y.out()));
  nxd_op_destroy(call);
  return y;
}

// The first six of each rank's eight features are no padding.
Tensor recorded_whole(const char* name, int dim) {
  const auto real = [&](int rank) {
    return op("narrow",
              {{"self", recorded(name, rank)}, {"dim", dim}, {"start", 0}, {"length", 6}});
  };
  return cat(real(0), real(1), dim);
}

nxd_status_t forward_pair(nxd_module_t* self, nxd_tensor_t* const* inputs, size_t num_inputs,
                          nxd_tensor_t** outputs, size_t num_outputs, void*) {
  nxd_module_t *q = nullptr, *o = nullptr;
  Tensor h;
  nxd_status_t status = nxd_module_find_module(self, "q", &q);
  if (status == NXD_OK) status = nxd_module_find_module(self, "o", &o);
  if (status == NXD_OK) status = nxd_module_forward(q, inputs, num_inputs, h.out(), 1);
  nxd_tensor_t* const between = h.get();
  if (status == NXD_OK) status = nxd_module_forward(o, &between, 1, outputs, num_outputs);
  return status;
}

nxd_linear_options_t split_options() {
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  options.gather_output = NXD_TOGGLE_OFF;
  options.input_is_parallel = 1;
  return options;
}

Module recorded_model(nxd_context_t* ctx) {
  const nxd_linear_options_t options = split_options();
  Module pair, q, o, behind, root;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 12, 12, &options, q.out()));
  NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, 12, 12, &options, o.out()));
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 12, 8, &options, behind.out()));
  NXD_TEST_OK(nxd_module_create(ctx, "Wrapped", forward_pair, nullptr, nullptr, pair.out()));
  NXD_TEST_OK(nxd_module_add_child(pair.get(), "q", q.get()));
  NXD_TEST_OK(nxd_module_add_child(pair.get(), "o", o.get()));
  nxd_module_t* const children[] = {pair.get(), behind.get()};
  NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 2, root.out()));
  return root;
}

nxd_parameter_t* find(const Module& module, const std::string& name) {
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_find_parameter(module.get(), name.c_str(), &parameter));
  return parameter;
}

Tensor shard_of(const Module& module, const std::string& name) {
  nxd_tensor_t* shard = nullptr;
  Tensor own;
  NXD_TEST_OK(nxd_parameter_get_tensor(find(module, name), &shard));
  NXD_TEST_OK(nxd_tensor_retain(shard, own.out()));
  return own;
}

void nxd_core(nxd_context_t* ctx, int rank, int, void*) {
  const Module root = recorded_model(ctx);
  const auto set = [&](const char* name, const Tensor& full) {
    NXD_TEST_OK(nxd_parameter_set_full(find(root, name), full.get()));
  };
  set("0.q.weight", recorded_whole("0_q_weight", 0));
  set("0.q.bias", recorded_whole("0_q_bias", 0));
  set("0.o.weight", recorded_whole("0_o_weight", 1));
  set("0.o.bias", recorded("0_o_bias", rank));
  nxd_module_t* pair = nullptr;
  NXD_TEST_OK(nxd_module_find_module(root.get(), "0", &pair));
  const auto output = [&] {
    const Tensor x = recorded("x", rank);
    nxd_tensor_t* const in = x.get();
    Tensor y;
    NXD_TEST_OK(nxd_module_forward(pair, &in, 1, y.out(), 1));
    return y;
  };
  NXD_TEST_CLOSE("before", output(), recorded("y_before", rank), 1e-5);
  const std::vector<Tensor> wholes = {whole(find(root, "0.q.weight")),
                                      whole(find(root, "0.q.bias")),
                                      whole(find(root, "0.o.weight"))};
  const char* const classes[] = {"Wrapped"};
  NXD_TEST_OK(nxd_pad_model(root.get(), 2, 3, classes, 1, nullptr, nullptr));
  NXD_TEST_CLOSE("after", output(), recorded("y_after", rank), 1e-5);
  // Shards have the sizes of NxD Core's. Its padding stands in the middle of a head; here it is
  // the last head.
  const std::pair<const char*, const char*> shards[] = {
      {"0.q.weight", "0_q_weight"}, {"0.q.bias", "0_q_bias"}, {"0.o.weight", "0_o_weight"},
      {"0.o.bias", "0_o_bias"},     {"1.weight", "1_weight"}, {"1.bias", "1_bias"}};
  for (const auto& [name, file] : shards) {
    NXD_TEST_CHECK(shard_of(root, name).shape() == recorded(file, rank).shape());
  }
  if (rank == 1) NXD_TEST_CHECK(max_abs(values(part(shard_of(root, "0.q.weight"), 0, 1, 2))) == 0);
  const char* const names[] = {"0.q.weight", "0.q.bias", "0.o.weight"};
  for (size_t i = 0; i < wholes.size(); ++i) {
    NXD_TEST_CHECK(max_difference(whole(find(root, names[i])), wholes[i]) == 0);
  }
}

void test_nxd_core(void**) { nxd_test_run_ranks(2, 2, nxd_core, nullptr); }

void test_extra_heads(void**) {
  std::ifstream in(oracles() + "/nxd/padding.json");
  const nlohmann::json rows = nlohmann::json::parse(in)["extra_heads"];
  assert_true(rows.size() > 50);
  for (const auto& row : rows) {
    int64_t extra = -1;
    NXD_TEST_OK(nxd_get_number_of_extra_heads(row["n_head"], row["tp"], &extra));
    assert_int_equal(extra, static_cast<int64_t>(row["extra"]));
  }
  int64_t extra = -1;
  NXD_TEST_REFUSED(nxd_get_number_of_extra_heads(0, 2, &extra), kArgument, "num_heads");
  assert_int_equal(extra, 0);
  NXD_TEST_REFUSED(nxd_get_number_of_extra_heads(3, 0, &extra), kArgument, "tp_degree");
  NXD_TEST_REFUSED(nxd_get_number_of_extra_heads(INT64_MAX, 2, &extra), kArgument, "INT64_MAX");
  NXD_TEST_REFUSED(nxd_get_number_of_extra_heads(3, 2, nullptr), kArgument, "out_extra");
  NXD_TEST_OK(nxd_get_number_of_extra_heads(INT64_MAX, 1, &extra));
  assert_int_equal(extra, 0);
}

// The sizes that floats of NxD Core miss by one, and others.
void test_exact_sizes(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        struct Row {
          int64_t heads, head_dim, want;
          int32_t degree;
        };
        for (const Row& row : {Row{11, 80, 960, 2}, Row{3, 4, 32, 8}, Row{25, 4, 128, 8},
                               Row{7, 7, 63, 3}, Row{1, 5, 40, 8}, Row{64, 2, 192, 48}}) {
          nxd_linear_options_t options = split_options();
          options.device = NXD_DEVICE_META;
          Module column, root;
          NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 2, row.heads * row.head_dim,
                                                              &options, column.out()));
          nxd_module_t* const children[] = {column.get()};
          NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 1, root.out()));
          NXD_TEST_OK(
              nxd_pad_model(root.get(), row.degree, row.heads, nullptr, 0, nullptr, nullptr));
          NXD_TEST_CHECK(shard_of(root, "0.weight").shape() == (std::vector<int64_t>{row.want, 2}));
          NXD_TEST_CHECK(shard_of(root, "0.bias").shape() == (std::vector<int64_t>{row.want}));
        }
      },
      nullptr);
}

// ---- What is rejected, and what stays.

struct Visits {
  std::vector<std::string> classes{};
  nxd_status_t answer = NXD_OK;
};

nxd_status_t note(nxd_module_t* module, int64_t, int64_t, void* user_data) {
  auto& visits = *static_cast<Visits*>(user_data);
  const char* name = nullptr;
  NXD_TEST_OK(nxd_module_get_class_name(module, &name));
  visits.classes.push_back(name);
  return visits.answer;
}

void rejections(nxd_context_t* ctx, int rank, int, void*) {
  const Module root = recorded_model(ctx);
  const char *const wrapped[] = {"Wrapped"}, *const wrong[] = {"Wraped"}, *const null[] = {nullptr};
  const auto refuse = [&](int32_t degree, int64_t heads, const char* const* classes, size_t count,
                          const char* part) {
    NXD_TEST_REFUSED(nxd_pad_model(root.get(), degree, heads, classes, count, nullptr, nullptr),
                     kArgument, part);
    NXD_TEST_CHECK(shard_of(root, "0.q.weight").shape() == (std::vector<int64_t>{6, 12}));
  };
  NXD_TEST_REFUSED(nxd_pad_model(nullptr, 2, 3, nullptr, 0, nullptr, nullptr), kArgument, "root");
  refuse(0, 3, nullptr, 0, "tp_degree");
  refuse(2, 0, nullptr, 0, "num_heads");
  refuse(2, -1, nullptr, 0, "num_heads");
  refuse(2, 3, nullptr, 1, "wrapped_classes");
  refuse(2, 3, null, 1, "wrapped_classes[0]");
  refuse(2, 3, wrong, 1, "near names: Wrapped");
  // The layer behind has 8 features, which are no three heads.
  refuse(2, 3, nullptr, 0, "1.weight: expected a multiple of 3");
  refuse(3, 3, wrapped, 1, "which 2 ranks do not divide");
  // Ranks that differ, or of which one alone is wrong.
  NXD_TEST_REFUSED(nxd_pad_model(root.get(), rank == 0 ? 2 : 4, 3, wrapped, 1, nullptr, nullptr),
                   kArgument, "tp_degree");
  NXD_TEST_REFUSED(nxd_pad_model(root.get(), rank == 0 ? 2 : 0, 3, wrapped, 1, nullptr, nullptr),
                   kArgument, "tp_degree");
  // A hook that fails on one rank.
  Visits visits;
  visits.answer = rank == 1 ? NXD_ERROR_USER : NXD_OK;
  NXD_TEST_REFUSED(nxd_pad_model(root.get(), 2, 3, wrapped, 1, note, &visits), NXD_ERROR_USER,
                   rank == 1 ? "hook" : "rank 1");
  NXD_TEST_CHECK(shard_of(root, "0.q.weight").shape() == (std::vector<int64_t>{6, 12}));
  visits = {};
  NXD_TEST_OK(nxd_pad_model(root.get(), 2, 3, wrapped, 1, note, &visits));
  NXD_TEST_CHECK(visits.classes == (std::vector<std::string>{"ColumnParallelLinear",
                                                             "RowParallelLinear", "Wrapped"}));
  // Layers whose features the ranks do not divide have an option for that.
  nxd_linear_options_t uneven = split_options();
  Module layer;
  for (const auto create :
       {nxd_layer_create_column_parallel_linear, nxd_layer_create_row_parallel_linear}) {
    uneven.pad = 0;
    NXD_TEST_REFUSED(create(ctx, 9, 9, &uneven, layer.out()), kArgument, "divi");
    uneven.pad = 2;
    NXD_TEST_REFUSED(create(ctx, 9, 9, &uneven, layer.out()), kArgument, "pad: expected 0 or 1");
    uneven.pad = 1;
    uneven.stride = 2;
    NXD_TEST_REFUSED(create(ctx, 9, 9, &uneven, layer.out()), kArgument, "divi");
    NXD_TEST_REFUSED(create(ctx, INT64_MAX, INT64_MAX, &uneven, layer.out()), kArgument,
                     "beyond INT64_MAX");
    uneven.stride = 0;
    Module padded;
    NXD_TEST_OK(create(ctx, 9, 9, &uneven, padded.out()));
  }
  // Layers of the library's own.
  Module attention, qkv, outer, column;
  NXD_TEST_OK(nxd_layer_create_attention(ctx, 12, 3, nullptr, attention.out()));
  NXD_TEST_REFUSED(nxd_pad_model(attention.get(), 2, 3, nullptr, 0, nullptr, nullptr), kArgument,
                   "need no padding");
  NXD_TEST_OK(nxd_layer_create_qkv_linear(ctx, 12, 3, nullptr, qkv.out()));
  nxd_module_t* const children[] = {qkv.get()};
  NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 1, outer.out()));
  NXD_TEST_REFUSED(nxd_pad_model(outer.get(), 2, 3, nullptr, 0, nullptr, nullptr),
                   NXD_ERROR_UNSUPPORTED, "0: the heads of a QKVLinear");
}

// Each rank lacks the values of another one of three layers, so that no whole can be put together.
void lacking_values(nxd_context_t* ctx, int rank, int, void*) {
  const nxd_linear_options_t options = split_options();
  Module layers[3], root;
  nxd_module_t* children[3];
  for (int i = 0; i < 3; ++i) {
    NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 12, 12, &options, layers[i].out()));
    children[i] = layers[i].get();
  }
  NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 3, root.out()));
  NXD_TEST_OK(nxd_move_model_to_device(children[1 + rank], NXD_DEVICE_META));
  NXD_TEST_REFUSED(nxd_pad_model(root.get(), 2, 3, nullptr, 0, nullptr, nullptr), kArgument,
                   "which parameters have values");
  for (const char* name : {"0.weight", "1.weight", "2.weight"}) {
    NXD_TEST_CHECK(shard_of(root, name).shape() == (std::vector<int64_t>{6, 12}));
  }
}

void test_lacking_values(void**) { nxd_test_run_ranks(2, 2, lacking_values, nullptr); }

void test_rejections(void**) { nxd_test_run_ranks(2, 2, rejections, nullptr); }

nxd_status_t no_hook(nxd_parameter_t*, void* user_data) {
  ++*static_cast<int*>(user_data);
  return NXD_OK;
}

// Handles, hooks, frozen parameters; ddps and optimizers that were there before.
void order(nxd_context_t* ctx, int, int, void*) {
  const char* const wrapped[] = {"Wrapped"};
  const Module root = recorded_model(ctx);
  nxd_parameter_t* const weight = find(root, "0.q.weight");
  nxd_tensor_t* tensor = nullptr;
  int calls = 0;
  NXD_TEST_OK(nxd_parameter_get_tensor(weight, &tensor));
  NXD_TEST_OK(nxd_parameter_set_grad_hook(weight, no_hook, &calls, nullptr));
  NXD_TEST_OK(nxd_parameter_set_trainable(find(root, "0.o.weight"), 0));
  nxd_optimizer_t* before = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_sgd(root.get(), nullptr, &before));
  const auto pass = [&] {
    backward(op("sum", {{"self", root({wave({2, 12}, NXD_DTYPE_F32, 1)})}}));
  };
  pass();
  NXD_TEST_CHECK(calls == 1);
  nxd_ddp_t* ddp = nullptr;
  NXD_TEST_OK(nxd_ddp_create(root.get(), nullptr, &ddp));
  NXD_TEST_REFUSED(nxd_pad_model(root.get(), 2, 3, wrapped, 1, nullptr, nullptr), kState, "ddp");
  nxd_ddp_destroy(ddp);
  NXD_TEST_OK(nxd_pad_model(root.get(), 2, 3, wrapped, 1, nullptr, nullptr));
  NXD_TEST_CHECK(find(root, "0.q.weight") == weight);
  Tensor padded;
  NXD_TEST_OK(nxd_tensor_retain(tensor, padded.out()));  // the handle follows
  NXD_TEST_CHECK(padded.shape() == (std::vector<int64_t>{8, 12}));
  NXD_TEST_CHECK(!padded.grad());
  pass();
  NXD_TEST_CHECK(calls == 2);
  NXD_TEST_CHECK(!shard_of(root, "0.o.weight").grad());
  NXD_TEST_REFUSED(nxd_optimizer_step(before, nullptr, nullptr), kState, "expected 72 values");
  nxd_optimizer_destroy(before);
  // A value given whole fills the features, and padding stays zero.
  NXD_TEST_OK(nxd_parameter_set_full(weight, wave({12, 12}, NXD_DTYPE_F32, 5).get()));
  NXD_TEST_CHECK(max_difference(whole(weight), wave({12, 12}, NXD_DTYPE_F32, 5)) == 0);
  // So do values drawn anew.
  NXD_TEST_OK(nxd_module_initialize(root.get(), 3));
  const Tensor drawn = whole(weight);
  NXD_TEST_CHECK(drawn.shape() == (std::vector<int64_t>{12, 12}));
}

void test_order(void**) { nxd_test_run_ranks(2, 2, order, nullptr); }

// A weight that two layers have is padded for both or for none.
void ties(nxd_context_t* ctx, int, int, void*) {
  const nxd_linear_options_t options = split_options();
  Module a, b, inner, root;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 12, 12, &options, a.out()));
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 12, 12, &options, b.out()));
  NXD_TEST_OK(nxd_module_create(ctx, "Wrapped", nullptr, nullptr, nullptr, inner.out()));
  NXD_TEST_OK(nxd_module_add_child(inner.get(), "a", a.get()));
  nxd_module_t* const children[] = {inner.get(), b.get()};
  NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 2, root.out()));
  NXD_TEST_OK(nxd_module_tie(root.get(), "0.a.weight", "1.weight"));
  const char* const wrapped[] = {"Wrapped"};
  NXD_TEST_REFUSED(nxd_pad_model(root.get(), 2, 3, wrapped, 1, nullptr, nullptr), kArgument,
                   "tied to 1.weight");
  NXD_TEST_OK(nxd_pad_model(root.get(), 2, 3, nullptr, 0, nullptr, nullptr));
  NXD_TEST_CHECK(shard_of(root, "1.weight").shape() == (std::vector<int64_t>{8, 12}));
  NXD_TEST_CHECK(shard_of(root, "1.bias").shape() == (std::vector<int64_t>{8}));
}

// A parameter that a ddp has, behind one that could be padded: both stay as they are.
void held(nxd_context_t* ctx, int, int, void*) {
  const nxd_linear_options_t options = split_options();
  Module a, b, root;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 12, 12, &options, a.out()));
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 12, 12, &options, b.out()));
  nxd_module_t* const children[] = {a.get(), b.get()};
  NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 2, root.out()));
  nxd_ddp_t* ddp = nullptr;
  NXD_TEST_OK(nxd_ddp_create(b.get(), nullptr, &ddp));
  NXD_TEST_REFUSED(nxd_pad_model(root.get(), 2, 3, nullptr, 0, nullptr, nullptr), kState,
                   "a ddp has");
  for (const char* name : {"0.weight", "1.weight"}) {
    NXD_TEST_CHECK(shard_of(root, name).shape() == (std::vector<int64_t>{6, 12}));
  }
  nxd_ddp_destroy(ddp);
  NXD_TEST_OK(nxd_pad_model(root.get(), 2, 3, nullptr, 0, nullptr, nullptr));
}

void test_held(void**) { nxd_test_run_ranks(2, 2, held, nullptr); }

void test_ties(void**) { nxd_test_run_ranks(2, 2, ties, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_nxd_core),       cmocka_unit_test(test_extra_heads),
      cmocka_unit_test(test_exact_sizes),    cmocka_unit_test(test_rejections),
      cmocka_unit_test(test_order),          cmocka_unit_test(test_ties),
      cmocka_unit_test(test_lacking_values), cmocka_unit_test(test_held),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
