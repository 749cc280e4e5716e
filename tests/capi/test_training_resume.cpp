// A run that is saved in the background and gone on from, in the same layout or in another: model,
// optimizer, learning rate, random state and the caller's own values continue as without a break.
#include "capi/pipeline_support.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace nxd_test;

namespace {

using State = std::unique_ptr<nxd_training_state_t, Destroyer<nxd_training_state_destroy>>;

constexpr int kSaved = 5, kSteps = 25;  // 20 after the save
constexpr int64_t kSequence = 8, kRows = 8;

struct Task {
  std::string config;
  nxd_dtype_t dtype = NXD_DTYPE_F64;
  nxd_bf16_update_t update = NXD_BF16_UPDATE_MASTER;
};

// Another batch at each step; its rows are shared by the data-parallel ranks.
std::vector<Tensor> batch_of(int step, int dp_rank, int dp) {
  const int64_t own = kRows / dp;
  std::vector<int64_t> ids;
  for (int64_t row = dp_rank * own; row < (dp_rank + 1) * own; ++row) {
    for (int64_t t = 0; t < kSequence; ++t) ids.push_back((row * 37 + t * t * 11 + step * 5) % 101);
  }
  std::vector<Tensor> batch;
  for (int i = 0; i < 2; ++i) batch.push_back(make_i64(ids, {own, kSequence}));
  return batch;
}

// One rank's model in training.
class Rank {
 public:
  Rank(nxd_context_t* ctx, const PipelineLayout& layout, const Task& task)
      : ctx_(ctx), copies_(layout.dp), copy_(axis_rank(ctx, NXD_AXIS_DATA)) {
    Layout of_model;
    of_model.dtype = task.dtype;
    model_ = create_model(ctx, task.config, of_model);
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 2;
    options.virtual_size = layout.chunks;
    options.broadcast_and_average_loss = 1;
    pipeline_ = make_pipeline(model_.get(), batch_of(0, copy_, copies_), options);
    local_ = local_module(pipeline_.get());
    nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
    adamw.learning_rate = 2e-3;
    adamw.bf16_update = task.update;
    nxd_optimizer_t* made = nullptr;
    if (layout.zero1) {
      nxd_ddp_options_t ddp_options = NXD_DDP_OPTIONS_INIT;
      ddp_options.zero_stage = 1;
      nxd_ddp_t* ddp = nullptr;
      NXD_TEST_OK(nxd_ddp_create(local_, &ddp_options, &ddp));
      ddp_.reset(ddp);
      NXD_TEST_OK(nxd_pp_set_ddp(pipeline_.get(), ddp));
      NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp, &adamw, &made));
    } else {
      NXD_TEST_OK(nxd_optimizer_create_adamw(local_, &adamw, &made));
    }
    optimizer_.reset(made);
    nxd_lr_schedule_options_t schedule = NXD_LR_SCHEDULE_OPTIONS_INIT;
    schedule.kind = NXD_LR_SCHEDULE_COSINE;
    schedule.warmup_steps = 7;
    schedule.total_steps = kSteps;
    NXD_TEST_OK(nxd_optimizer_set_lr_schedule(made, &schedule));
    nxd_training_state_t* state = nullptr;
    NXD_TEST_OK(nxd_training_state_create(ctx, &state));
    state_.reset(state);
    // Parameters are loaded first whatever comes first here.
    NXD_TEST_OK(nxd_training_state_add_optimizer(state, "optimizer", made));
    NXD_TEST_OK(nxd_training_state_add_module(state, "model", local_));
    NXD_TEST_REFUSED(nxd_training_state_add_module(state, "model", local_),
                     NXD_ERROR_INVALID_ARGUMENT, "already");
    NXD_TEST_REFUSED(nxd_training_state_add_module(state, "other", nullptr),
                     NXD_ERROR_INVALID_ARGUMENT, "root");
  }

  double step(int step) {
    const std::vector<Tensor> batch = batch_of(step, copy_, copies_);
    double loss = NAN;
    NXD_TEST_OK(nxd_module_zero_grad(local_));
    NXD_TEST_OK(nxd_pp_run_train(pipeline_.get(), handles(batch).data(), batch.size(), &loss));
    NXD_TEST_OK(nxd_optimizer_step(optimizer_.get(), nullptr, nullptr));
    return loss;
  }

  // All parameters from outside.
  void replace() {
    size_t count = 0;
    NXD_TEST_OK(nxd_module_get_parameter_count(local_, &count));
    for (size_t i = 0; i < count; ++i) {
      nxd_parameter_t* parameter = nullptr;
      int64_t shape[4] = {};
      size_t dims = 0;
      NXD_TEST_OK(nxd_module_get_parameter(local_, i, &parameter, nullptr));
      NXD_TEST_OK(nxd_parameter_get_global_shape(parameter, shape, 4, &dims));
      int64_t elements = 1;
      for (size_t d = 0; d < dims; ++d) elements *= shape[d];
      std::vector<float> values;
      for (int64_t k = 0; k < elements; ++k)
        values.push_back(0.02F * static_cast<float>(k % 11 - 5));
      nxd_tensor_t* made = nullptr;
      NXD_TEST_OK(nxd_tensor_from_data(values.data(), values.size() * sizeof(float), shape,
                                       static_cast<int32_t>(dims), NXD_DTYPE_F32, &made));
      const Tensor full(made);
      NXD_TEST_OK(nxd_parameter_set_full(parameter, full.get()));
    }
  }

  void save(const std::string& root, int step) {
    NXD_TEST_OK(
        nxd_training_state_set_value(state_.get(), "next batch", std::to_string(step).c_str()));
    NXD_TEST_OK(nxd_training_state_save_async(state_.get(), root.c_str(), step, 1));
  }
  void end_save() { NXD_TEST_OK(nxd_training_state_wait(state_.get(), -1)); }

  // The step to go on with.
  int resume(const std::string& root) {
    // Rate and schedule come from the file.
    const nxd_lr_schedule_options_t constant = NXD_LR_SCHEDULE_OPTIONS_INIT;
    NXD_TEST_OK(nxd_optimizer_set_lr_schedule(optimizer_.get(), &constant));
    NXD_TEST_OK(nxd_optimizer_set_learning_rate(optimizer_.get(), 9));
    int64_t step = 0;
    char value[32] = "-1";
    size_t needed = 0;
    NXD_TEST_OK(nxd_training_state_load_newest(state_.get(), root.c_str(), 1, &step));
    NXD_TEST_OK(
        nxd_training_state_get_value(state_.get(), "next batch", value, sizeof value, &needed));
    NXD_TEST_CHECK(std::stoi(value) == step);
    return step < 0 ? kSteps : static_cast<int>(step);
  }

 private:
  nxd_context_t* ctx_;
  int copies_, copy_;
  Module model_;
  Ddp ddp_;  // outlives the pipeline
  Pipeline pipeline_;
  nxd_module_t* local_ = nullptr;
  Optimizer optimizer_;
  State state_;
};

