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

// Cuts of as many stages, at layers and at their neighbours.
std::vector<std::vector<std::string>> model_cuts(const std::string& layers, const char* embedding,
                                                 const char* norm) {
  const auto layer = [&](int i) { return layers + std::to_string(i); };
  return {{},
          {layer(0)},
          {embedding, layer(1)},
          {layer(0), layer(1), norm},
          {embedding, layer(0), layer(1), norm}};
}

void check_model(const ModelOracle& oracle, const Layout& layout, const std::string& layer_class,
                 const std::vector<std::vector<std::string>>& all_cuts) {
  on_ranks<int>(layout, 7, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle.config, layout);
    if (!model) return 0;
    const auto root = model->value;
    const Tensors inputs{ids_of(oracle.ids, oracle.shape), ids_of(oracle.labels, oracle.shape)};
    try {
      for (const bool whole_layers : {true, false}) {
        nxd::TraceOptions options;
        if (whole_layers) options.leaf_classes = {layer_class};
        for (const auto& cuts : all_cuts) {
          const std::string what = layout.name() + ", " + std::to_string(cuts.size()) + " cuts";
          check_stages(what, root, inputs, 1, options, cuts);
        }
      }
    } catch (const std::exception& error) {
      nxd_test_fail(__FILE__, __LINE__, "%s: %s", layout.name().c_str(), error.what());
    }
    return 0;
  });
}

void test_llama(void**) {
  const LlamaOracle oracle;
  const auto cuts = model_cuts("model.layers.", "model.embed_tokens", "model.layers.1.mlp");
  for (const Layout& layout : {Layout{1}, Layout{2}, Layout{2, true}}) {
    check_model(oracle, layout, "LlamaDecoderLayer", {{}, {"model.layers.0"}});
  }
}

}  // namespace

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_llama),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
