#include "selftest_llama.h"

#include <cstdint>
#include <memory>

#include "core/base/error.h"
#include "nxd.h"

namespace {

// As tests/oracles/llama_tiny, with weights that the library draws.
constexpr char kConfig[] =
    R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 176,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": false, "initializer_range": 0.02})";
constexpr uint64_t kSeed = 7;
constexpr int kKeyHeads = 2;
constexpr int64_t kBatch = 2, kLength = 32;
constexpr double kLearningRate = 2e-3;

const std::vector<double> kRecordedLosses = {5.5563231, 5.3161945, 5.0924282, 4.9095101, 4.7620625,
                                             4.5931377, 4.4095235, 4.2168555, 4.0493355, 3.9002461};

void check(nxd_status_t status) {
  if (status != NXD_OK) nxd::fail(status, nxd_last_error());
}

template <auto destroy>
struct Destroy {
  template <class Handle>
  void operator()(Handle* handle) const {
    destroy(handle);
  }
};
using Context = std::unique_ptr<nxd_context_t, Destroy<nxd_context_destroy>>;
using Module = std::unique_ptr<nxd_module_t, Destroy<nxd_module_destroy>>;
using Tensor = std::unique_ptr<nxd_tensor_t, Destroy<nxd_tensor_destroy>>;
using Optimizer = std::unique_ptr<nxd_optimizer_t, Destroy<nxd_optimizer_destroy>>;

Context join() {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.seed = kSeed;
  nxd_context_t* ctx = nullptr;
  check(nxd_context_create(&options, &ctx));
  Context joined(ctx);
  nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
  check(nxd_context_get_size(ctx, &layout.tensor_parallel_size));
  check(nxd_init_model_parallel(ctx, &layout));
  return joined;
}

Tensor tokens(nxd_device_t device) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kBatch * kLength; ++i) ids.push_back((i * 7 + i * i) % 100);
  const int64_t shape[] = {kBatch, kLength};
  nxd_tensor_t *here = nullptr, *there = nullptr;
  check(
      nxd_tensor_from_data(ids.data(), ids.size() * sizeof ids[0], shape, 2, NXD_DTYPE_I64, &here));
  const Tensor owned(here);
  check(nxd_tensor_to_device(here, device, &there));
  return Tensor(there);
}

double step(nxd_module_t* model, nxd_optimizer_t* optimizer, nxd_tensor_t* ids) {
  nxd_tensor_t *inputs[] = {ids, ids}, *out = nullptr;
  check(nxd_module_forward(model, inputs, 2, &out, 1));
  const Tensor loss(out);
  check(nxd_backward(&out, nullptr, 1, 0));
  check(nxd_optimizer_step(optimizer, nullptr, nullptr));
  check(nxd_module_zero_grad(model));
  check(nxd_mark_step(1));
  double value = 0;
  check(nxd_tensor_get_item(out, &value));
  return value;
}

}  // namespace

std::vector<double> train_llama(bool on_device) {
  const Context ctx = join();
  nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;
  options.device = on_device ? NXD_DEVICE_XLA : NXD_DEVICE_CPU;
  nxd_module_t* made = nullptr;
  check(nxd_model_create(ctx.get(), kConfig, &options, &made));
  const Module model(made);
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  adamw.learning_rate = kLearningRate;
  nxd_optimizer_t* updates = nullptr;
  check(nxd_optimizer_create_adamw(model.get(), &adamw, &updates));
  const Optimizer optimizer(updates);
  const Tensor ids = tokens(options.device);
  std::vector<double> losses;
  for (size_t i = 0; i < kRecordedLosses.size(); ++i) {
    losses.push_back(step(model.get(), optimizer.get(), ids.get()));
  }
  check(nxd_context_finalize(ctx.get()));
  return losses;
}

const std::vector<double>& recorded_llama_losses() { return kRecordedLosses; }

bool divides_llama(int ranks) { return ranks >= 1 && kKeyHeads % ranks == 0; }
