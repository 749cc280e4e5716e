/* Asynchronous calls: their results are those of the waiting ones, they keep the order they were
 * issued in where that matters, and wait for nothing else. Where a wrong order would block, the
 * timeout of the group ends the test. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

enum { kRanks = 3 };

static nxd_group_t* world_of(nxd_context_t* ctx) {
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  return world;
}

/* Waits, and gives the work back. */
static nxd_status_t finish(nxd_work_t* work) {
  const nxd_status_t status = nxd_work_wait(work, -1);
  int32_t done = 0;
  NXD_TEST_OK(nxd_work_test(work, &done));
  NXD_TEST_CHECK(done == 1);
  NXD_TEST_CHECK(nxd_work_wait(work, 0) == status); /* the outcome stays */
  nxd_work_destroy(work);
  return status;
}

/* --- Results -------------------------------------------------------------------------------- */

typedef struct {
  nxd_group_t* group;
  int rank, size;
  size_t count; /* of each rank's part */
  float *in, *waited, *worked;
} buffers_t;

static void fill(float* data, size_t count, int rank) {
  for (size_t i = 0; i < count; ++i)
    data[i] = (float)((i * 2654435761u + (size_t)rank * 40503u) % 1000003u) / 97.0f;
}

static void check_same(const buffers_t* b, size_t count, const char* operation) {
  if (memcmp(b->waited, b->worked, count * sizeof(float)) != 0)
    nxd_test_fail(__FILE__, __LINE__, "%s of %zu: the work gave other bits", operation, b->count);
}

static void compare_reductions(const buffers_t* b) {
  nxd_work_t* work = NULL;
  const size_t n = b->count, all = n * (size_t)b->size;
  const nxd_dtype_t f32 = NXD_DTYPE_F32;
  NXD_TEST_OK(nxd_all_reduce(b->group, b->in, b->waited, all, f32, NXD_REDUCE_SUM));
  NXD_TEST_OK(nxd_all_reduce_async(b->group, b->in, b->worked, all, f32, NXD_REDUCE_SUM, &work));
  NXD_TEST_OK(finish(work));
  check_same(b, all, "all_reduce");
  NXD_TEST_OK(nxd_reduce_scatter(b->group, b->in, b->waited, n, f32, NXD_REDUCE_AVG));
  NXD_TEST_OK(nxd_reduce_scatter_async(b->group, b->in, b->worked, n, f32, NXD_REDUCE_AVG, &work));
  NXD_TEST_OK(finish(work));
  check_same(b, n, "reduce_scatter");
}

static void compare_copies(const buffers_t* b) {
  nxd_work_t* work = NULL;
  const size_t n = b->count, all = n * (size_t)b->size;
  const nxd_dtype_t f32 = NXD_DTYPE_F32;
  NXD_TEST_OK(nxd_all_gather(b->group, b->in, b->waited, n, f32));
  NXD_TEST_OK(nxd_all_gather_async(b->group, b->in, b->worked, n, f32, &work));
  NXD_TEST_OK(finish(work));
  check_same(b, all, "all_gather");
  NXD_TEST_OK(nxd_all_to_all(b->group, b->in, b->waited, n, f32));
  NXD_TEST_OK(nxd_all_to_all_async(b->group, b->in, b->worked, n, f32, &work));
  NXD_TEST_OK(finish(work));
  check_same(b, all, "all_to_all");
  memcpy(b->waited, b->in, all * sizeof(float));
  memcpy(b->worked, b->in, all * sizeof(float));
  NXD_TEST_OK(nxd_broadcast(b->group, b->waited, all, f32, 1));
  NXD_TEST_OK(nxd_broadcast_async(b->group, b->worked, all, f32, 1, &work));
  NXD_TEST_OK(finish(work));
  check_same(b, all, "broadcast");
  NXD_TEST_OK(nxd_barrier_async(b->group, &work));
  NXD_TEST_OK(finish(work));
}

/* Every rank sends to the next, both at once: a waiting form of this would block. */
static void compare_messages(const buffers_t* b) {
  nxd_work_t *sent = NULL, *received = NULL;
  const int32_t next = (b->rank + 1) % b->size, previous = (b->rank + b->size - 1) % b->size;
  NXD_TEST_OK(
      nxd_receive_async(b->group, b->worked, b->count, NXD_DTYPE_F32, previous, 7, &received));
  NXD_TEST_OK(nxd_send_async(b->group, b->in, b->count, NXD_DTYPE_F32, next, 7, &sent));
  NXD_TEST_OK(finish(sent));
  NXD_TEST_OK(finish(received));
  fill(b->waited, b->count, previous);
  check_same(b, b->count, "receive");
}

