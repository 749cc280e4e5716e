// Tensor-parallel ranks whose arguments must be the same and are not, or one of which has a tensor
// that no group exchanges: all of them are told at once, and none gets another result.
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

void check_usable(nxd_context_t* ctx, int size) {
  Tensor sum;
  const Tensor one = from_doubles({1}, {1}, NXD_DTYPE_F32);
  if (NXD_TEST_OK(nxd_reduce_from_tensor_region(ctx, one.get(), sum.out()))) {
    NXD_TEST_CHECK(values(sum)[0] == size);
  }
}

using Mapping = nxd_status_t (*)(nxd_context_t* ctx, nxd_tensor_t* x, nxd_tensor_t** out_y);

void complex_tensors(nxd_context_t* ctx, int rank, int size, void*) {
  static const Mapping mappings[] = {
      nxd_reduce_from_tensor_region, nxd_gather_from_tensor_region,
      [](auto* c, auto* x, auto** y) { return nxd_gather_from_sequence_region(c, x, 0, 0, y); },
      [](auto* c, auto* x, auto** y) { return nxd_reduce_scatter_to_sequence_region(c, x, 0, y); }};
  const Tensor x = wave({4, 4}, NXD_DTYPE_F32, 1);
  const Tensor complex = op("complex", {{"real", x}, {"imag", x}});
  for (const Mapping map : mappings) {
    for (const bool everywhere : {false, true}) {
      const bool mine = everywhere || rank == 1;
      nxd_tensor_t* out = x.get();
      NXD_TEST_REFUSED(map(ctx, mine ? complex.get() : x.get(), &out),
                       mine ? NXD_ERROR_UNSUPPORTED : NXD_ERROR_INVALID_ARGUMENT,
                       mine ? "has no NXD_DTYPE_" : "rank 1 rejected its arguments");
      NXD_TEST_CHECK(out == nullptr);
      check_usable(ctx, size);
    }
  }
}

struct Difference {
  const char* name;
  void (*apply)(nxd_cross_entropy_options_t& options);
};

const Difference kDifferences[] = {
    {"label_smoothing", [](auto& o) { o.label_smoothing = 0.25; }},
    {"smoothing", [](auto& o) { o.smoothing = NXD_SMOOTHING_MEGATRON; }},
    {"reduction", [](auto& o) { o.reduction = NXD_REDUCTION_SUM; }},
    {"ignore_index", [](auto& o) { o.has_ignore_index = 1, o.ignore_index = 3; }}};

void losses(nxd_context_t* ctx, int rank, int size, void*) {
  const Tensor x = wave({2, 8}, NXD_DTYPE_F32, 1), weight = wave({4, 8}, NXD_DTYPE_F32, 2);
  const Tensor labels = from_ints({1, 3}, {2}), others = from_ints({1, 2}, {2});
  for (const bool of_linear : {false, true}) {
    const auto refused = [&](const char* name, const Tensor& given,
                             const nxd_cross_entropy_options_t& options) {
      nxd_tensor_t* out = x.get();
      const nxd_status_t status =
          of_linear ? nxd_linear_cross_entropy(ctx, x.get(), weight.get(), given.get(), -1,
                                               &options, &out)
                    : nxd_parallel_cross_entropy(ctx, x.get(), given.get(), &options, &out);
      if (status != NXD_ERROR_INVALID_ARGUMENT || out) {
        nxd_test_fail(__FILE__, __LINE__, "%s: %s", name, nxd_status_string(status));
        if (out && out != x.get()) nxd_tensor_destroy(out);
      } else if (!strstr(nxd_last_error(), "a key is the digest of the labels and the options")) {
        nxd_test_fail(__FILE__, __LINE__, "%s: %s", name, nxd_last_error());
      }
      check_usable(ctx, size);
    };
    const nxd_cross_entropy_options_t defaults = NXD_CROSS_ENTROPY_OPTIONS_INIT;
    refused("labels", rank == 1 ? others : labels, defaults);
    for (const Difference& difference : kDifferences) {
      nxd_cross_entropy_options_t options = defaults;
      if (rank == 1) difference.apply(options);
      refused(difference.name, labels, options);
    }
  }
}

void embeddings(nxd_context_t* ctx, int rank, int size, void*) {
  for (const int way : {0, 1, 2}) {
    nxd_embedding_options_t options = NXD_EMBEDDING_OPTIONS_INIT;
    options.sequence_parallel = way == 1;
    options.shard_across_embedding = way == 2;
    nxd_module_t* table = nullptr;
    if (!NXD_TEST_OK(nxd_layer_create_parallel_embedding(ctx, 12, 8, &options, &table))) return;
    const Tensor ids = from_ints({0, 11, 3, 4}, {4}), others = from_ints({0, 11, 3, 5}, {4});
    for (const bool differ : {true, false}) {
      nxd_tensor_t *in = differ && rank == 1 ? others.get() : ids.get(), *out = nullptr;
      const nxd_status_t status = nxd_module_forward(table, &in, 1, &out, 1);
      if (differ) {
        NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, "a key is the digest of the ids");
      } else {
        NXD_TEST_OK(status);
      }
      nxd_tensor_destroy(out);
      check_usable(ctx, size);
    }
    nxd_module_destroy(table);
  }
}

// By the kernels of all forms.
template <nxd_test_rank_fn body>
void on_two(void**) {
  for (const nxd_toggle_t plain : {NXD_TOGGLE_OFF, NXD_TOGGLE_ON}) {
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    options.plain_kernels = plain;
    nxd_test_run_ranks_with(&options, 2, 2, body, nullptr);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(on_two<complex_tensors>),
      cmocka_unit_test(on_two<losses>),
      cmocka_unit_test(on_two<embeddings>),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
