// The GPT-2 against Hugging Face's: loss, logits, gradients and twenty AdamW steps, on every
// layout, with ranks as threads and as processes. Its vocabulary of 251 needs padding on two and
// four ranks.
#include <cstdlib>

#include "capi/model_oracle.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

const ModelOracle& oracle() {
  static const ModelOracle value("gpt2_tiny");
  return value;
}

void f32_layouts(void**) { check_layouts(oracle(), kF32, false); }

void f32_plain_layouts(void**) { check_layouts(oracle(), kF32, true); }

void f64_layouts(void**) { check_layouts(oracle(), kF64, false); }

void as_processes(void**) { check_as_processes(); }

void saved_as_hugging_face_does(void**) {
  const Named got = check_saved_file(oracle());
  assert_int_equal(got.at("transformer.h.2.attn.c_attn.weight").size(), 64 * 192);
  assert_int_equal(got.count("lm_head.weight"), 0);
}

double flops_of(const std::string& config, int64_t batch, int64_t sequence) {
  return on_ranks<double>(Layout{}, 0, [&](nxd_context_t* ctx) {
    nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;
    options.device = NXD_DEVICE_META;
    nxd_module_t* out = nullptr;
    NXD_TEST_OK(nxd_model_create(ctx, config.c_str(), &options, &out));
    const Module model(out);
    double flops = 0;
    NXD_TEST_OK(nxd_model_get_step_flops(out, batch, sequence, &flops));
    return flops;
  })[0];
}

// GPT-2 124M on 4 x 64 tokens: 85 M weights of layers and 38.6 M of the head, six operations each,
// and attention.
void step_flops(void**) {
  const double flops = flops_of(
      R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257})",
      4, 64);
  const double matrices = 12 * (768.0 * 2304 + 768.0 * 768 + 2 * 768.0 * 3072) + 768.0 * 50257;
  assert_true(flops == 256 * (6 * matrices + 6 * 12 * 64 * 768.0));
  assert_true(std::fabs(flops - 191e9) < 1e9);
}

void set_values(nxd_parameter_t* parameter, const std::vector<double>& data,
                const std::vector<int64_t>& shape) {
  const std::vector<float> narrow(data.begin(), data.end());
  nxd_tensor_t* whole = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(narrow.data(), narrow.size() * sizeof(float), shape.data(),
                                   static_cast<int32_t>(shape.size()), NXD_DTYPE_F32, &whole));
  NXD_TEST_OK(nxd_parameter_set_full(parameter, Tensor(whole).get()));
}

std::vector<double> logits_of(nxd_module_t* model) {
  const Tensor ids = make_i64(oracle().ids, oracle().shape);
  nxd_tensor_t *input = ids.get(), *out = nullptr;
  NXD_TEST_OK(nxd_module_forward(model, &input, 1, &out, 1));
  return values(Tensor(out).get());
}

// Scores divided by the number of the layer are those of queries that are: layers count from 1.
void scores_by_layer(void**) {
  on_ranks<int>(Layout{}, 0, [&](nxd_context_t* ctx) {
    nlohmann::json config = nlohmann::json::parse(oracle().config);
    config["scale_attn_by_inverse_layer_idx"] = true;
    const Module plain = load_model(ctx, oracle().directory, Layout{});
    const Module scaled = create_model(ctx, config.dump(), Layout{});
    NXD_TEST_OK(nxd_module_load_safetensors(scaled.get(), oracle().directory.c_str(), 1, nullptr));
    const Named all = whole_parameters(scaled.get());
    const int64_t hidden = config["n_embd"], layers = config["n_layer"];
    for (int64_t layer = 0; layer < layers; ++layer) {
      for (const char* part : {"weight", "bias"}) {
        const std::string name = "transformer.h." + std::to_string(layer) + ".attn.c_attn." + part;
        std::vector<double> data = all.at(name);
        for (size_t i = 0; i < data.size(); ++i) {
          if (static_cast<int64_t>(i) % (3 * hidden) < hidden) {
            data[i] *= static_cast<double>(layer + 1);
          }
        }
        nxd_parameter_t* parameter = nullptr;
        NXD_TEST_OK(nxd_module_find_parameter(scaled.get(), name.c_str(), &parameter));
        const bool is_bias = data.size() == static_cast<size_t>(3 * hidden);
        set_values(
            parameter, data,
            is_bias ? std::vector<int64_t>{3 * hidden} : std::vector<int64_t>{hidden, 3 * hidden});
      }
    }
    check_values("logits", logits_of(scaled.get()), logits_of(plain.get()), 2e-6);
    return 0;
  });
}

double deviation(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// Products that add to the residual start smaller by the root of their number, two a layer.
void first_weights(void**) {
  on_ranks<int>(Layout{}, 3, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle().config, Layout{});
    const double layers = nlohmann::json::parse(oracle().config)["n_layer"];
    const Named all = whole_parameters(model.get());
    for (const std::string layer : {"transformer.h.0.", "transformer.h.1."}) {
      const double wide = deviation(all.at(layer + "attn.c_attn.weight"));
      for (const char* name : {"attn.c_proj.weight", "mlp.c_proj.weight"}) {
        const double ratio = deviation(all.at(layer + name)) / wide * std::sqrt(2 * layers);
        NXD_TEST_CHECK(std::fabs(ratio - 1) < 0.08);
      }
    }
    return 0;
  });
}

// More tokens than positions, which sequence parallelism could take for padding.
void too_many_tokens(void**) {
  for (const Layout& layout : {Layout{1}, Layout{2, true}}) {
    on_ranks<int>(layout, 0, [&](nxd_context_t* ctx) {
      const Module model = create_model(ctx, oracle().config, layout);
      const int64_t positions = nlohmann::json::parse(oracle().config)["n_positions"];
      const Tensor ids =
          make_i64(std::vector<int64_t>(static_cast<size_t>(positions + 1), 1), {1, positions + 1});
      nxd_tensor_t *input = ids.get(), *out = nullptr;
      NXD_TEST_REFUSED(nxd_module_forward(model.get(), &input, 1, &out, 1),
                       NXD_ERROR_INVALID_ARGUMENT, "expected at most");
      return 0;
    });
  }
}

}  // namespace

int main() {
  if (std::getenv("RANK")) return run_process(oracle());
  const CMUnitTest tests[] = {
      cmocka_unit_test(f32_layouts),
      cmocka_unit_test(f32_plain_layouts),
      cmocka_unit_test(f64_layouts),
      cmocka_unit_test(as_processes),
      cmocka_unit_test(saved_as_hugging_face_does),
      cmocka_unit_test(step_flops),
      cmocka_unit_test(scores_by_layer),
      cmocka_unit_test(first_weights),
      cmocka_unit_test(too_many_tokens),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
