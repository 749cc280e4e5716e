// The planner counts as many parameters as the ranks of a model have, whether or not they divide
// its heads, its features and its vocabulary.
#include <algorithm>

#include "support/model_support.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

int64_t elements_of(nxd_module_t* model) {
  int64_t sum = 0;
  for_each_parameter(model, [&](nxd_parameter_t* parameter, const std::string&) {
    nxd_tensor_t* tensor = nullptr;
    int64_t count = 0;
    NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &tensor));
    NXD_TEST_OK(nxd_tensor_get_element_count(tensor, &count));
    sum += count;
  });
  return sum;
}

int64_t planned_elements(const std::string& config, int tp) {
  nxd_plan_model_t model = NXD_PLAN_MODEL_INIT;
  nxd_plan_layout_t layout = NXD_PLAN_LAYOUT_INIT;
  nxd_plan_prediction_t plan = {};
  plan.struct_size = sizeof plan;
  layout.tensor_parallel_size = tp;
  layout.sequence_length = 8;
  NXD_TEST_OK(nxd_plan_model_from_config(config.c_str(), &model));
  NXD_TEST_OK(nxd_plan_predict(&model, nullptr, &layout, &plan));
  return static_cast<int64_t>(plan.parameter_bytes) / 4;
}

void check_counts(const char* name, const nlohmann::json& changes) {
  nlohmann::json config = nlohmann::json::parse(ModelOracle(name).config);
  config.update(changes);
  for (const int tp : {1, 2, 3, 4, 5, 6}) {
    const std::vector<int64_t> counts = on_ranks<int64_t>(Layout{tp}, 1, [&](nxd_context_t* ctx) {
      return elements_of(create_model(ctx, config.dump(), Layout{tp}).get());
    });
    const int64_t planned = planned_elements(config.dump(), tp);
    if (*std::max_element(counts.begin(), counts.end()) != planned || counts.back() != planned) {
      fail_msg("%s, %d ranks: the last has %ld elements, planned %ld", name, tp,
               static_cast<long>(counts.back()), static_cast<long>(planned));
    }
  }
}

void fullest_rank(void**) {
  for (const int key_heads : {6, 3, 2, 1}) {
    check_counts("llama_tiny", {{"num_attention_heads", 6},
                                {"num_key_value_heads", key_heads},
                                {"head_dim", 12},
                                {"intermediate_size", 175},
                                {"attention_bias", true},
                                {"mlp_bias", true},
                                {"vocab_size", 257}});
  }
  check_counts("gpt2_tiny", {{"n_embd", 66}, {"n_head", 6}, {"n_inner", 175}, {"vocab_size", 257}});
  const nlohmann::json sizes = {{"hidden_size", 66},
                                {"num_attention_heads", 6},
                                {"intermediate_size", 175},
                                {"vocab_size", 257}};
  check_counts("gpt_neox_tiny", sizes);
  check_counts("bert_tiny", sizes);
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {cmocka_unit_test(fullest_rank)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
