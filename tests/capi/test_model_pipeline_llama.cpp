// A Llama in a pipeline: with tensor and data parallelism and microbatches fixed, no cut, schedule
// or recomputation changes a bit of losses, gradients and trained parameters.
#include "capi/pipeline_support.h"

using namespace nxd_test;

namespace {

constexpr int64_t kSequence = 16, kMicrobatches = 4;

std::string config(int layers, bool tied, const char* type) {
  nlohmann::json json = nlohmann::json::parse(read_file(oracles() + "/llama_tiny/config.json"));
  json["num_hidden_layers"] = layers;
  json["tie_word_embeddings"] = tied;
  json.update({{"model_type", type},
               {"use_sliding_window", true},
               {"sliding_window", 6},
               {"max_window_layers", 1}});
  return json.dump();
}

// The global batch of a step, of which each data-parallel rank takes its rows.
std::vector<Tensor> rows(int step, int dp_rank, int dp) {
  const int64_t batch = 8, own = batch / dp;
  std::vector<int64_t> ids, labels;
  for (int64_t row = dp_rank * own; row < (dp_rank + 1) * own; ++row) {
    for (int64_t t = 0; t < kSequence; ++t) {
      ids.push_back((row * 37 + t * t * 11 + step * 5 + 3) % 101);
      // Rows of unequal numbers of valid tokens.
      labels.push_back(t >= kSequence - row ? -100 : ids.back());
    }
  }
  std::vector<Tensor> batch_tensors;
  batch_tensors.push_back(make_i64(ids, {own, kSequence}));
  batch_tensors.push_back(make_i64(labels, {own, kSequence}));
  return batch_tensors;
}

PipelineTask llama(int layers, bool tied, const char* type = "llama") {
  PipelineTask task;
  task.make = [layers, tied, type](nxd_context_t* ctx) {
    return create_model(ctx, config(layers, tied, type), Layout{});
  };
  task.batch = rows;
  task.options.num_microbatches = kMicrobatches;
  return task;
}

void check_every_cut(const PipelineTask& task, int tp, int dp, const std::vector<int>& stages,
                     bool zero1) {
  PipelineLayout alone{tp, 1, dp};
  alone.zero1 = zero1;
  const PipelineRun want = train_pipeline(alone, task);
  assert_true(want.losses.back() < want.losses.front());
  assert_true(want.gradients.empty() == zero1);
  assert_false(want.final.empty());
  for (const int pp : stages) {
    for (const auto& [chunks, schedule] :
         {std::pair{1, NXD_PP_SCHEDULE_1F1B}, std::pair{1, NXD_PP_SCHEDULE_GPIPE},
          std::pair{1, NXD_PP_SCHEDULE_ZERO_BUBBLE}, std::pair{2, NXD_PP_SCHEDULE_INTERLEAVED},
          std::pair{2, NXD_PP_SCHEDULE_GPIPE}}) {
      for (const bool recompute : {false, true}) {
        const PipelineLayout layout{tp, pp, dp, chunks, schedule, recompute, zero1};
        check_equal(layout, train_pipeline(layout, task), want);
      }
    }
  }
}

void one_tensor_rank(void**) { check_every_cut(llama(8, false), 1, 1, {1, 2, 4}, false); }

void two_tensor_ranks(void**) { check_every_cut(llama(8, true), 2, 1, {2, 4}, false); }

void two_data_ranks(void**) { check_every_cut(llama(9, true), 1, 2, {2, 4}, false); }

void zero1(void**) { check_every_cut(llama(8, true), 2, 2, {2}, true); }

// Layers of a Qwen3 differ: the first has no window.
void windows(void**) { check_every_cut(llama(4, true, "qwen3"), 2, 1, {2}, false); }

// Across layouts sums are made in another order.
void check_across_layouts(const PipelineTask& task) {
  const PipelineRun want = train_pipeline({}, task);
  for (const PipelineLayout& layout :
       {PipelineLayout{2, 2, 1}, PipelineLayout{1, 2, 2}, PipelineLayout{2, 2, 2}}) {
    const PipelineRun got = train_pipeline(layout, task);
    for (size_t i = 0; i < want.losses.size(); ++i) {
      check_loss(layout.name().c_str(), got.losses[i], want.losses[i], 1e-5);
      check_loss(layout.name().c_str(), got.norms[i], want.norms[i], 1e-5);
    }
    check_named(layout.name(), got.final, want.final, 1e-5, 1e-6);
  }
}

void layouts_agree(void**) {
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3"}) {
    check_across_layouts(llama(4, true, type));
  }
}

// Operations are those of all ranks, by whichever part of the model a rank asks.
void operations_of_all(void**) {
  double want = 0;
  for (const PipelineLayout& layout : {PipelineLayout{}, PipelineLayout{2, 2, 1}}) {
    on_pipeline_ranks(layout, [&](nxd_context_t* ctx, int) {
      const PipelineTask task = llama(4, true);
      const Module model = task.make(ctx);
      const Pipeline pp = make_pipeline(model.get(), task.batch(0, 0, 1), task.options);
      if (!pp) return;
      for (nxd_module_t* root : {model.get(), local_module(pp.get())}) {
        double flops = 0;
        NXD_TEST_OK(nxd_model_get_step_flops(root, 8, kSequence, &flops));
        if (want == 0) want = flops;  // of the one rank that has the whole
        NXD_TEST_CHECK(flops > 0 && flops == want);
      }
    });
  }
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(one_tensor_rank),   cmocka_unit_test(two_tensor_ranks),
      cmocka_unit_test(two_data_ranks),    cmocka_unit_test(zero1),
      cmocka_unit_test(layouts_agree),     cmocka_unit_test(windows),
      cmocka_unit_test(operations_of_all),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
