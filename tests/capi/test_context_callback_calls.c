/* Calls that an interrupt callback makes itself are no part of the one that it is asked in: the
 * group of that one takes no other until it ends, its context and group are not destroyed under it,
 * and other groups may be called. */
#include <semaphore.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

static nxd_context_t* context;
static nxd_group_t *world, *other;
static sem_t asked;

/* Done once in the callback, by the rank that has set it; its status is the callback's answer. */
static _Thread_local nxd_status_t (*in_callback)(void);

static nxd_status_t interrupt(void* user_data) {
  (void)user_data;
  nxd_status_t (*const now)(void) = in_callback;
  in_callback = NULL;
  if (!now) return NXD_OK;
  sem_post(&asked);
  return now();
}

static nxd_status_t sum(nxd_group_t* group, float value, float* out) {
  return nxd_all_reduce(group, &value, out, 1, NXD_DTYPE_F32, NXD_REDUCE_SUM);
}

static void check_sum(nxd_group_t* group, float value, float expected) {
  float out = 0;
  NXD_TEST_OK(sum(group, value, &out));
  NXD_TEST_CHECK(out == expected);
}

static nxd_status_t call_same_group(void) {
  const char* const why = "callback of a call cannot make another on the call's group";
  float out = 7;
  nxd_work_t* work = NULL;
  NXD_TEST_REFUSED(sum(world, 1000, &out), NXD_ERROR_INVALID_STATE, why);
  NXD_TEST_CHECK(out == 7);
  NXD_TEST_REFUSED(nxd_barrier(world), NXD_ERROR_INVALID_STATE, why);
  NXD_TEST_REFUSED(nxd_send(world, &out, 1, NXD_DTYPE_F32, 1, 0), NXD_ERROR_INVALID_STATE, why);
  NXD_TEST_REFUSED(nxd_barrier_async(world, &work), NXD_ERROR_INVALID_STATE, why);
  NXD_TEST_CHECK(work == NULL);
  return NXD_OK;
}

static nxd_status_t call_other_group(void) {
  check_sum(other, 10, 30);
  return NXD_OK;
}

static nxd_status_t destroy_all(void) {
  const char* const why = "the interrupt callback cannot do this while a call is interrupted";
  NXD_TEST_REFUSED(nxd_context_finalize(context), NXD_ERROR_INVALID_STATE, why);
  NXD_TEST_REFUSED(nxd_destroy_model_parallel(context), NXD_ERROR_INVALID_STATE, why);
  nxd_context_destroy(context);
  return NXD_OK;
}

static nxd_status_t destroy_group(void) {
  nxd_group_destroy(other);
  return NXD_OK;
}

static nxd_status_t fail_itself(void) { return nxd_group_set_timeout(world, -5); }

/* Rank 0's sum asks the callback; its peer comes then. */
static void sums(int rank, nxd_group_t* group, nxd_status_t (*body)(void)) {
  if (rank == 0) in_callback = body;
  if (rank == 1) sem_wait(&asked);
  check_sum(group, rank == 0 ? 1 : 2, 3);
  NXD_TEST_CHECK(in_callback == NULL);
}

static void body(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  const int32_t ranks[] = {0, 1};
  nxd_group_t *own_world = NULL, *own_other = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &own_world));
  NXD_TEST_OK(nxd_group_create(ctx, ranks, (size_t)size, "other", &own_other));
  /* The callbacks are rank 0's, and rank 1 has groups of its own. */
  if (rank == 0) context = ctx, world = own_world, other = own_other;
  sums(rank, own_world, call_same_group);
  if (rank == 1) {
    sem_wait(&asked);
    check_sum(own_other, 20, 30);
  } else {
    in_callback = call_other_group;
  }
  check_sum(own_world, 1, 2);
  sums(rank, own_world, destroy_all);
  sums(rank, own_other, destroy_group);
  check_sum(own_world, 1, 2);
  if (rank == 0) {
    in_callback = fail_itself;
    NXD_TEST_REFUSED(nxd_barrier(own_world), NXD_ERROR_INVALID_ARGUMENT,
                     "interrupted by the interrupt callback: timeout_ms: expected a positive");
  } else {
    sem_wait(&asked); /* stays away from that barrier */
  }
  nxd_group_destroy(own_other);
}

static void test_calls(void** state) {
  (void)state;
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  options.interrupt = interrupt;
  assert_int_equal(sem_init(&asked, 0, 0), 0);
  nxd_test_run_ranks_with(&options, 2, 1, body, NULL);
  sem_destroy(&asked);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
