// A field of options that is reserved may have a meaning in a later header: a call rejects one that
// is set, rather than to pass over what its caller asks for, and makes nothing.
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

template <class Options, class Call>
void rejects(Options options, const Call& call) {
  for (const int32_t set : {1, -1}) {
    options.reserved = set;
    const std::string says = "options.reserved: expected 0, got " + std::to_string(set);
    NXD_TEST_REFUSED(call(&options), NXD_ERROR_INVALID_ARGUMENT, says.c_str());
  }
}

// With a place for the module that stays NULL.
template <class Options, class Create>
void makes_none(const Options& options, const Create& create) {
  rejects(options, [&](const Options* given) {
    nxd_module_t* made = reinterpret_cast<nxd_module_t*>(uintptr_t{16});
    const nxd_status_t status = create(given, &made);
    NXD_TEST_CHECK(made == nullptr);
    return status;
  });
}

void layers(nxd_context_t* ctx, int, int, void*) {
  const nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
  makes_none(linear, [&](auto* o, auto** out) {
    return nxd_layer_create_column_parallel_linear(ctx, 8, 8, o, out);
  });
  makes_none(linear, [&](auto* o, auto** out) {
    return nxd_layer_create_row_parallel_linear(ctx, 8, 8, o, out);
  });
  makes_none(linear,
             [&](auto* o, auto** out) { return nxd_layer_create_linear(ctx, 8, 8, o, out); });
  const nxd_embedding_options_t embedding = NXD_EMBEDDING_OPTIONS_INIT;
  makes_none(embedding, [&](auto* o, auto** out) {
    return nxd_layer_create_parallel_embedding(ctx, 8, 8, o, out);
  });
  const nxd_norm_options_t norm = NXD_NORM_OPTIONS_INIT;
  makes_none(norm, [&](auto* o, auto** out) { return nxd_layer_create_rms_norm(ctx, 8, o, out); });
  makes_none(norm,
             [&](auto* o, auto** out) { return nxd_layer_create_layer_norm(ctx, 8, o, out); });
  const nxd_attention_options_t attention = NXD_ATTENTION_OPTIONS_INIT;
  makes_none(attention,
             [&](auto* o, auto** out) { return nxd_layer_create_attention(ctx, 8, 2, o, out); });
}

void models(nxd_context_t* ctx, int, int, void*) {
  const char* const config =
      R"({"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "vocab_size": 16,
          "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 8,
          "rms_norm_eps": 1e-5, "max_position_embeddings": 8})";
  const nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;
  makes_none(options, [&](auto* o, auto** out) { return nxd_model_create(ctx, config, o, out); });
}

// The ranks of a collective call hear of it.
void loss(nxd_context_t* ctx, int rank, int, void*) {
  const Tensor logits = wave({2, 4}, NXD_DTYPE_F32, 1), labels = from_ints({1, 2}, {2});
  nxd_cross_entropy_options_t options = NXD_CROSS_ENTROPY_OPTIONS_INIT;
  options.reserved = rank == 1;
  nxd_tensor_t* out = nullptr;
  NXD_TEST_REFUSED(nxd_parallel_cross_entropy(ctx, logits.get(), labels.get(), &options, &out),
                   NXD_ERROR_INVALID_ARGUMENT, "options.reserved: expected 0, got 1");
}

void test_layers(void**) { nxd_test_run_ranks(1, 1, layers, nullptr); }
void test_models(void**) { nxd_test_run_ranks(1, 1, models, nullptr); }
void test_peers(void**) { nxd_test_run_ranks(2, 2, loss, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_layers), cmocka_unit_test(test_models),
                              cmocka_unit_test(test_peers)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
