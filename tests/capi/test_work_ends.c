/* How works end other than well: rejected, cancelled, given up waiting for, aborted, destroyed
 * while pending, with a peer that was lost. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"
#include "support/part.h"

static pthread_barrier_t meet;

static nxd_group_t* world_of(nxd_context_t* ctx) {
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  return world;
}

static void check_info(nxd_work_t* work, nxd_status_t status, int root_rank, const char* group,
                       const char* operation) {
  nxd_error_info_t info = {.struct_size = sizeof info};
  NXD_TEST_OK(nxd_work_get_error_info(work, &info));
  NXD_TEST_CHECK(info.status == status && info.root_rank == root_rank);
  NXD_TEST_CHECK(!strcmp(info.group, group) && !strcmp(info.operation, operation));
}

/* Until the operation has begun on this rank, which the flight record tells. */
static void wait_until_begun(nxd_context_t* ctx, const char* operation) {
  char record[65536], wanted[64];
  size_t needed = 0;
  snprintf(wanted, sizeof wanted, "\"operation\":\"%s\",\"state\":\"started\"", operation);
  do {
    usleep(1000);
    if (!NXD_TEST_OK(nxd_context_get_flight_record(ctx, record, sizeof record, &needed))) return;
  } while (!strstr(record, wanted));
}

/* --- Bad arguments and ranks that disagree -------------------------------------------------- */

static void disagree(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  float x[8] = {0};
  nxd_work_t* work = NULL;
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
  if (rank == 0) {
    NXD_TEST_OK(nxd_all_reduce_async(world, x, x, 5, NXD_DTYPE_F32, NXD_REDUCE_SUM, &work));
    NXD_TEST_REFUSED(nxd_work_wait(work, -1), bad, "ranks disagree");
    check_info(work, bad, 1, "world", "all_reduce");
    nxd_work_destroy(work);
  } else {
    NXD_TEST_REFUSED(nxd_all_reduce(world, x, x, 6, NXD_DTYPE_F32, NXD_REDUCE_SUM), bad,
                     "ranks disagree");
  }
  /* One rank's own arguments are bad: a missing buffer, then no place for the work. */
  NXD_TEST_OK(nxd_broadcast_async(world, rank == 0 ? NULL : x, 5, NXD_DTYPE_F32, 0, &work));
  NXD_TEST_REFUSED(nxd_work_wait(work, -1), bad, "buffer: expected a pointer");
  check_info(work, bad, 0, "world", "broadcast");
  nxd_work_destroy(work);
  if (rank == 0) {
    NXD_TEST_REFUSED(nxd_barrier_async(world, NULL), bad, "out_work");
  } else {
    NXD_TEST_REFUSED(nxd_barrier(world), bad, "out_work");
  }
  /* Messages: NULL on one side; a peer that there is not. */
  if (rank == 0) {
    NXD_TEST_OK(nxd_send_async(world, NULL, 3, NXD_DTYPE_F32, 1, 0, &work));
  } else {
    NXD_TEST_OK(nxd_receive_async(world, x, 3, NXD_DTYPE_F32, 0, 0, &work));
  }
  NXD_TEST_REFUSED(nxd_work_wait(work, -1), bad, "buffer: expected a pointer");
  nxd_work_destroy(work);
  NXD_TEST_OK(nxd_send_async(world, x, 3, NXD_DTYPE_F32, size, 0, &work));
  NXD_TEST_REFUSED(nxd_work_wait(work, -1), bad, "to: expected");
  nxd_work_destroy(work);
  /* All that harmed no other rank. */
  NXD_TEST_OK(nxd_barrier_async(world, &work));
  NXD_TEST_OK(nxd_work_wait(work, -1));
  check_info(work, NXD_OK, -1, "world", "barrier");
  nxd_work_destroy(work);
}

static void test_disagreement(void** state) {
  (void)state;
  nxd_test_run_ranks(2, 0, disagree, NULL);
}

