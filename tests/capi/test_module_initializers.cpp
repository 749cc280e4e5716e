// Initial values by a caller's function, the same on every layout; deferred initialisation; modules
// that call their children in order, and linear layers that are not split.
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr nxd_status_t kArgument = NXD_ERROR_INVALID_ARGUMENT, kState = NXD_ERROR_INVALID_STATE;

// Another value for each element of each parameter, exact in F32 and in BF16.
double value_at(const std::string& name, int64_t index) {
  const auto length = static_cast<int64_t>(name.size());
  return static_cast<double>((index * 7 + length) % 251) / 256;
}

struct Asked {
  std::multiset<std::string> names{};
  std::atomic<int> destroyed{0};
  int64_t largest = 0;
  bool shapes_fit = true;
  nxd_status_t answer = NXD_OK;
};

nxd_status_t by_place(const char* name, const int64_t* shape, size_t ndim, int64_t first,
                      double* values, size_t count, void* user_data) {
  auto& asked = *static_cast<Asked*>(user_data);
  asked.names.insert(name);
  int64_t size = 1;
  for (size_t i = 0; i < ndim; ++i) size *= shape[i];
  asked.largest = std::max(asked.largest, static_cast<int64_t>(count));
  asked.shapes_fit &= first >= 0 && first + static_cast<int64_t>(count) <= size;
  for (size_t i = 0; i < count; ++i) {
    asked.shapes_fit &= values[i] == 0;
    values[i] = value_at(name, first + static_cast<int64_t>(i));
  }
  return asked.answer;
}

void count_destroyed(void* user_data) { ++static_cast<Asked*>(user_data)->destroyed; }

std::vector<double> by_places(const std::string& name, int64_t size) {
  std::vector<double> out;
  for (int64_t i = 0; i < size; ++i) out.push_back(value_at(name, i));
  return out;
}

// One of each way to lie: split by rows, by columns, in blocks, by heads of which ranks share some,
// and with a vocabulary that ranks do not divide.
Module tree(nxd_context_t* ctx, nxd_device_t device) {
  Module root, column, row, strided, attention, head;
  NXD_TEST_OK(nxd_module_create(ctx, "Root", nullptr, nullptr, nullptr, root.out()));
  nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
  linear.device = device;
  NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, 16, 8, &linear, row.out()));
  linear.dtype = NXD_DTYPE_BF16;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 16, &linear, column.out()));
  linear.dtype = NXD_DTYPE_F64;
  linear.gather_output = NXD_TOGGLE_OFF;
  linear.stride = 2;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 16, &linear, strided.out()));
  nxd_attention_options_t heads = NXD_ATTENTION_OPTIONS_INIT;
  heads.device = device;
  heads.num_kv_heads = 2;
  NXD_TEST_OK(nxd_layer_create_attention(ctx, 16, 4, &heads, attention.out()));
  const char* const config =
      R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 4, "vocab_size": 13,
          "n_positions": 4, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0})";
  nxd_model_options_t model = NXD_MODEL_OPTIONS_INIT;
  model.device = device;
  NXD_TEST_OK(nxd_model_create(ctx, config, &model, head.out()));
  const std::vector<std::pair<const char*, Module*>> members = {{"column", &column},
                                                                {"row", &row},
                                                                {"strided", &strided},
                                                                {"attention", &attention},
                                                                {"model", &head}};
  for (const auto& [name, module] : members) {
    NXD_TEST_OK(nxd_module_add_child(root.get(), name, module->get()));
  }
  return root;
}

void check_values(const Module& root) {
  for (const auto& [name, parameter] : root.parameters()) {
    const std::vector<double> found = values(whole(parameter));
    const bool same = found == by_places(name, static_cast<int64_t>(found.size()));
    if (!same) nxd_test_fail(__FILE__, __LINE__, "%s: other values", name.c_str());
  }
}

void on_a_rank(nxd_context_t* ctx, int, int, void*) {
  Asked asked;
  {
    // There, and on the meta device, where nothing is until the tree moves.
    for (const nxd_device_t device : {NXD_DEVICE_CPU, NXD_DEVICE_META}) {
      const Module root = tree(ctx, device);
      NXD_TEST_OK(nxd_module_set_initializer(root.get(), by_place, &asked, count_destroyed));
      NXD_TEST_CHECK(asked.names.empty());
      NXD_TEST_OK(nxd_module_initialize(root.get(), 3));
      NXD_TEST_CHECK(asked.names.empty() == (device == NXD_DEVICE_META));
      NXD_TEST_OK(nxd_move_model_to_device(root.get(), NXD_DEVICE_CPU));
      NXD_TEST_CHECK(asked.names.count("row.weight") >= 1 && asked.shapes_fit);
      check_values(root);
      asked.names.clear();
      if (device == NXD_DEVICE_META) continue;
      // The layer's own again, for one of them.
      nxd_parameter_t* weight = nullptr;
      NXD_TEST_OK(nxd_module_find_parameter(root.get(), "row.weight", &weight));
      NXD_TEST_OK(nxd_parameter_set_initializer(weight, nullptr, nullptr, nullptr));
      NXD_TEST_OK(nxd_module_initialize(root.get(), 3));
      NXD_TEST_CHECK(asked.names.count("row.weight") == 0 && asked.names.count("row.bias") == 1);
      const std::vector<double> own = values(whole(weight));
      NXD_TEST_CHECK(own != by_places("row.weight", 8 * 16) && max_abs(own) <= 0.25);
      asked.names.clear();
    }
  }
  NXD_TEST_CHECK(asked.destroyed == 2);
}

