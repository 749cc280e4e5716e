/* A rank rejects a call that its peers do not come to, since they wait for it in another group: all
 * ranks are told soon which rank rejected what. A rank that others can still reach is waited
 * for, and the groups go on. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

enum { kRanks = 3, kCount = 4 };

static const nxd_dtype_t f32 = NXD_DTYPE_F32;

typedef struct {
  nxd_group_t *world, *pair; /* of ranks 0 and 1; NULL on others */
} groups_t;

static groups_t groups_of(nxd_context_t* ctx, int rank) {
  static const int32_t members[] = {0, 1};
  groups_t groups = {NULL, NULL};
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &groups.world));
  if (rank < 2) {
    NXD_TEST_OK(nxd_group_create(ctx, members, 2, "pair", &groups.pair));
    NXD_TEST_OK(nxd_barrier(groups.pair));
  }
  NXD_TEST_OK(nxd_barrier(groups.world));
  return groups;
}

/* Rank 0 is named with what it rejected and why, also by each later call. The groups end. */
static void check_lost(nxd_status_t status, const groups_t* groups, const char* rejected) {
  nxd_error_info_t info = {.struct_size = sizeof info};
  nxd_last_error_info(&info);
  NXD_TEST_REFUSED(status, NXD_ERROR_PEER_LOST, "rank 0 rejected ");
  NXD_TEST_REFUSED(status, NXD_ERROR_PEER_LOST, rejected);
  NXD_TEST_CHECK(info.root_rank == 0);
  NXD_TEST_REFUSED(nxd_barrier(groups->world), NXD_ERROR_PEER_LOST, rejected);
  nxd_group_destroy(groups->pair);
}

static const char kNoArray[] =
    "on group \"pair\", to which rank 1 did not come, for it waits elsewhere: send: expected";

static void collective(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  const groups_t groups = groups_of(ctx, rank);
  float out[kCount];
  const nxd_status_t status =
      rank == 0 ? nxd_all_reduce(groups.pair, NULL, out, kCount, f32, NXD_REDUCE_SUM)
                : nxd_barrier(groups.world);
  check_lost(status, &groups, kNoArray);
}

static void message(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  const groups_t groups = groups_of(ctx, rank);
  const nxd_status_t status =
      rank == 0 ? nxd_send(groups.pair, NULL, kCount, f32, 1, 7) : nxd_barrier(groups.world);
  check_lost(status, &groups, "rejected send #0 on group \"pair\"");
}

/* Callers that wait for works wait as much as those of other calls. */
static void works(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  const groups_t groups = groups_of(ctx, rank);
  nxd_work_t* work = NULL;
  float out[kCount];
  NXD_TEST_OK(rank == 0
                  ? nxd_all_reduce_async(groups.pair, NULL, out, kCount, f32, NXD_REDUCE_SUM, &work)
                  : nxd_barrier_async(groups.world, &work));
  check_lost(nxd_work_wait(work, -1), &groups, kNoArray);
  nxd_work_destroy(work);
}

/* The groups are of use still, and end here. */
static void check_pair(const groups_t* groups) {
  float value = 1, sum = 0;
  if (groups->pair) {
    NXD_TEST_OK(nxd_all_reduce(groups->pair, &value, &sum, 1, f32, NXD_REDUCE_SUM));
    NXD_TEST_CHECK(sum == 2);
  }
  NXD_TEST_OK(nxd_barrier(groups->world));
  nxd_group_destroy(groups->pair);
}

/* Rank 0 comes to what the others wait for, although a call of its own is still rejected. */
static void caller_that_goes_on(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  const groups_t groups = groups_of(ctx, rank);
  nxd_work_t* work = NULL;
  float in[kCount] = {0}, out[kCount];
  if (rank == 0) {
    NXD_TEST_OK(nxd_all_reduce_async(groups.pair, NULL, out, kCount, f32, NXD_REDUCE_SUM, &work));
    usleep(2000000);
  }
  NXD_TEST_OK(nxd_barrier(groups.world));
  if (rank == 0) {
    NXD_TEST_REFUSED(nxd_work_wait(work, -1), NXD_ERROR_INVALID_ARGUMENT, "send: expected");
  } else if (rank == 1) {
    NXD_TEST_REFUSED(nxd_all_reduce(groups.pair, in, out, kCount, f32, NXD_REDUCE_SUM),
                     NXD_ERROR_INVALID_ARGUMENT, "rank 0 rejected its arguments: send: expected");
  }
  nxd_work_destroy(work);
  check_pair(&groups);
}

