/* Keys of calls: equal ones change nothing, different ones are an error on every rank that names
 * the calls, and a key is for one call. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

enum { kRanks = 4, kCount = 3 };

static nxd_group_t* world_of(nxd_context_t* ctx) {
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  return world;
}

static void check_sum(nxd_group_t* group, int size) {
  int32_t value = 1, sum = 0;
  NXD_TEST_OK(nxd_all_reduce(group, &value, &sum, 1, NXD_DTYPE_I32, NXD_REDUCE_SUM));
  NXD_TEST_CHECK(sum == size);
}

/* The collective number i, of so many elements. */
static nxd_status_t call(nxd_group_t* group, int i, size_t count) {
  static _Thread_local float send[70000 * kRanks], recv[70000 * kRanks];
  switch (i) {
    case 0: return nxd_all_reduce(group, send, recv, count, NXD_DTYPE_F32, NXD_REDUCE_SUM);
    case 1: return nxd_all_gather(group, send, recv, count, NXD_DTYPE_F32);
    case 2: return nxd_reduce_scatter(group, send, recv, count, NXD_DTYPE_F32, NXD_REDUCE_SUM);
    case 3: return nxd_broadcast(group, send, count, NXD_DTYPE_F32, 1);
    case 4: return nxd_all_to_all(group, send, recv, count, NXD_DTYPE_F32);
    default: return nxd_barrier(group);
  }
}

static void collectives(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  static const size_t counts[] = {0, kCount, 70000};
  nxd_group_t* world = world_of(ctx);
  for (int i = 0; i < 6; ++i) {
    for (size_t c = 0; c < sizeof counts / sizeof *counts; ++c) {
      NXD_TEST_OK(nxd_group_set_next_key(world, UINT64_MAX));
      NXD_TEST_OK(call(world, i, counts[c]));
      /* One rank's key is another, and then the only one. */
      NXD_TEST_OK(nxd_group_set_next_key(world, rank == 2 ? 71 : 70));
      const nxd_status_t status = call(world, i, counts[c]);
      NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, "with key 70");
      NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, "with key 71");
      check_sum(world, size); /* no key is left */
      if (rank == 1) NXD_TEST_OK(nxd_group_set_next_key(world, 5));
      NXD_TEST_REFUSED(call(world, i, counts[c]), NXD_ERROR_INVALID_ARGUMENT, "with key 5");
      NXD_TEST_OK(nxd_group_set_next_key(world, 5));
      NXD_TEST_OK(nxd_group_set_next_key(world, 0)); /* taken back */
      check_sum(world, size);
    }
  }
}

/* Two sums of one size, which a rank issues in the other order. */
static void reordered(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  const uint64_t first = rank == size - 1 ? 12 : 11;
  const uint64_t keys[] = {first, 23 - first};
  float x[2][2] = {{1, 1}, {2, 2}};
  nxd_work_t* works[2] = {NULL, NULL};
  for (int i = 0; i < 2; ++i) {
    NXD_TEST_OK(nxd_group_set_next_key(world, keys[i]));
    float* buffer = x[keys[i] - 11];
    NXD_TEST_OK(
        nxd_all_reduce_async(world, buffer, buffer, 2, NXD_DTYPE_F32, NXD_REDUCE_SUM, &works[i]));
  }
  for (int i = 0; i < 2; ++i) {
    NXD_TEST_REFUSED(nxd_work_wait(works[i], -1), NXD_ERROR_INVALID_ARGUMENT, "with key 1");
    nxd_work_destroy(works[i]);
  }
  NXD_TEST_CHECK(x[0][0] == 1 && x[1][1] == 2); /* nothing was added */
  check_sum(world, size);
}

static void messages(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  (void)size;
  nxd_group_t* world = world_of(ctx);
  for (uint64_t key = 0; key < 2 && rank < 2; ++key) {
    int32_t value = 7 * (1 - rank);
    NXD_TEST_OK(nxd_group_set_next_key(world, rank == 0 ? 40 : 40 + key));
    const nxd_status_t status = rank == 0 ? nxd_send(world, &value, 1, NXD_DTYPE_I32, 1, 3)
                                          : nxd_receive(world, &value, 1, NXD_DTYPE_I32, 0, 3);
    if (key == 0) {
      NXD_TEST_OK(status);
      NXD_TEST_CHECK(value == 7);
    } else {
      NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, "with key 41");
      NXD_TEST_CHECK(value == 7 * (1 - rank));
    }
  }
}

static void test_collectives(void** state) {
  (void)state;
  nxd_test_run_ranks(kRanks, 0, collectives, NULL);
}
static void test_reordered(void** state) {
  (void)state;
  nxd_test_run_ranks(kRanks, 0, reordered, NULL);
}
static void test_messages(void** state) {
  (void)state;
  nxd_test_run_ranks(kRanks, 0, messages, NULL);
}
static void test_bad_calls(void** state) {
  (void)state;
  assert_int_equal(nxd_group_set_next_key(NULL, 1), NXD_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(nxd_last_error(), "group: expected a group, got NULL"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_collectives), cmocka_unit_test(test_reordered),
      cmocka_unit_test(test_messages), cmocka_unit_test(test_bad_calls)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