static void compare(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  static const size_t counts[] = {0, 1, 300, 70001};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
    const size_t all = (counts[i] + 1) * (size_t)size;
    buffers_t b = {.group = world_of(ctx), .rank = rank, .size = size, .count = counts[i]};
    b.in = malloc(all * sizeof(float));
    b.waited = calloc(all, sizeof(float));
    b.worked = calloc(all, sizeof(float));
    fill(b.in, all, rank);
    compare_reductions(&b);
    compare_copies(&b);
    compare_messages(&b);
    free(b.in);
    free(b.waited);
    free(b.worked);
  }
}

static void test_results(void** state) {
  (void)state;
  nxd_test_run_ranks(2, 0, compare, NULL);
  nxd_test_run_ranks(kRanks, 0, compare, NULL);
}

/* In a group of one there is no rank to wait for, nor to send to. */
static void alone(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)rank;
  (void)size;
  (void)unused;
  const float in[2] = {1, 2};
  float out[2] = {0, 0};
  nxd_work_t* work = NULL;
  nxd_group_t* world = world_of(ctx);
  NXD_TEST_OK(nxd_all_reduce_async(world, in, out, 2, NXD_DTYPE_F32, NXD_REDUCE_SUM, &work));
  NXD_TEST_OK(finish(work));
  NXD_TEST_CHECK(out[0] == 1 && out[1] == 2);
  NXD_TEST_OK(nxd_send_async(world, in, 2, NXD_DTYPE_F32, 0, 0, &work));
  NXD_TEST_REFUSED(nxd_work_wait(work, -1), NXD_ERROR_INVALID_ARGUMENT, "group of one");
  nxd_work_destroy(work);
}

static void test_alone(void** state) {
  (void)state;
  nxd_test_run_ranks(1, 0, alone, NULL);
}

/* --- Order ---------------------------------------------------------------------------------- */

/* Each work doubles what the one before it left in the same buffer, and the call that waits comes
 * after all of them: rank r starts with r. */
static void chain(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  enum { kLinks = 12 };
  nxd_group_t* world = world_of(ctx);
  double x = rank, expected = size * (size - 1) / 2;
  nxd_work_t* works[kLinks];
  for (int i = 0; i < kLinks; ++i) {
    NXD_TEST_OK(nxd_all_reduce_async(world, &x, &x, 1, NXD_DTYPE_F64, NXD_REDUCE_SUM, &works[i]));
    if (i > 0) expected *= size;
  }
  NXD_TEST_OK(nxd_all_reduce(world, &x, &x, 1, NXD_DTYPE_F64, NXD_REDUCE_SUM));
  expected *= size;
  NXD_TEST_CHECK(x == expected);
  for (int i = 0; i < kLinks; ++i) { /* all done, since the last call is */
    int32_t done = 0;
    NXD_TEST_OK(nxd_work_test(works[i], &done));
    NXD_TEST_CHECK(done == 1);
    nxd_work_destroy(works[i]);
  }
}

static void test_order(void** state) {
  (void)state;
  nxd_test_run_ranks(2, 0, chain, NULL);
  nxd_test_run_ranks(kRanks, 0, chain, NULL);
}

/* The group's works are asynchronous on even ranks and waiting on odd ones. */
static void mixed(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  enum { kCalls = 20 };
  int64_t sums[kCalls];
  nxd_work_t* works[kCalls] = {NULL};
  for (int i = 0; i < kCalls; ++i) {
    sums[i] = rank + i;
    const nxd_dtype_t dtype = NXD_DTYPE_I64;
    NXD_TEST_OK(rank % 2 ? nxd_all_reduce(world, &sums[i], &sums[i], 1, dtype, NXD_REDUCE_SUM)
                         : nxd_all_reduce_async(world, &sums[i], &sums[i], 1, dtype, NXD_REDUCE_SUM,
                                                &works[i]));
  }
  for (int i = 0; i < kCalls; ++i) {
    if (works[i]) NXD_TEST_OK(finish(works[i]));
    NXD_TEST_CHECK(sums[i] == size * (size - 1) / 2 + i * size);
  }
}

static void test_mixed(void** state) {
  (void)state;
  nxd_test_run_ranks(2, 0, mixed, NULL);
  nxd_test_run_ranks(kRanks, 0, mixed, NULL);
}

