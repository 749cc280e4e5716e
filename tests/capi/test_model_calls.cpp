// Rejections of configurations, layouts, inputs and handles of models, alike on all ranks.
#include <filesystem>
#include <fstream>

#include "support/model_support.h"

#include "support/check.h"
#include "support/temp_dir.h"

namespace {

using namespace nxd_test;
using nlohmann::json;

constexpr nxd_status_t kBad = NXD_ERROR_INVALID_ARGUMENT;

const LlamaOracle& oracle() {
  static const LlamaOracle value;
  return value;
}

std::string config_with(const char* name, const json& value) {
  json config = json::parse(oracle().config);
  config[name] = value;
  return config.dump();
}

void refused_model(nxd_context_t* ctx, const std::string& config,
                   const nxd_model_options_t* options, nxd_status_t status, const char* part) {
  auto* out = reinterpret_cast<nxd_module_t*>(ctx);
  NXD_TEST_REFUSED(nxd_model_create(ctx, config.c_str(), options, &out), status, part);
  NXD_TEST_CHECK(out == nullptr);
}

void bad_models(void**) {
  on_ranks<int>(Layout{4}, 0, [&](nxd_context_t* ctx) {
    refused_model(ctx, "no json", nullptr, kBad, "expected JSON");
    refused_model(ctx, "{}", nullptr, kBad,
                  "model_type: expected the name of a family, got no such field");
    refused_model(ctx, config_with("model_type", "t5"), nullptr, NXD_ERROR_UNSUPPORTED,
                  "known are: bert, gpt2, gpt_neox, llama, mistral, qwen2, qwen3");
    refused_model(ctx, config_with("hidden_act", "xielu"), nullptr, NXD_ERROR_UNSUPPORTED, "silu");
    refused_model(ctx, config_with("vocab_size", nullptr), nullptr, kBad, "vocab_size");
    // Sizes that four ranks cannot share.
    refused_model(ctx, config_with("num_attention_heads", 2), nullptr, kBad,
                  "num_attention_heads: expected at least 4 with 2 key heads");
    refused_model(ctx, config_with("intermediate_size", 3), nullptr, kBad,
                  "intermediate_size: expected at least the 4 ranks");
    json heads = json::parse(oracle().config);
    heads["num_attention_heads"] = heads["num_key_value_heads"] = 3;
    heads["head_dim"] = 16;
    refused_model(ctx, heads.dump(), nullptr, kBad,
                  "expected at least 6 with 3 key heads and 4 ranks");
    json wide = json::parse(oracle().config);
    wide["hidden_size"] = wide["vocab_size"] = 1 << 24;
    refused_model(ctx, wide.dump(), nullptr, NXD_ERROR_OUT_OF_MEMORY,
                  "parameter model.embed_tokens.weight of shape [16777216, 16777216]");
    nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;
    options.dtype = NXD_DTYPE_I64;
    refused_model(ctx, oracle().config, &options, kBad, "dtype");
    options = NXD_MODEL_OPTIONS_INIT;
    options.device = NXD_DEVICE_NEURON;
    refused_model(ctx, oracle().config, &options, NXD_ERROR_UNSUPPORTED, "device");
    options = NXD_MODEL_OPTIONS_INIT;
    options.sequence_parallel = 2;
    refused_model(ctx, oracle().config, &options, kBad, "sequence_parallel");
    options.struct_size = 8;
    refused_model(ctx, oracle().config, &options, NXD_ERROR_ABI_MISMATCH, "struct_size");

    nxd_module_t* out = nullptr;
    double flops = 1;
    const char* config = oracle().config.c_str();
    NXD_TEST_REFUSED(nxd_model_create(nullptr, config, nullptr, &out), kBad, "ctx");
    NXD_TEST_REFUSED(nxd_model_create(ctx, nullptr, nullptr, &out), kBad, "config_json");
    NXD_TEST_REFUSED(nxd_model_create(ctx, config, nullptr, nullptr), kBad, "out_model");
    NXD_TEST_REFUSED(nxd_model_from_pretrained(ctx, nullptr, nullptr, &out), kBad, "directory");
    NXD_TEST_REFUSED(nxd_model_from_pretrained(ctx, "/no/such/place", nullptr, &out), NXD_ERROR_IO,
                     "config.json");
    const TempDir other;
    std::ofstream(other.path() + "/config.json") << config_with("num_hidden_layers", 9);
    std::filesystem::create_symlink(oracle().directory + "/model.safetensors",
                                    other.path() + "/model.safetensors");
    NXD_TEST_REFUSED(nxd_model_from_pretrained(ctx, other.path().c_str(), nullptr, &out), kBad,
                     (other.path() + ": safetensors do not match the model; ").c_str());
    NXD_TEST_REFUSED(nxd_model_get_step_flops(nullptr, 1, 1, &flops), kBad, "model");
    NXD_TEST_CHECK(flops == 0 && out == nullptr);
    const Module model = create_model(ctx, oracle().config, Layout{4});
    nxd_module_t* child = nullptr;
    NXD_TEST_OK(nxd_module_find_module(model.get(), "model.layers.0", &child));
    NXD_TEST_REFUSED(nxd_model_get_step_flops(child, 1, 1, &flops), kBad, "LlamaDecoderLayer");
    return 0;
  });
}

// Nothing of a model is reduced over these ranks.
void unreduced_axes(void**) {
  nxd_test_run_ranks(
      2, 0,
      [](nxd_context_t* ctx, int, int, void*) {
        for (const bool context : {true, false}) {
          nxd_parallel_options_t options = NXD_PARALLEL_OPTIONS_INIT;
          (context ? options.context_parallel_size : options.expert_parallel_size) = 2;
          const char* part = context ? "context_parallel_size" : "expert_parallel_size";
          NXD_TEST_OK(nxd_init_model_parallel(ctx, &options));
          refused_model(ctx, oracle().config, nullptr, NXD_ERROR_UNSUPPORTED, part);
          nxd_module_t* layer = nullptr;
          NXD_TEST_REFUSED(nxd_layer_create_layer_norm(ctx, 4, nullptr, &layer),
                           NXD_ERROR_UNSUPPORTED, part);
          double weight = 1;
          nxd_tensor_t* labels = nullptr;
          NXD_TEST_REFUSED(nxd_loss_weights(ctx, &labels, 1, -100, 0, &weight),
                           NXD_ERROR_UNSUPPORTED, part);
          NXD_TEST_CHECK(layer == nullptr && weight == 0);
          NXD_TEST_OK(nxd_destroy_model_parallel(ctx));
        }
      },
      nullptr);
}

void without_layout(void**) {
  nxd_test_run_ranks(
      1, 0,
      [](nxd_context_t* ctx, int, int, void*) {
        refused_model(ctx, oracle().config, nullptr, NXD_ERROR_INVALID_STATE, "model");
      },
      nullptr);
}

// Runs a forward that must be rejected with a part of its message; the ranks stay in step.
void refused_forward(nxd_module_t* model, const std::vector<nxd_tensor_t*>& inputs,
                     size_t n_outputs, const char* part) {
  auto* canary = reinterpret_cast<nxd_tensor_t*>(model);
  nxd_tensor_t* outputs[3] = {canary, canary, canary};
  NXD_TEST_REFUSED(nxd_module_forward(model, inputs.data(), inputs.size(), outputs, n_outputs),
                   kBad, part);
  for (size_t i = 0; i < n_outputs; ++i) NXD_TEST_CHECK(outputs[i] == nullptr);
}

void bad_inputs(void**) {
  for (const bool sequence_parallel : {false, true}) {
    const Layout layout{2, sequence_parallel};
    on_ranks<int>(layout, 0, [&](nxd_context_t* ctx) {
      int32_t rank = 0;
      NXD_TEST_OK(nxd_context_get_rank(ctx, &rank));
      const Module model = create_model(ctx, oracle().config, layout);
      const Tensor ids = make_i64(oracle().ids, {2, 32});
      const Tensor labels = make_i64(oracle().labels, {2, 32});
      const Tensor flat = make_i64(oracle().ids, {64});
      const Tensor other = make_i64(oracle().ids, {4, 16});
      std::vector<int64_t> changed = oracle().ids;
      changed[3] = 256;
      const Tensor too_large = make_i64(changed, {2, 32});
      changed[3] = -7;
      const Tensor negative = make_i64(changed, {2, 32});
      nxd_tensor_t* created = nullptr;
      const int64_t shape[] = {2, 32};
      NXD_TEST_OK(nxd_tensor_create(shape, 2, NXD_DTYPE_F32, NXD_DEVICE_CPU, &created));
      const Tensor floats(created);

      refused_forward(model.get(), {}, 1, "inputs");
      refused_forward(model.get(), {nullptr}, 1, "input 0");
      refused_forward(model.get(), {ids.get()}, 2, "without labels");
      refused_forward(model.get(), {ids.get(), labels.get()}, 3, "outputs");
      refused_forward(model.get(), {flat.get()}, 1, "[batch, sequence]");
      refused_forward(model.get(), {floats.get()}, 1, "i64");
      refused_forward(model.get(), {ids.get(), other.get()}, 1, "labels");
      refused_forward(model.get(), {ids.get(), floats.get()}, 1, "labels");
      refused_forward(model.get(), {too_large.get()}, 1, "256");
      refused_forward(model.get(), {negative.get()}, 1, "-7");
      refused_forward(model.get(), {ids.get(), too_large.get()}, 1, "labels");
      refused_forward(model.get(), {ids.get(), nullptr, flat.get()}, 1, "mask");
      refused_forward(model.get(), {ids.get(), nullptr, floats.get()}, 1,
                      "key mask: expected integers or booleans, got f32");
      if (sequence_parallel) {
        // Such a sequence is padded, but not to another one's mask.
        const Tensor odd = make_i64(std::vector<int64_t>(31, 1), {1, 31});
        const Tensor mask = make_i64(std::vector<int64_t>(32, 1), {1, 32});
        refused_forward(model.get(), {odd.get(), nullptr, mask.get()}, 1, "key mask");
        refused_forward(model.get(), {mask.get(), nullptr, odd.get()}, 1, "key mask");
      }
      // One rank's bad input is rejected on the other too, and the group lives on.
      refused_forward(model.get(), {rank == 1 ? too_large.get() : ids.get()}, 1, "256");
      NXD_TEST_CHECK(std::isfinite(run_backward(model.get(), oracle())));
      return 0;
    });
  }
}

// A part that is called alone has no rows for positions that the model lacks; padding is none.
void too_long_for_a_part(void**) {
  const struct {
    const char *model, *field, *part;
  } families[] = {{"gpt2_tiny", "n_positions", "transformer"},
                  {"bert_tiny", "max_position_embeddings", "bert"}};
  for (const auto& family : families) {
    json config = json::parse(ModelOracle(family.model).config);
    config[family.field] = 5;
    for (const int64_t most : {5, 6}) {
      const Layout layout{2, most == 6};
      on_ranks<int>(layout, 0, [&](nxd_context_t* ctx) {
        const Module model = create_model(ctx, config.dump(), layout);
        nxd_module_t* part = nullptr;
        NXD_TEST_OK(nxd_module_find_module(model.get(), family.part, &part));
        const std::vector<int64_t> ones(8, 1);
        const Tensor more = make_i64(ones, {1, 8});
        refused_forward(part, {more.get()}, 1, "expected at most 5 positions, got 8");
        const Tensor ids = make_i64(std::vector<int64_t>(most, 1), {1, most});
        nxd_tensor_t *input = ids.get(), *out = nullptr;
        NXD_TEST_OK(nxd_module_forward(part, &input, 1, &out, 1));
        nxd_tensor_destroy(out);
        return 0;
      });
    }
  }
}

// A body that is called alone says which ids it takes, as the whole model does.
void flat_ids_of_a_body(void**) {
  const std::pair<const char*, const char*> bodies[] = {{"llama_tiny", "model"},
                                                        {"gpt2_tiny", "transformer"},
                                                        {"gpt_neox_tiny", "gpt_neox"},
                                                        {"bert_tiny", "bert"}};
  for (const auto& [name, path] : bodies) {
    const std::string config = ModelOracle(name).config;
    on_ranks<int>(Layout{2}, 0, [&, path = path](nxd_context_t* ctx) {
      const Module model = create_model(ctx, config, Layout{2});
      nxd_module_t* body = nullptr;
      NXD_TEST_OK(nxd_module_find_module(model.get(), path, &body));
      const Tensor flat = make_i64({1, 2, 3, 4}, {4});
      refused_forward(body, {flat.get()}, 1,
                      "ids: expected [batch, sequence] of dtype i64, got i64 of shape [4]");
      return 0;
    });
  }
}

// Numbers of inputs and outputs that one rank alone has wrong.
void bad_numbers_of_one_rank(void**) {
  for (const char* name : {"llama_tiny", "gpt2_tiny", "bert_tiny"}) {
    const std::string config = ModelOracle(name).config;
    on_ranks<int>(Layout{2}, 0, [&](nxd_context_t* ctx) {
      int32_t rank = 0;
      NXD_TEST_OK(nxd_context_get_rank(ctx, &rank));
      const Module model = create_model(ctx, config, Layout{2});
      const Tensor ids = make_i64({1, 2, 3, 4}, {1, 4});
      const std::vector<nxd_tensor_t*> good{ids.get()}, many(6, ids.get());
      const bool bad = rank == 1;
      refused_forward(model.get(), bad ? many : good, 1, "inputs, got 6");
      refused_forward(model.get(), bad ? std::vector<nxd_tensor_t*>() : good, 1, "inputs, got 0");
      refused_forward(model.get(), good, bad ? 3 : 1, "3 were asked for");
      nxd_tensor_t* out = nullptr;
      NXD_TEST_OK(nxd_module_forward(model.get(), good.data(), 1, &out, 1));
      nxd_tensor_destroy(out);
      return 0;
    });
  }
}

// No valid label: loss 0 and zero gradients.
void nothing_to_predict(void**) {
  on_ranks<int>(Layout{2}, 0, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle().config, Layout{2});
    LlamaOracle silent = oracle();
    silent.labels.assign(64, -100);
    NXD_TEST_CHECK(run_backward(model.get(), silent) == 0);
    double total = 1;
    NXD_TEST_OK(nxd_finish_grads(model.get(), nullptr, &total));
    NXD_TEST_CHECK(total == 0);
    return 0;
  });
}

