// Modules of small graphs: their text, the parameters that it takes, and its calls of the host.
#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/device/device_tensor.h"
#include "engine/device/recorder.h"
#include "engine/device/recording.h"
#include "engine/ops/collectives.h"
#include "engine/ops/part_at.h"
#include "engine/stablehlo/stablehlo_module.h"
#include "engine/tensor/dtype_map.h"

#include "support/check.h"

namespace {

using namespace nxd;
using at::Tensor;

at::Device xla() { return to_device(NXD_DEVICE_XLA); }

StableHloModule step_module() {
  Recording::current()->mark_step(true);
  return emit_stablehlo(Recording::current()->step_graph());
}

void test_a_module_is_a_function_of_leaves_and_numbers(void**) {
  const Tensor x = at::ones({2, 3}).to(xla()), w = at::ones({3, 4}).to(xla());
  const Tensor y = at::mm(x, w) * 0.5;
  const StableHloModule module = step_module();
  assert_string_equal(
      module.text.c_str(),
      "module @step {\n"
      "  func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<3x4xf32>, "
      "%floats: tensor<1xf64>) -> (tensor<2x4xf32>) {\n"
      "    %fs0 = \"stablehlo.slice\"(%floats) {start_indices = array<i64: 0>, limit_indices = "
      "array<i64: 1>, strides = array<i64: 1>} : (tensor<1xf64>) -> tensor<1xf64>\n"
      "    %f0 = \"stablehlo.reshape\"(%fs0) : (tensor<1xf64>) -> tensor<f64>\n"
      "    %0 = \"stablehlo.dot_general\"(%arg0, %arg1) {dot_dimension_numbers = "
      "#stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], "
      "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>} : (tensor<2x3xf32>, "
      "tensor<3x4xf32>) -> tensor<2x4xf32>\n"
      "    %1 = \"stablehlo.convert\"(%f0) : (tensor<f64>) -> tensor<f32>\n"
      "    %2 = \"stablehlo.broadcast_in_dim\"(%1) {broadcast_dimensions = array<i64>} : "
      "(tensor<f32>) -> tensor<2x4xf32>\n"
      "    %3 = \"stablehlo.multiply\"(%0, %2) : (tensor<2x4xf32>, tensor<2x4xf32>) -> "
      "tensor<2x4xf32>\n"
      "    \"func.return\"(%3) : (tensor<2x4xf32>) -> ()\n"
      "  }\n"
      "}\n");
  assert_true((module.buffers == std::vector<int>{0, 1}));
  assert_int_equal(module.floats.size(), 1);
  assert_int_equal(module.floats[0].node, 1);
  assert_int_equal(module.floats[0].argument, 1);
  assert_true(module.integers.empty() && module.host_nodes.empty());
}

// The text is a compiled program's name in a cache: whatever the host's numbers are, it is the
// same.
void test_numbers_change_no_text(void**) {
  const Tensor x = at::ones({3}).to(xla());
  std::vector<std::string> texts;
  for (const double rate : {0.1, 0.2}) {
    const Tensor y = at::sub(x, x, rate) + at::full({3}, rate, x.options()) * rate;
    texts.push_back(step_module().text);
  }
  assert_true(texts[0] == texts[1]);
  // An argument at its default is part of the graph, and so is one that chooses a formula.
  const Tensor plain = at::sub(x, x);
  assert_true(step_module().text.find("multiply") == std::string::npos);
  const Tensor square = x.pow(2);
  assert_true(step_module().text.find("multiply") != std::string::npos);
  const Tensor power = x.pow(1.5);
  assert_true(step_module().text.find("power") != std::string::npos);
}

Tensor called(const char* name, const Tensor& x, bool is_effect) {
  RecordedCall call{name};
  call.attributes = "group \"tp\"";
  call.is_effect = is_effect;
  call.results = {at::empty(x.sizes(), at::TensorOptions(at::kMeta))};
  call.function = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{in[0] + 1}; };
  return record_call(std::move(call), {x})[0];
}