/* Rank 2 waits for rank 0, which waits for rank 1, which comes. */
static void late_peer(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  const groups_t groups = groups_of(ctx, rank);
  float in[kCount] = {0}, out[kCount];
  if (rank == 1) usleep(2000000);
  if (rank < 2) {
    NXD_TEST_REFUSED(
        nxd_all_reduce(groups.pair, rank == 0 ? NULL : in, out, kCount, f32, NXD_REDUCE_SUM),
        NXD_ERROR_INVALID_ARGUMENT, "send: expected");
  }
  NXD_TEST_OK(nxd_barrier(groups.world));
  check_pair(&groups);
}

typedef struct {
  groups_t groups;
  int is_new; /* whether the thread makes no call before it is needed */
  pthread_t thread;
} caller_t;

static void* barrier_of_pair(void* arg) {
  const caller_t* caller = arg;
  if (!caller->is_new) NXD_TEST_OK(nxd_barrier(caller->groups.pair));
  usleep(2000000);
  float in[kCount] = {0}, out[kCount];
  NXD_TEST_REFUSED(nxd_all_reduce(caller->groups.pair, in, out, kCount, f32, NXD_REDUCE_SUM),
                   NXD_ERROR_INVALID_ARGUMENT, "rank 0 rejected its arguments: send: expected");
  return NULL;
}

/* Rank 1 waits for rank 0, and comes to what rank 0 waits in by another thread. */
static void thread_of_a_peer(nxd_context_t* ctx, int rank, int size, void* is_new) {
  (void)size;
  caller_t caller = {.groups = groups_of(ctx, rank), .is_new = *(const int64_t*)is_new != 0};
  float out[kCount];
  if (rank == 1) pthread_create(&caller.thread, NULL, barrier_of_pair, &caller);
  if (rank == 0) {
    if (!caller.is_new) NXD_TEST_OK(nxd_barrier(caller.groups.pair));
    NXD_TEST_REFUSED(nxd_all_reduce(caller.groups.pair, NULL, out, kCount, f32, NXD_REDUCE_SUM),
                     NXD_ERROR_INVALID_ARGUMENT, "send: expected");
  }
  NXD_TEST_OK(nxd_barrier(caller.groups.world));
  if (rank == 1) pthread_join(caller.thread, NULL);
  check_pair(&caller.groups);
}

static void* barriers_of_world(void* arg) {
  const caller_t* caller = arg;
  if (!caller->is_new) NXD_TEST_OK(nxd_barrier(caller->groups.world));
  usleep(2000000);
  NXD_TEST_OK(nxd_barrier(caller->groups.world));
  return NULL;
}

/* Rank 0 comes to what rank 1 waits in by another thread. */
static void thread_of_the_rank(nxd_context_t* ctx, int rank, int size, void* is_new) {
  (void)size;
  caller_t caller = {.groups = groups_of(ctx, rank), .is_new = *(const int64_t*)is_new != 0};
  float in[kCount] = {0}, out[kCount];
  if (rank == 0) {
    pthread_create(&caller.thread, NULL, barriers_of_world, &caller);
    usleep(300000);
  } else {
    if (!caller.is_new) NXD_TEST_OK(nxd_barrier(caller.groups.world));
    NXD_TEST_OK(nxd_barrier(caller.groups.world));
  }
  if (rank < 2) {
    NXD_TEST_REFUSED(
        nxd_all_reduce(caller.groups.pair, rank == 0 ? NULL : in, out, kCount, f32, NXD_REDUCE_SUM),
        NXD_ERROR_INVALID_ARGUMENT, "send: expected");
  }
  if (rank == 0) pthread_join(caller.thread, NULL);
  check_pair(&caller.groups);
}

static void* barrier_of_all(void* arg) {
  const caller_t* caller = arg;
  NXD_TEST_REFUSED(nxd_barrier(caller->groups.world), NXD_ERROR_PEER_LOST, kNoArray);
  return NULL;
}

