// Arguments that the planner rejects, and its messages.
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "support/planner_support.h"

#include "support/check.h"

namespace {

void assert_refused(nxd_status_t status, const char* part) {
  assert_int_equal(status, NXD_ERROR_INVALID_ARGUMENT);
  if (!strstr(nxd_last_error(), part)) {
    fail_msg("expected \"...%s...\", got \"%s\"", part, nxd_last_error());
  }
}

void test_layouts_refused(void**) {
  const nxd_plan_model_t model = small_model();
  const auto refused = [&](const char* part, auto change) {
    nxd_plan_layout_t layout = layout_of(1, 1, 1, 1, 10);
    change(layout);
    nxd_plan_prediction_t p = {};
    p.struct_size = sizeof p;
    p.step_seconds = 5;
    assert_refused(nxd_plan_predict(&model, nullptr, &layout, &p), part);
    assert_true(p.step_seconds == 0);
  };
  refused("4 ranks and num_kv_heads 2 need num_heads of at least 4, got 2",
          [](auto& l) { l.tensor_parallel_size = 4; });
  refused("at most one stage for each of the 4 layers, got 5",
          [](auto& l) { l.pipeline_parallel_size = 5; });
  refused("interleaved: num_microbatches must divide by the 2 ranks, got 3", [](auto& l) {
    l.pipeline_parallel_size = l.virtual_size = 2;
    l.num_microbatches = 3;
  });
  refused("schedule: expected one that trains",
          [](auto& l) { l.schedule = NXD_PP_SCHEDULE_INFERENCE; });
  refused("sequence_length: expected at least 1", [](auto& l) { l.sequence_length = 0; });
  refused("zero_stage: expected 0 or 1", [](auto& l) { l.zero_stage = 2; });
  refused("recompute: expected 0 or 1", [](auto& l) { l.recompute = -1; });
  refused("dtype: expected F32 or BF16", [](auto& l) { l.dtype = NXD_DTYPE_F64; });
  refused("partition: expected an NXD_PP_PARTITION_*", [](auto& l) { l.partition = 3; });
  refused("data_parallel_size: expected at least 1", [](auto& l) { l.data_parallel_size = -1; });
  refused("tokens in a microbatch", [](auto& l) { l.microbatch_size = INT32_MAX; });
  refused("ranks, got 1048576 x 1048576 x 1048576", [](auto& l) {
    l.tensor_parallel_size = l.pipeline_parallel_size = l.data_parallel_size = 1 << 20;
  });
  refused("expected at most 2147483647 ranks, got 1 x 4 x 1073741824", [](auto& l) {
    l.pipeline_parallel_size = 4;
    l.data_parallel_size = 1 << 30;
  });
  refused("tokens in a microbatch, got 262145 sequences of 1024", [](auto& l) {
    l.sequence_length = 1024;
    l.microbatch_size = (1 << 18) + 1;
  });
  refused("reserved", [](auto& l) { l.reserved = 1; });
}

// As many tokens and ranks as there may be at most.
void test_largest_layouts(void**) {
  const nxd_plan_model_t model = small_model();
  nxd_plan_layout_t layout = layout_of(1, 1, INT32_MAX, 1, 1024);
  layout.microbatch_size = 1 << 18;
  nxd_plan_prediction_t p = {};
  p.struct_size = sizeof p;
  assert_int_equal(nxd_plan_predict(&model, nullptr, &layout, &p), NXD_OK);
}

// Each rank has a feature of the MLP.
void test_narrow_models(void**) {
  nxd_plan_model_t model = small_model();
  model.intermediate_size = 1;
  const nxd_plan_layout_t layout = layout_of(2, 1, 1, 1, 10);
  nxd_plan_prediction_t p = {};
  p.struct_size = sizeof p;
  assert_refused(nxd_plan_predict(&model, nullptr, &layout, &p),
                 "expected at most intermediate_size (1), got 2");
  model.intermediate_size = 2;
  assert_int_equal(nxd_plan_predict(&model, nullptr, &layout, &p), NXD_OK);
}

void test_models_and_machines_refused(void**) {
  const nxd_plan_layout_t layout = layout_of(1, 1, 1, 1, 10);
  nxd_plan_prediction_t p = {};
  p.struct_size = sizeof p;
  const auto model_refused = [&](const char* part, auto change) {
    nxd_plan_model_t model = small_model();
    change(model);
    assert_refused(nxd_plan_predict(&model, nullptr, &layout, &p), part);
  };
  model_refused("model->hidden_size: expected 1 to", [](auto& m) { m.hidden_size = 0; });
  model_refused("model->num_layers: expected 1 to 1024", [](auto& m) { m.num_layers = 1025; });
  model_refused("expected a divisor of the 2 heads", [](auto& m) { m.num_kv_heads = 3; });
  model_refused("expected a divisor of hidden_size (8)", [](auto& m) { m.num_heads = 3; });
  model_refused("model->vocab_size", [](auto& m) { m.vocab_size = -1; });
  model_refused("model->num_token_types: expected 0 to", [](auto& m) { m.num_token_types = -1; });
  model_refused("model->sliding_window: expected 0 to", [](auto& m) { m.sliding_window = -1; });
  model_refused("0 where num_token_types says BERT", [](auto& m) {
    m.num_token_types = 2;
    m.sliding_window = 2;
  });
  model_refused("model->num_window_layers: expected 0 to 0",
                [](auto& m) { m.num_window_layers = 1; });
  model_refused("model->num_window_layers: expected 0 to 4", [](auto& m) {
    m.sliding_window = 2;
    m.num_window_layers = 5;
  });
  model_refused("at most the 5 positions", [](auto& m) { m.max_positions = 5; });
  const auto machine_refused = [&](const char* part, auto change) {
    nxd_plan_machine_t machine = NXD_PLAN_MACHINE_INIT;
    change(machine);
    const nxd_plan_model_t model = small_model();
    assert_refused(nxd_plan_predict(&model, &machine, &layout, &p), part);
  };
  machine_refused("machine->gemm_rate_f32", [](auto& m) { m.gemm_rate_f32 = -1; });
  machine_refused("machine->attention_share_bf16", [](auto& m) { m.attention_share_bf16 = 1.5; });
  machine_refused("machine->link_latency", [](auto& m) { m.link_latency = NAN; });
  machine_refused("machine->ranks_per_host", [](auto& m) { m.ranks_per_host = -1; });
  const nxd_plan_model_t model = small_model();
  assert_refused(nxd_plan_predict(nullptr, nullptr, &layout, &p), "model");
  assert_refused(nxd_plan_predict(&model, nullptr, nullptr, &p), "layout");
  assert_refused(nxd_plan_predict(&model, nullptr, &layout, nullptr), "out_prediction");
  p.struct_size = 8;
  assert_int_equal(nxd_plan_predict(&model, nullptr, &layout, &p), NXD_ERROR_ABI_MISMATCH);

  nxd_plan_model_t out = NXD_PLAN_MODEL_INIT;
  assert_refused(nxd_plan_model_from_config(nullptr, &out), "config_json");
  assert_refused(nxd_plan_model_from_config("{", &out), "expected JSON");
  assert_refused(nxd_plan_model_from_config("{\"model_type\": \"llama\"}", &out), "hidden_size");
  assert_refused(nxd_plan_model_from_config("{}", nullptr), "out_model");
  assert_int_equal(nxd_plan_model_from_config("{\"model_type\": \"t5\"}", &out),
                   NXD_ERROR_UNSUPPORTED);
}

void test_searches_refused(void**) {
  const nxd_plan_model_t model = small_model();
  nxd_plan_layout_t layout = NXD_PLAN_LAYOUT_INIT;
  size_t count = 0;
  const auto refused = [&](const char* part, auto change) {
    nxd_plan_search_options_t options = NXD_PLAN_SEARCH_OPTIONS_INIT;
    options.world_size = 8;
    options.batch_size = 8;
    options.sequence_length = 10;
    change(options);
    count = 7;
    assert_refused(nxd_plan_search(&model, nullptr, &options, &layout, nullptr, 1, &count), part);
    assert_int_equal(count, 0);
  };
  refused("world_size: expected 1 to 65536", [](auto& o) { o.world_size = 65537; });
  refused("sequence_length", [](auto& o) { o.sequence_length = 0; });
  refused("batch_size", [](auto& o) { o.batch_size = 0; });
  refused("dtype", [](auto& o) { o.dtype = NXD_DTYPE_I32; });
  refused("max_virtual_size", [](auto& o) { o.max_virtual_size = 65; });
  refused("expected 7 ranks and a batch of 8 sequences that some layout divides",
          [](auto& o) { o.world_size = 7; });
  nxd_plan_search_options_t options = NXD_PLAN_SEARCH_OPTIONS_INIT;
  options.world_size = 1;
  options.batch_size = 1;
  options.sequence_length = 10;
  assert_refused(nxd_plan_search(&model, nullptr, &options, &layout, nullptr, 0, &count), "cap");
  assert_refused(nxd_plan_search(&model, nullptr, nullptr, &layout, nullptr, 1, &count), "options");
  assert_refused(nxd_plan_search(&model, nullptr, &options, &layout, nullptr, 1, nullptr),
                 "out_count");
  nxd_plan_machine_t machine = NXD_PLAN_MACHINE_INIT;
  machine.memory_bytes = 1000;
  assert_refused(nxd_plan_search(&model, &machine, &options, &layout, nullptr, 1, &count),
                 "for tensor 1 x pipeline 1 x data 1, which needs least, got 1000");
  layout.struct_size = 1;
  assert_int_equal(nxd_plan_search(&model, nullptr, &options, &layout, nullptr, 1, &count),
                   NXD_ERROR_ABI_MISMATCH);
}

// The memory that a message asks for is enough, also where a prediction is no whole number.
void test_memory_asked_for_suffices(void**) {
  for (int64_t vocabulary = 100; vocabulary < 130; ++vocabulary) {
    nxd_plan_model_t model = small_model();
    model.vocab_size = vocabulary;
    nxd_plan_search_options_t options = NXD_PLAN_SEARCH_OPTIONS_INIT;
    options.world_size = 7;
    options.batch_size = 7;
    options.sequence_length = 11;
    nxd_plan_layout_t layout = NXD_PLAN_LAYOUT_INIT;
    size_t count = 0;
    nxd_plan_machine_t machine = NXD_PLAN_MACHINE_INIT;
    machine.memory_bytes = 1;
    assert_refused(nxd_plan_search(&model, &machine, &options, &layout, nullptr, 1, &count),
                   "expected at least ");
    const char* number = strstr(nxd_last_error(), "expected at least ") + 18;
    machine.memory_bytes = strtoull(number, nullptr, 10);
    if (nxd_plan_search(&model, &machine, &options, &layout, nullptr, 1, &count) != NXD_OK) {
      fail_msg("vocabulary %d: %s", static_cast<int>(vocabulary), nxd_last_error());
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_layouts_refused),  cmocka_unit_test(test_largest_layouts),
      cmocka_unit_test(test_narrow_models),    cmocka_unit_test(test_models_and_machines_refused),
      cmocka_unit_test(test_searches_refused), cmocka_unit_test(test_memory_asked_for_suffices)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
