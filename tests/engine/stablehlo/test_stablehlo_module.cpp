// Modules of small graphs: their text, the parameters that it takes, and its calls of the host.
#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "engine/device/device_tensor.h"
#include "engine/device/recorder.h"
#include "engine/device/recording.h"
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

// A graph of effects alone gives nothing.
void test_a_module_may_give_nothing(void**) {
  called("test::effect", at::ones({3}).to(xla()), true);
  const std::string text = step_module().text;
  assert_true(text.find(") -> () {\n") != std::string::npos);
  assert_true(text.find("    \"func.return\"() : () -> ()\n") != std::string::npos);
  assert_true(emit_stablehlo(RecordedGraph()).text.find("@main() -> () {") != std::string::npos);
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
      cmocka_unit_test(test_a_module_may_give_nothing),
      cmocka_unit_test(test_dtypes_without_a_type_are_named),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