// The losses of a run; the same on all ranks.
template <class Body>
std::vector<double> losses_of(const PipelineLayout& layout, const Task& task, const Body& body) {
  std::vector<double> losses;
  std::mutex mutex;
  on_pipeline_ranks(layout, [&](nxd_context_t* ctx, int) {
    Rank rank(ctx, layout, task);
    const std::vector<double> own = body(rank);
    const std::lock_guard<std::mutex> lock(mutex);
    if (losses.empty()) losses = own;
    NXD_TEST_CHECK(losses == own);
  });
  return losses;
}

// Trains without a break, and saves on the way if there is where.
std::vector<double> unbroken(const PipelineLayout& layout, const Task& task,
                             const std::string* root, bool replaces = false) {
  return losses_of(layout, task, [&](Rank& rank) {
    std::vector<double> losses;
    for (int step = 0; step < kSteps; ++step) {
      if (step == kSaved && replaces) rank.replace();
      if (step == kSaved && root) rank.save(*root, step);
      losses.push_back(rank.step(step));
    }
    rank.end_save();
    return losses;
  });
}

std::vector<double> resumed(const PipelineLayout& layout, const Task& task,
                            const std::string& root) {
  return losses_of(layout, task, [&](Rank& rank) {
    std::vector<double> losses;
    for (int step = rank.resume(root); step < kSteps; ++step) losses.push_back(rank.step(step));
    return losses;
  });
}

std::vector<double> last_of(const std::vector<double>& losses) {
  return {losses.begin() + kSaved, losses.end()};
}

PipelineLayout layout_of(int tp, int pp, int dp, bool zero1 = false, int chunks = 1) {
  PipelineLayout layout{tp, pp, dp, chunks};
  layout.zero1 = zero1;
  return layout;
}

void other_layouts(void**) {
  Task task;
  task.config = read_file(oracles() + "/llama_tiny/config.json");
  const struct {
    PipelineLayout from;
    std::vector<PipelineLayout> to;
  } pairs[] = {
      {layout_of(2, 2, 1), {layout_of(1, 1, 4, true), layout_of(1, 2, 1, false, 2)}},
      {layout_of(1, 1, 4, true), {layout_of(2, 2, 1), layout_of(2, 1, 2)}},
      {layout_of(1, 2, 2, true), {layout_of(4, 1, 1), layout_of(1, 1, 2, true)}},
      {layout_of(1, 1, 2), {layout_of(1, 2, 2, true)}},
  };
  for (const auto& [from, to] : pairs) {
    const TempDir directory;
    const std::vector<double> want = last_of(unbroken(from, task, &directory.path()));
    for (const PipelineLayout& layout : to) {
      const std::vector<double> got = resumed(layout, task, directory.path());
      assert_int_equal(got.size(), want.size());
      const std::string what = from.name() + " to " + layout.name();
      for (size_t i = 0; i < want.size(); ++i) check_loss(what.c_str(), got[i], want[i], 1e-6);
    }
  }
}

// Dropout and stochastic rounding draw what they would have drawn, and the save changes no bit.
void same_layout(void**) {
  nlohmann::json config = nlohmann::json::parse(read_file(oracles() + "/gpt2_tiny/config.json"));
  for (const char* name : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) config[name] = 0.1;
  const Task task{config.dump(), NXD_DTYPE_BF16, NXD_BF16_UPDATE_STOCHASTIC};
  for (const PipelineLayout& layout : {layout_of(2, 2, 1), layout_of(2, 1, 2, true)}) {
    const TempDir directory;
    const std::vector<double> want = unbroken(layout, task, nullptr);
    assert_true(unbroken(layout, task, &directory.path()) == want);
    assert_true(resumed(layout, task, directory.path()) == last_of(want));
  }
}

// Values that a program has set since the last update are those that the run goes on from, not the
// F32 copies of what was there before.
void replaced_values(void**) {
  const Task task{read_file(oracles() + "/gpt2_tiny/config.json"), NXD_DTYPE_BF16};
  for (const PipelineLayout& layout : {layout_of(2, 1, 1), layout_of(1, 1, 2, true)}) {
    const TempDir directory;
    const std::vector<double> want = unbroken(layout, task, &directory.path(), true);
    assert_true(resumed(layout, task, directory.path()) == last_of(want));
  }
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {cmocka_unit_test(other_layouts), cmocka_unit_test(same_layout),
                              cmocka_unit_test(replaced_values)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
