/* Ranks that are killed, stopped, late or aborted: the others are told, by name and in time. Ranks
 * are processes here: the program starts itself again, and ranks find their part in an environment
 * variable. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/part.h"
#include "support/ranks.h"

enum { kTimeoutMs = 3000 };

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Waits for a peer's failure: the call must fail with one of the codes, name the rank, and take no
 * longer than twice the timeout. */
static int survives(nxd_status_t status, double started, nxd_status_t a, nxd_status_t b, int lost) {
  const double took = now_ms() - started;
  nxd_error_info_t info = {.struct_size = sizeof info};
  nxd_last_error_info(&info);
  char name[32];
  snprintf(name, sizeof name, "rank %d ", lost);
  const int good = (status == a || status == b) && info.root_rank == lost &&
                   strstr(nxd_last_error(), name) && took < 2 * kTimeoutMs;
  if (!good)
    fprintf(stderr, "rank %s: status %d, root rank %d after %.0f ms: %s\n", getenv("RANK"), status,
            info.root_rank, took, nxd_last_error());
  return good;
}

static nxd_status_t exchange(nxd_group_t* group, int n) {
  static float data[1 << 20];
  return nxd_all_reduce(group, data, data, (size_t)n, NXD_DTYPE_F32, NXD_REDUCE_SUM);
}

static nxd_context_t* join(void) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = kTimeoutMs;
  nxd_context_t* ctx = NULL;
  if (nxd_context_create(&options, &ctx) != NXD_OK) {
    fprintf(stderr, "rank %s: %s\n", getenv("RANK"), nxd_last_error());
    exit(20);
  }
  return ctx;
}

/* Joins through a store that rank 0 serves; the port is told through the launcher's store. */
static nxd_context_t* join_served_by_rank_0(void) {
  nxd_store_t *launcher = NULL, *own = NULL;
  const int32_t launcher_port = atoi(getenv("MASTER_PORT"));
  int32_t port = 0;
  size_t size = 0;
  const int rank = atoi(getenv("RANK"));
  if (nxd_store_create_tcp("127.0.0.1", launcher_port, 0, 20000, &launcher) != NXD_OK) exit(22);
  if (rank == 0) {
    if (nxd_store_create_tcp("127.0.0.1", 0, 1, 20000, &own) != NXD_OK) exit(23);
    nxd_store_get_port(own, &port);
    if (nxd_store_set(launcher, "test/port", &port, sizeof port) != NXD_OK) exit(24);
  } else {
    if (nxd_store_get(launcher, "test/port", 20000, &port, sizeof port, &size) != NXD_OK) exit(25);
    if (nxd_store_create_tcp("127.0.0.1", port, 0, 20000, &own) != NXD_OK) exit(26);
  }
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.rank = rank;
  options.size = 3;
  options.store = own;
  options.timeout_ms = kTimeoutMs;
  nxd_context_t* ctx = NULL;
  if (nxd_context_create(&options, &ctx) != NXD_OK) {
    fprintf(stderr, "rank %d: %s\n", rank, nxd_last_error());
    exit(27);
  }
  nxd_store_destroy(own);
  nxd_store_destroy(launcher);
  return ctx;
}

/* The rank that serves the store is lost, and the record of losses with it. Rank 2 waits for rank 1
 * alone. */
static int child_server(nxd_context_t* ctx, int rank, int signal_number) {
  const int32_t left[] = {0, 1}, right[] = {1, 2};
  nxd_group_t *a = NULL, *b = NULL;
  if (rank < 2 && nxd_group_create(ctx, left, 2, "left", &a) != NXD_OK) return 2;
  if (rank > 0 && nxd_group_create(ctx, right, 2, "right", &b) != NXD_OK) return 3;
  nxd_group_t* world = NULL;
  nxd_context_get_world_group(ctx, &world);
  /* By the barrier the groups have been made. A slow rank may lose rank 0 in it already. */
  nxd_status_t status = nxd_barrier(world);
  if (rank == 0 && status != NXD_OK) return 5;
  if (rank == 0) raise(signal_number);
  const double start = now_ms();
  if (status == NXD_OK) status = exchange(rank == 1 ? a : b, 1000);
  if (!survives(status, start, NXD_ERROR_PEER_LOST, NXD_ERROR_TIMEOUT, 0)) return 4;
  nxd_group_destroy(a);
  nxd_group_destroy(b);
  return 0;
}