// Tokens hidden by the mask do not reach the others: changing them leaves later logits alone.
void key_mask(void**) {
  for (const bool sequence_parallel : {false, true}) {
    const Layout layout{2, sequence_parallel};
    on_ranks<int>(layout, 0, [&](nxd_context_t* ctx) {
      const Module model = load_model(ctx, oracle().directory, layout);
      std::vector<int64_t> mask(64, 1), changed = oracle().ids;
      for (size_t i = 0; i < 3; ++i) {
        mask[i] = 0;
        changed[i] = 1;
      }
      const auto logits = [&](const std::vector<int64_t>& data) {
        const Tensor ids = make_i64(data, {2, 32}), keep = make_i64(mask, {2, 32});
        nxd_tensor_t* inputs[] = {ids.get(), nullptr, keep.get()};
        nxd_tensor_t* out = nullptr;
        NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 3, &out, 1));
        std::vector<double> all = values(Tensor(out).get());
        all.erase(all.begin(), all.begin() + 3 * 128);
        return all;
      };
      const std::vector<double> base = logits(oracle().ids);
      check_values("hidden tokens", logits(changed), base, 1e-7);
      mask.assign(64, 1);
      const std::vector<double> seen = logits(changed);
      double difference = 0;
      for (size_t i = 0; i < seen.size(); ++i) {
        difference = std::max(difference, std::fabs(seen[i] - base[i]));
      }
      NXD_TEST_CHECK(difference > 1e-3);
      return 0;
    });
  }
}

