// One rank whose memory is bounded (nxd_memory_set_cap) pads a model, makes and runs a pipeline,
// and ends a step: at whatever point its memory ends, all ranks fail alike and at once, the model
// is as it was, and all go on. The bound is a process's, so ranks are processes here: the program
// starts itself.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/half.h"
#include "support/memory_cap.h"
#include "support/model_support.h"

#include "support/check.h"
#include "support/part.h"

namespace {

using namespace nxd_test;

// No test is about how long it is: a rank that waits for one that has left is an error in the end.
constexpr int kTimeoutMs = 30000;

using Shapes = std::vector<std::vector<int64_t>>;

Shapes local_shapes(nxd_module_t* root) {
  Shapes shapes;
  for_each_parameter(root, [&](nxd_parameter_t* parameter, const std::string&) {
    nxd_tensor_t* shard = nullptr;
    int64_t sizes[2] = {};
    size_t ndim = 0;
    NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &shard));
    NXD_TEST_OK(nxd_tensor_get_shape(shard, sizes, 2, &ndim));
    shapes.emplace_back(sizes, sizes + ndim);
  });
  return shapes;
}

Module sequential(nxd_context_t* ctx, const std::vector<Module>& layers) {
  std::vector<nxd_module_t*> children;
  for (const Module& layer : layers) children.push_back(layer.get());
  nxd_module_t* root = nullptr;
  NXD_TEST_OK(nxd_module_create_sequential(ctx, children.data(), children.size(), &root));
  NXD_TEST_OK(nxd_module_initialize(root, 3));
  return Module(root);
}

// Three heads of four features become four.
void pad(nxd_context_t* ctx, bool lacks) {
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  options.gather_output = NXD_TOGGLE_OFF;
  options.input_is_parallel = 1;
  nxd_module_t *column = nullptr, *row = nullptr;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 32, 12, &options, &column));
  NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, 12, 32, &options, &row));
  std::vector<Module> layers;
  for (nxd_module_t* layer : {column, row}) layers.emplace_back(layer);
  const Module root = sequential(ctx, layers);
  const Named values = whole_parameters(root.get());
  const Shapes before = local_shapes(root.get());
  const int failures = with_more_and_more(world_of(ctx), lacks, 256, [&] {
    const nxd_status_t status = nxd_pad_model(root.get(), 2, 3, nullptr, 0, nullptr, nullptr);
    if (status != NXD_OK) NXD_TEST_CHECK(local_shapes(root.get()) == before);
    return status;
  });
  NXD_TEST_CHECK(failures >= 2);
  NXD_TEST_CHECK(local_shapes(root.get()) == (Shapes{{8, 32}, {8}, {32, 8}, {32}}));
  NXD_TEST_CHECK(whole_parameters(root.get()) == values);
}

Tensor ids(int64_t rows, int64_t columns) {
  std::vector<int64_t> data;
  for (int64_t i = 0; i < rows * columns; ++i) data.push_back((i * i * 11 + i * 37) % 61);
  return make_i64(data, {rows, columns});
}

// Messages over Gloo lie in buffers of the pool, whatever their size.
void pipeline(nxd_context_t* ctx, bool lacks) {
  const char* const config =
      R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64,
          "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
          "max_position_embeddings": 32, "tie_word_embeddings": false})";
  const Module model = create_model(ctx, config, {});
  const Tensor small = ids(4, 16), large = ids(8, 32);
  nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  options.num_microbatches = 2;
  options.broadcast_and_average_loss = 1;
  nxd_pp_t* pp = nullptr;
  nxd_tensor_t* inputs[] = {small.get(), small.get()};
  const int refused = with_more_and_more(world_of(ctx), lacks, 1024, [&] {
    return nxd_pp_create(model.get(), inputs, 2, &options, &pp);
  });
  NXD_TEST_CHECK(refused >= 2);
  if (!pp) return;
  double loss = NAN, again = NAN;
  NXD_TEST_OK(nxd_pp_run_train(pp, inputs, 2, &loss));
  inputs[0] = inputs[1] = large.get();
  const int failures = with_more_and_more(world_of(ctx), lacks, 8192,
                                          [&] { return nxd_pp_run_train(pp, inputs, 2, &loss); });
  NXD_TEST_CHECK(failures >= 2);
  NXD_TEST_OK(nxd_pp_run_train(pp, inputs, 2, &again));
  NXD_TEST_CHECK(loss == again);
  nxd_pp_destroy(pp);
}

