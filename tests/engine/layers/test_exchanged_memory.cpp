// Where layers put what their ranks sum and gather: in memory that collectives work on in place,
// which comes back when the tensors go, and may outlive the context.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <vector>

#include "core/comm/transports/shm/shm_staged.h"
#include "support/tensor.h"

extern "C" {
#include <cmocka.h>
}

using namespace nxd_test;

namespace {

constexpr int64_t kRows = 1024, kHidden = 128, kWide = 64;  // 512 KB of f32: no small data

nxd_memory_stats_t stats() {
  nxd_memory_stats_t stats = {};
  stats.struct_size = sizeof(stats);
  NXD_TEST_OK(nxd_memory_get_stats(&stats));
  return stats;
}

struct Run {
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  bool sequence_parallel = false;
  std::vector<Tensor> outputs{2};  // by rank
};

// Embedding, column and row layer, forward and backward.
void run(nxd_context_t* ctx, int rank, int size, void* user_data) {
  Run& r = *static_cast<Run*>(user_data);
  nxd_embedding_options_t embedding = NXD_EMBEDDING_OPTIONS_INIT;
  nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
  embedding.dtype = linear.dtype = r.dtype;
  embedding.sequence_parallel = linear.sequence_parallel = r.sequence_parallel;
  linear.gather_output = NXD_TOGGLE_OFF;
  linear.input_is_parallel = 1;
  Module table, column, row;
  if (!NXD_TEST_OK(
          nxd_layer_create_parallel_embedding(ctx, 64, kHidden, &embedding, table.out())) ||
      !NXD_TEST_OK(
          nxd_layer_create_column_parallel_linear(ctx, kHidden, kWide, &linear, column.out())) ||
      !NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, kWide, kHidden, &linear, row.out()))) {
    return;
  }
  std::vector<int64_t> ids(kRows);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 7 % 64);
  for (int step = 0; step < 2; ++step) {
    const Tensor x = table({from_ints(ids, {kRows})});
    const Tensor y = row({column({x})});
    if (!y) return;
    backward(y, part(wave({kRows, kHidden}, r.dtype, 3), r.sequence_parallel ? 0 : -1, rank, size));
    r.outputs[static_cast<size_t>(rank)] = y;
  }
}

// Nothing of it passes through the slots of buffers that lie anywhere.
void nothing_goes_through_slots(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const bool sequence_parallel : {false, true}) {
      Run r;
      r.dtype = dtype;
      r.sequence_parallel = sequence_parallel;
      const uint64_t chunks = nxd::ShmStaged::chunks_of_process();
      nxd_test_run_ranks(2, 2, run, &r);
      assert_int_equal(nxd::ShmStaged::chunks_of_process(), chunks);
    }
  }
}

void sum_of_plain_memory(nxd_context_t* ctx, int, int, void*) {
  std::vector<float> data(kRows * kHidden, 1.0F);
  nxd_group_t* world = nullptr;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(
      nxd_all_reduce(world, data.data(), data.data(), data.size(), NXD_DTYPE_F32, NXD_REDUCE_SUM));
  NXD_TEST_CHECK(data.back() == 2.0F);
}

// The count above counts.
void plain_memory_goes_through_slots(void**) {
  const uint64_t chunks = nxd::ShmStaged::chunks_of_process();
  nxd_test_run_ranks(2, 2, sum_of_plain_memory, nullptr);
  assert_true(nxd::ShmStaged::chunks_of_process() > chunks);
}

// An output that the caller keeps is good after all else is gone, and its memory then comes back.
void outputs_outlive_the_context(void**) {
  const nxd_memory_stats_t before = stats();
  {
    Run r;
    nxd_test_run_ranks(2, 2, run, &r);
    assert_true(stats().arena_bytes_in_use >= before.arena_bytes_in_use + kRows * kHidden * 4);
    const std::vector<double> first = values(r.outputs[0]), second = values(r.outputs[1]);
    assert_true(max_abs(first) > 0);
    assert_true(first == second);
  }
  assert_int_equal(stats().arena_bytes_in_use, before.arena_bytes_in_use);
  assert_int_equal(stats().arena_bytes_reserved, before.arena_bytes_reserved);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(nothing_goes_through_slots),
      cmocka_unit_test(plain_memory_goes_through_slots),
      cmocka_unit_test(outputs_outlive_the_context),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
