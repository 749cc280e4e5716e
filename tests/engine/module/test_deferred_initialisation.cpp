// Modules on the meta device, whose parameters get their values later: those of an undivided model
// that had them at once, and no memory before.
#include <sys/wait.h>
#include <unistd.h>

#include "support/model_support.h"

#include "capi/engine_handles.h"
#include "engine/module/module_tree.h"
#include "support/check.h"

namespace {

using namespace nxd_test;

nxd_module_t* create(nxd_context_t* ctx, const std::string& config, const Layout& layout,
                     nxd_device_t device) {
  nxd_model_options_t options = layout.model_options();
  options.device = device;
  nxd_module_t* out = nullptr;
  NXD_TEST_OK(nxd_model_create(ctx, config.c_str(), &options, &out));
  return out;
}

bool all_on_meta(nxd_module_t* root) {
  for (const auto& [name, parameter, is_alias] : nxd::named_parameters(*root->value)) {
    if (parameter->has_value()) return false;
  }
  return true;
}

// Models of all families and layouts, made on the meta device and moved, against those made at
// once.
void test_models(void**) {
  for (const char* name :
       {"llama_tiny", "qwen2_tiny", "qwen3_tiny", "gpt2_tiny", "gpt_neox_tiny", "bert_tiny"}) {
    const ModelOracle oracle(name);
    for (const Layout& layout : {Layout{1}, Layout{2}, Layout{2, true, NXD_DTYPE_BF16}}) {
      const auto match = on_ranks<int>(layout, 9, [&](nxd_context_t* ctx) {
        const Module at_once(create(ctx, oracle.config, layout, NXD_DEVICE_CPU));
        const Module later(create(ctx, oracle.config, layout, NXD_DEVICE_META));
        NXD_TEST_CHECK(all_on_meta(later.get()));
        NXD_TEST_OK(nxd_move_model_to_device(later.get(), NXD_DEVICE_CPU));
        NXD_TEST_CHECK(whole_parameters(later.get()) == whole_parameters(at_once.get()));
        // Another seed, also while there are no values.
        for (nxd_module_t* each : {at_once.get(), later.get()}) {
          NXD_TEST_OK(nxd_module_initialize(each, 77));
        }
        const Named want = whole_parameters(at_once.get());
        NXD_TEST_CHECK(whole_parameters(later.get()) == want);
        NXD_TEST_OK(nxd_move_model_to_device(later.get(), NXD_DEVICE_META));
        NXD_TEST_CHECK(all_on_meta(later.get()));
        NXD_TEST_OK(nxd_move_model_to_device(later.get(), NXD_DEVICE_CPU));
        NXD_TEST_CHECK(whole_parameters(later.get()) == want);
        const double loss = run_backward(at_once.get(), oracle);
        NXD_TEST_CHECK(run_backward(later.get(), oracle) == loss);
        return 1;
      });
      assert_int_equal(match[0], 1);
    }
  }
}

nxd_status_t count_call(nxd_parameter_t*, void* user_data) {
  ++*static_cast<int*>(user_data);
  return NXD_OK;
}

// One parameter of the caller's through its states: handle, hook, frozen or not, gradient.
void test_parameter(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        nxd_module_t* handle = nullptr;
        NXD_TEST_OK(nxd_module_create(ctx, "Mine", nullptr, nullptr, nullptr, &handle));
        const Module module(handle);
        nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
        options.init = NXD_INIT_UNIFORM;
        options.init_a = 1;
        options.init_b = 2;
        options.device = NXD_DEVICE_META;
        const int64_t shape[] = {4, 4};
        nxd_parameter_t* parameter = nullptr;
        NXD_TEST_OK(nxd_module_add_parameter(handle, "weight", shape, 2, &options, &parameter));
        nxd_tensor_t *tensor = nullptr, *whole = nullptr;
        NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &tensor));
        int calls = 0;
        NXD_TEST_OK(nxd_parameter_set_grad_hook(parameter, count_call, &calls, nullptr));
        NXD_TEST_CHECK(tensor->get().is_meta() && tensor->get().requires_grad());
        NXD_TEST_REFUSED(nxd_parameter_gather_full(parameter, &whole), NXD_ERROR_INVALID_ARGUMENT,
                         "no values on the meta device");
        NXD_TEST_OK(nxd_parameter_set_trainable(parameter, 0));
        NXD_TEST_OK(nxd_move_model_to_device(handle, NXD_DEVICE_CPU));
        NXD_TEST_CHECK(!tensor->get().is_meta() && !tensor->get().requires_grad());
        NXD_TEST_CHECK(tensor->get().min().item<double>() >= 1 && calls == 0);
        NXD_TEST_OK(nxd_parameter_set_trainable(parameter, 1));
        const auto differentiate = [&] {
          nxd_tensor loss{tensor->get().sum()};
          nxd_tensor_t* root = &loss;
          NXD_TEST_OK(nxd_backward(&root, nullptr, 1, 0));
        };
        differentiate();
        NXD_TEST_CHECK(calls == 1 && tensor->get().grad().defined());
        NXD_TEST_OK(nxd_move_model_to_device(handle, NXD_DEVICE_META));
        NXD_TEST_CHECK(tensor->get().is_meta() && !tensor->get().grad().defined());

        // A value of the caller's.
        const at::Tensor given = at::arange(16, at::kFloat).view({4, 4});
        nxd_tensor from{given};
        NXD_TEST_OK(nxd_parameter_set_full(parameter, &from));
        NXD_TEST_CHECK(at::equal(tensor->get().detach(), given));
        differentiate();
        NXD_TEST_CHECK(calls == 2);
        parameter->value->release();
        try {
          parameter->value->materialize([](at::Tensor&) { throw std::bad_alloc(); });
          NXD_TEST_CHECK(false);
        } catch (const std::bad_alloc&) {
          NXD_TEST_CHECK(tensor->get().is_meta());
        }
        parameter->value->materialize([](at::Tensor& value) { value.fill_(3); });
        parameter->value->materialize();  // has a value
        NXD_TEST_CHECK(tensor->get().max().item<double>() == 3);
        NXD_TEST_OK(nxd_parameter_set_grad_hook(parameter, nullptr, nullptr, nullptr));

        // A ddp has values and gradients in its buckets.
        nxd_ddp_t* ddp = nullptr;
        NXD_TEST_OK(nxd_ddp_create(handle, nullptr, &ddp));
        NXD_TEST_REFUSED(nxd_move_model_to_device(handle, NXD_DEVICE_META), NXD_ERROR_INVALID_STATE,
                         "parameter weight: a ddp");
        nxd_ddp_destroy(ddp);
        NXD_TEST_OK(nxd_move_model_to_device(handle, NXD_DEVICE_META));
      },
      nullptr);
}