/* The rank that serves the store ends as soon as it is told of rank 2. Rank 1, which waits for it
 * alone and looks about more rarely, hears of rank 2 all the same. */
static int child_server_ends(nxd_context_t* ctx, int rank) {
  const int32_t left[] = {0, 1}, right[] = {0, 2};
  nxd_group_t *a = NULL, *b = NULL, *world = NULL;
  if (rank != 2 && nxd_group_create(ctx, left, 2, "left", &a) != NXD_OK) return 2;
  if (rank != 1 && nxd_group_create(ctx, right, 2, "right", &b) != NXD_OK) return 3;
  nxd_context_get_world_group(ctx, &world);
  if (nxd_barrier(world) != NXD_OK) return 4;
  if (rank == 2) {
    usleep(kTimeoutMs * 1000 / 4); /* by then rank 1 looks rarely */
    raise(SIGKILL);
  }
  const double start = now_ms();
  const nxd_status_t status = exchange(rank == 0 ? b : a, 1000);
  const int good = survives(status, start, NXD_ERROR_PEER_LOST, NXD_ERROR_PEER_LOST, 2);
  if (rank == 0) _exit(good ? 0 : 5);
  nxd_group_destroy(a);
  return good ? 0 : 5;
}

/* Rank 2 of three ends while the others are in the middle of a collective with it. */
static int child_killed(nxd_context_t* ctx, int rank) {
  nxd_group_t* world = NULL;
  nxd_context_get_world_group(ctx, &world);
  nxd_status_t status = exchange(world, 1 << 20);
  if (rank == 2 && status != NXD_OK) return 2;
  if (rank == 2) raise(SIGKILL);
  const double start = now_ms();
  /* A slow rank may lose rank 2 in the first one already. */
  if (status == NXD_OK) status = exchange(world, 1 << 20);
  if (!survives(status, start, NXD_ERROR_PEER_LOST, NXD_ERROR_TIMEOUT, 2)) return 3;
  /* The first error stays. */
  char first[512];
  snprintf(first, sizeof first, "%s", nxd_last_error());
  if (nxd_barrier(world) != status || strcmp(first, nxd_last_error()) != 0) return 4;
  return 0;
}

/* Ranks 0 and 1 share a group, 1 and 2 another. Rank 2 ends while rank 1 waits for it and rank 0
 * for rank 1: rank 0 hears of a rank it shares no group with. */
static int child_elsewhere(nxd_context_t* ctx, int rank) {
  const int32_t left[] = {0, 1}, right[] = {1, 2};
  nxd_group_t *a = NULL, *b = NULL;
  if (rank < 2 && nxd_group_create(ctx, left, 2, "left", &a) != NXD_OK) return 2;
  if (rank > 0 && nxd_group_create(ctx, right, 2, "right", &b) != NXD_OK) return 3;
  if (rank == 2) raise(SIGKILL);
  const double start = now_ms();
  const nxd_status_t status = exchange(rank == 0 ? a : b, 100000);
  if (!survives(status, start, NXD_ERROR_PEER_LOST, NXD_ERROR_TIMEOUT, 2)) return 4;
  /* The other groups of the context are poisoned with it. */
  nxd_group_t* world = NULL;
  nxd_context_get_world_group(ctx, &world);
  if (!survives(nxd_barrier(world), start, NXD_ERROR_PEER_LOST, NXD_ERROR_TIMEOUT, 2)) return 5;
  nxd_group_destroy(a);
  nxd_group_destroy(b);
  return 0;
}

/* A rank stops, or simply does not call. The rank that waits for a rank that waits for it must not
 * blame the one in between. */
static int child_stopped(nxd_context_t* ctx, int rank, int stopped) {
  const int32_t left[] = {0, 1}, right[] = {1, 2};
  nxd_group_t *a = NULL, *b = NULL;
  if (rank < 2 && nxd_group_create(ctx, left, 2, "left", &a) != NXD_OK) return 2;
  if (rank > 0 && nxd_group_create(ctx, right, 2, "right", &b) != NXD_OK) return 3;
  if (rank == stopped) {
    raise(SIGSTOP); /* the parent ends it in the end */
    return 0;
  }
  const double start = now_ms();
  /* Rank 1 waits for the stopped one, and the third for rank 1. */
  nxd_group_t* group = (rank == 1) == (stopped == 2) ? b : a;
  const nxd_status_t status = exchange(group, 1000);
  if (!survives(status, start, NXD_ERROR_TIMEOUT, NXD_ERROR_TIMEOUT, stopped)) return 4;
  nxd_group_destroy(a);
  nxd_group_destroy(b);
  return 0;
}

