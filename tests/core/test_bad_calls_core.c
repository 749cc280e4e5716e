/* Bad calls of the functions of nxd/core.h that no other test rejects. */
#include <stdlib.h>
#include <string.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

static void test_null_handles(void** state) {
  (void)state;
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
  int32_t number = 5;
  size_t size = 5;
  float x[4] = {1, 2, 3, 4};
  NXD_TEST_REFUSED(nxd_all_gather(NULL, x, x, 1, NXD_DTYPE_F32), bad, "group");
  NXD_TEST_REFUSED(nxd_reduce_scatter(NULL, x, x, 1, NXD_DTYPE_F32, NXD_REDUCE_SUM), bad, "group");
  NXD_TEST_REFUSED(nxd_broadcast(NULL, x, 1, NXD_DTYPE_F32, 0), bad, "group");
  NXD_TEST_REFUSED(nxd_all_to_all(NULL, x, x, 1, NXD_DTYPE_F32), bad, "group");
  NXD_TEST_REFUSED(nxd_group_get_size(NULL, &number), bad, "group");
  assert_int_equal(number, 0);
  number = 5;
  NXD_TEST_REFUSED(nxd_group_get_rank(NULL, &number), bad, "group");
  assert_int_equal(number, 0);
  NXD_TEST_REFUSED(nxd_group_get_ranks(NULL, NULL, 0, &size), bad, "group");
  assert_int_equal(size, 0);
  number = 5;
  NXD_TEST_REFUSED(nxd_group_get_transport(NULL, &number), bad, "group");
  assert_int_equal(number, 0);
  NXD_TEST_REFUSED(nxd_context_get_size(NULL, &number), bad, "ctx");
  NXD_TEST_REFUSED(nxd_context_get_local_rank(NULL, &number), bad, "ctx");
  NXD_TEST_REFUSED(nxd_context_set_plain_kernels(NULL, 1), bad, "ctx");
  NXD_TEST_REFUSED(nxd_context_get_plain_kernels(NULL, &number), bad, "ctx");
  NXD_TEST_REFUSED(nxd_parallel_get_rank(NULL, NXD_AXIS_TENSOR, &number), bad, "ctx");
  NXD_TEST_REFUSED(nxd_parallel_get_source_rank(NULL, NXD_AXIS_TENSOR, &number), bad, "ctx");
  NXD_TEST_REFUSED(nxd_parallel_get_pipeline_next_rank(NULL, &number), bad, "ctx");
  NXD_TEST_REFUSED(nxd_parallel_get_pipeline_previous_rank(NULL, &number), bad, "ctx");
  NXD_TEST_REFUSED(nxd_parallel_get_group_list(NULL, NXD_AXIS_DATA, 0, NULL, 0, &size, &number),
                   bad, "ctx");
  NXD_TEST_REFUSED(nxd_job_get_size(NULL, &number), bad, "job");
  NXD_TEST_REFUSED(nxd_spawn_options_init(NULL, sizeof(nxd_spawn_options_t)), bad, "options");
  assert_int_equal(nxd_model_parallel_is_initialized(NULL), 0);
  assert_int_equal(nxd_test_failures(), 0);
}

/* Before nxd_init_model_parallel, then with outputs and axes that are wrong. */
static void refuse_on_rank(nxd_context_t* ctx, int rank, int size, void* user_data) {
  (void)rank;
  (void)user_data;
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT, early = NXD_ERROR_INVALID_STATE;
  int32_t number = 5;
  nxd_group_t* group = NULL;
  NXD_TEST_REFUSED(nxd_parallel_get_rank(ctx, NXD_AXIS_TENSOR, &number), early, "initiali");
  NXD_TEST_REFUSED(nxd_parallel_get_source_rank(ctx, NXD_AXIS_DATA, &number), early, "initiali");
  NXD_TEST_REFUSED(nxd_parallel_get_pipeline_next_rank(ctx, &number), early, "initiali");
  NXD_TEST_REFUSED(nxd_parallel_get_pipeline_previous_rank(ctx, &number), early, "initiali");
  NXD_TEST_REFUSED(nxd_destroy_model_parallel(ctx), early, "initiali");
  NXD_TEST_OK(nxd_init_model_parallel(ctx, NULL));
  NXD_TEST_REFUSED(nxd_parallel_get_rank(ctx, 99, &number), bad, "99");
  NXD_TEST_REFUSED(nxd_parallel_get_source_rank(ctx, -1, &number), bad, "-1");
  NXD_TEST_REFUSED(nxd_parallel_get_rank(ctx, NXD_AXIS_DATA, NULL), bad, "NULL");
  NXD_TEST_OK(nxd_parallel_get_rank(ctx, NXD_AXIS_DATA, &number));
  NXD_TEST_CHECK(number == rank);

  /* Every rank's arguments are bad alike; then the group still works. */
  float x[8] = {0};
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &group));
  NXD_TEST_REFUSED(nxd_all_gather(group, NULL, x, 1, NXD_DTYPE_F32), bad, "send");
  NXD_TEST_REFUSED(nxd_reduce_scatter(group, x, NULL, 1, NXD_DTYPE_F32, NXD_REDUCE_SUM), bad,
                   "receive");
  NXD_TEST_REFUSED(nxd_reduce_scatter(group, x, x + 4, 1, NXD_DTYPE_U8, NXD_REDUCE_SUM), bad,
                   "dtype");
  NXD_TEST_REFUSED(nxd_broadcast(group, x, 1, NXD_DTYPE_F32, size), bad, "root");
  NXD_TEST_REFUSED(nxd_all_to_all(group, x, x + 4, 1, 99), bad, "dtype");
  /* Counts that no buffer has, such as -1. */
  const size_t huge[] = {SIZE_MAX, (size_t)1 << 60, (size_t)1 << 58};
  for (size_t i = 0; i < 3; ++i) {
    NXD_TEST_REFUSED(nxd_all_reduce(group, x, x + 4, huge[i], NXD_DTYPE_F32, NXD_REDUCE_SUM), bad,
                     "do not fit in memory");
    NXD_TEST_REFUSED(nxd_broadcast(group, x, huge[i], NXD_DTYPE_U8, 0), bad,
                     "do not fit in memory");
    nxd_work_t* work = NULL;
    NXD_TEST_OK(nxd_all_gather_async(group, x, x + 4, huge[i], NXD_DTYPE_F32, &work));
    NXD_TEST_REFUSED(nxd_work_wait(work, 60000), bad, "do not fit in memory");
    nxd_work_destroy(work);
  }
  nxd_store_t* store = NULL;
  NXD_TEST_OK(nxd_store_create_local(&store));
  NXD_TEST_REFUSED(nxd_store_set(store, "key", x, SIZE_MAX), bad, "at most");
  nxd_store_destroy(store);
  NXD_TEST_OK(nxd_group_get_size(group, &number));
  NXD_TEST_CHECK(number == size);
  x[0] = 1;
  NXD_TEST_OK(nxd_all_reduce(group, x, x, 1, NXD_DTYPE_F32, NXD_REDUCE_SUM));
  NXD_TEST_CHECK(x[0] == (float)size);
}

static void test_on_ranks(void** state) {
  (void)state;
  nxd_test_run_ranks(1, 0, refuse_on_rank, NULL);
  nxd_test_run_ranks(2, 0, refuse_on_rank, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_null_handles),
      cmocka_unit_test(test_on_ranks),
  };
  return cmocka_run_group_tests_name("bad calls, core", tests, NULL, NULL);
}
