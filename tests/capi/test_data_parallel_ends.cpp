// A step that is not completed: a ddp that is destroyed in the middle of one, and ranks that are
// lost.
#include <chrono>
#include <thread>

#include "support/buffer_model.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

nxd_status_t create_in_buckets(nxd_context_t* ctx, BufferModel& model, int64_t bytes, Ddp& out) {
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.bucket_bytes = bytes;
  return model.create_ddp(ctx, options, out);
}

// Buffers are the caller's again once the ddp is destroyed, and the group goes on.
void destroyed_under_way(void**) {
  on_ranks<int>(2, [](nxd_context_t* ctx, int, int) {
    for (size_t marks = 1; marks <= 6; ++marks) {
      BufferModel model(ragged_shapes(), NXD_DTYPE_F32, NXD_DTYPE_F32);
      Ddp ddp;
      if (!NXD_TEST_OK(create_in_buckets(ctx, model, 64, ddp))) return 0;
      for (size_t k = 0; k < marks; ++k) NXD_TEST_OK(nxd_ddp_mark_ready(ddp.get(), 5 - k));
    }
    return 0;
  });
}

// A rank that marks while its peer does not has no staging bucket left for the third one.
// Destroyed, it has started as many as the peer, and the group's next call is the same one on both.
void destroyed_before_a_bucket_was_free(void**) {
  constexpr size_t kBuckets = 5;
  on_ranks<int>(
      2,
      [](nxd_context_t* ctx, int rank, int) {
        for (size_t marks = 5; marks <= 2 * kBuckets; ++marks) {
          BufferModel model(Shapes(2 * kBuckets, {1000}), NXD_DTYPE_F32, NXD_DTYPE_F32);
          Ddp ddp;
          if (!NXD_TEST_OK(create_in_buckets(ctx, model, 8000, ddp))) return 0;
          for (size_t k = 0; k < marks; ++k) {
            // Long enough for a bucket to end between this rank's marks.
            if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(k == 0 ? 50 : 5));
            NXD_TEST_OK(nxd_ddp_mark_ready(ddp.get(), 2 * kBuckets - 1 - k));
          }
          ddp.reset();
          nxd_group_t* world = nullptr;
          NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
          if (!NXD_TEST_OK(nxd_barrier(world))) return 0;
        }
        return 0;
      },
      5000);
}

void lost_peers(void**) {
  for (const bool marks : {true, false}) {
    on_ranks<int>(
        3,
        [&](nxd_context_t* ctx, int rank, int) {
          BufferModel model(ragged_shapes(), NXD_DTYPE_F32, NXD_DTYPE_F32);
          Ddp ddp;
          if (!NXD_TEST_OK(create_in_buckets(ctx, model, 64, ddp))) return 0;
          NXD_TEST_OK(nxd_ddp_finish(ddp.get(), nullptr, nullptr));
          if (rank == 2) {
            if (marks) NXD_TEST_OK(nxd_ddp_mark_ready(ddp.get(), 5));
            nxd_context_abort(ctx);
            return 0;
          }
          for (int again = 0; again < 2; ++again) {
            nxd_status_t status = NXD_OK;
            for (size_t k = model.grads.size(); marks && status == NXD_OK && k-- > 0;) {
              status = nxd_ddp_mark_ready(ddp.get(), k);
            }
            if (status == NXD_OK) status = nxd_ddp_finish(ddp.get(), nullptr, nullptr);
            NXD_TEST_REFUSED(status, NXD_ERROR_PEER_LOST, "");
            nxd_error_info_t info = {};
            info.struct_size = sizeof info;
            NXD_TEST_OK(nxd_last_error_info(&info));
            NXD_TEST_CHECK(info.root_rank == 2);
          }
          return 0;
        },
        5000);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(destroyed_under_way),
                              cmocka_unit_test(destroyed_before_a_bucket_was_free),
                              cmocka_unit_test(lost_peers)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