static void test_null_handles(void** state) {
  (void)state;
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
  float x[4] = {0};
  const nxd_dtype_t f32 = NXD_DTYPE_F32;
  nxd_work_t* work = (nxd_work_t*)x;
  NXD_TEST_REFUSED(nxd_all_reduce_async(NULL, x, x, 1, f32, NXD_REDUCE_SUM, &work), bad, "group");
  assert_null(work);
  NXD_TEST_REFUSED(nxd_all_gather_async(NULL, x, x, 1, f32, &work), bad, "group");
  NXD_TEST_REFUSED(nxd_reduce_scatter_async(NULL, x, x, 1, f32, NXD_REDUCE_SUM, &work), bad,
                   "group");
  NXD_TEST_REFUSED(nxd_broadcast_async(NULL, x, 1, f32, 0, &work), bad, "group");
  NXD_TEST_REFUSED(nxd_all_to_all_async(NULL, x, x, 1, f32, &work), bad, "group");
  NXD_TEST_REFUSED(nxd_send_async(NULL, x, 1, f32, 0, 0, &work), bad, "group");
  NXD_TEST_REFUSED(nxd_receive_async(NULL, x, 1, f32, 0, 0, &work), bad, "group");
  NXD_TEST_REFUSED(nxd_barrier_async(NULL, NULL), bad, "group");
  int32_t done = 5;
  NXD_TEST_REFUSED(nxd_work_test(NULL, &done), bad, "work");
  assert_int_equal(done, 0);
  NXD_TEST_REFUSED(nxd_work_test(NULL, NULL), bad, "out_done");
  NXD_TEST_REFUSED(nxd_work_wait(NULL, 0), bad, "work");
  NXD_TEST_REFUSED(nxd_work_cancel(NULL), bad, "work");
  nxd_error_info_t info = {.struct_size = sizeof info};
  NXD_TEST_REFUSED(nxd_work_get_error_info(NULL, &info), bad, "work");
  NXD_TEST_REFUSED(nxd_work_get_error_info(NULL, NULL), bad, "out_info");
  info.struct_size = 3;
  NXD_TEST_REFUSED(nxd_work_get_error_info(NULL, &info), NXD_ERROR_ABI_MISMATCH, "struct_size");
  nxd_work_destroy(NULL);
  assert_int_equal(nxd_test_failures(), 0);
}

/* --- Waiting for a while, and cancelling ---------------------------------------------------- */

static void bounded_wait(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  if (rank == 0) {
    nxd_work_t* work = NULL;
    nxd_error_info_t info = {.struct_size = sizeof info};
    NXD_TEST_OK(nxd_barrier_async(world, &work));
    NXD_TEST_REFUSED(nxd_work_wait(work, 0), NXD_ERROR_TIMEOUT, "the group is unharmed");
    NXD_TEST_REFUSED(nxd_work_wait(work, 30), NXD_ERROR_TIMEOUT, "the work goes on");
    NXD_TEST_REFUSED(nxd_work_get_error_info(work, &info), NXD_ERROR_INVALID_STATE, "not done");
    NXD_TEST_CHECK(info.status == NXD_OK && info.root_rank == -1);
    pthread_barrier_wait(&meet);
    NXD_TEST_OK(nxd_work_wait(work, 60000));
    nxd_work_destroy(work);
  } else {
    pthread_barrier_wait(&meet);
    NXD_TEST_OK(nxd_barrier(world));
  }
}

/* The second of three works is cancelled while the first keeps the lane busy. */
static void cancel(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
  int32_t x = 1, y = 10 + rank, z = 1;
  const nxd_dtype_t i32 = NXD_DTYPE_I32;
  if (rank == 0) {
    nxd_work_t *first = NULL, *second = NULL, *third = NULL;
    NXD_TEST_OK(nxd_all_reduce_async(world, &x, &x, 1, i32, NXD_REDUCE_SUM, &first));
    NXD_TEST_OK(nxd_all_reduce_async(world, &y, &y, 1, i32, NXD_REDUCE_SUM, &second));
    NXD_TEST_OK(nxd_all_reduce_async(world, &z, &z, 1, i32, NXD_REDUCE_SUM, &third));
    wait_until_begun(ctx, "all_reduce");
    NXD_TEST_REFUSED(nxd_work_cancel(first), NXD_ERROR_INVALID_STATE, "begun");
    NXD_TEST_OK(nxd_work_cancel(second));
    NXD_TEST_REFUSED(nxd_work_cancel(second), NXD_ERROR_INVALID_STATE, "ended");
    NXD_TEST_REFUSED(nxd_work_wait(second, 0), NXD_ERROR_ABORTED, "cancelled");
    check_info(second, NXD_ERROR_ABORTED, -1, "world", "all_reduce");
    nxd_work_destroy(second); /* its place stays */
    pthread_barrier_wait(&meet);
    NXD_TEST_OK(nxd_work_wait(first, -1));
    NXD_TEST_OK(nxd_work_wait(third, -1));
    NXD_TEST_REFUSED(nxd_work_cancel(third), NXD_ERROR_INVALID_STATE, "ended");
    nxd_work_destroy(first);
    nxd_work_destroy(third);
  } else {
    pthread_barrier_wait(&meet);
    NXD_TEST_OK(nxd_all_reduce(world, &x, &x, 1, i32, NXD_REDUCE_SUM));
    NXD_TEST_REFUSED(nxd_all_reduce(world, &y, &y, 1, i32, NXD_REDUCE_SUM), bad,
                     "rank 0 rejected its arguments: all_reduce: cancelled");
    NXD_TEST_OK(nxd_all_reduce(world, &z, &z, 1, i32, NXD_REDUCE_SUM));
  }
  NXD_TEST_CHECK(x == 2 && y == 10 + rank && z == 2);
}

