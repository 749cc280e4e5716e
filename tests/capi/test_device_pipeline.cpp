// Pipelines of modules on the recorded device train as they do eagerly. A message ends a graph: the
// other stage waits for its values.
#include "capi/callback_model.h"
#include "capi/pipeline_support.h"
#include "support/device.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

std::string config() {
  nlohmann::json out = nlohmann::json::parse(LlamaOracle().config);
  // Two stages share a weight, and their gradients for it.
  out["tie_word_embeddings"] = true;
  return out.dump();
}

// Microbatches of one row.
PipelineTask task_on(nxd_device_t device, bool sequence_parallel, nxd_dtype_t dtype = NXD_DTYPE_F32,
                     int microbatches = 4) {
  PipelineTask task;
  task.make = [=](nxd_context_t* ctx) {
    Layout layout{1, sequence_parallel, dtype};
    layout.device = device;
    return create_model(ctx, config(), layout);
  };
  task.batch = [=](int step, int dp_rank, int) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < microbatches * 16; ++i)
      ids.push_back((i * i * 17 + 7 * i + step + dp_rank) % 256);
    std::vector<Tensor> given;
    for (int i = 0; i < 2; ++i) given.push_back(make_i64(ids, {microbatches, 16}));
    return moved(given, device);
  };
  task.options.num_microbatches = microbatches;
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

// A microbatch's place in the batch is an input of its graphs.
void microbatches_share_graphs(void**) {
  uint64_t made[2];
  for (const int i : {0, 1}) {
    NXD_TEST_OK(nxd_device_reset_metrics());
    train_pipeline(PipelineLayout{1, 2},
                   task_on(NXD_DEVICE_XLA, false, NXD_DTYPE_F32, i == 0 ? 4 : 12));
    made[i] = graphs_made();
  }
  if (made[1] > made[0])
    fail_msg("%d graphs, and then %d", static_cast<int>(made[0]), static_cast<int>(made[1]));
}

// nxd_pp_create gives parameters their values on the device of the model's options.
void values_that_come_later(void**) {
  const PipelineLayout layout{1, 2};
  std::vector<PipelineRun> runs;
  for (const int deferred : {0, 1}) {
    PipelineTask task = task_on(NXD_DEVICE_XLA, false);
    const auto make = task.make;
    task.make = [=](nxd_context_t* ctx) {
      NXD_TEST_OK(nxd_set_deferred_init(deferred, nullptr));
      Module model = make(ctx);
      NXD_TEST_OK(nxd_set_deferred_init(0, nullptr));
      return model;
    };
    runs.push_back(train_pipeline(layout, task));
  }
  assert_true(!runs[0].losses.empty() && runs[1].losses == runs[0].losses);
  check_named("parameter", runs[1].final, runs[0].final, 0, 0);
}

// The shared weight's gradient comes after the backward passes, in BF16, to where F32 ones lie.
void f32_gradients_of_a_shared_weight(void**) {
  const PipelineLayout layout{1, 2, 1, 1, NXD_PP_SCHEDULE_DEFAULT, false, true};
  std::vector<PipelineRun> runs;
  for (const nxd_device_t device : {NXD_DEVICE_CPU, NXD_DEVICE_XLA}) {
    PipelineTask task = task_on(device, false, NXD_DTYPE_BF16);
    task.fp32_grads = true;
    runs.push_back(train_pipeline(layout, task));
  }
  assert_int_equal(runs[1].norms.size(), runs[0].norms.size());
  for (size_t i = 0; i < runs[0].norms.size(); ++i) {
    check_loss("norm", runs[1].norms[i], runs[0].norms[i], 2e-2);
    check_loss("loss", runs[1].losses[i], runs[0].losses[i], 1e-2);
  }
}

// exp and sum of a linear layer's output, which automatic casts round otherwise on each device.
Module sum_of_powers(nxd_context_t* ctx, nxd_device_t device) {
  Module model = callback_module(
      ctx, "Powers", [](nxd_module_t* self, const Handles& inputs, nxd_tensor_t** outputs, size_t) {
        Tensor y, powers, sum;
        NXD_TEST_TRY(call_child(self, "linear", {inputs[0]}, y));
        NXD_TEST_TRY(call_op("exp", nullptr, {y.get()}, powers));
        NXD_TEST_TRY(call_op("sum", nullptr, {powers.get()}, sum));
        outputs[0] = sum.release();
        return nxd_status_t{NXD_OK};
      });
  add_child(model, "linear", column_linear(ctx, 8, 8, false, true));
  NXD_TEST_OK(nxd_move_model_to_device(model.get(), device));
  return model;
}