// Norms whose gradients tensor-parallel ranks have parts of.
struct Norms {
  Norms(nxd_context_t* ctx, nxd_dtype_t dtype, nxd_device_t device = NXD_DEVICE_CPU) {
    nxd_norm_options_t options = NXD_NORM_OPTIONS_INIT;
    options.sequence_parallel = 1;
    options.dtype = dtype;
    options.device = device;
    std::vector<Module> layers;
    for (int i = 0; i < 3; ++i) {
      nxd_module_t* layer = nullptr;
      NXD_TEST_OK(nxd_layer_create_rms_norm(ctx, kFeatures, &options, &layer));
      layers.emplace_back(layer);
    }
    root = sequential(ctx, layers);
  }
  void set_gradients(int rank) const {
    each([&](nxd_tensor_t* tensor) {
      nxd_dtype_t dtype = NXD_DTYPE_INVALID;
      nxd_device_t device = NXD_DEVICE_INVALID;
      NXD_TEST_OK(nxd_tensor_get_device(tensor, &device));
      NXD_TEST_OK(nxd_tensor_get_dtype(tensor, &dtype));
      std::vector<float> wide;
      std::vector<uint16_t> narrow;  // all of them are numbers of BF16, too
      for (int64_t i = 0; i < kFeatures; ++i) {
        wide.push_back(0.25F * static_cast<float>((i + 3 * rank) % 7) - 0.5F);
        narrow.push_back(nxd::f32_to_bf16(wide.back()));
      }
      const bool is_wide = dtype == NXD_DTYPE_F32;
      const void* const data = is_wide ? static_cast<const void*>(wide.data()) : narrow.data();
      nxd_tensor_t *host = nullptr, *grad = nullptr;
      NXD_TEST_OK(
          nxd_tensor_from_data(data, kFeatures * (is_wide ? 4 : 2), &kFeatures, 1, dtype, &host));
      NXD_TEST_OK(nxd_tensor_to_device(host, device, &grad));
      NXD_TEST_OK(nxd_tensor_set_grad(tensor, grad));
      for (nxd_tensor_t* made : {host, grad}) nxd_tensor_destroy(made);
    });
  }
  std::vector<double> values_of() const {
    std::vector<double> out;
    each([&](nxd_tensor_t* tensor) {
      for (const double value : values(tensor)) out.push_back(value);
    });
    return out;
  }
  std::vector<double> gradients_of() const {
    std::vector<double> out;
    each([&](nxd_tensor_t* tensor) {
      nxd_tensor_t* grad = nullptr;
      NXD_TEST_OK(nxd_tensor_share_grad(tensor, &grad));
      for (const double value : values(Tensor(grad).get())) out.push_back(value);
    });
    return out;
  }
  template <class Visit>
  void each(Visit&& visit) const {
    for_each_parameter(root.get(), [&](nxd_parameter_t* parameter, const std::string&) {
      nxd_tensor_t* tensor = nullptr;
      if (NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &tensor))) visit(tensor);
    });
  }

  static constexpr int64_t kFeatures = 96;
  Module root;
};

int rank_of(nxd_context_t* ctx) {
  int32_t rank = -1;
  NXD_TEST_OK(nxd_context_get_rank(ctx, &rank));
  return rank;
}

void finish(nxd_context_t* ctx, bool lacks) {
  const Norms norms(ctx, NXD_DTYPE_F32), undisturbed(ctx, NXD_DTYPE_F32);
  for (const Norms* of : {&norms, &undisturbed}) of->set_gradients(rank_of(ctx));
  double norm = NAN, expected = NAN;
  const int failures = with_more_and_more(world_of(ctx), lacks, 256, [&] {
    return nxd_finish_grads(norms.root.get(), nullptr, &norm);
  });
  NXD_TEST_CHECK(failures >= 1);
  NXD_TEST_OK(nxd_finish_grads(undisturbed.root.get(), nullptr, &expected));
  NXD_TEST_CHECK(norm == expected);
  NXD_TEST_CHECK(norms.gradients_of() == undisturbed.gradients_of());
}

// An optimizer, over a ddp where zero_stage is not below 0.
struct Trainer {
  Trainer(const Norms& norms, int zero_stage) {
    nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
    adamw.learning_rate = 0.1;  // every value moves, in BF16 too
    if (zero_stage < 0) {
      NXD_TEST_OK(nxd_optimizer_create_adamw(norms.root.get(), &adamw, &optimizer));
      return;
    }
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = zero_stage;
    options.bucket_bytes = 256;
    NXD_TEST_OK(nxd_ddp_create(norms.root.get(), &options, &ddp));
    NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp, &adamw, &optimizer));
  }
  ~Trainer() {
    nxd_optimizer_destroy(optimizer);
    nxd_ddp_destroy(ddp);
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  nxd_ddp_t* ddp = nullptr;
  nxd_optimizer_t* optimizer = nullptr;
};