void initializers(void**) {
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, on_a_rank, nullptr);
}

void initializer_rules(nxd_context_t* ctx, int, int, void*) {
  Asked asked;
  Module module;
  NXD_TEST_OK(nxd_module_create(ctx, "Own", nullptr, nullptr, nullptr, module.out()));
  const int64_t shape[] = {300, 200};
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_add_parameter(module.get(), "w", shape, 2, nullptr, &parameter));
  // A failed call keeps the values, and its status comes back.
  NXD_TEST_OK(nxd_parameter_set_initializer(parameter, by_place, &asked, count_destroyed));
  asked.answer = NXD_ERROR_USER;
  NXD_TEST_REFUSED(nxd_module_initialize(module.get(), 1), NXD_ERROR_USER, "parameter w");
  NXD_TEST_CHECK(max_abs(values(whole(parameter))) == 0);
  NXD_TEST_OK(nxd_move_model_to_device(module.get(), NXD_DEVICE_META));
  NXD_TEST_REFUSED(nxd_move_model_to_device(module.get(), NXD_DEVICE_CPU), NXD_ERROR_USER,
                   "initializer");
  asked.answer = NXD_OK;
  NXD_TEST_OK(nxd_move_model_to_device(module.get(), NXD_DEVICE_CPU));
  NXD_TEST_CHECK(values(whole(parameter)) == by_places("w", 60000));
  // In pieces, so that a parameter needs no room for all of its values in F64.
  NXD_TEST_CHECK(asked.largest < 60000 && asked.shapes_fit);
  // Another one lets the first go.
  Asked other;
  NXD_TEST_OK(nxd_parameter_set_initializer(parameter, by_place, &other, count_destroyed));
  NXD_TEST_CHECK(asked.destroyed == 1 && other.destroyed == 0);
  // One that is not taken is not destroyed.
  NXD_TEST_REFUSED(nxd_parameter_set_initializer(nullptr, by_place, &asked, count_destroyed),
                   kArgument, "parameter");
  NXD_TEST_REFUSED(nxd_module_set_initializer(nullptr, by_place, &asked, count_destroyed),
                   kArgument, "root");
  NXD_TEST_CHECK(asked.destroyed == 1);
  module = Module();
  NXD_TEST_CHECK(other.destroyed == 1);
}

std::vector<double> master_of(const Module& layer) {
  nxd_tensor_t* borrowed = nullptr;
  Tensor full;
  NXD_TEST_OK(nxd_module_get_master_weight(layer.get(), &borrowed));
  NXD_TEST_OK(nxd_tensor_retain(borrowed, full.out()));
  return values(full);
}

// The initial weight that a layer keeps stays that of the values.
void failed_initializers(nxd_context_t* ctx, int, int, void*) {
  Asked asked;
  asked.answer = NXD_ERROR_USER;
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  options.keep_master_weight = 1;
  Module layer;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 4, 6, &options, layer.out()));
  NXD_TEST_OK(nxd_module_initialize(layer.get(), 5));
  const std::vector<double> before = master_of(layer);
  NXD_TEST_OK(nxd_module_set_initializer(layer.get(), by_place, &asked, nullptr));
  NXD_TEST_REFUSED(nxd_module_initialize(layer.get(), 6), NXD_ERROR_USER, "weight");
  NXD_TEST_CHECK(master_of(layer) == before);
  asked.answer = NXD_OK;
  NXD_TEST_OK(nxd_module_initialize(layer.get(), 6));
  NXD_TEST_CHECK(master_of(layer) == by_places("weight", 24));
}

void failed_initializers_on_a_rank(void**) {
  nxd_test_run_ranks(1, 1, failed_initializers, nullptr);
}

nxd_status_t at_place_five(const char*, const int64_t*, size_t, int64_t first, double* values,
                           size_t count, void* user_data) {
  for (size_t i = 0; i < count; ++i) {
    if (first + static_cast<int64_t>(i) == 5) values[i] = *static_cast<const double*>(user_data);
  }
  return NXD_OK;
}