static void many(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  enum { kWorks = 1000 };
  nxd_group_t* world = world_of(ctx);
  int32_t* values = calloc(kWorks, sizeof *values);
  nxd_work_t** works = calloc(kWorks, sizeof *works);
  for (int i = 0; i < kWorks; ++i) {
    values[i] = i + rank;
    NXD_TEST_OK(nxd_all_reduce_async(world, &values[i], &values[i], 1, NXD_DTYPE_I32,
                                     NXD_REDUCE_MAX, &works[i]));
  }
  for (int i = kWorks - 1; i >= 0; --i) {
    NXD_TEST_OK(finish(works[i]));
    NXD_TEST_CHECK(values[i] == i + size - 1);
  }
  free(works);
  free(values);
}

static void test_many(void** state) {
  (void)state;
  nxd_test_run_ranks(2, 0, many, NULL);
}

/* --- What does not wait for one another ----------------------------------------------------- */

/* The ranks use two groups in opposite orders, and each waits for its first work first. */
static void two_groups(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  const int32_t ranks[] = {0, 1};
  nxd_group_t* groups[2] = {NULL, NULL};
  nxd_work_t* works[2] = {NULL, NULL};
  for (int i = 0; i < 2; ++i) NXD_TEST_OK(nxd_group_create(ctx, ranks, 2, "pair", &groups[i]));
  static const size_t kCount = 200000;
  float* data[2];
  for (int i = 0; i < 2; ++i) data[i] = calloc(kCount, sizeof(float));
  /* Rank 0 starts both and waits for the second; rank 1 starts the second alone and waits. */
  for (int i = 0; i < 2; ++i) {
    const int which = rank == 0 ? i : 1 - i;
    NXD_TEST_OK(nxd_all_reduce_async(groups[which], data[which], data[which], kCount, NXD_DTYPE_F32,
                                     NXD_REDUCE_SUM, &works[which]));
    if (rank == 1 || i == 1) NXD_TEST_OK(nxd_work_wait(works[rank == 0 ? 1 : which], -1));
  }
  for (int i = 0; i < 2; ++i) {
    NXD_TEST_OK(finish(works[i]));
    free(data[i]);
    nxd_group_destroy(groups[i]);
  }
}

static void test_two_groups(void** state) {
  (void)state;
  nxd_test_run_ranks(2, 0, two_groups, NULL);
}

/* Messages with different tags, taken in the order opposite to the one they are offered in. */
static void crossed_tags(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  enum { kTags = 6 };
  nxd_group_t* world = world_of(ctx);
  int64_t values[kTags];
  nxd_work_t* works[kTags];
  for (int i = 0; i < kTags; ++i) {
    values[i] = rank == 0 ? 100 + i : 0;
    if (rank == 0)
      NXD_TEST_OK(nxd_send_async(world, &values[i], 1, NXD_DTYPE_I64, 1, i, &works[i]));
  }
  for (int i = kTags - 1; i >= 0; --i) {
    if (rank == 1) NXD_TEST_OK(nxd_receive(world, &values[i], 1, NXD_DTYPE_I64, 0, i));
    if (rank == 0) NXD_TEST_OK(finish(works[i]));
    NXD_TEST_CHECK(values[i] == 100 + i);
  }
}

/* Several messages of one tag arrive in the order they were sent in. */
static void one_tag(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  enum { kMessages = 40, kLarge = 5000 };
  nxd_group_t* world = world_of(ctx);
  int32_t* values = calloc((size_t)kMessages * kLarge, sizeof *values);
  nxd_work_t* works[kMessages];
  for (int i = 0; i < kMessages; ++i) {
    int32_t* value = values + (size_t)i * kLarge;
    const size_t count = i % 3 ? 1 : kLarge;
    if (rank == 0) value[count - 1] = 7 * i + 1;
    NXD_TEST_OK(rank == 0 ? nxd_send_async(world, value, count, NXD_DTYPE_I32, 1, 3, &works[i])
                          : nxd_receive_async(world, value, count, NXD_DTYPE_I32, 0, 3, &works[i]));
  }
  for (int i = 0; i < kMessages; ++i) {
    NXD_TEST_OK(finish(works[i]));
    NXD_TEST_CHECK(values[(size_t)i * kLarge + (i % 3 ? 0 : kLarge - 1)] == 7 * i + 1);
  }
  free(values);
}

/* A message does not wait for a collective that was issued before it, nor the other way round. */
static void against_collectives(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  nxd_work_t *barrier = NULL, *message = NULL;
  int32_t value = rank == 0 ? 42 : 0;
  if (rank == 0) {
    NXD_TEST_OK(nxd_barrier_async(world, &barrier));
    NXD_TEST_OK(nxd_send(world, &value, 1, NXD_DTYPE_I32, 1, 0));
    NXD_TEST_OK(finish(barrier));
    NXD_TEST_OK(nxd_receive_async(world, &value, 1, NXD_DTYPE_I32, 1, 0, &message));
    NXD_TEST_OK(nxd_barrier(world));
    NXD_TEST_OK(finish(message));
    NXD_TEST_CHECK(value == 43);
  } else {
    NXD_TEST_OK(nxd_receive(world, &value, 1, NXD_DTYPE_I32, 0, 0));
    NXD_TEST_CHECK(value == 42);
    NXD_TEST_OK(nxd_barrier(world));
    NXD_TEST_OK(nxd_barrier(world));
    value = 43;
    NXD_TEST_OK(nxd_send(world, &value, 1, NXD_DTYPE_I32, 0, 0));
  }
}

