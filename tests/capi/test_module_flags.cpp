// A flag is 0 or 1: every call says of another number what was given, and changes nothing.
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr int32_t kNone[] = {2, -1, 256};

template <class Call>
void rejects(const std::string& name, const Call& call) {
  for (const int32_t none : kNone) {
    const std::string message = name + ": expected 0 or 1, got " + std::to_string(none);
    NXD_TEST_REFUSED(call(none), NXD_ERROR_INVALID_ARGUMENT, message.c_str());
  }
}

void tensors(nxd_context_t* ctx, int, int, void*) {
  const Tensor x = wave({2, 2}, NXD_DTYPE_F32, 1), sum = from_doubles({1}, {}, NXD_DTYPE_F32);
  rejects("requires_grad", [&](int32_t f) { return nxd_tensor_set_requires_grad(x.get(), f); });
  int32_t before = 7;
  rejects("enabled", [&](int32_t f) { return nxd_set_grad_enabled(f, &before); });
  NXD_TEST_CHECK(before == 0);
  NXD_TEST_OK(nxd_tensor_set_requires_grad(sum.get(), 1));
  nxd_tensor_t* out = sum.get();
  rejects("retain_graph", [&](int32_t f) { return nxd_backward(&out, nullptr, 1, f); });
  NXD_TEST_CHECK(!sum.grad());
  rejects("retain_graph", [&](int32_t f) {
    nxd_tensor_t* grad = x.get();
    const nxd_status_t status = nxd_grad(&out, nullptr, 1, &out, 1, f, &grad);
    NXD_TEST_CHECK(grad == nullptr);
    return status;
  });
  nxd_op_t* op = nullptr;
  NXD_TEST_OK(nxd_op_create("any", "dim", &op));
  rejects("value", [&](int32_t f) { return nxd_op_set_bool(op, "keepdim", f); });
  nxd_op_destroy(op);
  int32_t plain = 7;
  rejects("plain", [&](int32_t f) { return nxd_context_set_plain_kernels(ctx, f); });
  NXD_TEST_OK(nxd_context_get_plain_kernels(ctx, &plain));
  NXD_TEST_CHECK(plain == 0);
}

template <class Options>
void rejects_option(const char* name, Options options, int32_t Options::*field,
                    const std::function<nxd_status_t(const Options*, nxd_module_t**)>& create) {
  rejects(name, [&](int32_t f) {
    options.*field = f;
    nxd_module_t* made = reinterpret_cast<nxd_module_t*>(uintptr_t{16});
    const nxd_status_t status = create(&options, &made);
    NXD_TEST_CHECK(made == nullptr);
    return status;
  });
}

void layers(nxd_context_t* ctx, int, int, void*) {
  const nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
  const auto row = [&](const nxd_linear_options_t* o, nxd_module_t** out) {
    return nxd_layer_create_row_parallel_linear(ctx, 8, 8, o, out);
  };
  rejects_option<nxd_linear_options_t>("input_is_parallel", linear,
                                       &nxd_linear_options_t::input_is_parallel, row);
  rejects_option<nxd_linear_options_t>("sequence_parallel", linear,
                                       &nxd_linear_options_t::sequence_parallel, row);
  rejects_option<nxd_linear_options_t>("skip_bias_add", linear,
                                       &nxd_linear_options_t::skip_bias_add, row);
  rejects_option<nxd_linear_options_t>("keep_master_weight", linear,
                                       &nxd_linear_options_t::keep_master_weight, row);
  const nxd_embedding_options_t embedding = NXD_EMBEDDING_OPTIONS_INIT;
  const auto table = [&](const nxd_embedding_options_t* o, nxd_module_t** out) {
    return nxd_layer_create_parallel_embedding(ctx, 8, 8, o, out);
  };
  rejects_option<nxd_embedding_options_t>("has_padding_idx", embedding,
                                          &nxd_embedding_options_t::has_padding_idx, table);
  rejects_option<nxd_embedding_options_t>("shard_across_embedding", embedding,
                                          &nxd_embedding_options_t::shard_across_embedding, table);
}

void modules(nxd_context_t* ctx, int, int, void*) {
  Module layer, own;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 8, nullptr, layer.out()));
  rejects("training", [&](int32_t f) { return nxd_module_set_training(layer.get(), f); });
  nxd_parameter_t* const weight = layer.parameters()[0].second;
  rejects("trainable", [&](int32_t f) { return nxd_parameter_set_trainable(weight, f); });
  NXD_TEST_OK(nxd_module_create(ctx, "Own", nullptr, nullptr, nullptr, own.out()));
  nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
  const int64_t shape[] = {4};
  rejects("sequence_parallel", [&](int32_t f) {
    options.sequence_parallel = f;
    return nxd_module_add_parameter(own.get(), "p", shape, 1, &options, nullptr);
  });
}

void core(nxd_context_t*, int, int, void*) {
  size_t count = 0;
  const auto sample = [&](int32_t shuffle, int32_t drop_last) {
    return nxd_sample_epoch(8, 2, 0, 0, 1, shuffle, drop_last, nullptr, 0, &count);
  };
  rejects("shuffle", [&](int32_t f) { return sample(f, 0); });
  rejects("drop_last", [&](int32_t f) { return sample(0, f); });
  nxd_store_t* store = nullptr;
  rejects("is_server",
          [&](int32_t f) { return nxd_store_create_tcp("127.0.0.1", 0, f, 1000, &store); });
}

// The ranks of a collective call hear of it.
void mapping(nxd_context_t* ctx, int rank, int, void*) {
  const Tensor x = wave({2, 2}, NXD_DTYPE_F32, 1);
  nxd_tensor_t* y = nullptr;
  NXD_TEST_REFUSED(nxd_gather_from_sequence_region(ctx, x.get(), 0, rank == 1 ? 2 : 1, &y),
                   NXD_ERROR_INVALID_ARGUMENT, "to_model_parallel: expected 0 or 1, got 2");
}

void weights(nxd_context_t* ctx, int rank, int, void*) {
  const Tensor labels = from_ints({2}, {1, 1});
  nxd_tensor_t* given = labels.get();
  double weight = 0;
  NXD_TEST_REFUSED(nxd_loss_weights(ctx, &given, 1, -100, rank == 1 ? 2 : 0, &weight),
                   NXD_ERROR_INVALID_ARGUMENT, "shifted: expected 0 or 1, got 2");
}

void test_tensors(void**) { nxd_test_run_ranks(1, 1, tensors, nullptr); }
void test_layers(void**) { nxd_test_run_ranks(1, 1, layers, nullptr); }
void test_modules(void**) { nxd_test_run_ranks(1, 1, modules, nullptr); }
void test_core(void**) { nxd_test_run_ranks(1, 1, core, nullptr); }
void test_peers(void**) {
  nxd_test_run_ranks(2, 2, mapping, nullptr);
  nxd_test_run_ranks(2, 1, weights, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_tensors), cmocka_unit_test(test_layers), cmocka_unit_test(test_modules),
      cmocka_unit_test(test_core),    cmocka_unit_test(test_peers),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
