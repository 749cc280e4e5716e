// A layout that the context forgets, or gets later, is not that of a pipeline that is there: its
// runs, and the stages that it makes for other shapes, are of the ranks that it was made on.
#include <unistd.h>

#include "capi/pipeline_support.h"
#include "support/temp_dir.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

// ids and labels of so many rows; every other copy has labels in half of them only.
std::vector<Tensor> batch(int64_t rows, int copy) {
  std::vector<int64_t> ids(static_cast<size_t>(rows * 8));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = (static_cast<int64_t>(i) * 7 + copy * 5) % 64;
  }
  std::vector<int64_t> labels = ids;
  if (copy % 2 == 1) std::fill(labels.begin() + labels.size() / 2, labels.end(), -100);
  std::vector<Tensor> out;
  for (const auto& values : {ids, labels}) out.push_back(make_i64(values, {rows, 8}));
  return out;
}

// A table of the first stage and the last.
std::string tied_config() {
  nlohmann::json config = nlohmann::json::parse(ModelOracle("llama_tiny").config);
  config["tie_word_embeddings"] = true;
  return config.dump();
}

struct Result {
  double loss = 0;
  Named gradients;
  bool operator==(const Result&) const = default;
};

Result run(nxd_pp_t* pp, int64_t rows, int copy) {
  Result result;
  const std::vector<Tensor> given = batch(rows, copy);
  NXD_TEST_OK(nxd_module_zero_grad(local_module(pp)));
  NXD_TEST_OK(nxd_pp_run_train(pp, handles(given).data(), given.size(), &result.loss));
  result.gradients = whole_gradients(local_module(pp));
  return result;
}

void lay_out_tensor_parallel(nxd_context_t* ctx) {
  nxd_parallel_options_t other = NXD_PARALLEL_OPTIONS_INIT;
  other.tensor_parallel_size = 2;
  NXD_TEST_OK(nxd_init_model_parallel(ctx, &other));
}

void test_runs_after_another_layout(void**) {
  on_pipeline_ranks({1, 2, 2}, [](nxd_context_t* ctx, int) {
    const int copy = axis_rank(ctx, NXD_AXIS_DATA);
    const Module model = create_model(ctx, tied_config(), Layout{});
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 2;
    options.broadcast_and_average_loss = 1;
    const Pipeline pp = make_pipeline(model.get(), batch(4, copy), options);
    if (!pp) return;
    const Result four = run(pp.get(), 4, copy), two = run(pp.get(), 2, copy);
    NXD_TEST_CHECK(four.loss > 0 && two.loss > 0);
    const auto check_runs = [&] {
      for (const int64_t rows : {2, 4}) {  // the same shape first
        NXD_TEST_CHECK(run(pp.get(), rows, copy) == (rows == 4 ? four : two));
      }
    };
    NXD_TEST_OK(nxd_destroy_model_parallel(ctx));
    check_runs();
    run(pp.get(), 2, copy);
    lay_out_tensor_parallel(ctx);
    check_runs();
  });
}

nxd_status_t answer_or_not(nxd_module_t*, const char*, int32_t*, void* user_data) {
  return *static_cast<const bool*>(user_data) ? NXD_OK : NXD_ERROR_USER;
}

// A rank that cannot trace the model for another shape says so to the ranks of its pipeline, which
// would wait for its messages.
void test_a_rank_that_cannot_trace(void**) {
  on_pipeline_ranks({1, 2, 1}, [](nxd_context_t* ctx, int rank) {
    bool answers = true;
    const Module model = create_model(ctx, tied_config(), Layout{});
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.leaf_rule = answer_or_not;
    options.leaf_rule_data = &answers;
    const Pipeline pp = make_pipeline(model.get(), batch(4, 0), options);
    if (!pp) return;
    NXD_TEST_OK(nxd_destroy_model_parallel(ctx));
    lay_out_tensor_parallel(ctx);
    answers = rank != 1;
    const std::vector<Tensor> given = batch(2, 0);
    NXD_TEST_REFUSED(nxd_pp_run_train(pp.get(), handles(given).data(), given.size(), nullptr),
                     NXD_ERROR_USER, "leaf_rule");
    answers = true;
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(given).data(), given.size(), nullptr));
  });
}

void lay_out_pipeline(nxd_context_t* ctx) {
  nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
  layout.pipeline_parallel_size = 2;
  NXD_TEST_OK(nxd_init_model_parallel(ctx, &layout));
}

// Ranks that do not have all parts between them would write a file without some of these, or wait
// for others that do not come.
void test_saving_in_another_layout(void**) {
  const TempDir directory;
  const std::string stages = directory.path() + "/stages.safetensors";
  const std::string parts = directory.path() + "/parts.safetensors";
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int) {
    const Module model = create_model(ctx, tied_config(), Layout{});
    const Pipeline pp = make_pipeline(model.get(), batch(4, 0), NXD_PP_OPTIONS_INIT);
    if (!pp) return;
    nxd_optimizer_t* made = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_adamw(local_module(pp.get()), nullptr, &made));
    const Optimizer adamw(made);
    run(pp.get(), 4, 0);
    NXD_TEST_OK(nxd_destroy_model_parallel(ctx));
    lay_out_tensor_parallel(ctx);
    NXD_TEST_REFUSED(nxd_optimizer_step(made, nullptr, nullptr), NXD_ERROR_INVALID_STATE,
                     "another layout");
    NXD_TEST_REFUSED(nxd_optimizer_save(made, stages.c_str()), NXD_ERROR_INVALID_STATE,
                     "another layout");
    NXD_TEST_REFUSED(nxd_module_save_safetensors(local_module(pp.get()), stages.c_str()),
                     NXD_ERROR_INVALID_STATE, "another layout");
    NXD_TEST_CHECK(access(stages.c_str(), F_OK) != 0);
    const Module halves = create_model(ctx, tied_config(), Layout{});
    NXD_TEST_OK(nxd_destroy_model_parallel(ctx));
    lay_out_pipeline(ctx);
    NXD_TEST_REFUSED(nxd_module_save_safetensors(halves.get(), parts.c_str()),
                     NXD_ERROR_INVALID_STATE, "another layout");
    NXD_TEST_CHECK(access(parts.c_str(), F_OK) != 0);
    // The layout of the pipeline again.
    NXD_TEST_OK(nxd_optimizer_step(made, nullptr, nullptr));
    NXD_TEST_OK(nxd_module_save_safetensors(local_module(pp.get()), stages.c_str()));
    const Module other = create_model(ctx, tied_config(), Layout{});
    NXD_TEST_OK(nxd_module_load_safetensors(other.get(), stages.c_str(), 1, nullptr));
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_runs_after_another_layout),
                              cmocka_unit_test(test_a_rank_that_cannot_trace),
                              cmocka_unit_test(test_saving_in_another_layout)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