/* The same for messages; the work is destroyed rather than cancelled, which comes to the same. */
static void cancel_message(nxd_context_t* ctx, int rank, int size, void* sends) {
  (void)size;
  nxd_group_t* world = world_of(ctx);
  const int rank0_sends = *(int*)sends;
  int32_t x[3] = {1, 2, 3};
  nxd_work_t* works[3] = {NULL, NULL, NULL};
  const int sending = (rank == 0) == rank0_sends;
  if (rank == 1) pthread_barrier_wait(&meet);
  for (int i = 0; i < 3; ++i) {
    NXD_TEST_OK(sending
                    ? nxd_send_async(world, &x[i], 1, NXD_DTYPE_I32, 1 - rank, 0, &works[i])
                    : nxd_receive_async(world, &x[i], 1, NXD_DTYPE_I32, 1 - rank, 0, &works[i]));
  }
  if (rank == 0) {
    nxd_work_destroy(works[1]);
    works[1] = NULL;
    pthread_barrier_wait(&meet);
  }
  for (int i = 0; i < 3; ++i) {
    if (i == 1 && rank == 1) {
      NXD_TEST_REFUSED(nxd_work_wait(works[i], -1), NXD_ERROR_INVALID_ARGUMENT, "cancelled");
    } else if (i != 1) {
      NXD_TEST_OK(nxd_work_wait(works[i], -1));
    }
    nxd_work_destroy(works[i]);
  }
}

/* Destroying a work that runs waits for it. */
static void destroy_running(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  int32_t x = rank + 1;
  if (rank == 0) {
    nxd_work_t* work = NULL;
    NXD_TEST_OK(nxd_all_reduce_async(world, &x, &x, 1, NXD_DTYPE_I32, NXD_REDUCE_SUM, &work));
    wait_until_begun(ctx, "all_reduce");
    pthread_barrier_wait(&meet);
    nxd_work_destroy(work);
  } else {
    pthread_barrier_wait(&meet);
    NXD_TEST_OK(nxd_all_reduce(world, &x, &x, 1, NXD_DTYPE_I32, NXD_REDUCE_SUM));
  }
  NXD_TEST_CHECK(x == size * (size + 1) / 2);
}

static void with_barrier(nxd_test_rank_fn fn, void* user_data) {
  pthread_barrier_init(&meet, NULL, 2);
  nxd_test_run_ranks(2, 0, fn, user_data);
  pthread_barrier_destroy(&meet);
}

static void test_bounded_wait(void** state) {
  (void)state;
  with_barrier(bounded_wait, NULL);
}
static void test_cancel(void** state) {
  (void)state;
  with_barrier(cancel, NULL);
  for (int sends = 0; sends < 2; ++sends) with_barrier(cancel_message, &sends);
}
static void test_destroy_running(void** state) {
  (void)state;
  with_barrier(destroy_running, NULL);
}

/* --- Groups that end under their works ------------------------------------------------------ */

enum { kWorks = 20 };

/* A lane of collectives and two of messages, none of which can end: the peer does not come. */
static void start_some(nxd_group_t* group, float* data, nxd_work_t** works) {
  for (int i = 0; i < kWorks; ++i) {
    float* x = data + (size_t)i * 1000;
    const nxd_dtype_t f32 = NXD_DTYPE_F32;
    NXD_TEST_OK(i % 3 == 0 ? nxd_receive_async(group, x, 1000, f32, 1, 0, &works[i])
                : i % 3 == 1
                    ? nxd_send_async(group, x, 1000, f32, 1, 0, &works[i])
                    : nxd_all_reduce_async(group, x, x, 1000, f32, NXD_REDUCE_SUM, &works[i]));
  }
}

