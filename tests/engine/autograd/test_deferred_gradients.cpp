// Weight gradients that are made later have the bits, and call the hooks, of those made at once:
// at any layout, over microbatches whose products are made in a zero-bubble schedule's order.
#include "engine/microbatch_run.h"

namespace {

using namespace nxd_test;

void check(const Setting& setting) {
  Setting deferred = setting;
  deferred.deferred = true;
  check_same(deferred, setting);
}

void test_layouts(void**) {
  for (const char* model :
       {"llama_tiny", "qwen2_tiny", "qwen3_tiny", "gpt2_tiny", "gpt_neox_tiny"}) {
    for (const int tp : {1, 2}) {
      for (const bool sequence_parallel : {false, true}) {
        Setting setting;
        setting.model = model;
        setting.layout = Layout{tp, sequence_parallel, NXD_DTYPE_F32};
        setting.tied = sequence_parallel;
        check(setting);
      }
    }
  }
}

void test_dtypes(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_BF16, NXD_DTYPE_F64}) {
    Setting setting;
    setting.layout.dtype = dtype;
    setting.tied = true;
    check(setting);
  }
  Setting plain;
  plain.layout.plain = true;
  check(plain);
  Setting frozen;
  frozen.frozen = true;
  check(frozen);
}

void test_data_parallel(void**) {
  for (const int stage : {0, 1}) {
    Setting setting;
    setting.dp = 2;
    setting.stage = stage;
    setting.layout.tp = stage == 1 ? 2 : 1;
    check(setting);
    setting.layout.tp = 1;
    setting.layout.dtype = NXD_DTYPE_BF16;
    setting.fp32_grads = true;
    setting.tied = true;
    check(setting);
  }
}

bool lists(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Norms and biases cannot be split, nor can a head whose gradient its loss makes; projections and
// embeddings can, unless a cast stands between the product and the leaf.
void test_unsplit(void**) {
  Setting setting;
  setting.deferred = true;
  std::vector<std::string> names = run_on_ranks(setting)[0].unsplit;
  const auto count = [&](const char* part) {
    return std::count_if(names.begin(), names.end(), [&](const std::string& name) {
      return name.find(part) != std::string::npos;
    });
  };
  assert_true(lists(names, "lm_head.weight") && lists(names, "model.norm.weight"));
  assert_int_equal(count("proj"), 0);
  assert_int_equal(count("embed"), 0);
  assert_int_equal(count("layernorm") + 2, static_cast<int>(names.size()));
  setting.autocast = true;
  names = run_on_ranks(setting)[0].unsplit;
  assert_true(count("proj") > 0);
  assert_int_equal(count("embed"), 0);
  setting.deferred = false;
  check(setting);
}

// Deferred products that are dropped leave nothing behind; a hook's failure ends the run.
void test_ends(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        const Setting setting;
        const std::string config = config_of(setting);
        const Module model = create_model(ctx, config, setting.layout);
        const int64_t vocabulary = nlohmann::json::parse(config)["vocab_size"];
        const auto weight = nxd::find_parameter(*model->value, "model.layers.0.mlp.up_proj.weight");
        Deferral later =
            backward(model.get(), forward(ctx, model.get(), setting, 0, vocabulary), true);
        NXD_TEST_CHECK(!weight->gradient().defined());
        later.reset();
        later = backward(model.get(), forward(ctx, model.get(), setting, 0, vocabulary), true);
        NXD_TEST_OK(nxd_parameter_set_grad_hook(
            nxd::borrow_parameter(*weight),
            [](nxd_parameter_t*, void*) -> nxd_status_t { return NXD_ERROR_IO; }, nullptr,
            nullptr));
        bool failed = false;
        try {
          later->run();
        } catch (const nxd::Error& error) {
          failed = error.status() == NXD_ERROR_IO;
        }
        NXD_TEST_CHECK(failed && later->empty());
        NXD_TEST_CHECK(nxd::DeferredGradients::current() == nullptr);
        later->run();
      },
      nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_layouts),       cmocka_unit_test(test_dtypes),
      cmocka_unit_test(test_data_parallel), cmocka_unit_test(test_unsplit),
      cmocka_unit_test(test_ends),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
