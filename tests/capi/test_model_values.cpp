// A model's forward rejects a parameter that has no values, or those of half a step, and names it,
// whichever of its modules computes with it, and so does a pipeline's run.
#include "capi/pipeline_support.h"

namespace {

using namespace nxd_test;

nxd_module_t* on_meta(nxd_context_t* ctx, const std::string& config) {
  nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;
  options.device = NXD_DEVICE_META;
  nxd_module_t* out = nullptr;
  NXD_TEST_OK(nxd_model_create(ctx, config.c_str(), &options, &out));
  return out;
}

// The whole value of each parameter, by its name.
std::map<std::string, Tensor> whole_tensors(nxd_module_t* model) {
  std::map<std::string, Tensor> out;
  for_each_parameter(model, [&](nxd_parameter_t* parameter, const std::string& name) {
    nxd_tensor_t* whole = nullptr;
    NXD_TEST_OK(nxd_parameter_gather_full(parameter, &whole));
    out[name] = Tensor(whole);
  });
  return out;
}

// With all of the recorded inputs, and with the ids alone: a loss and logits take other ways.
void check_forwards(nxd_module_t* model, const std::vector<Tensor>& inputs, const char* expected) {
  const std::vector<nxd_tensor_t*> given = handles(inputs);
  for (const size_t count : {given.size(), size_t{1}}) {
    nxd_tensor_t* out = nullptr;
    NXD_TEST_REFUSED(nxd_module_forward(model, given.data(), count, &out, 1),
                     NXD_ERROR_INVALID_STATE, expected);
    NXD_TEST_CHECK(out == nullptr);
  }
}

void none_is_missed(nxd_context_t* ctx, const ModelOracle& oracle) {
  nxd_module_t* made = nullptr;
  NXD_TEST_OK(nxd_model_from_pretrained(ctx, oracle.directory.c_str(), nullptr, &made));
  const Module complete(made);
  const std::map<std::string, Tensor> wholes = whole_tensors(complete.get());
  const std::vector<Tensor> inputs = oracle.inputs();
  for (const auto& [left_out, unused] : wholes) {
    const std::string without = left_out;
    const Module model(on_meta(ctx, oracle.config));
    for_each_parameter(model.get(), [&](nxd_parameter_t* parameter, const std::string& name) {
      if (name != without) NXD_TEST_OK(nxd_parameter_set_full(parameter, wholes.at(name).get()));
    });
    check_forwards(model.get(), inputs, (without + ": it has no values").c_str());
  }
}

void no_values(void**) {
  for (const char* name : {"llama_tiny", "qwen3_tiny", "gpt2_tiny", "gpt_neox_tiny", "bert_tiny"}) {
    const ModelOracle oracle(name);
    on_ranks<int>(Layout{1}, 9, [&](nxd_context_t* ctx) {
      none_is_missed(ctx, oracle);
      return 1;
    });
  }
}

// A rule that fails at its second run of elements.
nxd_status_t fails_at_second(const nxd_update_t*, void* user_data) {
  return ++*static_cast<int*>(user_data) == 2 ? NXD_ERROR_USER : NXD_OK;
}

Optimizer failing_optimizer(nxd_module_t* root, int& calls) {
  nxd_custom_optimizer_options_t options = NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT;
  options.update = fails_at_second;
  options.user_data = &calls;
  nxd_optimizer_t* out = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_custom(root, &options, &out));
  return Optimizer(out);
}

// Norms alone are trained, and a step of theirs breaks off.
void half_a_step(void**) {
  for (const char* family : {"llama_tiny", "gpt2_tiny", "gpt_neox_tiny", "bert_tiny"}) {
    const ModelOracle oracle(family);
    on_ranks<int>(Layout{1}, 9, [&](nxd_context_t* ctx) {
      nxd_module_t* made = nullptr;
      NXD_TEST_OK(nxd_model_from_pretrained(ctx, oracle.directory.c_str(), nullptr, &made));
      const Module model(made);
      for_each_parameter(model.get(), [](nxd_parameter_t* parameter, const std::string& name) {
        const bool is_norm = name.find("norm") != std::string::npos ||
                             name.find("Norm") != std::string::npos ||
                             name.find(".ln_") != std::string::npos;
        NXD_TEST_OK(nxd_parameter_set_trainable(parameter, is_norm ? 1 : 0));
      });
      int calls = 0;
      const Optimizer optimizer = failing_optimizer(model.get(), calls);
      run_backward(model.get(), oracle);
      NXD_TEST_CHECK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr) == NXD_ERROR_USER);
      check_forwards(model.get(), oracle.inputs(), "PARTIAL");
      return 1;
    });
  }
}

// The last stage computes with its norm and its head outside of their modules.
void pipeline(void**) {
  const ModelOracle oracle("llama_tiny");
  on_pipeline_ranks({.pp = 2}, [&](nxd_context_t* ctx, int rank) {
    nxd_module_t* made = nullptr;
    NXD_TEST_OK(nxd_model_from_pretrained(ctx, oracle.directory.c_str(), nullptr, &made));
    const Module model(made);
    for_each_parameter(model.get(), [](nxd_parameter_t* parameter, const std::string& name) {
      const bool is_last = name == "model.norm.weight" || name == "lm_head.weight";
      NXD_TEST_OK(nxd_parameter_set_trainable(parameter, is_last ? 1 : 0));
    });
    const std::vector<Tensor> inputs = oracle.inputs();
    const std::vector<nxd_tensor_t*> batch = {inputs[0].get(), inputs[1].get()};
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 2;
    nxd_pp_t* pp = nullptr;
    NXD_TEST_OK(nxd_pp_create(model.get(), batch.data(), batch.size(), &options, &pp));
    const Pipeline owned(pp);
    int calls = 0;
    const Optimizer optimizer = failing_optimizer(local_module(pp), calls);
    double loss = 0;
    NXD_TEST_OK(nxd_pp_run_train(pp, batch.data(), batch.size(), &loss));
    NXD_TEST_CHECK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr) ==
                   (rank == 0 ? NXD_OK : NXD_ERROR_USER));
    NXD_TEST_REFUSED(nxd_pp_run_train(pp, batch.data(), batch.size(), &loss),
                     NXD_ERROR_INVALID_STATE, "PARTIAL");
    if (rank == 1) NXD_TEST_OK(nxd_move_model_to_device(local_module(pp), NXD_DEVICE_META));
    NXD_TEST_REFUSED(nxd_pp_run_train(pp, batch.data(), batch.size(), &loss),
                     NXD_ERROR_INVALID_STATE, "it has no values");
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(no_values), cmocka_unit_test(half_a_step),
                              cmocka_unit_test(pipeline)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
