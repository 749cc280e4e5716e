// Training a small model over microbatches, with weight gradients put off or activations computed
// again, down to the bits of gradients and the calls of hooks.
#pragma once

#include "support/model_support.h"

#include "capi/engine_handles.h"
#include "engine/autograd/deferred_gradients.h"
#include "engine/module/module_tree.h"
#include "support/check.h"

namespace nxd_test {

constexpr int kMicrobatches = 4;
constexpr int64_t kLength = 8;

struct Setting {
  const char* model = "llama_tiny";
  Layout layout;
  bool tied = false, deferred = false;
  int dp = 1;
  int stage = -1;  // of ZeRO; -1: no ddp
  bool fp32_grads = false, autocast = false, frozen = false;
  std::vector<const char*> recomputed;  // names for nxd_apply_checkpoint
};

struct Result {
  std::vector<double> losses;
  std::map<std::string, std::vector<char>> gradients, values;
  std::map<std::string, int> hooks;
  std::vector<std::string> unsplit;
};

inline std::vector<char> bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor dense = tensor.detach().contiguous();
  const auto* data = static_cast<const char*>(dense.data_ptr());
  return {data, data + dense.nbytes()};
}

inline std::string config_of(const Setting& setting) {
  const ModelOracle oracle(setting.model);
  nlohmann::json config = nlohmann::json::parse(oracle.config);
  config["tie_word_embeddings"] = setting.tied;
  for (const char* name : {"embd_pdrop", "attn_pdrop", "resid_pdrop", "hidden_dropout"}) {
    if (config.contains(name)) config[name] = 0.1;
  }
  if (config.contains("hidden_dropout")) config["attention_dropout"] = 0.1;
  return config.dump();
}

inline Tensor forward(nxd_context_t* ctx, nxd_module_t* model, const Setting& setting,
                      int microbatch, int64_t vocabulary) {
  NXD_TEST_OK(nxd_context_set_step(ctx, 3, microbatch));
  int32_t copy = 0;
  NXD_TEST_OK(nxd_parallel_get_rank(ctx, NXD_AXIS_DATA, &copy));
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < 2 * kLength; ++i) {
    tokens.push_back((i * i * 17 + 31 * microbatch + 7 * i + 13 * copy) % vocabulary);
  }
  const Tensor ids = make_i64(tokens, {2, kLength}), labels = make_i64(tokens, {2, kLength});
  nxd_tensor_t* inputs[] = {ids.get(), labels.get()};
  nxd_tensor_t* out = nullptr;
  nxd_dtype_t before = NXD_DTYPE_INVALID;
  if (setting.autocast) NXD_TEST_OK(nxd_set_autocast(NXD_DTYPE_BF16, &before));
  NXD_TEST_OK(nxd_module_forward(model, inputs, 2, &out, 1));
  if (setting.autocast) NXD_TEST_OK(nxd_set_autocast(before, nullptr));
  return Tensor(out);
}

inline nxd_status_t count_call(nxd_parameter_t* parameter, void* user_data) {
  ++(*static_cast<std::map<nxd_parameter_t*, int>*>(user_data))[parameter];
  return NXD_OK;
}

using Deferral = std::unique_ptr<nxd::DeferredGradients>;

inline Deferral backward(nxd_module_t* model, const Tensor& loss, bool deferred) {
  nxd_tensor_t* out = loss.get();
  if (!deferred) {
    NXD_TEST_OK(nxd_backward(&out, nullptr, 1, 0));
    return nullptr;
  }
  auto later = std::make_unique<nxd::DeferredGradients>();
  for (const auto& [name, parameter, is_alias] : nxd::named_parameters(*model->value)) {
    if (parameter->tensor().requires_grad()) later->watch(parameter->tensor(), name);
  }
  const nxd::InterceptionScope scope(*later);
  NXD_TEST_OK(nxd_backward(&out, nullptr, 1, 0));
  NXD_TEST_CHECK(!later->empty() && nxd::DeferredGradients::current() == later.get());
  return later;
}

inline void run_products(Deferral& later, bool last, nxd_ddp_t* ddp) {
  if (!later) return;
  if (ddp) NXD_TEST_OK(nxd_ddp_set_sync(ddp, last));
  later->run();
  NXD_TEST_CHECK(later->empty());
}

// Backward passes of all microbatches: the products of one are made after the pass of the next.
inline void run_microbatches(nxd_context_t* ctx, nxd_module_t* model, const Setting& setting,
                             nxd_ddp_t* ddp, int64_t vocabulary, Result& result) {
  Deferral waiting;
  for (int m = 0; m < kMicrobatches; ++m) {
    const bool last = m + 1 == kMicrobatches;
    const Tensor loss = forward(ctx, model, setting, m, vocabulary);
    result.losses.push_back(item(loss.get()));
    if (ddp) NXD_TEST_OK(nxd_ddp_set_sync(ddp, last));
    Deferral next = backward(model, loss, setting.deferred);
    if (next && m == 0) result.unsplit = next->unsplit();
    run_products(waiting, false, ddp);
    waiting = std::move(next);
  }
  run_products(waiting, true, ddp);
}