// A tied parameter is one; a master weight is made when it is asked for.
void test_tied_and_master(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        const LlamaOracle oracle;
        nlohmann::json config = nlohmann::json::parse(oracle.config);
        config["tie_word_embeddings"] = true;
        const Module model(create(ctx, config.dump(), Layout{}, NXD_DEVICE_META));
        NXD_TEST_OK(nxd_move_model_to_device(model.get(), NXD_DEVICE_CPU));
        const nxd::Module& root = *model->value;
        NXD_TEST_CHECK(nxd::find_parameter(root, "lm_head.weight") ==
                       nxd::find_parameter(root, "model.embed_tokens.weight"));

        nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
        options.keep_master_weight = 1;
        std::vector<double> wholes[2];
        for (const nxd_device_t device : {NXD_DEVICE_CPU, NXD_DEVICE_META}) {
          options.device = device;
          nxd_module_t* linear = nullptr;
          nxd_tensor_t* master = nullptr;
          NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 4, &options, &linear));
          const Module owner(linear);
          NXD_TEST_OK(nxd_module_get_master_weight(linear, &master));
          const std::vector<double> drawn = values(master);
          // Another seed draws it anew, also where the weight has no values yet.
          NXD_TEST_OK(nxd_module_initialize(linear, 77));
          NXD_TEST_OK(nxd_module_get_master_weight(linear, &master));
          wholes[device == NXD_DEVICE_META] = values(master);
          NXD_TEST_CHECK(wholes[device == NXD_DEVICE_META] != drawn);
        }
        NXD_TEST_CHECK(!wholes[0].empty() && wholes[0] == wholes[1]);
      },
      nullptr);
}

// The most memory that the process ever had, in bytes.
int64_t peak_memory() {
  std::istringstream status(read_file("/proc/self/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return -1;
}

// A quarter of a large model takes about a quarter of its memory.
int run_quarter() {
  const char* config = R"({"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8,
      "num_attention_heads": 16, "intermediate_size": 2816, "vocab_size": 8000,
      "max_position_embeddings": 128, "tie_word_embeddings": false})";
  static int result = 1;
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void* text) {
        const int64_t before = peak_memory();
        const Module model(create(ctx, static_cast<const char*>(text), Layout{}, NXD_DEVICE_META));
        int64_t whole = 0, made = 0;
        for (const auto& [name, parameter, is_alias] : nxd::named_parameters(*model->value)) {
          const int64_t bytes = parameter->tensor().numel() * 4;
          whole += bytes;
          if (name.find("layers.0.") == std::string::npos &&
              name.find("layers.1.") == std::string::npos) {
            continue;
          }
          parameter->materialize();
          made += bytes;
        }
        const int64_t grown = peak_memory() - before;
        NXD_TEST_CHECK(whole > 400'000'000 && made * 4 < whole && made * 5 > whole);
        NXD_TEST_CHECK(grown > made * 9 / 10);
        if (grown * 10 > whole * 4) {
          nxd_test_fail(__FILE__, __LINE__, "%lld bytes for %lld of %lld",
                        static_cast<long long>(grown), static_cast<long long>(made),
                        static_cast<long long>(whole));
        }
        result = 0;
      },
      const_cast<char*>(config));
  return nxd_test_failures() == 0 ? result : 1;
}

void test_memory(void**) {
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    execl("/proc/self/exe", "test_deferred_initialisation", "quarter", nullptr);
    _exit(127);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) return run_quarter();
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_models),
      cmocka_unit_test(test_parameter),
      cmocka_unit_test(test_tied_and_master),
      cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
