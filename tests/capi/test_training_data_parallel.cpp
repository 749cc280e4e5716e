// A Llama trained by data-parallel copies: whatever the number of copies and tensor-parallel ranks,
// the stage of ZeRO and the microbatches, the losses are those of one rank. Valid tokens are
// unevenly spread, and some microbatches have none.
#include "support/model_support.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr int kSequences = 8;
constexpr int64_t kLength = 12;

struct Ddp {
  nxd_ddp_t* handle = nullptr;
  ~Ddp() { nxd_ddp_destroy(handle); }
};

struct Setting {
  int dp = 1, tp = 1;
  int stage = -1;  // -1: no ddp, gradients are reduced by the step
  int microbatches = 1;
  nxd_dtype_t dtype = NXD_DTYPE_F64;
  bool sequence_parallel = false;

  std::string name() const {
    return "dp " + std::to_string(dp) + " tp " + std::to_string(tp) + " stage " +
           std::to_string(stage) + " microbatches " + std::to_string(microbatches) +
           (sequence_parallel ? " sp" : "") + (dtype == NXD_DTYPE_F64 ? " f64" : " f32");
  }
};

struct Batch {
  std::vector<int64_t> ids, labels;
};

// A batch of consecutive sequences. Sequence 5 has no valid label, the others ever fewer.
Batch batch_of(int first, int count, int64_t vocabulary) {
  Batch batch;
  for (int s = first; s < first + count; ++s) {
    for (int64_t i = 0; i < kLength; ++i) {
      const int64_t id = (s * 131 + i * i * 17 + 7 * i) % vocabulary;
      batch.ids.push_back(id);
      const bool valid = s != 5 && i < kLength - (s * 5) % 9;
      batch.labels.push_back(valid ? id : -100);
    }
  }
  return batch;
}

struct Trained {
  std::vector<double> losses, norms;
  uint64_t state_bytes = 0;
};

// Backward of weight * loss; gives the product.
double run_microbatch(nxd_module_t* model, const Tensor& ids, const Tensor& labels, double weight) {
  nxd_tensor_t* inputs[] = {ids.get(), labels.get()};
  nxd_tensor_t* out = nullptr;
  if (!NXD_TEST_OK(nxd_module_forward(model, inputs, 2, &out, 1))) return NAN;
  const Tensor loss(out);
  nxd_dtype_t dtype = NXD_DTYPE_INVALID;
  NXD_TEST_OK(nxd_tensor_get_dtype(out, &dtype));
  const auto narrow = static_cast<float>(weight);
  const bool wide = dtype == NXD_DTYPE_F64;
  nxd_tensor_t* grad = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(wide ? static_cast<const void*>(&weight) : &narrow,
                                   wide ? sizeof weight : sizeof narrow, nullptr, 0, dtype, &grad));
  NXD_TEST_OK(nxd_backward(&out, &grad, 1, 0));
  nxd_tensor_destroy(grad);
  return weight * item(out);
}

double run_step(nxd_context_t* ctx, nxd_module_t* model, nxd_ddp_t* ddp, const Setting& setting,
                int copy, int64_t vocabulary) {
  const int each = kSequences / setting.dp / setting.microbatches;
  std::vector<Tensor> ids, labels;
  std::vector<nxd_tensor_t*> handles;
  for (int m = 0; m < setting.microbatches; ++m) {
    const Batch batch = batch_of((copy * setting.microbatches + m) * each, each, vocabulary);
    ids.push_back(make_i64(batch.ids, {each, kLength}));
    labels.push_back(make_i64(batch.labels, {each, kLength}));
    handles.push_back(labels.back().get());
  }
  std::vector<double> weights(handles.size());
  NXD_TEST_OK(nxd_loss_weights(ctx, handles.data(), handles.size(), -100, 1, weights.data()));
  double loss = 0;
  for (int m = 0; m < setting.microbatches; ++m) {
    const auto k = static_cast<size_t>(m);
    if (ddp) NXD_TEST_OK(nxd_ddp_set_sync(ddp, m + 1 == setting.microbatches));
    loss += run_microbatch(model, ids[k], labels[k], weights[k]);
  }
  nxd_group_t* data = nullptr;
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_DATA, &data));
  NXD_TEST_OK(nxd_all_reduce(data, &loss, &loss, 1, NXD_DTYPE_F64, NXD_REDUCE_SUM));
  return loss;
}

