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

// Autograd forms the gradients of the embedding and of the head, and their sum. Without buckets one
// of these is the parameter's gradient; of several microbatches the head's is kept anyway. Stages
// have a matrix each.
void test_tied_gradients(void**) {
  const auto more_buffers = [](int pipeline, int data, int microbatches) {
    nxd_plan_model_t model = small_model();
    const nxd_plan_layout_t layout = layout_of(1, pipeline, data, microbatches, 10);
    const auto two = predict(model, round_machine(), layout);
    model.tied_embeddings = 1;
    const auto tied = predict(model, round_machine(), layout);
    return static_cast<int64_t>(tied.buffer_bytes) - static_cast<int64_t>(two.buffer_bytes);
  };
  constexpr int64_t table = block(1024);
  assert_int_equal(more_buffers(1, 1, 1), 2 * table);
  assert_int_equal(more_buffers(1, 1, 2), table);
  assert_int_equal(more_buffers(1, 2, 1), 2 * table);
  assert_int_equal(more_buffers(1, 2, 2), table);
  assert_int_equal(more_buffers(2, 1, 2), 0);
}

// Products copy operands into one block of malloc's, whichever layer they are of; BF16 ones of a
// machine that has them need none, and others widen their operands.
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
  assert_near(buffers(3) - buffers(2), slack, 1e-6);
  // A block of the widest matrix and of the tokens, 384 deep, appears with the products that need
  // one: 70 tokens of 1024 x 1024 do, and 60 do not.
  const auto buffers_of = [&](int tokens) {
    return static_cast<double>(
        predict(model, round_machine(), layout_of(1, 1, 1, 1, tokens)).buffer_bytes);
  };
  const double growth = buffers_of(58) - buffers_of(48), packed = 4 * 384 * (1024 + 96 + 70);
  assert_true(buffers_of(70) - buffers_of(60) >= growth + packed);
  layout.dtype = NXD_DTYPE_BF16;
  nxd_plan_machine_t machine = round_machine();
  const auto own = predict(model, machine, layout);
  machine.gemm_rate_bf16 = machine.gemm_rate_f32;
  const auto widened = predict(model, machine, layout);
  assert_true(widened.buffer_bytes > own.buffer_bytes + (8 << 20));
}

// Two ranks with two chunks each of a layer: the first one makes five forward passes before its
// first backward, and keeps as many, however many microbatches there are.
void test_interleaved_activations(void**) {
  for (const int microbatches : {4, 6, 20}) {
    nxd_plan_layout_t layout = layout_of(1, 2, 1, microbatches, 10);
    layout.virtual_size = 2;
    layout.schedule = NXD_PP_SCHEDULE_INTERLEAVED;
    const auto p = predict(small_model(), round_machine(), layout);
    assert_int_equal(p.fullest_rank, 0);
    assert_int_equal(p.activation_bytes, 5 * (8 * block(320) + 3 * block(640)));
  }
}

// The first rank of a pipeline receives no values: of a boundary of two values it has those alone
// that it receives as gradients. A layer's blocks, a gradient of the table, four copies of each
// matrix.
void test_buffers_of_the_first_rank(void**) {
  const auto p = predict(small_model(), round_machine(), layout_of(1, 2, 1, 6, 10));
  assert_int_equal(p.fullest_rank, 0);
  assert_int_equal(p.buffer_bytes, 5 * block(320) + 2 * block(640) + block(1024) +
                                       4 * (2 * kLayerSlack + kTableSlack) + 2 * (2 * 320));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_zero_memory),
                              cmocka_unit_test(test_blocks_of_gradients),
                              cmocka_unit_test(test_tied_gradients),
                              cmocka_unit_test(test_memory_of_products),
                              cmocka_unit_test(test_interleaved_activations),
                              cmocka_unit_test(test_buffers_of_the_first_rank)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
