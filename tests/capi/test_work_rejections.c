/* A call that one rank rejects before it can make it: the peers, which make it, are told the reason
 * at once, and the group goes on. */
#include <stdio.h>
#include <string.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

enum { kRanks = 4, kCount = 3 };

static const char kReason[] = "array: expected an array of numbers, got a list";

static void check_sum(nxd_group_t* group, int size) {
  int32_t value = 1, sum = 0;
  NXD_TEST_OK(nxd_all_reduce(group, &value, &sum, 1, NXD_DTYPE_I32, NXD_REDUCE_SUM));
  NXD_TEST_CHECK(sum == size);
}

/* The collective number i, on ranks whose arguments are good. */
static nxd_status_t call(nxd_group_t* group, int i) {
  float send[kCount * kRanks] = {0}, recv[kCount * kRanks];
  switch (i) {
    case 0: return nxd_all_reduce(group, send, recv, kCount, NXD_DTYPE_F32, NXD_REDUCE_SUM);
    case 1: return nxd_all_gather(group, send, recv, kCount, NXD_DTYPE_F32);
    case 2: return nxd_reduce_scatter(group, send, recv, kCount, NXD_DTYPE_F32, NXD_REDUCE_SUM);
    case 3: return nxd_broadcast(group, send, kCount, NXD_DTYPE_F32, 1);
    case 4: return nxd_all_to_all(group, send, recv, kCount, NXD_DTYPE_F32);
    default: return nxd_barrier(group);
  }
}

static void check_told(nxd_status_t status, int rank, int by) {
  char named[32];
  snprintf(named, sizeof named, "rank %d rejected", by);
  nxd_error_info_t info = {.struct_size = sizeof info};
  nxd_last_error_info(&info);
  NXD_TEST_CHECK(info.root_rank == by);
  NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, kReason);
  if (rank == by) return;
  NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, named);
  /* Not passed on as the error of a rank between. */
  const char* told = strstr(nxd_last_error(), "rejected");
  NXD_TEST_CHECK(told && !strstr(told + 1, "rejected"));
}

static void collectives(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  /* The last two are for collectives without a name. */
  static const char* const names[] = {"all_reduce", "all_gather", "reduce_scatter",
                                      "broadcast",  "all_to_all", "barrier",
                                      NULL,         "make_ddp"};
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  for (int i = 0; i < (int)(sizeof names / sizeof *names); ++i) {
    const int by = i % size;
    check_told(rank == by ? nxd_group_reject(world, names[i], -1, -1, kReason) : call(world, i),
               rank, by);
    check_sum(world, size);
  }
}

/* Rejected without waiting, between good works; the last one is taken back before it may begin. */
static void works(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  nxd_group_t* world = NULL;
  nxd_work_t *bad = NULL, *good = NULL, *last = NULL;
  int32_t one = 1, sum = 0;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  for (int by = 0; by < size; ++by) {
    NXD_TEST_OK(rank == by ? nxd_group_reject_async(world, "barrier", -1, -1, kReason, &bad)
                           : nxd_barrier_async(world, &bad));
    NXD_TEST_OK(nxd_all_reduce_async(world, &one, &sum, 1, NXD_DTYPE_I32, NXD_REDUCE_SUM, &good));
    NXD_TEST_OK(rank == by ? nxd_group_reject_async(world, "barrier", -1, -1, kReason, &last)
                           : nxd_barrier_async(world, &last));
    const int taken_back = rank == by && nxd_work_cancel(last) == NXD_OK;
    check_told(nxd_work_wait(bad, -1), rank, by);
    NXD_TEST_OK(nxd_work_wait(good, -1));
    NXD_TEST_CHECK(sum == size);
    const nxd_status_t end = nxd_work_wait(last, -1);
    if (taken_back)
      NXD_TEST_CHECK(end == NXD_ERROR_ABORTED);
    else
      check_told(end, rank, by);
    check_sum(world, size);
    nxd_work_destroy(bad);
    nxd_work_destroy(good);
    nxd_work_destroy(last);
  }
  /* Without a place for the work the peers are told as well. */
  NXD_TEST_REFUSED(rank == 0 ? nxd_group_reject_async(world, "barrier", -1, -1, kReason, NULL)
                             : nxd_barrier(world),
                   NXD_ERROR_INVALID_ARGUMENT, rank == 0 ? "out_work" : kReason);
  check_sum(world, size);
}

/* Rank 0 and the last one, which are on two hosts where there are two. */
static void messages(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  const int last = size - 1;
  float data[kCount] = {0};
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  if (rank == 0) {
    check_told(nxd_group_reject(world, "send", last, 7, kReason), rank, 0);
    check_told(nxd_receive(world, data, kCount, NXD_DTYPE_F32, last, 7), rank, last);
    NXD_TEST_OK(nxd_send(world, data, kCount, NXD_DTYPE_F32, last, 7));
    NXD_TEST_REFUSED(nxd_group_reject(world, "send", size, 7, kReason), NXD_ERROR_INVALID_ARGUMENT,
                     "expected another rank");
  } else if (rank == last) {
    check_told(nxd_receive(world, data, kCount, NXD_DTYPE_F32, 0, 7), rank, 0);
    check_told(nxd_group_reject(world, "send", 0, 7, kReason), rank, last);
    NXD_TEST_OK(nxd_receive(world, data, kCount, NXD_DTYPE_F32, 0, 7));
  }
  check_sum(world, size);
}

static void alone(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  check_told(nxd_group_reject(world, "all_reduce", -1, -1, kReason), rank, 0);
  NXD_TEST_REFUSED(nxd_group_reject(world, NULL, -1, -1, NULL), NXD_ERROR_INVALID_ARGUMENT,
                   "no reason");
  NXD_TEST_REFUSED(nxd_group_reject(world, "send", 0, 0, kReason), NXD_ERROR_INVALID_ARGUMENT,
                   "group of one");
  NXD_TEST_REFUSED(nxd_group_reject(NULL, "send", 0, 0, kReason), NXD_ERROR_INVALID_ARGUMENT,
                   "group: expected");
}

static void test_collectives(void** state) {
  (void)state;
  nxd_test_run_ranks(2, 0, collectives, NULL);
  nxd_test_run_ranks(kRanks, 0, collectives, NULL);
}

static void test_works(void** state) {
  (void)state;
  nxd_test_run_ranks(kRanks, 0, works, NULL);
}

static void test_messages(void** state) {
  (void)state;
  nxd_test_run_ranks(kRanks, 0, messages, NULL);
}

static void test_alone(void** state) {
  (void)state;
  nxd_test_run_ranks(1, 0, alone, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_collectives),
      cmocka_unit_test(test_works),
      cmocka_unit_test(test_messages),
      cmocka_unit_test(test_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