// Making many layers takes long without waiting for anybody.
void interrupted_making(void**) {
  struct Patience {
    bool over = false;
  } patience;
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.interrupt = [](void* data) -> nxd_status_t {
    return static_cast<Patience*>(data)->over ? NXD_ERROR_USER : NXD_OK;
  };
  options.interrupt_data = &patience;
  nxd_test_run_ranks_with(
      &options, 1, 1,
      [](nxd_context_t* ctx, int, int, void* data) {
        auto& over = static_cast<Patience*>(data)->over;
        for (const char* file : {"/llama_tiny/config.json", "/gpt2_tiny/config.json",
                                 "/gpt_neox_tiny/config.json", "/bert_tiny/config.json"}) {
          std::ifstream in(oracles() + file);
          const std::string config{std::istreambuf_iterator<char>(in), {}};
          nxd_module_t* out = nullptr;
          over = true;
          NXD_TEST_REFUSED(nxd_model_create(ctx, config.c_str(), nullptr, &out), NXD_ERROR_USER,
                           "nxd_model_create");
          NXD_TEST_CHECK(out == nullptr);
          over = false;
          NXD_TEST_OK(nxd_model_create(ctx, config.c_str(), nullptr, &out));
          nxd_module_destroy(out);
        }
      },
      &patience);
}

