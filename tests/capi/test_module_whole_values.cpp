// Whole values and whole gradients of parameters: copies of the caller's own, also where one rank
// alone has a gradient; and gradients of replicated parameters that each rank has a part of.
#include "support/check.h"
#include "support/tensor.h"

using namespace nxd_test;

namespace {

constexpr int64_t kShape[] = {4, 6};

nxd_parameter_t* add(const Module& module, const char* name,
                     const nxd_parameter_options_t& options) {
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_add_parameter(module.get(), name, kShape, 2, &options, &parameter));
  return parameter;
}

nxd_tensor_t* shard_of(nxd_parameter_t* parameter) {
  nxd_tensor_t* tensor = nullptr;  // borrowed
  NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &tensor));
  return tensor;
}

Module container(nxd_context_t* ctx) {
  Module module;
  NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, module.out()));
  return module;
}

void one_has_a_gradient(nxd_context_t* ctx, int rank, int size, void*) {
  const Module root = container(ctx);
  for (const bool fp32_grads : {false, true}) {
    nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
    options.has_shard_dim = 1;
    options.dtype = NXD_DTYPE_BF16;
    nxd_parameter_t* parameter = add(root, fp32_grads ? "wide" : "narrow", options);
    nxd_ddp_t* ddp = nullptr;
    nxd_ddp_options_t of_ddp = NXD_DDP_OPTIONS_INIT;
    of_ddp.fp32_grads = fp32_grads;
    NXD_TEST_OK(nxd_ddp_create(root.get(), &of_ddp, &ddp));
    NXD_TEST_CHECK(!whole_grad(parameter));
    if (rank == 0) {
      nxd_tensor_t *shard = shard_of(parameter), *sum = nullptr;
      NXD_TEST_OK(nxd_op_call("sum", "", &shard, 1, &sum, 1));
      NXD_TEST_OK(nxd_backward(&sum, nullptr, 1, 0));
      nxd_tensor_destroy(sum);
    }
    const Tensor whole = whole_grad(parameter);
    if (whole) {
      NXD_TEST_CHECK(whole.dtype() == (fp32_grads ? NXD_DTYPE_F32 : NXD_DTYPE_BF16));
      const std::vector<double> all = values(whole);
      for (size_t i = 0; i < all.size(); ++i) {
        NXD_TEST_CHECK(all[i] == (i < all.size() / static_cast<size_t>(size) ? 1 : 0));
      }
    } else {
      NXD_TEST_CHECK(!"a gradient");
    }
    nxd_ddp_destroy(ddp);
    // The gradient that is left has the parameter's dtype again.
    const Tensor left = whole_grad(parameter);
    NXD_TEST_CHECK(left && left.dtype() == NXD_DTYPE_BF16);
    NXD_TEST_OK(nxd_module_zero_grad(root.get()));
  }
}

void test_one_has_a_gradient(void**) { nxd_test_run_ranks(2, 2, one_has_a_gradient, nullptr); }

// A write to a whole value changes no parameter.
void copies(nxd_context_t* ctx, int, int, void*) {
  const Module root = container(ctx);
  for (const bool split : {false, true}) {
    nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
    options.has_shard_dim = split;
    nxd_parameter_t* parameter = add(root, split ? "split" : "replicated", options);
    const Tensor value = wave({4, 6}, NXD_DTYPE_F32, 1);
    NXD_TEST_OK(nxd_parameter_set_full(parameter, value.get()));
    const Tensor first = whole(parameter);
    const std::vector<float> zeros(24, 0.0F);
    NXD_TEST_OK(nxd_tensor_copy_from_host(first.get(), zeros.data(), zeros.size() * sizeof(float)));
    NXD_TEST_CHECK(max_difference(whole(parameter), value) == 0);
  }
}

void test_copies(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, copies, nullptr);
}

// With sequence_parallel the ranks' gradients of a replicated parameter are parts of a sum.
void parts(nxd_context_t* ctx, int rank, int size, void*) {
  for (const bool sequence_parallel : {false, true}) {
    const Module root = container(ctx);
    nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
    options.sequence_parallel = sequence_parallel;
    nxd_parameter_t* parameter = add(root, "p", options);
    const std::vector<double> own(24, 1.0 + (sequence_parallel ? rank : 0));
    NXD_TEST_OK(
        nxd_tensor_set_grad(shard_of(parameter), from_doubles(own, {4, 6}, NXD_DTYPE_F32).get()));
    double norm = 0;
    NXD_TEST_OK(nxd_finish_grads(root.get(), nullptr, &norm));
    const double want = sequence_parallel ? size * (size + 1) / 2.0 : 1;
    NXD_TEST_CHECK(values(whole_grad(parameter)) == std::vector<double>(24, want));
    NXD_TEST_CHECK(std::fabs(norm - want * std::sqrt(24.0)) < 1e-6 * norm);
  }
}

void test_parts(void**) { nxd_test_run_ranks(2, 2, parts, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_one_has_a_gradient),
                              cmocka_unit_test(test_copies), cmocka_unit_test(test_parts)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