/* Rank 1 leaves without a word to the others, after they have agreed. */
static int child_left(nxd_context_t* ctx, int rank) {
  nxd_group_t* world = NULL;
  nxd_context_get_world_group(ctx, &world);
  if (nxd_barrier(world) != NXD_OK) return 2;
  if (rank == 1) {
    nxd_context_destroy(ctx); /* those who are still in the barrier have all they need */
    exit(0);
  }
  const double start = now_ms();
  return survives(nxd_barrier(world), start, NXD_ERROR_PEER_LOST, NXD_ERROR_PEER_LOST, 1) ? 0 : 3;
}

/* A send to a rank that is gone, and a receive from it. */
static int child_message(nxd_context_t* ctx, int rank) {
  nxd_group_t* world = NULL;
  nxd_context_get_world_group(ctx, &world);
  float data[4] = {0};
  if (rank == 2) {
    if (nxd_send(world, data, 4, NXD_DTYPE_F32, 0, 1) != NXD_OK) return 2;
    raise(SIGKILL);
  }
  if (rank == 0 && nxd_receive(world, data, 4, NXD_DTYPE_F32, 2, 1) != NXD_OK) return 3;
  const double start = now_ms();
  const nxd_status_t status = rank == 0 ? nxd_receive(world, data, 4, NXD_DTYPE_F32, 2, 1)
                                        : nxd_receive(world, data, 4, NXD_DTYPE_F32, 0, 1);
  return survives(status, start, NXD_ERROR_PEER_LOST, NXD_ERROR_TIMEOUT, 2) ? 0 : 4;
}

static int child(const char* part) {
  nxd_context_t* ctx = strncmp(part, "server", 6) ? join() : join_served_by_rank_0();
  int32_t rank = -1;
  nxd_context_get_rank(ctx, &rank);
  int code = 21;
  if (!strcmp(part, "killed")) code = child_killed(ctx, rank);
  if (!strcmp(part, "elsewhere")) code = child_elsewhere(ctx, rank);
  if (!strcmp(part, "stopped2")) code = child_stopped(ctx, rank, 2);
  if (!strcmp(part, "stopped0")) code = child_stopped(ctx, rank, 0);
  if (!strcmp(part, "serverkilled")) code = child_server(ctx, rank, SIGKILL);
  if (!strcmp(part, "serverstopped")) code = child_server(ctx, rank, SIGSTOP);
  if (!strcmp(part, "serverends")) code = child_server_ends(ctx, rank);
  if (!strcmp(part, "left")) code = child_left(ctx, rank);
  if (!strcmp(part, "message")) code = child_message(ctx, rank);
  nxd_context_destroy(ctx);
  return code;
}

static void killed(void** state) {
  (void)state;
  nxd_test_run_part("killed", 3, 2, 128 + SIGKILL, 60);
}
static void elsewhere(void** state) {
  (void)state;
  nxd_test_run_part("elsewhere", 3, 2, 128 + SIGKILL, 60);
}
static void stopped(void** state) {
  (void)state;
  nxd_test_run_part("stopped2", 3, 2, kNxdTestStopped, 60);
  nxd_test_run_part("stopped0", 3, 0, kNxdTestStopped, 60);
}
static void left(void** state) {
  (void)state;
  nxd_test_run_part("left", 3, 1, 0, 60);
}
static void server(void** state) {
  (void)state;
  nxd_test_run_part("serverkilled", 3, 0, 128 + SIGKILL, 60);
  nxd_test_run_part("serverstopped", 3, 0, kNxdTestStopped, 60);
}
static void server_ends(void** state) {
  (void)state;
  nxd_test_run_part("serverends", 3, 2, 128 + SIGKILL, 60);
}
static void message(void** state) {
  (void)state;
  nxd_test_run_part("message", 3, 2, 128 + SIGKILL, 60);
}

