// Initial weights are a function of the seed, the canonical name and the global index: the same
// bits at every tensor-parallel size.
#include <algorithm>
#include <map>
#include <mutex>

#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

Module container(nxd_context_t* ctx) {
  Module module;
  NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, module.out()));
  return module;
}

nxd_parameter_t* add(const Module& module, const char* name, const std::vector<int64_t>& shape,
                     nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT) {
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_add_parameter(module.get(), name, shape.data(),
                                       static_cast<int32_t>(shape.size()), &options, &parameter));
  return parameter;
}

void check_master_weight(const Module& layer) {
  nxd_tensor_t* lent = nullptr;
  Tensor master;
  NXD_TEST_OK(nxd_module_get_master_weight(layer.get(), &lent));
  NXD_TEST_OK(nxd_tensor_detach(lent, master.out()));
  NXD_TEST_CHECK(values(master) == values(whole(layer.parameters().front().second)));
}

using Draws = std::map<std::string, std::vector<double>>;

// Whole initial weights of one of each layer, made with the context's seed and their options'
// names, and again drawn by nxd_module_initialize.
void draw(nxd_context_t* ctx, Draws& draws) {
  Module root = container(ctx), column, split, row, embedding, across, strided, mlp, attention;
  nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
  linear.name = "net.column";
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 16, &linear, column.out()));
  linear.name = "net.split";
  linear.gather_output = NXD_TOGGLE_OFF;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 16, &linear, split.out()));
  linear.name = "net.strided";
  linear.stride = 2;
  linear.keep_master_weight = 1;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 16, &linear, strided.out()));
  linear.stride = linear.keep_master_weight = 0;
  linear.name = "net.row";
  NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, 16, 8, &linear, row.out()));
  nxd_embedding_options_t table = NXD_EMBEDDING_OPTIONS_INIT;
  table.name = "net.embedding";
  table.has_padding_idx = 1;
  table.padding_idx = 7;
  NXD_TEST_OK(nxd_layer_create_parallel_embedding(ctx, 12, 8, &table, embedding.out()));
  table.name = "net.across";
  table.shard_across_embedding = 1;
  NXD_TEST_OK(nxd_layer_create_parallel_embedding(ctx, 12, 8, &table, across.out()));
  nxd_mlp_options_t gated = NXD_MLP_OPTIONS_INIT;
  gated.name = "net.mlp";
  gated.bias = NXD_TOGGLE_ON;
  gated.dtype = NXD_DTYPE_BF16;
  NXD_TEST_OK(nxd_layer_create_gated_mlp(ctx, 8, 16, &gated, mlp.out()));
  nxd_attention_options_t heads = NXD_ATTENTION_OPTIONS_INIT;
  heads.name = "net.attention";
  heads.num_kv_heads = 2;
  heads.qkv_bias = NXD_TOGGLE_ON;
  heads.dtype = NXD_DTYPE_F64;
  NXD_TEST_OK(nxd_layer_create_attention(ctx, 16, 4, &heads, attention.out()));
  nxd_parameter_options_t own = NXD_PARAMETER_OPTIONS_INIT;
  own.init = NXD_INIT_NORMAL;
  own.init_b = 0.5;
  own.has_shard_dim = own.shard_dim = 1;
  add(root, "own", {3, 8}, own);

  const std::vector<std::pair<const char*, Module*>> members = {
      {"column", &column}, {"split", &split},         {"strided", &strided},
      {"row", &row},       {"embedding", &embedding}, {"across", &across},
      {"mlp", &mlp},       {"attention", &attention}};
  for (const auto& [name, module] : members) {
    for (const auto& [path, parameter] : module->parameters()) {
      draws[std::string("made ") + name + "." + path] = values(whole(parameter));
    }
    NXD_TEST_OK(nxd_module_add_child(root.get(), name, module->get()));
  }
  check_master_weight(strided);
  NXD_TEST_OK(nxd_module_initialize(root.get(), 99));
  check_master_weight(strided);
  for (const auto& [path, parameter] : root.parameters()) {
    draws["drawn " + path] = values(whole(parameter));
  }
}

struct AllDraws {
  std::mutex mutex;
  std::map<int, Draws> by_size;  // of the last rank
};

void draw_on_rank(nxd_context_t* ctx, int rank, int size, void* user_data) {
  auto* all = static_cast<AllDraws*>(user_data);
  Draws draws;
  draw(ctx, draws);
  if (rank != size - 1) return;
  const std::lock_guard<std::mutex> lock(all->mutex);
  all->by_size[size] = draws;
}