Trained train(nxd_context_t* ctx, const Setting& setting, const std::string& config, int steps) {
  Trained run;
  Layout layout{setting.tp, setting.sequence_parallel, setting.dtype};
  const Module model = create_model(ctx, config, layout);
  const int64_t vocabulary = nlohmann::json::parse(config)["vocab_size"];
  int32_t copy = 0;
  NXD_TEST_OK(nxd_parallel_get_rank(ctx, NXD_AXIS_DATA, &copy));
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  adamw.learning_rate = 1e-3;
  adamw.weight_decay = 0.1;
  Ddp ddp;
  nxd_optimizer_t* handle = nullptr;
  if (setting.stage >= 0) {
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = setting.stage;
    options.bucket_bytes = 20000;
    if (!NXD_TEST_OK(nxd_ddp_create(model.get(), &options, &ddp.handle))) return run;
    NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp.handle, &adamw, &handle));
  } else {
    NXD_TEST_OK(nxd_optimizer_create_adamw(model.get(), &adamw, &handle));
  }
  const Optimizer optimizer(handle);
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  finish.max_norm = 1.0;
  for (int step = 0; step < steps; ++step) {
    NXD_TEST_OK(nxd_module_zero_grad(model.get()));
    run.losses.push_back(run_step(ctx, model.get(), ddp.handle, setting, copy, vocabulary));
    nxd_step_report_t report = {};
    report.struct_size = sizeof report;
    if (!NXD_TEST_OK(nxd_optimizer_step(handle, &finish, &report))) return run;
    run.norms.push_back(report.norm);
  }
  NXD_TEST_OK(nxd_optimizer_get_state_bytes(handle, &run.state_bytes));
  return run;
}

std::vector<Trained> train_on_ranks(const Setting& setting, const std::string& config, int steps) {
  struct Shared {
    const Setting& setting;
    const std::string& config;
    int steps;
    std::vector<Trained> runs;
  } shared{setting, config, steps,
           std::vector<Trained>(static_cast<size_t>(setting.dp * setting.tp))};
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  options.seed = 5;
  nxd_test_run_ranks_with(
      &options, setting.dp * setting.tp, setting.tp,
      [](nxd_context_t* ctx, int rank, int, void* user_data) {
        auto* s = static_cast<Shared*>(user_data);
        s->runs[static_cast<size_t>(rank)] = train(ctx, s->setting, s->config, s->steps);
      },
      &shared);
  for (const Trained& run : shared.runs) {
    assert_true(run.losses == shared.runs[0].losses);
    assert_true(run.norms == shared.runs[0].norms);
  }
  return shared.runs;
}

void check_settings(nxd_dtype_t dtype, double tolerance) {
  const LlamaOracle oracle;
  const int steps = 20;
  Setting alone;
  alone.dtype = dtype;
  const Trained want = train_on_ranks(alone, oracle.config, steps).front();
  assert_true(want.losses.back() < want.losses.front() - 0.2);
  const auto check = [&](Setting setting) {
    setting.dtype = dtype;
    const Trained got = train_on_ranks(setting, oracle.config, steps).front();
    for (size_t i = 0; i < want.losses.size(); ++i) {
      check_loss((setting.name() + ": loss " + std::to_string(i)).c_str(), got.losses[i],
                 want.losses[i], tolerance);
    }
    check_loss((setting.name() + ": first norm").c_str(), got.norms[0], want.norms[0], tolerance);
  };
  check({1, 1, 1, 2});
  for (const int stage : {-1, 0, 1}) {
    for (const int microbatches : {1, 2}) check({2, 1, stage, microbatches});
  }
  check({4, 1, -1, 1});
  check({4, 1, 0, 2});
  check({4, 1, 1, 2});
  for (const int stage : {-1, 0, 1}) {
    check({2, 2, stage, stage == 0 ? 1 : 2, dtype, stage == 0});
  }
  check({2, 2, 1, 1, dtype, true});
}

void test_settings_f64(void**) { check_settings(NXD_DTYPE_F64, 1e-9); }
void test_settings_f32(void**) { check_settings(NXD_DTYPE_F32, 5e-5); }

// Moments are divided among the copies, and nothing but padding is added.
void test_state_is_divided(void**) {
  const LlamaOracle oracle;
  Setting setting;
  setting.dtype = NXD_DTYPE_F32;
  const uint64_t whole = train_on_ranks(setting, oracle.config, 1).front().state_bytes;
  for (const int dp : {2, 4}) {
    setting.dp = dp;
    setting.stage = 1;
    uint64_t sum = 0, most = 0;
    for (const Trained& run : train_on_ranks(setting, oracle.config, 1)) {
      sum += run.state_bytes;
      most = std::max(most, run.state_bytes);
    }
    assert_int_equal(sum, whole);
    // Every bucket is cut at lines of 16 elements.
    assert_true(most <= whole / static_cast<uint64_t>(dp) + 64 * 8 * 16);
  }
}