double sum_there(nxd_module_t* model, const std::vector<Tensor>& x) {
  nxd_tensor_t* out = nullptr;
  if (!NXD_TEST_OK(nxd_module_forward(model, handles(x).data(), 1, &out, 1))) return NAN;
  return item(Tensor(out).get());
}

// The casts are those of the device on which the model lies, also once it has moved.
void casts_of_the_device(void**) {
  on_pipeline_ranks({}, [](nxd_context_t* ctx, int) {
    nxd_dtype_t before = NXD_DTYPE_INVALID;
    NXD_TEST_OK(nxd_set_autocast(NXD_DTYPE_BF16, &before));
    std::vector<float> data(16);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i) / 7;
    const int64_t shape[] = {2, 8};
    nxd_tensor_t* made = nullptr;
    NXD_TEST_OK(nxd_tensor_from_data(data.data(), data.size() * sizeof(float), shape, 2,
                                     NXD_DTYPE_F32, &made));
    std::vector<Tensor> x;
    x.emplace_back(made);
    const std::vector<Tensor> x_there = moved(x, NXD_DEVICE_XLA);
    const Module there = sum_of_powers(ctx, NXD_DEVICE_XLA);
    const Module here = sum_of_powers(ctx, NXD_DEVICE_CPU);
    const double want_there = sum_there(there.get(), x_there), want = sum_there(here.get(), x);
    NXD_TEST_CHECK(want_there != want);
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 1;
    const Pipeline pp = make_pipeline(here.get(), x, options);
    const auto loss = [&](const std::vector<Tensor>& inputs) {
      double out = NAN;
      NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(inputs).data(), 1, &out));
      return out;
    };
    NXD_TEST_CHECK(loss(x) == want);
    NXD_TEST_OK(nxd_move_model_to_device(local_module(pp.get()), NXD_DEVICE_XLA));
    NXD_TEST_CHECK(loss(x_there) == want_there);
    NXD_TEST_OK(nxd_set_autocast(before, nullptr));
  });
}

// The whole model moves: each rank's own parameters, and no initial values in the place of others'.
void a_whole_model_moves(void**) {
  on_pipeline_ranks({1, 2}, [](nxd_context_t* ctx, int) {
    const PipelineTask here = task_on(NXD_DEVICE_CPU, false),
                       there = task_on(NXD_DEVICE_XLA, false);
    const Module model = here.make(ctx);
    nxd_pp_options_t options = here.options;
    options.broadcast_and_average_loss = 1;
    const Pipeline pp = make_pipeline(model.get(), here.batch(0, 0, 1), options);
    if (!pp) return;
    const auto loss = [&](const PipelineTask& task) {
      const std::vector<Tensor> inputs = task.batch(0, 0, 1);
      double out = NAN;
      NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(inputs).data(), inputs.size(), &out));
      return out;
    };
    const double want = loss(here);
    NXD_TEST_OK(nxd_move_model_to_device(model.get(), NXD_DEVICE_XLA));
    check_loss("there", loss(there), want, 1e-5);
    size_t own = 0, with_values = 0;
    NXD_TEST_OK(nxd_module_get_parameter_count(local_module(pp.get()), &own));
    for_each_parameter(model.get(), [&](nxd_parameter_t* parameter, const std::string&) {
      nxd_tensor_t* tensor = nullptr;
      nxd_device_t device = NXD_DEVICE_META;
      NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &tensor));
      NXD_TEST_OK(nxd_tensor_get_device(tensor, &device));
      if (device != NXD_DEVICE_META) ++with_values;
    });
    NXD_TEST_CHECK(with_values == own);
  });
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(microbatches_share_graphs),
      cmocka_unit_test(trains_as_eagerly),
      cmocka_unit_test(values_that_come_later),
      cmocka_unit_test(f32_gradients_of_a_shared_weight),
      cmocka_unit_test(casts_of_the_device),
      cmocka_unit_test(a_whole_model_moves),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
