// Cuts by cost where tensor-parallel ranks have unequal shares of a layer: all ranks cut alike, and
// one that rejects the call is heard by all.
#include "capi/pipeline_support.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr int64_t kRows = 2, kLength = 16;

// Two ranks have one and two of three heads, which are most of a layer. By the first one's costs
// alone the head is worth two layers, and by the second one's less than that.
std::string uneven_config() {
  return R"({"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 5,
    "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 32, "intermediate_size": 8,
    "vocab_size": 1100, "rms_norm_eps": 1e-5, "max_position_embeddings": 64})";
}

std::vector<Tensor> batch() {
  std::vector<int64_t> ids(kRows * kLength);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i) * 7 % 33;
  std::vector<Tensor> out;
  for (int i = 0; i < 2; ++i) out.push_back(make_i64(ids, {kRows, kLength}));
  return out;
}

nxd_pp_options_t options_by(nxd_pp_partition_t partition) {
  nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  options.num_microbatches = 2;
  options.partition = partition;
  options.broadcast_and_average_loss = 1;
  return options;
}

double loss_of(nxd_pp_t* pp) {
  const std::vector<Tensor> given = batch();
  double loss = NAN;
  NXD_TEST_OK(nxd_pp_run_train(pp, handles(given).data(), given.size(), &loss));
  return loss;
}

void test_unequal_shares_are_cut_alike(void**) {
  std::mutex mutex;
  std::set<std::string> cuts;
  on_pipeline_ranks({2, 2, 1}, [&](nxd_context_t* ctx, int) {
    const Module model = create_model(ctx, uneven_config(), Layout{2});
    const Module other = create_model(ctx, uneven_config(), Layout{2});
    const Pipeline by_cost = make_pipeline(model.get(), batch(), options_by(NXD_PP_PARTITION_COST));
    const Pipeline even = make_pipeline(other.get(), batch(), options_by(NXD_PP_PARTITION_EVEN));
    if (!by_cost || !even) return;
    const char* cut = nullptr;
    NXD_TEST_OK(nxd_pp_get_cut(by_cost.get(), 0, &cut));
    {
      const std::lock_guard<std::mutex> lock(mutex);
      cuts.insert(cut);
    }
    // No cut changes a bit.
    NXD_TEST_CHECK(loss_of(by_cost.get()) == loss_of(even.get()));
  });
  assert_int_equal(cuts.size(), 1);
}

void refuse(nxd_module_t* model, const nxd_pp_options_t& options, const char* part) {
  const std::vector<Tensor> given = batch();
  nxd_pp_t* out = nullptr;
  NXD_TEST_REFUSED(nxd_pp_create(model, handles(given).data(), given.size(), &options, &out),
                   NXD_ERROR_INVALID_ARGUMENT, part);
}

// Options are rejected as they are read, and a batch that does not divide when it is traced.
void test_a_rank_that_rejects(void**) {
  on_pipeline_ranks({2, 2, 1}, [](nxd_context_t* ctx, int rank) {
    const Module model = create_model(ctx, uneven_config(), Layout{2});
    nxd_pp_options_t options = options_by(NXD_PP_PARTITION_COST);
    if (rank == 2) options.num_outputs = -1;
    refuse(model.get(), options, "num_outputs: expected at least 1, got -1");
    options = options_by(NXD_PP_PARTITION_COST);
    if (rank == 1) options.num_microbatches = 3;
    refuse(model.get(), options, "divides by the 3 microbatches");
    const Pipeline pp = make_pipeline(model.get(), batch(), options_by(NXD_PP_PARTITION_COST));
    if (pp) NXD_TEST_CHECK(loss_of(pp.get()) > 0);
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_unequal_shares_are_cut_alike),
                              cmocka_unit_test(test_a_rank_that_rejects)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
