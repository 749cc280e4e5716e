// Bad calls of region mappings, and of mappings and losses before there is a layout. An error of
// one rank alone makes no other rank wait, and the group can be used afterwards.
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

struct Mapping {
  const char* name;
  std::function<nxd_status_t(nxd_context_t*, nxd_tensor_t*, int32_t dim, nxd_tensor_t**)> call;
  bool has_dim, communicates, divides;
};

std::vector<Mapping> all_mappings() {
  return {
      {"copy",
       [](auto* c, auto* x, int32_t, auto** y) { return nxd_copy_to_tensor_region(c, x, y); },
       false, false, false},
      {"reduce",
       [](auto* c, auto* x, int32_t, auto** y) { return nxd_reduce_from_tensor_region(c, x, y); },
       false, true, false},
      {"scatter",
       [](auto* c, auto* x, int32_t, auto** y) { return nxd_scatter_to_tensor_region(c, x, y); },
       false, false, true},
      {"gather",
       [](auto* c, auto* x, int32_t, auto** y) { return nxd_gather_from_tensor_region(c, x, y); },
       false, true, false},
      {"scatter sequence",
       [](auto* c, auto* x, int32_t d, auto** y) {
         return nxd_scatter_to_sequence_region(c, x, d, y);
       },
       true, false, true},
      {"gather sequence",
       [](auto* c, auto* x, int32_t d, auto** y) {
         return nxd_gather_from_sequence_region(c, x, d, 1, y);
       },
       true, true, false},
      {"reduce-scatter sequence",
       [](auto* c, auto* x, int32_t d, auto** y) {
         return nxd_reduce_scatter_to_sequence_region(c, x, d, y);
       },
       true, true, true},
  };
}

void check_mapping(nxd_context_t* ctx, const Mapping& m, const char* part, const Tensor& wrong,
                   int32_t wrong_dim, bool mine) {
  const Tensor x = wave({8, 8}, NXD_DTYPE_F32, 1);
  // Where nothing is communicated, only the rank that is wrong is told.
  if (mine || m.communicates) {
    nxd_tensor_t* out = x.get();
    NXD_TEST_REFUSED(m.call(ctx, mine ? wrong.get() : x.get(), mine ? wrong_dim : 0, &out),
                     NXD_ERROR_INVALID_ARGUMENT, mine ? part : "rank ");
    if (out) nxd_test_fail(__FILE__, __LINE__, "%s: the output was not cleared", m.name);
  }
  Tensor y;
  NXD_TEST_OK(m.call(ctx, x.get(), 0, y.out()));
}

void mappings(nxd_context_t* ctx, int rank, int size, void*) {
  const Tensor x = wave({8, 8}, NXD_DTYPE_F32, 1), scalar = from_doubles({1}, {}, NXD_DTYPE_F32),
               odd = wave({7, 7}, NXD_DTYPE_F32, 1);
  for (const Mapping& m : all_mappings()) {
    nxd_tensor_t* out = x.get();
    NXD_TEST_REFUSED(m.call(nullptr, x.get(), 0, &out), NXD_ERROR_INVALID_ARGUMENT, "ctx");
    NXD_TEST_CHECK(out == nullptr);
    NXD_TEST_REFUSED(m.call(ctx, x.get(), 0, nullptr), NXD_ERROR_INVALID_ARGUMENT, "out_y");
    if (m.communicates) {
      out = x.get();
      NXD_TEST_REFUSED(m.call(ctx, x.get(), 0, rank == size - 1 ? nullptr : &out),
                       NXD_ERROR_INVALID_ARGUMENT, "out_y: expected a pointer");
      if (rank < size - 1) NXD_TEST_CHECK(out == nullptr);
    }
    for (const bool everywhere : {true, false}) {
      if (!everywhere && size == 1) continue;
      const bool mine = everywhere || rank == size - 1;
      check_mapping(ctx, m, "x: expected a tensor, got NULL", {}, 0, mine);
      if (m.has_dim) {
        check_mapping(ctx, m, "dim", x, 2, mine);
        check_mapping(ctx, m, "dim", x, -3, mine);
      }
      if (m.has_dim || std::string(m.name) == "scatter" || std::string(m.name) == "gather") {
        check_mapping(ctx, m, "dim", scalar, 0, mine);
      }
      if (m.divides && size > 1) check_mapping(ctx, m, "does not divide", odd, 0, mine);
    }
  }
}

// One rank has no place for the loss, or options of no version.
void losses(nxd_context_t* ctx, int rank, int, void*) {
  const Tensor x = wave({1, 8}, NXD_DTYPE_F32, 1), weight = wave({4, 8}, NXD_DTYPE_F32, 2),
               labels = from_ints({1}, {1});
  for (const bool fused : {false, true}) {
    const auto loss = [&](const nxd_cross_entropy_options_t& options, nxd_tensor_t** out) {
      return fused ? nxd_linear_cross_entropy(ctx, x.get(), weight.get(), labels.get(), -1,
                                              &options, out)
                   : nxd_parallel_cross_entropy(ctx, x.get(), labels.get(), &options, out);
    };
    nxd_cross_entropy_options_t options = NXD_CROSS_ENTROPY_OPTIONS_INIT;
    nxd_tensor_t* out = x.get();
    NXD_TEST_REFUSED(loss(options, rank == 1 ? nullptr : &out), NXD_ERROR_INVALID_ARGUMENT,
                     "out_loss: expected a pointer");
    if (rank == 1) options.struct_size = 3;
    out = x.get();
    NXD_TEST_REFUSED(loss(options, &out),
                     rank == 1 ? NXD_ERROR_ABI_MISMATCH : NXD_ERROR_INVALID_ARGUMENT,
                     "struct_size: expected");
    NXD_TEST_CHECK(out == nullptr);
    Tensor good;
    options = NXD_CROSS_ENTROPY_OPTIONS_INIT;
    NXD_TEST_OK(loss(options, good.out()));
  }
}

void too_early(nxd_context_t* ctx, int, int, void*) {
  const Tensor x = wave({8, 8}, NXD_DTYPE_F32, 1);
  for (const Mapping& m : all_mappings()) {
    nxd_tensor_t* out = x.get();
    NXD_TEST_REFUSED(m.call(ctx, x.get(), 0, &out), NXD_ERROR_INVALID_STATE,
                     "nxd_init_model_parallel");
    NXD_TEST_CHECK(out == nullptr);
  }
  nxd_tensor_t* out = x.get();
  NXD_TEST_REFUSED(
      nxd_parallel_cross_entropy(ctx, x.get(), from_ints({1}, {1}).get(), nullptr, &out),
      NXD_ERROR_INVALID_STATE, "nxd_init_model_parallel");
  NXD_TEST_CHECK(out == nullptr);
  out = x.get();
  NXD_TEST_REFUSED(
      nxd_linear_cross_entropy(ctx, x.get(), x.get(), from_ints({1}, {1}).get(), -1, nullptr, &out),
      NXD_ERROR_INVALID_STATE, "nxd_init_model_parallel");
  NXD_TEST_CHECK(out == nullptr);
}

void bad_mappings(void**) {
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, mappings, nullptr);
}
void bad_losses(void**) { nxd_test_run_ranks(2, 2, losses, nullptr); }
void before_layout(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, 0, too_early, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(bad_mappings),
      cmocka_unit_test(bad_losses),
      cmocka_unit_test(before_layout),
  };
  return cmocka_run_group_tests_name("bad_calls_mappings", tests, nullptr, nullptr);
}
