// Tensor-parallel ranks draw the same random bits, or have no layout.
#include <thread>
#include <vector>

#include "support/handles.h"
#include "support/ranks.h"

#include "support/check.h"

namespace {

constexpr int kRanks = 4;

nxd_status_t init_layout(nxd_context_t* ctx) {
  nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
  layout.tensor_parallel_size = 2;
  return nxd_init_model_parallel(ctx, &layout);
}

template <class Body>
void with_seeds(const std::vector<uint64_t>& seeds, const Body& body) {
  nxd_store_t* store = nullptr;
  assert_int_equal(nxd_store_create_local(&store), NXD_OK);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
      options.rendezvous = NXD_RENDEZVOUS_STORE;
      options.store = store;
      options.rank = options.local_rank = rank;
      options.size = kRanks;
      options.timeout_ms = 20000;
      options.seed = seeds[static_cast<size_t>(rank)];
      nxd_context_t* ctx = nullptr;
      if (!NXD_TEST_OK(nxd_context_create(&options, &ctx))) return;
      body(ctx);
      NXD_TEST_OK(nxd_context_finalize(ctx));
      nxd_context_destroy(ctx);
    });
  }
  for (std::thread& thread : threads) thread.join();
  nxd_store_destroy(store);
}

void one_rank_differs(void**) {
  with_seeds({5, uint64_t{5} << 40, 5, 5}, [](nxd_context_t* ctx) {
    NXD_TEST_REFUSED(init_layout(ctx), NXD_ERROR_INVALID_ARGUMENT,
                     "seed of tensor-parallel ranks: expected the same on all ranks, got another "
                     "on rank 1 than on rank 0");
    NXD_TEST_CHECK(nxd_model_parallel_is_initialized(ctx) == 0);
    NXD_TEST_OK(nxd_init_model_parallel(ctx, nullptr));  // shares no tensors
  });
}

void copies_may_differ(void**) {
  with_seeds({5, 5, 9, 9}, [](nxd_context_t* ctx) { NXD_TEST_OK(init_layout(ctx)); });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(one_rank_differs),
                              cmocka_unit_test(copies_may_differ)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
