/* A rank that aborts or leaves at any moment is named to its peers: never a timeout. Ranks are
 * threads; the moments are drawn at random, and a round fails when a peer waits to the end.
 * NXD_LONG=1: beside load as many rounds as without. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/ranks.h"

enum { kBusyThreads = 3, kCulprit = 0 };

/* Rounds beside load take all processors for their time. */
static int rounds_of_two = 60;
static atomic_int busy;

static void* burn(void* unused) {
  (void)unused;
  volatile uint64_t x = 1;
  while (atomic_load(&busy)) x = x * 6364136223846793005u + 1;
  return NULL;
}

/* The event loops of Gloo come late when the processors are taken. One of the test's forms has them
 * so, over Gloo alone. */
static int start_load(void** state) {
  static pthread_t threads[kBusyThreads];
  const char* transport = getenv("NXD_TRANSPORT");
  if (!transport || strcmp(transport, "gloo") != 0 || getenv("NXD_LARGE_GROUP")) return 0;
  *state = threads;
  if (!getenv("NXD_LONG")) rounds_of_two = 20;
  atomic_store(&busy, 1);
  for (int i = 0; i < kBusyThreads; ++i) {
    if (pthread_create(&threads[i], NULL, burn, NULL) != 0) return -1;
  }
  return 0;
}

static int end_load(void** state) {
  atomic_store(&busy, 0);
  for (int i = 0; *state && i < kBusyThreads; ++i) pthread_join(((pthread_t*)*state)[i], NULL);
  return 0;
}

typedef struct {
  uint64_t seed;
  pthread_barrier_t meet;
  nxd_group_t* open; /* that the lost rank has left */
} round_t;

static uint64_t draw(uint64_t* seed, uint64_t limit) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (*seed >> 33) % limit;
}

static nxd_status_t use(nxd_group_t* group, int n) {
  static const size_t sizes[] = {1, 1000, 300000};
  const size_t count = sizes[n % 3];
  float* data = calloc(count, sizeof *data);
  const nxd_status_t status =
      nxd_all_reduce(group, data, data, count, NXD_DTYPE_F32, NXD_REDUCE_SUM);
  free(data);
  return status;
}

static void check_told(nxd_status_t status) {
  NXD_TEST_REFUSED(status, NXD_ERROR_PEER_LOST, "rank 0");
  nxd_error_info_t info = {.struct_size = sizeof info};
  NXD_TEST_OK(nxd_last_error_info(&info));
  NXD_TEST_CHECK(info.root_rank == kCulprit);
}

typedef struct {
  nxd_context_t* ctx;
  useconds_t pause;
} abort_t;

static void* abort_later(void* arg) {
  const abort_t* abort = arg;
  usleep(abort->pause);
  NXD_TEST_OK(nxd_context_abort(abort->ctx));
  return NULL;
}

/* One rank is aborted from another thread at some point of an endless row of collectives, the first
 * of which connect the tensor-parallel group. */
static void abort_somewhere(nxd_context_t* ctx, int rank, int size, void* arg) {
  (void)size;
  round_t* round = arg;
  nxd_group_t *world = NULL, *tensor = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_TENSOR, &tensor));
  uint64_t seed = round->seed;
  abort_t abort = {ctx, (useconds_t)draw(&seed, 8000)};
  pthread_t thread;
  if (rank == kCulprit) pthread_create(&thread, NULL, abort_later, &abort);
  nxd_status_t status = NXD_OK;
  for (int n = 0; status == NXD_OK; ++n) status = use(n % 4 == 3 ? world : tensor, n);
  if (rank == kCulprit) {
    NXD_TEST_REFUSED(status, NXD_ERROR_ABORTED, "aborted");
    pthread_join(thread, NULL);
  } else {
    check_told(status);
  }
}

/* The rank aborts while its peers are busy elsewhere; they hear of it when they come. */
static void abort_before(nxd_context_t* ctx, int rank, int size, void* arg) {
  (void)size;
  round_t* round = arg;
  nxd_group_t *world = NULL, *tensor = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_TENSOR, &tensor));
  uint64_t seed = round->seed;
  nxd_group_t* group = draw(&seed, 2) ? world : tensor;
  if (rank == kCulprit) {
    pthread_t thread;
    abort_t abort = {ctx, (useconds_t)draw(&seed, 3000)};
    pthread_create(&thread, NULL, abort_later, &abort);
    NXD_TEST_REFUSED(use(group, 0), NXD_ERROR_ABORTED, "aborted");
    pthread_join(thread, NULL);
    pthread_barrier_wait(&round->meet);
  } else {
    pthread_barrier_wait(&round->meet);
    check_told(use(group, 0));
  }
}

/* The rank leaves before the group is connected. */
static void leave(nxd_context_t* ctx, int rank, int size, void* arg) {
  (void)size;
  (void)arg;
  nxd_group_t* tensor = NULL;
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_TENSOR, &tensor));
  if (rank != kCulprit) check_told(use(tensor, 0));
}

/* The rank destroys its context while it has a group of its own, which outlives it. */
static void leave_a_group_open(nxd_context_t* ctx, int rank, int size, void* arg) {
  round_t* round = arg;
  const int32_t ranks[] = {0, 1, 2};
  nxd_group_t* group = NULL;
  if (!NXD_TEST_OK(nxd_group_create(ctx, ranks, (size_t)size, "some", &group))) return;
  if (rank == kCulprit) {
    round->open = group;
    return;
  }
  check_told(use(group, 0));
  nxd_group_destroy(group);
}

/* A group alone is aborted before its members have used it; the world goes on. */
static void abort_unused_group(nxd_context_t* ctx, int rank, int size, void* arg) {
  (void)size;
  (void)arg;
  nxd_group_t *world = NULL, *tensor = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_TENSOR, &tensor));
  if (rank == kCulprit) NXD_TEST_OK(nxd_group_abort(tensor));
  NXD_TEST_OK(nxd_barrier(world));
  if (rank != kCulprit) check_told(use(tensor, 0));
}

static void run(nxd_test_rank_fn fn, int rounds, int size) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000; /* far beyond what a peer may need to hear of it */
  for (int n = 0; n < rounds; ++n) {
    round_t round = {.seed = (uint64_t)n * 7919 + 1};
    pthread_barrier_init(&round.meet, NULL, (unsigned)size);
    nxd_test_run_ranks_with(&options, size, size, fn, &round);
    nxd_group_destroy(round.open);
    pthread_barrier_destroy(&round.meet);
  }
}

static void aborts_between_two(void** state) {
  (void)state;
  run(abort_somewhere, rounds_of_two, 2);
}
static void aborts_among_three(void** state) {
  (void)state;
  run(abort_somewhere, rounds_of_two / 2, 3);
}
static void aborts_before_peers_call(void** state) {
  (void)state;
  run(abort_before, rounds_of_two, 2);
}
static void leaves_before_connecting(void** state) {
  (void)state;
  run(leave, 3, 2);
  run(leave, 3, 3);
}
static void leaves_a_group_open(void** state) {
  (void)state;
  run(leave_a_group_open, 3, 2);
  run(leave_a_group_open, 3, 3);
}
static void aborts_a_group_before_its_use(void** state) {
  (void)state;
  run(abort_unused_group, 3, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(aborts_between_two),       cmocka_unit_test(aborts_among_three),
      cmocka_unit_test(aborts_before_peers_call), cmocka_unit_test(leaves_before_connecting),
      cmocka_unit_test(leaves_a_group_open),      cmocka_unit_test(aborts_a_group_before_its_use)};
  return cmocka_run_group_tests(tests, start_load, end_load);
}
