// A traced model, run in stages, has the bits of the model: its loss, its logits, its gradients.
#include "engine/device/gradients.h"
#include "engine/graph/partition.h"
#include "engine/inside/graph_support.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

at::Tensor ids_of(const std::vector<int64_t>& values, const std::vector<int64_t>& shape) {
  return at::tensor(values).view(shape);
}

using Cuts = std::vector<std::string>;

void check_model(const ModelOracle& oracle, const Layout& layout, const std::string& layer_class,
                 const Cuts& layer_cuts, const Cuts& fine_cuts) {
  on_ranks<int>(layout, 7, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle.config, layout);
    if (!model) return 0;
    const auto root = model->value;
    const Tensors inputs{ids_of(oracle.ids, oracle.shape), ids_of(oracle.labels, oracle.shape)};
    try {
      for (const bool whole_layers : {true, false}) {
        nxd::TraceOptions options;
        if (whole_layers) options.leaf_classes = {layer_class};
        const Cuts& cuts = whole_layers ? layer_cuts : fine_cuts;
        for (size_t n = 0; n <= cuts.size(); ++n) {
          const std::string what = layout.name() + ", " + std::to_string(n) + " cuts";
          check_stages(what, root, inputs, 1, options, {cuts.begin(), cuts.begin() + n});
        }
        check_stages(layout.name() + ", logits", root, {inputs[0], {}, at::ones_like(inputs[0])}, 1,
                     options, cuts);
        check_stages(layout.name() + ", both", root, inputs, 2, options, cuts);
      }
    } catch (const std::exception& error) {
      nxd_test_fail(__FILE__, __LINE__, "%s: %s", layout.name().c_str(), error.what());
    }
    return 0;
  });
}

void test_llama(void**) {
  const LlamaOracle oracle;
  for (const Layout& layout : {Layout{1}, Layout{1, false, NXD_DTYPE_F64}, Layout{2},
                               Layout{2, true}, Layout{1, false, NXD_DTYPE_BF16}}) {
    check_model(oracle, layout, "LlamaDecoderLayer",
                {"model.embed_tokens", "model.layers.0", "model.layers.1"},
                {"model.embed_tokens", "model.layers.0.self_attn", "model.layers.0",
                 "model.layers.1.self_attn", "model.layers.1"});
  }
}

void test_gpt2(void**) {
  const ModelOracle oracle("gpt2_tiny");
  for (const Layout& layout : {Layout{1}, Layout{2}, Layout{2, true}}) {
    check_model(oracle, layout, "GPT2Block",
                {"transformer.drop", "transformer.h.0", "transformer.h.1", "transformer.ln_f"},
                {"transformer.wte", "transformer.h.0.attn", "transformer.h.0.ln_2",
                 "transformer.h.1.mlp", "transformer.ln_f"});
  }
}

}  // namespace

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_llama),
      cmocka_unit_test(test_gpt2),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
