// Pipelines of several data-parallel copies: a run that one copy rejects fails at once on the ranks
// that meet it in counts of tokens or in the loss, and the next run is that of all.
#include "capi/callback_model.h"
#include "capi/pipeline_support.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

// ids and labels, of so many rows.
std::vector<Tensor> batch(int64_t rows) {
  std::vector<int64_t> ids(static_cast<size_t>(rows * 8));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 7 % 64);
  std::vector<Tensor> out;
  for (int i = 0; i < 2; ++i) out.push_back(make_i64(ids, {rows, 8}));
  return out;
}

void run_rank(nxd_context_t* ctx, int rank, bool shares_loss) {
  const ModelOracle oracle("llama_tiny");
  const Module model = create_model(ctx, oracle.config, Layout{});
  // Copies have the same batch, and so the loss of each is that of all.
  const std::vector<Tensor> whole = batch(4);
  nxd_tensor_t* loss = nullptr;
  NXD_TEST_OK(nxd_module_forward(model.get(), handles(whole).data(), 2, &loss, 1));
  const double want = item(Tensor(loss).get());
  nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  options.num_microbatches = 2;
  options.broadcast_and_average_loss = shares_loss ? 1 : 0;
  const Pipeline pp = make_pipeline(model.get(), batch(4), options);
  if (!pp) return;
  double first = 0, second = 0;
  const auto good = batch(4), odd = batch(rank == 1 ? 3 : 4);
  NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(good).data(), 2, &first));
  if (shares_loss) NXD_TEST_CHECK(std::fabs(first - want) < 1e-5 * want);
  NXD_TEST_OK(nxd_context_set_step(ctx, 7, 0));
  for (const bool by_name : {false, true}) {
    const char* const names[] = {"input_ids", rank == 1 && by_name ? "label" : "labels"};
    const auto& given = by_name ? good : odd;
    const nxd_status_t status =
        by_name ? nxd_pp_run_train_named(pp.get(), names, handles(given).data(), 2, nullptr)
                : nxd_pp_run_train(pp.get(), handles(given).data(), 2, nullptr);
    NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, "");
  }
  int64_t step = 0;
  NXD_TEST_OK(nxd_context_get_step(ctx, &step, nullptr));
  NXD_TEST_CHECK(step == 7);
  NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(good).data(), 2, &second));
  NXD_TEST_CHECK(first == second);
}

void test_a_copy_that_rejects(void**) {
  for (const bool shares_loss : {false, true}) {
    on_pipeline_ranks({1, 2, 2},
                      [&](nxd_context_t* ctx, int rank) { run_rank(ctx, rank, shares_loss); });
  }
}

// Copies that count other tokens would weigh their losses by parts of no whole.
void test_other_rules(void**) {
  const std::string config = ModelOracle("llama_tiny").config;
  for (const bool shares_loss : {false, true}) {
    for (const bool shifted : {false, true}) {
      on_pipeline_ranks({1, 2, 2}, [&](nxd_context_t* ctx, int) {
        int32_t copy = 0;
        NXD_TEST_OK(nxd_parallel_get_rank(ctx, NXD_AXIS_DATA, &copy));
        const Module model = create_model(ctx, config, Layout{});
        nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
        options.num_microbatches = 2;
        options.broadcast_and_average_loss = shares_loss ? 1 : 0;
        options.has_ignore_index = 1;
        options.ignore_index = shifted || copy == 0 ? -100 : 7;
        options.labels_shifted = shifted ? copy : 0;
        const std::vector<Tensor> given = batch(4);
        const Pipeline pp = make_pipeline(model.get(), given, options);
        if (!pp) return;
        NXD_TEST_REFUSED(nxd_pp_run_train(pp.get(), handles(given).data(), 2, nullptr),
                         NXD_ERROR_INVALID_ARGUMENT, "expected the same on all ranks");
      });
    }
  }
}