/* Connections are made while they are needed elsewhere: rank 2 must reach rank 1 although it also
 * waits in a collective for rank 0, which waits for rank 1. */
static void first_connections(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  const int32_t ranks[] = {0, 1, 2};
  nxd_group_t* group = NULL;
  nxd_work_t* work = NULL;
  static const size_t kCount = 100000;
  float* data = calloc(kCount, sizeof *data);
  NXD_TEST_OK(nxd_group_create(ctx, ranks, (size_t)size, "fresh", &group));
  int32_t token = rank == 2 ? 5 : 0;
  if (rank == 0) NXD_TEST_OK(nxd_receive(group, &token, 1, NXD_DTYPE_I32, 1, 0));
  NXD_TEST_OK(
      nxd_all_reduce_async(group, data, data, kCount, NXD_DTYPE_F32, NXD_REDUCE_SUM, &work));
  if (rank == 2) NXD_TEST_OK(nxd_send(group, &token, 1, NXD_DTYPE_I32, 1, 0));
  if (rank == 1) {
    NXD_TEST_OK(nxd_receive(group, &token, 1, NXD_DTYPE_I32, 2, 0));
    NXD_TEST_OK(nxd_send(group, &token, 1, NXD_DTYPE_I32, 0, 0));
  }
  NXD_TEST_CHECK(token == 5);
  NXD_TEST_OK(finish(work));
  nxd_group_destroy(group);
  free(data);
}

static void ring(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  static const size_t kCount = 20000;
  float* in = malloc(kCount * sizeof *in);
  float* out = malloc(kCount * sizeof *out);
  const int32_t left = (rank + size - 1) % size, right = (rank + 1) % size;
  for (int round = 0; round < 20; ++round) {
    nxd_work_t *receiving = NULL, *sending = NULL;
    for (size_t i = 0; i < kCount; ++i) out[i] = (float)(rank * 1000 + round);
    NXD_TEST_OK(nxd_receive_async(world, in, kCount, NXD_DTYPE_F32, left, 1, &receiving));
    NXD_TEST_OK(nxd_send_async(world, out, kCount, NXD_DTYPE_F32, right, 1, &sending));
    NXD_TEST_OK(finish(receiving));
    NXD_TEST_OK(finish(sending));
    NXD_TEST_CHECK(in[0] == (float)(left * 1000 + round) && in[kCount - 1] == in[0]);
  }
  free(in);
  free(out);
}

static void test_messages(void** state) {
  (void)state;
  nxd_test_run_ranks(2, 0, crossed_tags, NULL);
  nxd_test_run_ranks(2, 0, one_tag, NULL);
  nxd_test_run_ranks(2, 0, against_collectives, NULL);
  nxd_test_run_ranks(3, 0, first_connections, NULL);
  nxd_test_run_ranks(4, 0, ring, NULL);
}

/* A work makes progress while its caller computes and asks now and then. */
static void compute(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  static const size_t kCount = 500000;
  float* data = malloc(kCount * sizeof *data);
  for (size_t i = 0; i < kCount; ++i) data[i] = (float)rank;
  nxd_work_t* work = NULL;
  NXD_TEST_OK(
      nxd_all_reduce_async(world, data, data, kCount, NXD_DTYPE_F32, NXD_REDUCE_SUM, &work));
  volatile double x = 1;
  int32_t done = 0;
  while (!done) {
    for (int i = 0; i < 1000; ++i) x = x * 1.0000001 + 1e-9;
    if (!NXD_TEST_OK(nxd_work_test(work, &done))) break;
  }
  NXD_TEST_CHECK(data[kCount - 1] == (float)(size * (size - 1) / 2));
  NXD_TEST_OK(finish(work));
  free(data);
}

static void test_compute(void** state) {
  (void)state;
  nxd_test_run_ranks(2, 0, compute, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_results),  cmocka_unit_test(test_alone),
      cmocka_unit_test(test_order),    cmocka_unit_test(test_mixed),
      cmocka_unit_test(test_many),     cmocka_unit_test(test_two_groups),
      cmocka_unit_test(test_messages), cmocka_unit_test(test_compute)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