// A rank that leaves in the middle is an error on the others, soon.
void lost_peer(void**) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  nxd_test_run_ranks_with(
      &options, 2, 2,
      [](nxd_context_t* ctx, int rank, int, void*) {
        const Module model = create_model(ctx, oracle().config, Layout{2});
        NXD_TEST_CHECK(std::isfinite(run_backward(model.get(), oracle())));
        if (rank == 1) return;  // the context is destroyed
        double norm = 5;
        const nxd_status_t status = nxd_finish_grads(model.get(), nullptr, &norm);
        NXD_TEST_CHECK(status == NXD_ERROR_PEER_LOST || status == NXD_ERROR_TIMEOUT);
        NXD_TEST_CHECK(norm == 0);
        const nxd_status_t saved = nxd_module_save_safetensors(model.get(), "/dev/null/x");
        NXD_TEST_CHECK(saved == NXD_ERROR_PEER_LOST || saved == NXD_ERROR_TIMEOUT);
      },
      nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(bad_models),
      cmocka_unit_test(without_layout),
      cmocka_unit_test(unreduced_axes),
      cmocka_unit_test(bad_inputs),
      cmocka_unit_test(too_long_for_a_part),
      cmocka_unit_test(flat_ids_of_a_body),
      cmocka_unit_test(nothing_to_predict),
      cmocka_unit_test(key_mask),
      cmocka_unit_test(interrupted_making),
      cmocka_unit_test(lost_peer),
      cmocka_unit_test(bad_numbers_of_one_rank),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