// A product of which each half has a stage. The first half's values are turned where it is told to.
Module turning(nxd_context_t* ctx, const std::shared_ptr<bool>& turns) {
  Module root = callback_module(
      ctx, "Root", [](nxd_module_t* self, const Handles& inputs, nxd_tensor_t** outputs, size_t) {
        Tensor x, y, loss;
        NXD_TEST_TRY(call_child(self, "a", {inputs[0]}, x));
        NXD_TEST_TRY(call_child(self, "b", {x.get()}, y));
        NXD_TEST_TRY(call_op("mean", "", {y.get()}, loss));
        outputs[0] = loss.release();
        return nxd_status_t{NXD_OK};
      });
  const auto half = [&](const std::shared_ptr<bool>& turned) {
    Module made = callback_module(
        ctx, "Half",
        [turned](nxd_module_t*, const Handles& inputs, nxd_tensor_t** outputs, size_t) {
          Tensor x;
          NXD_TEST_TRY(call_op("abs", "", {inputs[0]}, x));
          if (*turned) NXD_TEST_TRY(call_op("t", "", {inputs[0]}, x));
          outputs[0] = x.release();
          return nxd_status_t{NXD_OK};
        });
    return made;
  };
  add_child(root, "a", half(turns));
  add_child(root, "b", half(std::make_shared<bool>(false)));
  return root;
}

// Stages of one copy that no longer fit together: its peers hear of it at once.
void test_stages_that_part(void**) {
  on_pipeline_ranks({1, 2, 2}, [&](nxd_context_t* ctx, int) {
    const bool is_odd =
        axis_rank(ctx, NXD_AXIS_DATA) == 1 && axis_rank(ctx, NXD_AXIS_PIPELINE) == 1;
    const auto turns = std::make_shared<bool>(false);
    const Module model = turning(ctx, turns);
    const std::vector<float> ones(32, 1);
    const int64_t shape[] = {4, 8};
    nxd_tensor_t* given = nullptr;
    NXD_TEST_OK(nxd_tensor_from_data(ones.data(), 128, shape, 2, NXD_DTYPE_F32, &given));
    std::vector<Tensor> x;
    x.emplace_back(given);
    nxd_tensor_t* const inputs[] = {given};
    const Pipeline pp = make_two_stages(model.get(), x, "a", 2, /*shares_loss=*/true);
    if (!pp) return;
    *turns = is_odd;  // seen as the evaluation traces the model anew
    NXD_TEST_REFUSED(nxd_pp_run_eval(pp.get(), inputs, 1, nullptr, nullptr, 0),
                     NXD_ERROR_INVALID_ARGUMENT, "");
    *turns = false;
    double loss = 0;
    NXD_TEST_OK(nxd_pp_run_eval(pp.get(), inputs, 1, &loss, nullptr, 0));
    NXD_TEST_CHECK(loss == 1);
  });
}

// A step without a valid token leaves no gradient, nor does a table of both stages get one.
void test_no_tokens(void**) {
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int) {
    nlohmann::json config = nlohmann::json::parse(ModelOracle("llama_tiny").config);
    config["tie_word_embeddings"] = true;
    const Module model = create_model(ctx, config.dump(), Layout{});
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 2;
    std::vector<Tensor> given = batch(4);
    given[1] = make_i64(std::vector<int64_t>(4 * 8, -100), {4, 8});
    const Pipeline pp = make_pipeline(model.get(), given, options);
    if (!pp) return;
    double loss = NAN;
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(given).data(), 2, &loss));
    NXD_TEST_CHECK(loss == 0);
    for (const auto& [name, gradient] : whole_gradients(local_module(pp.get()))) {
      if (!gradient.empty()) nxd_test_fail(__FILE__, __LINE__, "a gradient of %s", name.c_str());
    }
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_a_copy_that_rejects), cmocka_unit_test(test_other_rules),
      cmocka_unit_test(test_stages_that_part), cmocka_unit_test(test_no_tokens)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