// The step stays open: another call goes on with the gradients that there are. On device XLA memory
// may also end while the step is recorded.
template <int zero_stage, nxd_dtype_t dtype, nxd_device_t device = NXD_DEVICE_CPU>
void step(nxd_context_t* ctx, bool lacks) {
  const Norms norms(ctx, dtype, device), undisturbed(ctx, dtype, device);
  const Trainer trainer(norms, zero_stage), beside(undisturbed, zero_stage);
  for (const Norms* of : {&norms, &undisturbed}) of->set_gradients(rank_of(ctx));
  const std::vector<double> before = norms.values_of();
  const int failures = with_more_and_more(world_of(ctx), lacks, 64, [&] {
    const nxd_status_t status = nxd_optimizer_step(trainer.optimizer, nullptr, nullptr);
    const std::string message = nxd_last_error();
    nxd_parameter_state_t state = NXD_PARAMETER_STATE_NONE;
    NXD_TEST_OK(nxd_optimizer_get_parameter_state(trainer.optimizer, &state, nullptr));
    NXD_TEST_CHECK(state == (status == NXD_OK ? NXD_PARAMETER_STATE_NEW : NXD_PARAMETER_STATE_OLD));
    if (device == NXD_DEVICE_CPU) {
      NXD_TEST_CHECK((norms.values_of() == before) == (status != NXD_OK));
    }
    if (status != NXD_OK) nxd_set_last_error(status, message.c_str());
    return status;
  });
  NXD_TEST_CHECK(failures >= 2);
  NXD_TEST_OK(nxd_optimizer_step(beside.optimizer, nullptr, nullptr));
  NXD_TEST_CHECK(norms.values_of() == undisturbed.values_of());
}

struct Part {
  const char* name;
  void (*run)(nxd_context_t* ctx, bool lacks);
  int ranks, tensor = 1, pipeline = 1;
  nxd_transport_t transport = NXD_TRANSPORT_AUTO;
};

constexpr Part kParts[] = {
    {"pad", pad, 2, 2},
    {"pipeline", pipeline, 2, 1, 2, NXD_TRANSPORT_GLOO},
    {"finish", finish, 4, 2},
    {"step", step<-1, NXD_DTYPE_F32>, 4, 2},
    {"step_of_copies", step<0, NXD_DTYPE_BF16>, 2},
    {"step_of_parts", step<1, NXD_DTYPE_BF16>, 2},
    {"recorded_step", step<-1, NXD_DTYPE_F32, NXD_DEVICE_XLA>, 1},
};

int child(const char* text) {
  char name[32] = "";
  int lacking = 0;
  if (std::sscanf(text, "%31s %d", name, &lacking) != 2) return 250;
  for (const Part& part : kParts) {
    if (std::strcmp(part.name, name) != 0) continue;
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    options.timeout_ms = kTimeoutMs;
    options.transport = part.transport;
    nxd_context_t* ctx = nullptr;
    if (!NXD_TEST_OK(nxd_context_create(&options, &ctx))) return 249;
    nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
    layout.tensor_parallel_size = part.tensor;
    layout.pipeline_parallel_size = part.pipeline;
    if (NXD_TEST_OK(nxd_init_model_parallel(ctx, &layout))) part.run(ctx, rank_of(ctx) == lacking);
    nxd_context_destroy(ctx);
  }
  return nxd_test_failures() == 0 ? 0 : 1;
}

void each_rank_lacks(void** state) {
  const Part& part = *static_cast<const Part*>(*state);
  for (int lacking = 0; lacking < part.ranks; ++lacking) {
    const std::string text = std::string(part.name) + " " + std::to_string(lacking);
    nxd_test_run_part(text.c_str(), part.ranks, kNxdTestNone, 0, 300);
  }
}

}  // namespace

int main() {
  if (const char* part = std::getenv("NXD_TEST_PART")) return child(part);
  std::vector<CMUnitTest> tests;
  for (const Part& part : kParts) {
    tests.push_back({part.name, each_rank_lacks, nullptr, nullptr, const_cast<Part*>(&part)});
  }
  return _cmocka_run_group_tests("lack of memory", tests.data(), tests.size(), nullptr, nullptr);
}