// No rank has a valid label: a loss of 0, gradients of 0, and weights of 0.
void test_no_valid_token(void**) {
  nxd_test_run_ranks(
      2, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        const Tensor labels = make_i64(std::vector<int64_t>(8, -100), {2, 4});
        nxd_tensor_t* handles[] = {labels.get(), nullptr};
        double weights[] = {7, 7};
        NXD_TEST_OK(nxd_loss_weights(ctx, handles, 2, -100, 1, weights));
        NXD_TEST_CHECK(weights[0] == 0 && weights[1] == 0);
      },
      nullptr);
}

void test_weights(void**) {
  nxd_test_run_ranks(
      2, 1,
      [](nxd_context_t* ctx, int rank, int, void*) {
        // Rank 0: 3 and 1 valid, rank 1: 2 and 4; the first of a row predicts nothing.
        const Tensor a = make_i64({9, 1, 2, 3}, {1, 4}), b = make_i64({9, 5, -100, -100}, {1, 4});
        const Tensor c = make_i64({9, 1, 9, 2}, {2, 2}), d = make_i64({1, 2, 3, 4, 5}, {1, 5});
        nxd_tensor_t* handles[] = {rank == 0 ? a.get() : c.get(), rank == 0 ? b.get() : d.get()};
        double weights[2];
        NXD_TEST_OK(nxd_loss_weights(ctx, handles, 2, -100, 1, weights));
        NXD_TEST_CHECK(weights[0] == (rank == 0 ? 3 : 2) / 10.0);
        NXD_TEST_CHECK(weights[1] == (rank == 0 ? 1 : 4) / 10.0);
        NXD_TEST_REFUSED(nxd_loss_weights(ctx, handles, 2, -100, 1, nullptr),
                         NXD_ERROR_INVALID_ARGUMENT, "out_weights");
        const float value = 1;
        nxd_tensor_t* scalar = nullptr;
        NXD_TEST_OK(nxd_tensor_from_data(&value, 4, nullptr, 0, NXD_DTYPE_F32, &scalar));
        nxd_tensor_t* bad[] = {rank == 1 ? scalar : a.get()};
        NXD_TEST_REFUSED(nxd_loss_weights(ctx, bad, 1, -100, 1, weights),
                         NXD_ERROR_INVALID_ARGUMENT, rank == 1 ? "expected I64" : "rank 1");
        nxd_tensor_destroy(scalar);
        // Without values, and without the arrays.
        nxd_tensor_t* meta = nullptr;
        const int64_t shape[] = {1, 4};
        NXD_TEST_OK(nxd_tensor_create(shape, 2, NXD_DTYPE_I64, NXD_DEVICE_META, &meta));
        nxd_tensor_t* without[] = {rank == 1 ? meta : a.get()};
        NXD_TEST_REFUSED(nxd_loss_weights(ctx, without, 1, -100, 1, weights),
                         NXD_ERROR_INVALID_ARGUMENT, rank == 1 ? "meta device" : "rank 1");
        nxd_tensor_destroy(meta);
        NXD_TEST_REFUSED(nxd_loss_weights(ctx, rank == 1 ? nullptr : handles, 2, -100, 1, weights),
                         NXD_ERROR_INVALID_ARGUMENT, rank == 1 ? "labels" : "rank 1");
        NXD_TEST_REFUSED(nxd_loss_weights(ctx, handles, 2, -100, 1, rank == 1 ? nullptr : weights),
                         NXD_ERROR_INVALID_ARGUMENT, rank == 1 ? "out_weights" : "rank 1");
      },
      nullptr);
}

// The data-parallel ranks are the world's then, as those of a ddp over buffers and of a loader.
void test_weights_without_a_layout(void**) {
  nxd_test_run_ranks(
      2, 0,
      [](nxd_context_t* ctx, int rank, int, void*) {
        const Tensor labels = make_i64({1, 2, rank == 0 ? 3 : -100, rank == 0 ? 4 : -100}, {1, 4});
        nxd_tensor_t* handle = labels.get();
        double weight = 0;
        NXD_TEST_OK(nxd_loss_weights(ctx, &handle, 1, -100, 0, &weight));
        NXD_TEST_CHECK(weight == (rank == 0 ? 4 : 2) / 6.0);
        nxd_tensor_t* bad = nullptr;
        NXD_TEST_REFUSED(nxd_loss_weights(ctx, rank == 1 ? nullptr : &bad, 1, -100, 0, &weight),
                         NXD_ERROR_INVALID_ARGUMENT, rank == 1 ? "labels" : "rank 1");
      },
      nullptr);
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_settings_f64),     cmocka_unit_test(test_settings_f32),
      cmocka_unit_test(test_state_is_divided), cmocka_unit_test(test_no_valid_token),
      cmocka_unit_test(test_weights),          cmocka_unit_test(test_weights_without_a_layout),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
