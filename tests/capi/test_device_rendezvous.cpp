// A rendezvous ends the step of every rank: what was recorded runs before the ranks meet, closures
// too, and the failure of one rank's step is that of all.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "support/device.h"
#include "support/pjrt.h"
#include "support/tensor.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr int kRanks = 2;

void run_ranks(const std::function<void(nxd_context_t*, int)>& body) {
  nxd_test_run_ranks(
      kRanks, 0,
      [](nxd_context_t* ctx, int rank, int, void* user_data) {
        (*static_cast<const std::function<void(nxd_context_t*, int)>*>(user_data))(ctx, rank);
      },
      const_cast<std::function<void(nxd_context_t*, int)>*>(&body));
}

nxd_status_t meet(nxd_context_t* ctx) {
  nxd_group_t* world = nullptr;
  nxd_payloads_t* all = nullptr;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  const nxd_status_t status = nxd_group_rendezvous(world, "the end of a step", "x", 1, &all);
  NXD_TEST_CHECK((all != nullptr) == (status == NXD_OK));
  nxd_payloads_destroy(all);
  return status;
}

Tensor on_device(const Tensor& x) {
  Tensor out;
  NXD_TEST_OK(nxd_tensor_to_device(x.get(), NXD_DEVICE_XLA, out.out()));
  return out;
}

nxd_status_t count_call(void* calls) {
  ++*static_cast<int*>(calls);
  return NXD_OK;
}

void ends_the_step(void**) {
  NXD_TEST_OK(nxd_device_reset_metrics());
  run_ranks([](nxd_context_t* ctx, int rank) {
    const Tensor x = on_device(wave({3}, NXD_DTYPE_F32, 1));
    for (const int32_t wait : {1, 0}) {
      int calls = 0;
      const Tensor sum = op("sum", {{"self", x}});
      NXD_TEST_OK(nxd_add_step_closure(count_call, &calls, nullptr));
      // One rank's step may run already.
      if (wait == 0 && rank == 0) NXD_TEST_OK(nxd_mark_step(0));
      NXD_TEST_OK(meet(ctx));
      NXD_TEST_CHECK(calls == 1);
      const double want = op("sum", {{"self", wave({3}, NXD_DTYPE_F32, 1)}}).item();
      NXD_TEST_CHECK(std::fabs(sum.item() - want) < 1e-6);
    }
    // Nothing was recorded.
    NXD_TEST_OK(meet(ctx));
  });
  assert_int_equal(metrics().steps, 2 * kRanks);
  assert_int_equal(metrics().executions, 2 * kRanks);
  assert_int_equal(metrics().implicit_syncs, 0);
}

// An index out of range on one rank.
void a_step_that_fails_fails_on_all(void**) {
  run_ranks([](nxd_context_t* ctx, int rank) {
    const Tensor table = on_device(wave({6, 4}, NXD_DTYPE_F32, 1));
    const int64_t index = rank == 1 ? 100 : 2, shape[] = {1};
    Tensor ids;
    NXD_TEST_OK(nxd_tensor_from_data(&index, sizeof index, shape, 1, NXD_DTYPE_I64, ids.out()));
    const Tensor taken = op("take", {{"self", table}, {"index", on_device(ids)}});
    NXD_TEST_CHECK(meet(ctx) != NXD_OK);
    const std::string message = nxd_last_error();
    NXD_TEST_CHECK(message.find(rank == 1 ? "aten::take" : "rank 1") != std::string::npos);
    NXD_TEST_OK(meet(ctx));
  });
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ends_the_step),
      cmocka_unit_test(a_step_that_fails_fails_on_all),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
