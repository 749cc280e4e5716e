// Tensor-parallel ranks draw the same random bits, or have no layout.
#include <thread>
#include <vector>

#include "support/buffer_model.h"
#include "support/handles.h"
#include "support/ranks.h"
#include "support/temp_dir.h"

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

// Copies that round their parameters themselves, by other bits, would part. With ZeRO-1 each part
// is rounded once.
void copies_that_round(void**) {
  with_seeds({5, 5, 9, 9}, [](nxd_context_t* ctx) {
    NXD_TEST_OK(init_layout(ctx));
    for (const int zero_stage : {0, 1}) {
      nxd_test::Array param({64}, NXD_DTYPE_BF16), grad({64}, NXD_DTYPE_BF16);
      DLTensor *const params[] = {param.tensor()}, *const grads[] = {grad.tensor()};
      nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
      options.zero_stage = zero_stage;
      nxd_ddp_t* ddp = nullptr;
      NXD_TEST_OK(nxd_ddp_create_buffers(ctx, nullptr, nullptr, params, grads, 1, &options, &ddp));
      nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
      sgd.bf16_update = NXD_BF16_UPDATE_STOCHASTIC;
      nxd_optimizer_t* optimizer = nullptr;
      NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp, &sgd, &optimizer));
      if (zero_stage == 0) {
        NXD_TEST_REFUSED(nxd_optimizer_step(optimizer, nullptr, nullptr),
                         NXD_ERROR_INVALID_ARGUMENT,
                         "seed by which copies round bf16 stochastically: expected "
                         "the same on all ranks");
      } else {
        NXD_TEST_OK(nxd_optimizer_step(optimizer, nullptr, nullptr));
      }
      nxd_optimizer_destroy(optimizer);
      nxd_ddp_destroy(ddp);
    }
  });
}

// Copies of other seeds go on from what they have saved, and a seed of none of them does not.
void copies_that_go_on(void**) {
  const nxd_test::TempDir directory;
  const char* const root = directory.path().c_str();
  with_seeds({5, 5, 9, 9}, [&](nxd_context_t* ctx) {
    NXD_TEST_OK(nxd_context_set_step(ctx, 3, 1));
    nxd_checkpoint_t* checkpoint = nullptr;
    NXD_TEST_OK(nxd_checkpoint_create(ctx, root, 3, &checkpoint));
    NXD_TEST_OK(nxd_checkpoint_publish(checkpoint, 0));
    nxd_checkpoint_destroy(checkpoint);
  });
  for (const uint64_t last : {5, 9, 7}) {
    with_seeds({5, 5, 9, last}, [&](nxd_context_t* ctx) {
      nxd_checkpoint_t* checkpoint = nullptr;
      NXD_TEST_OK(nxd_checkpoint_open_newest(ctx, root, 1, &checkpoint));
      int32_t rank = 0;
      NXD_TEST_OK(nxd_context_get_rank(ctx, &rank));
      if (rank == 3 && last == 7) {
        NXD_TEST_REFUSED(nxd_checkpoint_restore_random_state(checkpoint), NXD_ERROR_INVALID_STATE,
                         "the seed 5, or that of another rank, that it was written with, the "
                         "context has 7");
      } else {
        NXD_TEST_OK(nxd_checkpoint_restore_random_state(checkpoint));
        int64_t step = 0, microbatch = 0;
        NXD_TEST_OK(nxd_context_get_step(ctx, &step, &microbatch));
        NXD_TEST_CHECK(step == 3 && microbatch == 1);
      }
      nxd_checkpoint_destroy(checkpoint);
    });
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(one_rank_differs), cmocka_unit_test(copies_may_differ),
      cmocka_unit_test(copies_that_round), cmocka_unit_test(copies_that_go_on)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