static void check_aborted(nxd_work_t** works) {
  for (int i = 0; i < kWorks; ++i) {
    NXD_TEST_REFUSED(nxd_work_wait(works[i], 5000), NXD_ERROR_ABORTED, "aborted");
    nxd_work_destroy(works[i]);
  }
}

enum { kAbortGroup, kAbortContext, kDestroyGroup, kDestroyContext };

static void end_under_works(nxd_context_t* ctx, int rank, int size, void* how) {
  (void)size;
  const int32_t ranks[] = {0, 1};
  nxd_group_t* group = NULL;
  NXD_TEST_OK(nxd_group_create(ctx, ranks, 2, "doomed", &group));
  if (rank == 0) {
    float* data = calloc(kWorks * 1000, sizeof *data);
    nxd_work_t* works[kWorks];
    start_some(group, data, works);
    int32_t done = 5;
    if (*(int*)how == kAbortGroup) NXD_TEST_OK(nxd_group_abort(group));
    if (*(int*)how == kAbortContext) NXD_TEST_OK(nxd_context_abort(ctx));
    if (*(int*)how == kDestroyGroup) {
      nxd_group_destroy(group);
      group = NULL;
      free(data); /* no longer used: the sanitizers would tell */
      data = NULL;
      NXD_TEST_OK(nxd_work_test(works[kWorks - 1], &done));
      NXD_TEST_CHECK(done == 1);
    }
    check_aborted(works);
    free(data);
    pthread_barrier_wait(&meet);
  } else {
    pthread_barrier_wait(&meet);
    NXD_TEST_REFUSED(nxd_barrier(group), NXD_ERROR_PEER_LOST, "rank 0");
  }
  nxd_group_destroy(group);
}

static void test_group_ends(void** state) {
  (void)state;
  for (int how = kAbortGroup; how <= kDestroyGroup; ++how) with_barrier(end_under_works, &how);
}

/* A thread of its own, since the context ends before its time. */
static void* leave_with_works(void* store) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.size = 2;
  options.store = store;
  options.timeout_ms = 60000;
  nxd_context_t* ctx = NULL;
  nxd_work_t* works[kWorks];
  if (!NXD_TEST_OK(nxd_context_create(&options, &ctx))) return NULL;
  float* data = calloc(kWorks * 1000, sizeof *data);
  start_some(world_of(ctx), data, works);
  nxd_context_destroy(ctx);
  free(data);
  int32_t done = 0;
  NXD_TEST_OK(nxd_work_test(works[0], &done));
  NXD_TEST_CHECK(done == 1);
  check_aborted(works); /* works outlive what they were made from */
  return NULL;
}

static void test_context_ends(void** state) {
  (void)state;
  nxd_store_t* store = NULL;
  assert_int_equal(nxd_store_create_local(&store), NXD_OK);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, leave_with_works, store), 0);
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.rank = 1;
  options.size = 2;
  options.store = store;
  options.timeout_ms = 60000;
  nxd_context_t* ctx = NULL;
  if (NXD_TEST_OK(nxd_context_create(&options, &ctx))) {
    pthread_join(thread, NULL);
    NXD_TEST_REFUSED(nxd_barrier(world_of(ctx)), NXD_ERROR_PEER_LOST, "rank 0");
  }
  nxd_context_destroy(ctx);
  nxd_store_destroy(store);
  assert_int_equal(nxd_test_failures(), 0);
}

/* Leaving in agreement waits for the rank's works. */
static void finalize(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  int32_t x = rank, done = 0;
  nxd_work_t *work = NULL, *late = NULL;
  NXD_TEST_OK(rank == 0 ? nxd_send_async(world, &x, 1, NXD_DTYPE_I32, 1, 0, &work)
                        : nxd_receive_async(world, &x, 1, NXD_DTYPE_I32, 0, 0, &work));
  NXD_TEST_OK(nxd_context_finalize(ctx));
  NXD_TEST_OK(nxd_work_test(work, &done));
  NXD_TEST_CHECK(done == 1 && x == 0);
  NXD_TEST_OK(nxd_work_wait(work, 0));
  NXD_TEST_OK(nxd_barrier_async(world, &late));
  NXD_TEST_REFUSED(nxd_work_wait(late, -1), NXD_ERROR_INVALID_STATE, "finalized");
  nxd_work_destroy(late);
  nxd_work_destroy(work);
}

