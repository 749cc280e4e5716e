// The planner's memory: what copies have of parameters and states, blocks that gradients share with
// activations, and what products leave.
#include <initializer_list>

#include "support/planner_predictions.h"

#include "support/check.h"

namespace {

// 4 n of parameters, 4 n of gradients on each rank and 8 n / d of state; in bf16 2, 2 and 12.
void test_zero_memory(void**) {
  for (const int data : {1, 2, 4, 8}) {
    nxd_plan_layout_t layout = layout_of(1, 1, data, 1, 10);
    layout.zero_stage = 1;
    auto p = predict(small_model(), round_machine(), layout);
    assert_int_equal(p.parameter_bytes, 4 * 3144);
    assert_int_equal(p.grad_bytes, 4 * 3144);
    assert_int_equal(p.optimizer_bytes, 8 * 3144 / data);
    layout.dtype = NXD_DTYPE_BF16;
    p = predict(small_model(), round_machine(), layout);
    assert_int_equal(p.parameter_bytes, 2 * 3144);
    assert_int_equal(p.grad_bytes, 2 * 3144);
    assert_int_equal(p.optimizer_bytes, 12 * 3144 / data);
    layout.zero_stage = 0;
    assert_int_equal(predict(small_model(), round_machine(), layout).optimizer_bytes, 12 * 3144);
  }
}

// Eight tokens of eight features: activations, matrices and their gradients have blocks of the same
// two sizes, and the logits those of a table.
void test_blocks_of_gradients(void**) {
  constexpr uint64_t row = block(256), wide = block(512), table = block(1024);
  const auto slack = [](uint64_t copies) { return copies * (4 * kLayerSlack + 2 * kTableSlack); };
  const auto predict_for = [](int data, int microbatches) {
    return predict(small_model(), round_machine(), layout_of(1, 1, data, microbatches, 8));
  };
  // A layer's and the head's; gradients of 16 and of 12 matrices take blocks that are free.
  const uint64_t kept = 4 * (8 * row + 3 * wide) + 2 * row, transient = 5 * row + 2 * wide + table;
  auto p = predict_for(1, 1);
  assert_int_equal(p.activation_bytes, kept - 16 * row - 12 * wide);
  assert_int_equal(p.buffer_bytes, transient + slack(4));
  // With a second microbatch they are there when activations come, and the head's is formed beside.
  p = predict_for(1, 2);
  assert_int_equal(p.activation_bytes, kept + table);
  assert_int_equal(p.buffer_bytes, transient + slack(4));
  // In buckets, and one of each size formed beside them; parameters are in blocks, but with ZeRO
  // they are not.
  nxd_plan_layout_t layout = layout_of(1, 1, 2, 1, 8);
  p = predict(small_model(), round_machine(), layout);
  assert_int_equal(p.activation_bytes, kept);
  assert_int_equal(p.buffer_bytes, transient + 2 * row + wide + table + slack(3));
  layout.zero_stage = 1;
  p = predict(small_model(), round_machine(), layout);
  assert_int_equal(p.buffer_bytes, transient + 2 * row + wide + table + slack(1));
}

// Products leave holes in the memory of malloc; BF16 ones of a machine that has them leave none,
// and others widen their operands.
void test_memory_of_products(void**) {
  nxd_plan_model_t model = small_model();
  model.hidden_size = model.intermediate_size = 1024;
  model.num_heads = model.num_kv_heads = 8;
  model.head_dim = 128;
  nxd_plan_layout_t layout = layout_of(1, 1, 1, 1, 1024);
  const auto buffers = [&](int layers) {
    model.num_layers = layers;
    return static_cast<double>(predict(model, round_machine(), layout).buffer_bytes);
  };
  const double slack = 4 * 7 * ((4096 * 1024 + 64) * 33.0 / 32 - 4096 * 1024);
  const double holes = 7 * 4 * 192 * (1024 + 384) * 2 / 3.0;
  assert_near(buffers(3) - buffers(2), slack + holes, 1e-6);
  layout.dtype = NXD_DTYPE_BF16;
  nxd_plan_machine_t machine = round_machine();
  const auto own = predict(model, machine, layout);
  machine.gemm_rate_bf16 = machine.gemm_rate_f32;
  const auto widened = predict(model, machine, layout);
  assert_true(widened.buffer_bytes > own.buffer_bytes + (8 << 20));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_zero_memory),
                              cmocka_unit_test(test_blocks_of_gradients),
                              cmocka_unit_test(test_memory_of_products)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
