// Pipelines of modules on the recorded device train as they do eagerly. A message ends a graph: the
// other stage waits for its values.
#include "capi/pipeline_support.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

std::string config() {
  nlohmann::json out = nlohmann::json::parse(LlamaOracle().config);
  // Two stages share a weight, and their gradients for it.
  out["tie_word_embeddings"] = true;
  return out.dump();
}

PipelineTask task_on(nxd_device_t device, bool sequence_parallel) {
  PipelineTask task;
  task.make = [=](nxd_context_t* ctx) {
    Layout layout{1, sequence_parallel};
    layout.device = device;
    return create_model(ctx, config(), layout);
  };
  task.batch = [=](int step, int dp_rank, int) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 4 * 16; ++i) ids.push_back((i * i * 17 + 7 * i + step + dp_rank) % 256);
    std::vector<Tensor> given;
    for (int i = 0; i < 2; ++i) given.push_back(make_i64(ids, {4, 16}));
    return moved(given, device);
  };
  task.options.num_microbatches = 4;
  return task;
}

void trains_as_eagerly(void**) {
  for (const PipelineLayout& layout :
       {PipelineLayout{1, 2}, PipelineLayout{2, 2}, PipelineLayout{1, 2, 1, 2},
        PipelineLayout{1, 2, 1, 1, NXD_PP_SCHEDULE_ZERO_BUBBLE},
        PipelineLayout{1, 2, 2, 1, NXD_PP_SCHEDULE_DEFAULT, true, true}}) {
    const bool sequence_parallel = layout.tp > 1;
    const PipelineRun want = train_pipeline(layout, task_on(NXD_DEVICE_CPU, sequence_parallel));
    NXD_TEST_OK(nxd_device_reset_metrics());
    const PipelineRun got = train_pipeline(layout, task_on(NXD_DEVICE_XLA, sequence_parallel));
    nxd_device_metrics_t m = {};
    m.struct_size = sizeof m;
    NXD_TEST_OK(nxd_device_get_metrics(&m));
    assert_true(m.executions > 0);
    assert_int_equal(m.fallbacks, 0);
    const std::string name = layout.name();
    assert_int_equal(got.losses.size(), want.losses.size());
    for (size_t i = 0; i < want.losses.size(); ++i) {
      check_loss((name + ": loss").c_str(), got.losses[i], want.losses[i], 1e-5);
    }
    check_named(name + ": gradient", got.gradients, want.gradients, 1e-5, 1e-6);
    check_named(name + ": parameter", got.final, want.final, 1e-5, 1e-6);
  }
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trains_as_eagerly),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