size_t count_of(const std::string& part, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// XLA reorders calls that depend on nothing: those that ranks take part in pass a token on.
void test_calls_of_the_host_keep_their_order(void**) {
  const Tensor x = at::ones({3}).to(xla());
  Tensor kept;
  {
    const Tensor dropped = called("test::effect", x, true);
    const Tensor pure = called("test::pure", x, false);
    const Tensor last = called("test::effect", x, true), sorted = std::get<0>(x.topk(3));
    kept = last + pure + sorted;
  }
  const StableHloModule module = step_module();
  assert_true((module.host_nodes == std::vector<int>{0, 1, 2, 3}));
  const auto has = [&](const std::string& part) {
    if (module.text.find(part) == std::string::npos) fail_msg("%s", module.text.c_str());
  };
  has("%0 = \"stablehlo.create_token\"() : () -> !stablehlo.token\n");
  has("%1:2 = \"stablehlo.custom_call\"(%arg0, %0) {call_target_name = \"nxd_call\", api_version = "
      "4 : i32, has_side_effect = true, backend_config = {function = \"nxd_recorded_node\", node = "
      "0 : i64, operator = \"test::effect\", attributes = \"group \\\"tp\\\"\"}} : "
      "(tensor<3xf32>, !stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)\n");
  has("%2 = \"stablehlo.custom_call\"(%arg0) {call_target_name = \"nxd_call\", api_version = 4 : "
      "i32, has_side_effect = false,");
  has("%3:2 = \"stablehlo.custom_call\"(%arg0, %1#1)");
  has("operator = \"aten::topk\"");
  assert_int_equal(count_of("create_token", module.text), 1);
  assert_true(at::equal(kept.to(at::kCPU), at::full({3}, 5.0)));
}

RecordedExchange exchange(RecordedExchange::Kind kind, std::vector<int> ranks, int64_t dim = 0,
                          nxd_reduce_t reduce = NXD_REDUCE_SUM) {
  RecordedExchange out;
  out.kind = kind;
  out.ranks = std::move(ranks);
  out.dim = dim;
  out.reduce = reduce;
  return out;
}

Tensor exchanged(const Tensor& x, at::IntArrayRef sizes, std::vector<RecordedExchange> exchanges) {
  RecordedCall call{"test::exchange"};
  call.is_effect = true;
  call.results = {at::empty(sizes, at::TensorOptions(at::kMeta))};
  call.exchanges = std::move(exchanges);
  call.function = [sizes = sizes.vec()](const std::vector<Tensor>&) {
    return std::vector<Tensor>{at::zeros(sizes)};
  };
  return record_call(std::move(call), {x})[0];
}

void check_recorded(const char* name, const Tensor& x) {
  RecordedCall call{name};
  call.is_effect = true;
  call.function = [](const std::vector<Tensor>&) { return std::vector<Tensor>(); };
  record_call(std::move(call), {x});
}

// The number of a part is an input, and the host can look at a part of what it knows.
void test_parts_differ_in_a_number(void**) {
  std::vector<std::string> texts;
  for (const int64_t number : {0, 1}) {
    const Tensor ids = at::arange(8, at::kLong).view({4, 2}).to(xla());
    const DeviceValuePtr part = record_part_at(value_of(ids), 0, number, 2);
    const Tensor own = device_tensor(part);
    const Tensor placed = device_tensor(record_placed_part(part, 0, number, 6));
    check_recorded("test::check_of_part", own);
    Recording::current()->mark_step(true);
    const StableHloModule module =
        emit_stablehlo(Recording::current()->step_graph(), {{0, 1}, true});
    assert_int_equal(count_of("\"stablehlo.dynamic_slice\"(%arg0", module.text), 1);
    assert_int_equal(count_of("stablehlo.dynamic_update_slice", module.text), 1);
    assert_int_equal(count_of("test::check_of_part", module.text), 0);
    texts.push_back(module.text);
    const Tensor want = at::arange(4, at::kLong).view({2, 2}) + 4 * number;
    assert_true(at::equal(own.to(at::kCPU), want));
    assert_true(at::equal(placed.to(at::kCPU).narrow(0, 2 * number, 2), want));
    assert_int_equal(placed.to(at::kCPU).sum().item<int64_t>(), want.sum().item<int64_t>());
  }
  assert_true(texts[0] == texts[1]);
}

// Four replicas: two tensor-parallel groups of neighbours, two data-parallel ones across.
void test_replicas_exchange_by_stablehlo(void**) {
  using Kind = RecordedExchange::Kind;
  const Tensor x = at::ones({4, 2}).to(xla());
  check_recorded("test::check_of_leaf", x);
  const Tensor gathered = exchanged(x, {4, 4}, {exchange(Kind::kAllGather, {2, 3}, 1)});
  const Tensor part = exchanged(gathered, {2, 4}, {exchange(Kind::kReduceScatter, {2, 3}, 0)});
  exchanged(part, {2, 4},
            {exchange(Kind::kAllReduce, {0, 1, 2, 3}, 0, NXD_REDUCE_MAX),
             exchange(Kind::kAllReduce, {0, 2}, 0, NXD_REDUCE_AVG)});
  const Tensor kept = called("test::pure", x, false);
  check_recorded("test::check_of_sums", part);
  check_values(nullptr, "test", "test::check_of_sizes", part,
               [](const Tensor&) { return std::string(); });
  Recording::current()->mark_step(true);
  const RecordedGraph graph = Recording::current()->step_graph();
  const StableHloModule module = emit_stablehlo(graph, {{0, 1, 2, 3}, true});
  const auto has = [&](const std::string& part_of_text) {
    if (module.text.find(part_of_text) == std::string::npos) fail_msg("%s", module.text.c_str());
  };
  has("module @step attributes {mhlo.num_replicas = 4 : i32} {\n");
  has("%0 = \"stablehlo.all_gather\"(%arg0) {all_gather_dim = 1 : i64, replica_groups = "
      "dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>} : (tensor<4x2xf32>) -> tensor<4x4xf32>\n");
  has("%1:2 = \"stablehlo.optimization_barrier\"(%0, %0) : (tensor<4x4xf32>, tensor<4x4xf32>) -> "
      "(tensor<4x4xf32>, tensor<4x4xf32>)\n");
  has("%2 = \"stablehlo.reduce_scatter\"(%1#0) ({ ^bb0(");
  has("{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>} : "
      "(tensor<4x4xf32>) -> tensor<2x4xf32>\n");
  has("%rc = \"stablehlo.maximum\"(%ra, %rb)");
  has("replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>");
  has("replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>");
  has("stablehlo.divide");
  // The call knows its replica, and the result comes after the dropped exchange.
  has("\"stablehlo.replica_id\"() : () -> tensor<ui32>\n");
  has("operator = \"test::pure\", attributes = \"group \\\"tp\\\"\"}} : (tensor<4x2xf32>, "
      "tensor<i64>) -> tensor<4x2xf32>\n");
  assert_int_equal(count_of("optimization_barrier", module.text), 4);
  // The host looks at a leaf before the program runs, and at a sum within it.
  assert_int_equal(count_of("test::check_of_leaf", module.text), 0);
  assert_int_equal(count_of("test::check_of_sums", module.text), 1);
  assert_int_equal(count_of("test::check_of_sizes", module.text), 0);
  assert_true((module.host_nodes == std::vector<int>{4, 5}));

  const auto refused = [&](const ModuleReplicas& replicas, const std::string& why) {
    try {
      emit_stablehlo(graph, replicas);
    } catch (const Error& error) {
      assert_int_equal(error.status(), NXD_ERROR_UNSUPPORTED);
      if (std::string(error.what()).find(why) != std::string::npos) return;
      fail_msg("%s", error.what());
    }
    fail_msg("no error: %s", why.c_str());
  };
  refused({{0, 1, 2, 3}, false}, "test::pure has no lowering to StableHLO");
  refused({{0, 1, 2, 3, 4}, true}, "evenly spaced");
}

void test_groups_of_replicas(void**) {
  const auto groups = [](int count, const std::vector<int>& ranks) {
    ModuleReplicas replicas;
    for (int rank = 0; rank < count; ++rank) replicas.ranks.push_back(rank);
    try {
      return groups_of_replicas(replicas, ranks);
    } catch (const Error& error) {
      assert_int_equal(error.status(), NXD_ERROR_UNSUPPORTED);
      return HloGroups();
    }
  };
  assert_true((groups(2, {0, 1}) == HloGroups{{0, 1}}));
  assert_true((groups(3, {2, 0, 1}) == HloGroups{{2, 0, 1}}));
  assert_true((groups(8, {4, 5}) == HloGroups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  assert_true((groups(8, {1, 3}) == HloGroups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  assert_true((groups(8, {3, 7}) == HloGroups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  assert_true((groups(3, {1}) == HloGroups{{0}, {1}, {2}}));
  for (const auto& uneven : {std::vector<int>{0, 1, 3}, {1, 2}, {2, 4}, {1, 0}}) {
    assert_true(groups(8, uneven).empty());
  }
  // Replicas that are some of the world's ranks.
  assert_true((groups_of_replicas({{4, 6}, true}, {4, 6}) == HloGroups{{0, 1}}));
}

// A graph of effects alone gives nothing.
void test_a_module_may_give_nothing(void**) {
  called("test::effect", at::ones({3}).to(xla()), true);
  const std::string text = step_module().text;
  assert_true(text.find(") -> () {\n") != std::string::npos);
  assert_true(text.find("    \"func.return\"() : () -> ()\n") != std::string::npos);
  assert_true(emit_stablehlo(RecordedGraph()).text.find("@main() -> () {") != std::string::npos);
}

PjrtTarget neuron(bool narrows_i64) {
  return PjrtTarget::neuron([narrows_i64](const char*) -> std::optional<std::string> {
    return narrows_i64 ? std::optional<std::string>("1") : std::nullopt;
  });
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Dtypes that Neuron's device lacks are in no type of the text, whatever the tensors have; numbers
// that these cannot hold are the nearest that they can. Gathers and scatters stay inside.
void test_modules_for_neuron(void**) {
  const Tensor wide = at::ones({5, 2}, at::kDouble).to(xla());
  const Tensor small = at::ones({3}, at::kShort).to(xla());
  const Tensor ids = at::arange(3, at::kLong).to(xla());
  const Tensor rows = at::index_select(wide, 0, ids);
  const Tensor sums = at::index_add(wide, 0, ids, rows);
  const Tensor elements = at::scatter_add(wide, 0, ids.view({3, 1}), rows);
  const Tensor least = std::get<0>((small * 2).min(0)), most = at::amax(ids, 0);
  const Tensor bounded = at::clamp_max(wide, 1e300);
  const Tensor filled = at::full_like(ids, 7) + ids;
  Recording::current()->mark_step(true);
  const RecordedGraph graph = Recording::current()->step_graph();
  const std::string plain = emit_stablehlo(graph).text;
  assert_int_equal(count(plain, "optimization_barrier"), 0);
  assert_true(count(plain, "f64>") > 0 && count(plain, "i16>") > 0);
  const std::string text = emit_stablehlo(graph, {}, neuron(false)).text;
  assert_int_equal(count(text, "f64>"), 0);
  assert_int_equal(count(text, "i16>"), 0);
  assert_true(count(text, "i64>") > 0);
  assert_true(count(text, "optimization_barrier") > 0);
  // Three have indices that are clamped, and two of these add.
  assert_true(count(text, "\"stablehlo.minimum\"") >= count(plain, "\"stablehlo.minimum\"") + 3);
  assert_true(count(text, "\"stablehlo.select\"") == count(plain, "\"stablehlo.select\"") + 2);
  const std::string narrow = emit_stablehlo(graph, {}, neuron(true)).text;
  // Sizes and dimensions are attributes, which are i64 always.
  assert_int_equal(count(narrow, "xi64>"), 0);
  assert_int_equal(count(narrow, "tensor<i64>"), 0);
  assert_int_equal(count(narrow, "9223372036854775808"), 0);
  assert_true(count(narrow, "-2147483648") > 0);
}

void test_products_of_integers_are_rejected_for_neuron(void**) {
  const Tensor a = at::ones({2, 2}, at::kLong).to(xla());
  const Tensor product = at::mm(a, a);
  Recording::current()->mark_step(true);
  const RecordedGraph graph = Recording::current()->step_graph();
  assert_true(count(emit_stablehlo(graph).text, "dot_general") == 1);
  nxd_status_t status = NXD_OK;
  try {
    emit_stablehlo(graph, {}, neuron(false));
  } catch (const Error& error) {
    status = error.status();
    assert_true(std::string(error.what()).find("a product of i64: expected a dtype of floats") !=
                std::string::npos);
  }
  assert_int_equal(status, NXD_ERROR_UNSUPPORTED);
}

void test_dtypes_without_a_type_are_named(void**) {
  nxd_status_t status = NXD_OK;
  try {
    static_cast<void>(hlo_type(at::kComplexFloat, {2}));
  } catch (const Error& error) {
    status = error.status();
    assert_true(std::string(error.what()).find("ComplexFloat") != std::string::npos);
  }
  assert_int_equal(status, NXD_ERROR_UNSUPPORTED);
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_module_is_a_function_of_leaves_and_numbers),
      cmocka_unit_test(test_numbers_change_no_text),
      cmocka_unit_test(test_calls_of_the_host_keep_their_order),
      cmocka_unit_test(test_parts_differ_in_a_number),
      cmocka_unit_test(test_replicas_exchange_by_stablehlo),
      cmocka_unit_test(test_groups_of_replicas),
      cmocka_unit_test(test_a_module_may_give_nothing),
      cmocka_unit_test(test_modules_for_neuron),
      cmocka_unit_test(test_products_of_integers_are_rejected_for_neuron),
      cmocka_unit_test(test_dtypes_without_a_type_are_named),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