static void test_finalize(void** state) {
  (void)state;
  nxd_test_run_ranks(2, 0, finalize, NULL);
}

/* The child of a fork can use neither the group nor the work, and destroying it does nothing. */
static void forked(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  nxd_work_t* work = NULL;
  if (rank == 0) NXD_TEST_OK(nxd_barrier_async(world, &work));
  if (rank == 0) {
    const pid_t child = fork();
    if (child == 0) {
      int32_t done = 0;
      nxd_work_t* other = NULL;
      const nxd_status_t early = NXD_ERROR_INVALID_STATE;
      int bad = nxd_work_test(work, &done) != early;
      bad += nxd_work_wait(work, 10) != early;
      bad += nxd_work_cancel(work) != early;
      bad += nxd_barrier_async(world, &other) != early || other != NULL;
      bad += nxd_barrier(world) != early;
      nxd_work_destroy(work);
      _exit(bad);
    }
    int code = -1;
    NXD_TEST_CHECK(waitpid(child, &code, 0) == child && code == 0);
  }
  NXD_TEST_OK(rank == 0 ? nxd_work_wait(work, -1) : nxd_barrier(world));
  nxd_work_destroy(work);
}

static void test_fork(void** state) {
  (void)state;
  nxd_test_run_ranks(2, 0, forked, NULL);
}

/* --- A peer that is killed, in processes ---------------------------------------------------- */

enum { kTimeoutMs = 20000 };

static int child(void) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = kTimeoutMs;
  nxd_context_t* ctx = NULL;
  int32_t rank = -1, tick = 0;
  if (nxd_context_create(&options, &ctx) != NXD_OK) return 20;
  nxd_context_get_rank(ctx, &rank);
  nxd_group_t* world = world_of(ctx);
  float* data = calloc(1 << 20, sizeof *data);
  nxd_work_t *works[3] = {NULL, NULL, NULL}, *behind = NULL;
  /* The connections that the works will use are there: Debian's Gloo may abort a process whose
   * peer dies while it is still being connected. */
  if (nxd_all_reduce(world, data, data, 1 << 20, NXD_DTYPE_F32, NXD_REDUCE_SUM) != NXD_OK) return 2;
  if (nxd_barrier(world) != NXD_OK) return 3;
  if (rank == 2) raise(SIGKILL);
  nxd_all_reduce_async(world, data, data, 1 << 20, NXD_DTYPE_F32, NXD_REDUCE_SUM, &works[0]);
  nxd_receive_async(world, &tick, 1, NXD_DTYPE_I32, 2, 0, &works[1]);
  nxd_send_async(world, &tick, 1, NXD_DTYPE_I32, 2, 1, &works[2]);
  nxd_barrier_async(world, &behind);
  for (int i = 0; i < 4; ++i) {
    nxd_work_t* work = i < 3 ? works[i] : behind;
    const nxd_status_t status = nxd_work_wait(work, 2 * kTimeoutMs);
    nxd_error_info_t info = {.struct_size = sizeof info};
    if (nxd_work_get_error_info(work, &info) != NXD_OK || info.status != status ||
        (status != NXD_ERROR_PEER_LOST && status != NXD_ERROR_TIMEOUT) || info.root_rank != 2) {
      fprintf(stderr, "rank %d, work %d: %d, root rank %d: %s\n", rank, i, status, info.root_rank,
              nxd_last_error());
      return 4 + i;
    }
    nxd_work_destroy(work);
  }
  free(data);
  nxd_context_destroy(ctx);
  return 0;
}

static void test_killed(void** state) {
  (void)state;
  nxd_test_run_part("killed", 3, 2, 128 + SIGKILL, 300);
}

int main(void) {
  if (getenv("NXD_TEST_PART")) return child();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_disagreement),
                                     cmocka_unit_test(test_null_handles),
                                     cmocka_unit_test(test_bounded_wait),
                                     cmocka_unit_test(test_cancel),
                                     cmocka_unit_test(test_destroy_running),
                                     cmocka_unit_test(test_group_ends),
                                     cmocka_unit_test(test_context_ends),
                                     cmocka_unit_test(test_finalize),
                                     cmocka_unit_test(test_fork),
                                     cmocka_unit_test(test_killed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