// A finite value that the parameter's dtype does not have is an error, not an infinity. One that is
// infinite, or not a number, is the caller's.
void values_out_of_range(nxd_context_t* ctx, int, int, void*) {
  const struct {
    nxd_dtype_t dtype;
    double value;
    const char* part;  // of the message; null: it is taken
  } cases[] = {
      {NXD_DTYPE_F32, 1e39, "parameter w: initial value of element 5: expected one that f32"},
      {NXD_DTYPE_BF16, -3.4e38, "expected one that bf16 has, got -3.4e+38"},
      {NXD_DTYPE_F32, 3.4e38, nullptr},
      {NXD_DTYPE_BF16, INFINITY, nullptr},
      {NXD_DTYPE_F32, NAN, nullptr},
      {NXD_DTYPE_F64, 1e300, nullptr}};
  for (const auto& c : cases) {
    double given = c.value;
    Module module;
    NXD_TEST_OK(nxd_module_create(ctx, "Own", nullptr, nullptr, nullptr, module.out()));
    const int64_t shape[] = {4, 2};
    nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
    options.dtype = c.dtype;
    nxd_parameter_t* parameter = nullptr;
    NXD_TEST_OK(nxd_module_add_parameter(module.get(), "w", shape, 2, &options, &parameter));
    NXD_TEST_OK(nxd_parameter_set_initializer(parameter, at_place_five, &given, nullptr));
    const nxd_status_t status = nxd_module_initialize(module.get(), 1);
    if (c.part) {
      NXD_TEST_REFUSED(status, kArgument, c.part);
      NXD_TEST_CHECK(values(whole(parameter))[5] == 0);
    } else {
      NXD_TEST_OK(status);
      NXD_TEST_CHECK(std::isfinite(values(whole(parameter))[5]) == std::isfinite(c.value));
    }
  }
  nxd_parameter_options_t wide = NXD_PARAMETER_OPTIONS_INIT;
  wide.init = NXD_INIT_NORMAL;
  wide.init_b = 1e38;
  Module module;
  NXD_TEST_OK(nxd_module_create(ctx, "Own", nullptr, nullptr, nullptr, module.out()));
  const int64_t shape[] = {2};
  NXD_TEST_REFUSED(nxd_module_add_parameter(module.get(), "w", shape, 1, &wide, nullptr), kArgument,
                   "parameter w: initial values: ");
}

void values_out_of_range_on_a_rank(void**) {
  nxd_test_run_ranks(1, 1, values_out_of_range, nullptr);
}

void initializer_rules_on_a_rank(void**) { nxd_test_run_ranks(1, 1, initializer_rules, nullptr); }

void deferred(nxd_context_t* ctx, int, int, void*) {
  const Module made = tree(ctx, NXD_DEVICE_CPU);
  int32_t before = -1;
  NXD_TEST_OK(nxd_set_deferred_init(1, &before));
  NXD_TEST_CHECK(before == 0);
  Module root = tree(ctx, NXD_DEVICE_CPU), own;
  NXD_TEST_OK(nxd_module_create(ctx, "Own", nullptr, nullptr, nullptr, own.out()));
  const int64_t shape[] = {3};
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_add_parameter(own.get(), "w", shape, 1, nullptr, &parameter));
  NXD_TEST_REFUSED(nxd_set_deferred_init(2, &before), kArgument, "deferred");
  NXD_TEST_OK(nxd_set_deferred_init(0, &before));
  NXD_TEST_CHECK(before == 1);

  // Shapes without values, which each use names.
  for (const auto& [name, each] : root.parameters()) {
    nxd_tensor_t* tensor = nullptr;
    nxd_device_t device = NXD_DEVICE_CPU;
    NXD_TEST_OK(nxd_parameter_get_tensor(each, &tensor));
    NXD_TEST_OK(nxd_tensor_get_device(tensor, &device));
    NXD_TEST_CHECK(device == NXD_DEVICE_META);
  }
  Tensor x = wave({2, 8}, NXD_DTYPE_BF16, 1), y;
  nxd_tensor_t* input = x.get();
  nxd_module_t* column = nullptr;
  NXD_TEST_OK(nxd_module_find_module(root.get(), "column", &column));
  NXD_TEST_REFUSED(nxd_module_forward(column, &input, 1, y.out(), 1), kState,
                   "weight: it has no values");
  nxd_ddp_t* ddp = nullptr;
  NXD_TEST_REFUSED(nxd_ddp_create(own.get(), nullptr, &ddp), kState, "w: it has no values");
  Tensor full;
  NXD_TEST_REFUSED(nxd_parameter_gather_full(parameter, full.out()), kArgument, "no values");

  // Values of the same names and seed as those that were made at once.
  NXD_TEST_OK(nxd_module_initialize(root.get(), 11));
  NXD_TEST_OK(nxd_module_initialize(made.get(), 11));
  NXD_TEST_OK(nxd_move_model_to_device(root.get(), NXD_DEVICE_CPU));
  const auto want = made.parameters(), found = root.parameters();
  for (size_t i = 0; i < want.size(); ++i) {
    NXD_TEST_CHECK(values(whole(want[i].second)) == values(whole(found[i].second)));
  }
  NXD_TEST_OK(nxd_module_forward(column, &input, 1, y.out(), 1));
}

