// Weights of losses that one rank cannot ask for: all ranks fail with its status and its reason.
#include "engine/training/loss_weights.h"

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "capi/handles.h"

#include "support/ranks.h"

#include "support/check.h"

namespace {

using nxd::Outcome;

void check_failure(nxd_context_t* ctx, int rank, const Outcome& given, nxd_status_t status) {
  const at::Tensor labels = at::ones({1, 4}, at::kLong);
  try {
    nxd::loss_weights(*ctx->value, {labels}, -100, true, given);
    NXD_TEST_CHECK(!"an error");
  } catch (const nxd::Error& error) {
    NXD_TEST_CHECK(error.status() == status);
    const std::string reason = error.what();
    NXD_TEST_CHECK(reason.find("the reason") != std::string::npos);
    NXD_TEST_CHECK(rank == 1 || reason.find("rank 1") != std::string::npos);
  }
}

void test_status(void**) {
  nxd_test_run_ranks(
      2, 1,
      [](nxd_context_t* ctx, int rank, int, void*) {
        for (const nxd_status_t status :
             {NXD_ERROR_INVALID_ARGUMENT, NXD_ERROR_ABI_MISMATCH, NXD_ERROR_OUT_OF_MEMORY}) {
          const Outcome given = Outcome::of(rank, [&] {
            if (rank == 1) throw nxd::Error(status, "the reason");
          });
          check_failure(ctx, rank, given, status);
        }
        // The group is as it was.
        const std::vector<double> weights =
            nxd::loss_weights(*ctx->value, {at::ones({1, 4}, at::kLong)}, -100, true);
        NXD_TEST_CHECK(weights.size() == 1 && weights[0] == 0.5);
      },
      nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_status)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