/* No thread of any rank can go on. */
static void threads_that_wait(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  static const int32_t members[] = {1, 2};
  caller_t caller = {.groups = groups_of(ctx, rank)};
  nxd_group_t* others = NULL;
  if (rank > 0) NXD_TEST_OK(nxd_group_create(ctx, members, 2, "others", &others));
  NXD_TEST_OK(nxd_barrier(caller.groups.world));
  float out[kCount];
  if (rank == 1) pthread_create(&caller.thread, NULL, barrier_of_all, &caller);
  const nxd_status_t status =
      rank == 0   ? nxd_all_reduce(caller.groups.pair, NULL, out, kCount, f32, NXD_REDUCE_SUM)
      : rank == 1 ? nxd_barrier(others)
                  : nxd_barrier(caller.groups.world);
  if (rank != 1) NXD_TEST_REFUSED(status, NXD_ERROR_PEER_LOST, kNoArray);
  if (rank == 1) pthread_join(caller.thread, NULL);
  check_lost(status, &caller.groups, kNoArray);
  nxd_group_destroy(others);
}

/* The awaited rank leaves the group. */
static void peer_that_leaves(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  const groups_t groups = groups_of(ctx, rank);
  float out[kCount];
  if (rank > 0) nxd_group_destroy(groups.pair);
  NXD_TEST_REFUSED(rank == 0 ? nxd_all_reduce(groups.pair, NULL, out, kCount, f32, NXD_REDUCE_SUM)
                             : nxd_barrier(groups.world),
                   NXD_ERROR_PEER_LOST, "; rank 0 rejected that call: send: expected");
  if (rank == 0) nxd_group_destroy(groups.pair);
}

/* A work waits for rank 0. Its caller comes to rank 0, although that takes more than an eighth of
 * the timeout, or after a wait with a bound. */
static void caller_of_a_work(nxd_context_t* ctx, int rank, int size, void* bound_ms) {
  (void)size;
  const groups_t groups = groups_of(ctx, rank);
  nxd_work_t* work = NULL;
  float in[kCount] = {0}, out[kCount];
  if (rank == 1) {
    NXD_TEST_OK(nxd_barrier_async(groups.world, &work));
    NXD_TEST_REFUSED(nxd_work_wait(work, *(const int64_t*)bound_ms), NXD_ERROR_TIMEOUT, "goes on");
    usleep(6000000 - (useconds_t) * (const int64_t*)bound_ms * 1000);
  }
  if (rank < 2) {
    NXD_TEST_REFUSED(
        nxd_all_reduce(groups.pair, rank == 0 ? NULL : in, out, kCount, f32, NXD_REDUCE_SUM),
        NXD_ERROR_INVALID_ARGUMENT, "send: expected");
  }
  NXD_TEST_OK(rank == 1 ? nxd_work_wait(work, -1) : nxd_barrier(groups.world));
  nxd_work_destroy(work);
  check_pair(&groups);
}

static void run_with(nxd_test_rank_fn ranks, int64_t argument) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 30000;
  nxd_test_run_ranks_with(&options, kRanks, 0, ranks, &argument);
}

static void run(nxd_test_rank_fn ranks) { run_with(ranks, 0); }

static void peers_wait_for_the_rank(void** state) {
  (void)state;
  run(collective);
  run(message);
  run(works);
  run(threads_that_wait);
}

static void peers_leave(void** state) {
  (void)state;
  run(peer_that_leaves);
}

static void peers_can_go_on(void** state) {
  (void)state;
  run(caller_that_goes_on);
  run(late_peer);
}

static void other_threads_go_on(void** state) {
  (void)state;
  for (int is_new = 0; is_new < 2; ++is_new) {
    run_with(thread_of_a_peer, is_new);
    run_with(thread_of_the_rank, is_new);
  }
}

static void callers_of_works_go_on(void** state) {
  (void)state;
  run_with(caller_of_a_work, 0);
  run_with(caller_of_a_work, 2000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(peers_wait_for_the_rank), cmocka_unit_test(peers_leave),
      cmocka_unit_test(peers_can_go_on), cmocka_unit_test(other_threads_go_on),
      cmocka_unit_test(callers_of_works_go_on)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
