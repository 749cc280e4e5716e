// One thread ends the layout of a context and makes it anew while others use what was made from the
// context: each gets a layout that lives, or hears that there is none.
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "capi/handles.h"

#include "core/world/context.h"
#include "support/buffer_model.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr int kLayouts = 300;

// use: INVALID_STATE, or a value; until the layouts of the context have come and gone.
void beside_layouts(nxd_context_t* ctx, const std::vector<std::function<void()>>& uses) {
  std::atomic<bool> ended{false};
  std::vector<std::thread> threads;
  for (const auto& use : uses) {
    threads.emplace_back([&ended, &use] {
      do {
        use();
      } while (!ended);
    });
  }
  for (int i = 0; i < kLayouts; ++i) {
    NXD_TEST_OK(nxd_init_model_parallel(ctx, nullptr));
    NXD_TEST_OK(nxd_destroy_model_parallel(ctx));
  }
  ended = true;
  for (std::thread& thread : threads) thread.join();
}

void test_ddp(void**) {
  nxd_test_run_ranks(
      1, 0,
      [](nxd_context_t* ctx, int, int, void*) {
        Array param({4}, NXD_DTYPE_F32), grad({4}, NXD_DTYPE_F32);
        const char* const name = "w";
        DLTensor *const p = param.tensor(), *const g = grad.tensor();
        nxd_ddp_t* made = nullptr;
        if (!NXD_TEST_OK(nxd_ddp_create_buffers(ctx, nullptr, &name, &p, &g, 1, nullptr, &made)))
          return;
        const Ddp ddp(made);
        const nxd_placement_t placement = NXD_PLACEMENT_REPLICATED;
        const int32_t dim = 0;
        beside_layouts(ctx, {[&] {
                         const nxd_status_t status =
                             nxd_ddp_set_placements(ddp.get(), &placement, &dim, nullptr, 1);
                         NXD_TEST_CHECK(status == NXD_OK || status == NXD_ERROR_INVALID_STATE);
                       }});
      },
      nullptr);
}

// As modules and checkpoints do, which know the context and not its handle.
void test_context(void**) {
  nxd_test_run_ranks(
      1, 0,
      [](nxd_context_t* ctx, int, int, void*) {
        nxd::Context& context = *ctx->value;
        beside_layouts(ctx,
                       {[&] { NXD_TEST_CHECK(context.reduce_dtype() == NXD_DTYPE_F32); },
                        [&] { NXD_TEST_CHECK(context.shared_group({0}, "shared")->size() == 1); },
                        [&] {
                          const auto layout = context.find_parallel();
                          if (layout) NXD_TEST_CHECK(layout->group(NXD_AXIS_TENSOR)->size() == 1);
                        }});
      },
      nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_ddp), cmocka_unit_test(test_context)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