void test_initial_weights(void**) {
  AllDraws all;
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.seed = 42;
  for (const int size : {1, 2, 4}) {
    nxd_test_run_ranks_with(&options, size, size, draw_on_rank, &all);
  }
  const Draws& one = all.by_size[1];
  assert_true(one.size() > 20);
  for (const int size : {2, 4}) {
    for (const auto& [name, want] : one) {
      if (all.by_size[size][name] != want) fail_msg("%s differs at TP %d", name.c_str(), size);
    }
  }
  // Names, seeds and biases matter; the padding row is zero; biases are not all alike.
  assert_true(one.at("made column.weight") != one.at("made split.weight"));
  assert_true(one.at("made column.weight") != one.at("drawn column.weight"));
  assert_true(one.at("made column.bias") != one.at("made split.bias"));
  assert_true(one.at("made row.bias")[0] != one.at("made row.bias")[1]);
  for (size_t i = 0; i < 8; ++i) assert_true(one.at("drawn embedding.weight")[7 * 8 + i] == 0);
  // Uniform within 1 / sqrt(in).
  assert_true(max_abs(one.at("made column.weight")) <= 1 / std::sqrt(8.0));
  assert_true(max_abs(one.at("made row.bias")) <= 0.25);
}

// A parameter of the caller's has the values of an array of its name: the fan_in of a convolution's
// weight is that of all its channels and places.
void draw_as_arrays(nxd_context_t* ctx, int, int, void*) {
  nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
  options.init = NXD_INIT_KAIMING_UNIFORM;
  options.init_a = 1;
  for (std::vector<int64_t> shape : {std::vector<int64_t>{5}, {4, 6}, {4, 3, 2, 5}}) {
    const Module holder = container(ctx);
    nxd_parameter_t* const parameter = add(holder, "w", shape, options);
    NXD_TEST_OK(nxd_module_initialize(holder.get(), 42));
    const std::vector<double> got = values(whole(parameter));
    std::vector<float> drawn(got.size());
    DLTensor array = {};
    array.data = drawn.data();
    array.device = {kDLCPU, 0};
    array.dtype = {kDLFloat, 32, 1};
    array.ndim = static_cast<int32_t>(shape.size());
    array.shape = shape.data();
    const nxd_shard_options_t all = NXD_SHARD_OPTIONS_INIT;
    NXD_TEST_OK(nxd_shard_initialize(ctx, "w", NXD_INIT_KAIMING_UNIFORM, 1, 0, &all, &array));
    NXD_TEST_CHECK(std::equal(got.begin(), got.end(), drawn.begin()));
  }
}

void test_parameters_are_drawn_as_arrays(void**) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.seed = 42;
  nxd_test_run_ranks_with(&options, 1, 1, draw_as_arrays, nullptr);
}

template <class Options>
Options normal(Options options) {
  options.init = NXD_INIT_NORMAL;
  options.init_b = 0.5;
  return options;
}

// Rules for weights leave biases zero, whatever layer has them.
void zero_biases(nxd_context_t* ctx, int, int, void*) {
  nxd_linear_options_t linear = normal(nxd_linear_options_t(NXD_LINEAR_OPTIONS_INIT));
  nxd_attention_options_t heads = normal(nxd_attention_options_t(NXD_ATTENTION_OPTIONS_INIT));
  nxd_mlp_options_t gated = normal(nxd_mlp_options_t(NXD_MLP_OPTIONS_INIT));
  nxd_qkv_options_t qkv = normal(nxd_qkv_options_t(NXD_QKV_OPTIONS_INIT));
  heads.qkv_bias = heads.output_bias = gated.bias = qkv.bias = NXD_TOGGLE_ON;
  Module column, row, whole_linear, attention, mlp, separate, fused;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 16, &linear, column.out()));
  NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, 8, 16, &linear, row.out()));
  NXD_TEST_OK(nxd_layer_create_linear(ctx, 8, 16, &linear, whole_linear.out()));
  NXD_TEST_OK(nxd_layer_create_attention(ctx, 8, 2, &heads, attention.out()));
  NXD_TEST_OK(nxd_layer_create_gated_mlp(ctx, 8, 16, &gated, mlp.out()));
  NXD_TEST_OK(nxd_layer_create_qkv_linear(ctx, 8, 2, &qkv, separate.out()));
  qkv.fusion = NXD_QKV_BY_HEAD;
  NXD_TEST_OK(nxd_layer_create_qkv_linear(ctx, 8, 2, &qkv, fused.out()));
  size_t biases = 0;
  for (const Module* each : {&column, &row, &whole_linear, &attention, &mlp, &separate, &fused}) {
    for (const auto& [name, parameter] : each->parameters()) {
      const bool is_bias = name.size() >= 4 && name.compare(name.size() - 4, 4, "bias") == 0;
      NXD_TEST_CHECK((max_abs(values(whole(parameter))) == 0) == is_bias);
      biases += is_bias ? 1 : 0;
    }
  }
  NXD_TEST_CHECK(biases == 1 + 1 + 1 + 4 + 3 + 3 + 1);
}

void test_zero_biases(void**) { nxd_test_run_ranks(1, 1, zero_biases, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_initial_weights),
                              cmocka_unit_test(test_parameters_are_drawn_as_arrays),
                              cmocka_unit_test(test_zero_biases)};
  return cmocka_run_group_tests_name("initial_weights", tests, nullptr, nullptr);
}
