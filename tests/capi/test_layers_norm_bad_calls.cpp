// Bad options and inputs of norms. A norm does not communicate: it rejects on the rank that is
// wrong.
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr nxd_status_t kBad = NXD_ERROR_INVALID_ARGUMENT;
constexpr int64_t kSize = 8;

using Maker = nxd_status_t (*)(nxd_context_t*, int64_t, const nxd_norm_options_t*, nxd_module_t**);
constexpr Maker kMakers[] = {nxd_layer_create_layer_norm, nxd_layer_create_rms_norm};

// A handle that was never made: a call that leaves it in an output did not clear it.
nxd_module_t* const kSentinel = reinterpret_cast<nxd_module_t*>(uintptr_t{16});

using Change = std::function<void(nxd_norm_options_t&)>;

void refused(int line, nxd_context_t* ctx, const char* part, Maker make, int64_t size,
             const Change& change) {
  nxd_norm_options_t options = NXD_NORM_OPTIONS_INIT;
  change(options);
  nxd_module_t* out = kSentinel;
  nxd_test_refused(__FILE__, line, "create", make(ctx, size, &options, &out), kBad, part);
  if (out) nxd_test_fail(__FILE__, line, "the output was not cleared");
}

void options(nxd_context_t* ctx, int, int, void*) {
  for (const Maker make : kMakers) {
    for (const int64_t size : {0, -3}) {
      refused(__LINE__, ctx, "size", make, size, [](nxd_norm_options_t&) {});
    }
    for (const double eps : {-1.0, double{NAN}, double{INFINITY}}) {
      refused(__LINE__, ctx, "eps", make, kSize, [=](nxd_norm_options_t& o) { o.eps = eps; });
    }
    refused(__LINE__, ctx, "affine", make, kSize, [](nxd_norm_options_t& o) { o.affine = 3; });
  }
  refused(__LINE__, ctx, "bias", nxd_layer_create_layer_norm, kSize,
          [](nxd_norm_options_t& o) { o.bias = 3; });
  refused(__LINE__, ctx, "bias: expected off for a norm that has none, got on",
          nxd_layer_create_rms_norm, kSize, [](nxd_norm_options_t& o) { o.bias = NXD_TOGGLE_ON; });
  refused(__LINE__, ctx, "bias: expected off without affine, got on", nxd_layer_create_layer_norm,
          kSize, [](nxd_norm_options_t& o) {
            o.affine = NXD_TOGGLE_OFF;
            o.bias = NXD_TOGGLE_ON;
          });
}

void inputs(nxd_context_t* ctx, int, int, void*) {
  const Tensor good = wave({2, 3, 4, kSize}, NXD_DTYPE_F32, 1);
  const std::vector<std::pair<const char*, Tensor>> wrong = {
      {"8 features", wave({2, 3, 4, 7}, NXD_DTYPE_F32, 1)},
      {"8 features", from_doubles({1}, {}, NXD_DTYPE_F32)},
      {"dtype", to(good, NXD_DTYPE_F64)},
      {"dtype", to(good, NXD_DTYPE_BF16)},
      {"expected a tensor, got NULL", {}},
  };
  for (const Maker make : kMakers) {
    Module norm;
    NXD_TEST_OK(make(ctx, kSize, nullptr, norm.out()));
    for (const auto& [part, x] : wrong) {
      nxd_tensor_t *in = x.get(), *out = good.get();
      NXD_TEST_REFUSED(nxd_module_forward(norm.get(), &in, 1, &out, 1), kBad, part);
      NXD_TEST_CHECK(out == nullptr);
      NXD_TEST_CHECK(!values(norm({good})).empty());
    }
  }
}

void residuals(nxd_context_t* ctx, int, int, void*) {
  const Tensor x = wave({2, kSize}, NXD_DTYPE_F32, 1);
  const std::vector<std::pair<const char*, Tensor>> wrong = {
      {"residual: expected device", without_values({2, kSize}, NXD_DTYPE_F32)},
      {"residual: expected f32", to(x, NXD_DTYPE_F64)},
      {"residual: expected f32", wave({3, kSize}, NXD_DTYPE_F32, 1)},
  };
  for (const Maker make : kMakers) {
    Module norm;
    NXD_TEST_OK(make(ctx, kSize, nullptr, norm.out()));
    for (const auto& [part, residual] : wrong) {
      nxd_tensor_t *in[] = {x.get(), residual.get()}, *out[] = {x.get(), x.get()};
      NXD_TEST_REFUSED(nxd_module_forward(norm.get(), in, 2, out, 2), kBad, part);
      NXD_TEST_CHECK(!out[0] && !out[1]);
    }
  }
}

template <nxd_test_rank_fn fn>
void on_one(void**) {
  nxd_test_run_ranks(1, 1, fn, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(on_one<options>), cmocka_unit_test(on_one<inputs>),
                              cmocka_unit_test(on_one<residuals>)};
  return cmocka_run_group_tests_name("layers_norm_bad_calls", tests, nullptr, nullptr);
}