/* --- Ranks as threads ----------------------------------------------------------------------- */

static pthread_barrier_t meet;

/* Aborts while the rank waits. That it does wait cannot be observed; when the abort comes first,
 * the call fails the same way, so the pause only makes the interesting case the likely one. */
static void* abort_later(void* arg) {
  usleep(100000);
  NXD_TEST_OK(nxd_context_abort(arg));
  return NULL;
}

static void aborting(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  if (rank == 0) {
    pthread_t thread;
    pthread_create(&thread, NULL, abort_later, ctx);
    NXD_TEST_REFUSED(nxd_barrier(world), NXD_ERROR_ABORTED, "aborted");
    pthread_join(thread, NULL);
    NXD_TEST_OK(nxd_context_abort(ctx));
    NXD_TEST_REFUSED(nxd_barrier(world), NXD_ERROR_ABORTED, "aborted");
    NXD_TEST_REFUSED(nxd_context_finalize(ctx), NXD_ERROR_ABORTED, "aborted");
    pthread_barrier_wait(&meet);
  } else {
    pthread_barrier_wait(&meet); /* until the peer has seen that this rank does not come */
    NXD_TEST_REFUSED(nxd_barrier(world), NXD_ERROR_PEER_LOST, "rank 0");
  }
}

static void abort_wakes(void** state) {
  (void)state;
  pthread_barrier_init(&meet, NULL, 2);
  nxd_test_run_ranks(2, 0, aborting, NULL);
  pthread_barrier_destroy(&meet);
}

/* A group alone is aborted: the world goes on until a peer finds the group's connection closed. */
static void group_abort(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  const int32_t ranks[] = {1, 0};
  nxd_group_t *group = NULL, *world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_group_create(ctx, ranks, 2, "mine", &group));
  int32_t place = -1;
  NXD_TEST_OK(nxd_group_get_rank(group, &place));
  NXD_TEST_CHECK(place == 1 - rank);
  if (rank == 0) NXD_TEST_OK(nxd_group_abort(group));
  NXD_TEST_OK(nxd_barrier(world));
  if (rank == 0) {
    NXD_TEST_REFUSED(nxd_barrier(group), NXD_ERROR_ABORTED, "\"mine\"");
  } else {
    NXD_TEST_REFUSED(nxd_barrier(group), NXD_ERROR_PEER_LOST, "rank 0");
  }
  nxd_group_destroy(group);
}

static void group_aborts(void** state) {
  (void)state;
  nxd_test_run_ranks(2, 0, group_abort, NULL);
}

/* A late rank of a group whose bound was shortened. */
static void late(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_REFUSED(nxd_group_set_timeout(world, 0), NXD_ERROR_INVALID_ARGUMENT, "timeout_ms");
  NXD_TEST_OK(nxd_group_set_timeout(world, 1000));
  if (rank == 1) {
    pthread_barrier_wait(&meet);
    NXD_TEST_REFUSED(nxd_barrier(world), NXD_ERROR_TIMEOUT, "rank 1 did not answer");
  } else {
    NXD_TEST_REFUSED(nxd_barrier(world), NXD_ERROR_TIMEOUT, "rank 1 did not answer");
    nxd_error_info_t info = {.struct_size = sizeof info};
    NXD_TEST_OK(nxd_last_error_info(&info));
    NXD_TEST_CHECK(info.root_rank == 1 && info.status == NXD_ERROR_TIMEOUT && info.sequence == 1);
    NXD_TEST_CHECK(!strcmp(info.operation, "barrier") && !strcmp(info.group, "world"));
    pthread_barrier_wait(&meet);
  }
}

static void late_rank(void** state) {
  (void)state;
  pthread_barrier_init(&meet, NULL, 2);
  nxd_test_run_ranks(2, 0, late, NULL);
  pthread_barrier_destroy(&meet);
}

int main(void) {
  const char* part = getenv("NXD_TEST_PART");
  if (part) return child(part);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(killed),      cmocka_unit_test(elsewhere),   cmocka_unit_test(stopped),
      cmocka_unit_test(left),        cmocka_unit_test(message),     cmocka_unit_test(server),
      cmocka_unit_test(server_ends), cmocka_unit_test(abort_wakes), cmocka_unit_test(group_aborts),
      cmocka_unit_test(late_rank),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