void deferred_initialisation(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, deferred, nullptr);
}

nxd_status_t two_halves(nxd_module_t*, nxd_tensor_t* const* inputs, size_t, nxd_tensor_t** outputs,
                        size_t num_outputs, void*) {
  for (size_t i = 0; i < num_outputs; ++i) NXD_TEST_OK(nxd_tensor_retain(inputs[0], &outputs[i]));
  return NXD_OK;
}

void sequential(nxd_context_t* ctx, int, int, void*) {
  Module first, norm, last, both, net, empty;
  nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
  NXD_TEST_OK(nxd_layer_create_linear(ctx, 8, 6, &linear, first.out()));
  NXD_TEST_OK(nxd_layer_create_layer_norm(ctx, 6, nullptr, norm.out()));
  linear.bias = NXD_TOGGLE_OFF;
  NXD_TEST_OK(nxd_layer_create_linear(ctx, 6, 3, &linear, last.out()));
  nxd_module_t* const children[] = {first.get(), norm.get()};
  NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 2, net.out()));
  NXD_TEST_OK(nxd_module_add_child(net.get(), "last", last.get()));
  const char* name = nullptr;
  NXD_TEST_OK(nxd_module_get_class_name(net.get(), &name));
  NXD_TEST_CHECK(std::string(name) == "Sequential");
  NXD_TEST_OK(nxd_module_initialize(net.get(), 4));
  const auto parameters = net.parameters();
  NXD_TEST_CHECK(parameters.size() == 5 && parameters[0].first == "0.weight" &&
                 parameters[4].first == "last.weight");
  const Tensor x = wave({4, 8}, NXD_DTYPE_F32, 1);
  const Tensor y = net({x}), same = last({norm({first({x})})});
  NXD_TEST_CHECK(y.shape() == (std::vector<int64_t>{4, 3}) && values(y) == values(same));
  backward(op("sum", {{"self", y}}));
  for (const auto& [path, parameter] : parameters) {
    NXD_TEST_CHECK(max_abs(values(whole_grad(parameter))) > 0);
  }
  // The last child gives as many outputs as are asked for.
  NXD_TEST_OK(nxd_module_create(ctx, "Both", two_halves, nullptr, nullptr, both.out()));
  NXD_TEST_OK(nxd_module_add_child(net.get(), "both", both.get()));
  nxd_tensor_t *input = x.get(), *outputs[2] = {nullptr, nullptr};
  NXD_TEST_OK(nxd_module_forward(net.get(), &input, 1, outputs, 2));
  const Tensor one(outputs[0]), two(outputs[1]);
  NXD_TEST_CHECK(values(one) == values(y) && values(two) == values(y));

  NXD_TEST_OK(nxd_module_create_sequential(ctx, nullptr, 0, empty.out()));
  nxd_tensor_t* none = nullptr;
  NXD_TEST_REFUSED(nxd_module_forward(empty.get(), &input, 1, &none, 1), kState, "children");
  nxd_module_t* out = nullptr;
  nxd_module_t* const bad[] = {first.get(), nullptr};
  NXD_TEST_REFUSED(nxd_module_create_sequential(ctx, bad, 2, &out), kArgument, "children[1]");
  NXD_TEST_REFUSED(nxd_module_create_sequential(ctx, nullptr, 2, &out), kArgument, "children");
  NXD_TEST_REFUSED(nxd_module_create_sequential(nullptr, children, 2, &out), kArgument, "ctx");
  NXD_TEST_REFUSED(nxd_module_create_sequential(ctx, children, 2, nullptr), kArgument,
                   "out_module");
}

void sequential_on_a_rank(void**) { nxd_test_run_ranks(1, 1, sequential, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(initializers),
                              cmocka_unit_test(initializer_rules_on_a_rank),
                              cmocka_unit_test(failed_initializers_on_a_rank),
                              cmocka_unit_test(values_out_of_range_on_a_rank),
                              cmocka_unit_test(deferred_initialisation),
                              cmocka_unit_test(sequential_on_a_rank)};
  return cmocka_run_group_tests_name("initializers", tests, nullptr, nullptr);
}