inline Result run(nxd_context_t* ctx, const Setting& setting) {
  Result result;
  const std::string config = config_of(setting);
  const int64_t vocabulary = nlohmann::json::parse(config)["vocab_size"];
  const Module model = create_model(ctx, config, setting.layout);
  if (!model) return result;
  if (!setting.recomputed.empty()) {
    NXD_TEST_OK(
        nxd_apply_checkpoint(model.get(), setting.recomputed.data(), setting.recomputed.size(), 1));
  }
  const auto parameters = nxd::named_parameters(*model->value);
  std::map<nxd_parameter_t*, int> calls;
  for (const auto& [name, parameter, is_alias] : parameters) {
    nxd_parameter_t* handle = nxd::borrow_parameter(*parameter);
    if (setting.frozen && name.find("down_proj") != std::string::npos) {
      NXD_TEST_OK(nxd_parameter_set_trainable(handle, 0));
    } else {
      NXD_TEST_OK(nxd_parameter_set_grad_hook(handle, count_call, &calls, nullptr));
    }
  }
  nxd_ddp_t* ddp = nullptr;
  nxd_optimizer_t* handle = nullptr;
  nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
  sgd.learning_rate = 0.1;
  if (setting.stage >= 0) {
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = setting.stage;
    options.bucket_bytes = 20000;
    options.fp32_grads = setting.fp32_grads;
    NXD_TEST_OK(nxd_ddp_create(model.get(), &options, &ddp));
    NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp, &sgd, &handle));
  } else {
    NXD_TEST_OK(nxd_optimizer_create_sgd(model.get(), &sgd, &handle));
  }
  for (int step = 0; step < 2; ++step) {
    NXD_TEST_OK(nxd_module_zero_grad(model.get()));
    run_microbatches(ctx, model.get(), setting, ddp, vocabulary, result);
    for (const auto& [name, parameter, is_alias] : parameters) {
      // A ddp reduces them meanwhile.
      if (setting.stage < 0) result.gradients[name] = bytes_of(parameter->gradient());
    }
    nxd_step_report_t report = {};
    report.struct_size = sizeof report;
    NXD_TEST_OK(nxd_optimizer_step(handle, nullptr, &report));
  }
  for (const auto& [name, parameter, is_alias] : parameters) {
    result.values[name] = bytes_of(parameter->tensor());
    result.hooks[name] = calls[nxd::borrow_parameter(*parameter)];
    NXD_TEST_OK(
        nxd_parameter_set_grad_hook(nxd::borrow_parameter(*parameter), nullptr, nullptr, nullptr));
  }
  nxd_optimizer_destroy(handle);
  nxd_ddp_destroy(ddp);
  return result;
}

inline std::vector<Result> run_on_ranks(const Setting& setting) {
  struct Shared {
    const Setting& setting;
    std::vector<Result> results;
  } shared{setting, std::vector<Result>(static_cast<size_t>(setting.layout.tp * setting.dp))};
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  options.seed = 11;
  options.plain_kernels = setting.layout.plain;
  nxd_test_run_ranks_with(
      &options, setting.layout.tp * setting.dp, setting.layout.tp,
      [](nxd_context_t* ctx, int rank, int, void* user_data) {
        auto* s = static_cast<Shared*>(user_data);
        s->results[static_cast<size_t>(rank)] = run(ctx, s->setting);
      },
      &shared);
  return shared.results;
}

inline void check_bits(const char* what, const std::map<std::string, std::vector<char>>& got,
                       const std::map<std::string, std::vector<char>>& want) {
  assert_int_equal(got.size(), want.size());
  for (const auto& [name, bytes] : want) {
    if (got.at(name) != bytes) fail_msg("%s of %s: other bits", what, name.c_str());
  }
}

// Bits, losses and hooks of one setting against another's.
inline void check_same(const Setting& got_setting, const Setting& want_setting) {
  const std::vector<Result> want = run_on_ranks(want_setting), got = run_on_ranks(got_setting);
  for (size_t rank = 0; rank < want.size(); ++rank) {
    assert_true(got[rank].losses == want[rank].losses && !want[rank].losses.empty());
    check_bits("gradient", got[rank].gradients, want[rank].gradients);
    check_bits("value", got[rank].values, want[rank].values);
    for (const auto& [name, calls] : want[rank].hooks) {
      const bool frozen = want_setting.frozen && name.find("down_proj") != std::string::npos;
      assert_int_equal(calls, frozen ? 0 : 2 * kMicrobatches);
      if (got[rank].hooks.at(name) != calls) {
        fail_msg("%s: %d hooks, expected %d", name.c_str(), got[rank].hooks.at(name), calls);
      }
    }
  }
}

}  // namespace nxd_test
