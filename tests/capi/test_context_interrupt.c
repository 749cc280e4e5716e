/* The interrupt callback ends whatever a rank waits in, with the callback's own status; the peers
 * that wait for the rank hear that it has left. The callback is only ever asked on the thread that
 * made the call. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

/* A call that this thread makes while it is armed is interrupted with the status, the third time
 * that the callback is asked, and not before that time. */
static _Thread_local int is_callers;
static _Thread_local nxd_status_t armed;
static _Thread_local int asked;
static _Thread_local double not_before_ms;

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static nxd_status_t interrupt(void* user_data) {
  NXD_TEST_CHECK(is_callers && *(int*)user_data == 17);
  return armed != NXD_OK && ++asked >= 3 && now_ms() >= not_before_ms ? armed : NXD_OK;
}

static int interrupt_data = 17;

static void arm(nxd_status_t status) {
  is_callers = 1;
  armed = status;
  asked = 0;
}

static nxd_context_options_t interruptible(void) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  options.interrupt = interrupt;
  options.interrupt_data = &interrupt_data;
  return options;
}

static pthread_barrier_t meet;

static nxd_group_t* world_of(nxd_context_t* ctx) {
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  return world;
}

/* Not the ranks of support/ranks.h: their threads must be marked before they join. */
typedef struct {
  nxd_context_options_t options;
  nxd_test_rank_fn fn;
} rank_t;

static void* join_and_run(void* arg) {
  rank_t* r = arg;
  nxd_context_t* ctx = NULL;
  arm(NXD_OK);
  if (NXD_TEST_OK(nxd_context_create(&r->options, &ctx)))
    r->fn(ctx, r->options.rank, r->options.size, NULL);
  nxd_context_destroy(ctx);
  return NULL;
}

static void run_ranks(int size, nxd_test_rank_fn fn) {
  enum { kMost = 3 };
  rank_t ranks[kMost];
  pthread_t threads[kMost];
  nxd_store_t* store = NULL;
  assert_int_equal(nxd_store_create_local(&store), NXD_OK);
  pthread_barrier_init(&meet, NULL, (unsigned)size);
  for (int rank = 0; rank < size; ++rank) {
    ranks[rank] = (rank_t){interruptible(), fn};
    ranks[rank].options.rendezvous = NXD_RENDEZVOUS_STORE;
    ranks[rank].options.rank = rank;
    ranks[rank].options.size = size;
    ranks[rank].options.store = store;
    assert_int_equal(pthread_create(&threads[rank], NULL, join_and_run, &ranks[rank]), 0);
  }
  for (int rank = 0; rank < size; ++rank) pthread_join(threads[rank], NULL);
  pthread_barrier_destroy(&meet);
  nxd_store_destroy(store);
  assert_int_equal(nxd_test_failures(), 0);
}

/* --- Calls ---------------------------------------------------------------------------------- */

enum { kCalls = 8 };

static nxd_status_t call(nxd_group_t* group, int which, int rank) {
  float in[8] = {0}, out[8];
  const nxd_dtype_t f32 = NXD_DTYPE_F32;
  switch (which) {
    case 0: return nxd_all_reduce(group, in, out, 4, f32, NXD_REDUCE_SUM);
    case 1: return nxd_all_gather(group, in, out, 4, f32);
    case 2: return nxd_reduce_scatter(group, in, out, 4, f32, NXD_REDUCE_SUM);
    case 3: return nxd_broadcast(group, in, 4, f32, 1);
    case 4: return nxd_all_to_all(group, in, out, 4, f32);
    case 5:
      return rank == 0 ? nxd_send(group, in, 4, f32, 1, 0) : nxd_receive(group, in, 4, f32, 0, 0);
    case 6:
      return rank == 0 ? nxd_receive(group, in, 4, f32, 1, 0) : nxd_send(group, in, 4, f32, 0, 0);
    default: return nxd_barrier(group);
  }
}

static void check_lost(nxd_status_t status) {
  NXD_TEST_REFUSED(status, NXD_ERROR_PEER_LOST, "rank 0");
  nxd_error_info_t info = {.struct_size = sizeof info};
  NXD_TEST_OK(nxd_last_error_info(&info));
  NXD_TEST_CHECK(info.root_rank == 0);
}

static int kind_of_call;

/* Rank 0 is interrupted in a call while its peer stays away; the peer comes after. The loss poisons
 * the peer's whole context, so every kind of call gets a world of its own. */
static void one_call(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  static const nxd_status_t statuses[] = {NXD_ERROR_USER, 1234, -77};
  const nxd_status_t status = statuses[kind_of_call % 3];
  nxd_group_t* world = world_of(ctx);
  if (rank == 0) {
    arm(status);
    NXD_TEST_REFUSED(call(world, kind_of_call, rank), status,
                     "interrupted by the interrupt callback");
    arm(NXD_OK);
    NXD_TEST_REFUSED(nxd_barrier(world), status, "interrupted"); /* the first error stays */
  }
  pthread_barrier_wait(&meet);
  if (rank == 1) check_lost(call(world, kind_of_call, rank));
  pthread_barrier_wait(&meet); /* rank 0 has not left the world, only the group */
}

static void test_each_call(void** state) {
  (void)state;
  for (kind_of_call = 0; kind_of_call < kCalls; ++kind_of_call) run_ranks(2, one_call);
}

/* The peer waits already, for rank 0, which is held up by rank 2. */
static void while_peer_waits(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  if (rank == 0) {
    arm(NXD_ERROR_USER);
    NXD_TEST_REFUSED(nxd_barrier(world), NXD_ERROR_USER, "interrupted");
    arm(NXD_OK);
  } else if (rank == 1) {
    int32_t x = 0;
    check_lost(nxd_receive(world, &x, 1, NXD_DTYPE_I32, 0, 0));
  }
  pthread_barrier_wait(&meet); /* rank 2 stays away */
}

static void test_while_peer_waits(void** state) {
  (void)state;
  run_ranks(3, while_peer_waits);
}

/* A call whose time is over still asks while it finds out who is to blame. */
static void past_timeout(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  enum { kTimeoutMs = 8000 };
  nxd_group_t* world = world_of(ctx);
  if (rank == 0) {
    NXD_TEST_OK(nxd_group_set_timeout(world, kTimeoutMs));
    arm(NXD_ERROR_USER);
    not_before_ms = now_ms() + kTimeoutMs + 50;
    NXD_TEST_REFUSED(nxd_barrier(world), NXD_ERROR_USER, "interrupted");
    not_before_ms = 0;
    arm(NXD_OK);
  }
  pthread_barrier_wait(&meet);
}

static void test_past_timeout(void** state) {
  (void)state;
  run_ranks(2, past_timeout);
}

/* Making a group means making connections; the peer makes the group later. */
static void connecting(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  const int32_t ranks[] = {0, 1};
  nxd_group_t* group = (nxd_group_t*)ctx;
  if (rank == 1) pthread_barrier_wait(&meet);
  if (rank == 0) {
    arm(NXD_ERROR_USER);
    NXD_TEST_REFUSED(nxd_group_create(ctx, ranks, 2, "fresh", &group), NXD_ERROR_USER,
                     "interrupted");
    arm(NXD_OK);
    pthread_barrier_wait(&meet);
  } else {
    check_lost(nxd_group_create(ctx, ranks, 2, "fresh", &group));
  }
  NXD_TEST_CHECK(group == NULL);
  pthread_barrier_wait(&meet);
}

static void test_connecting(void** state) {
  (void)state;
  run_ranks(2, connecting);
}

/* --- Works ---------------------------------------------------------------------------------- */

/* An interrupted wait leaves its work and the group alone. */
static void work_wait(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  if (rank == 0) {
    nxd_work_t* work = NULL;
    int32_t done = 5;
    NXD_TEST_OK(nxd_barrier_async(world, &work));
    arm(4321);
    NXD_TEST_REFUSED(nxd_work_wait(work, -1), 4321, "interrupted");
    arm(NXD_OK);
    NXD_TEST_OK(nxd_work_test(work, &done));
    NXD_TEST_CHECK(done == 0);
    pthread_barrier_wait(&meet);
    NXD_TEST_OK(nxd_work_wait(work, -1));
    nxd_work_destroy(work);
  } else {
    pthread_barrier_wait(&meet);
    NXD_TEST_OK(nxd_barrier(world));
  }
  NXD_TEST_OK(nxd_barrier(world));
}

static void test_work_wait(void** state) {
  (void)state;
  run_ranks(2, work_wait);
}

/* So does a wait for works before the ranks leave, which may be made again. */
static void finalize(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  int32_t value = 5;
  nxd_work_t* work = NULL;
  if (rank == 0) {
    NXD_TEST_OK(nxd_receive_async(world, &value, 1, NXD_DTYPE_I32, 1, 0, &work));
    const double begun = now_ms();
    arm(4321);
    NXD_TEST_REFUSED(nxd_context_finalize(ctx), 4321, "interrupted");
    NXD_TEST_CHECK(now_ms() - begun >= 3 * 20 - 1); /* it asks as rarely as other waits */
    arm(NXD_OK);
  }
  pthread_barrier_wait(&meet);
  if (rank == 1) {
    value = 6;
    NXD_TEST_OK(nxd_send(world, &value, 1, NXD_DTYPE_I32, 0, 0));
  }
  NXD_TEST_OK(nxd_context_finalize(ctx));
  NXD_TEST_CHECK(value == 6);
  if (rank == 0) NXD_TEST_OK(nxd_work_wait(work, 0));
  nxd_work_destroy(work);
}

static void test_finalize(void** state) {
  (void)state;
  run_ranks(2, finalize);
}

/* A call that waits behind a work is interrupted before it has begun. */
static void behind_work(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  if (rank == 0) {
    nxd_work_t* work = NULL;
    NXD_TEST_OK(nxd_barrier_async(world, &work));
    arm(NXD_ERROR_USER);
    NXD_TEST_REFUSED(nxd_barrier(world), NXD_ERROR_USER, "interrupted");
    arm(NXD_OK);
    NXD_TEST_REFUSED(nxd_work_wait(work, 10000), NXD_ERROR_USER, "interrupted");
    nxd_work_destroy(work);
    pthread_barrier_wait(&meet);
  } else {
    pthread_barrier_wait(&meet);
    check_lost(nxd_barrier(world));
  }
}

static void test_behind_work(void** state) {
  (void)state;
  run_ranks(2, behind_work);
}

/* So is a message behind more of them than a peer has room for that takes none. */
static void behind_messages(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)size;
  (void)unused;
  enum { kMessages = 12 };
  nxd_group_t* world = world_of(ctx);
  if (rank == 0) {
    const int32_t value = 5;
    nxd_work_t* works[kMessages] = {NULL};
    for (int tag = 0; tag < kMessages; ++tag) {
      NXD_TEST_OK(nxd_send_async(world, &value, 1, NXD_DTYPE_I32, 1, tag, &works[tag]));
    }
    usleep(100000); /* they have come as far as they can */
    arm(NXD_ERROR_USER);
    NXD_TEST_REFUSED(nxd_send(world, &value, 1, NXD_DTYPE_I32, 1, kMessages), NXD_ERROR_USER,
                     "interrupted");
    arm(NXD_OK);
    for (int tag = 0; tag < kMessages; ++tag) {
      NXD_TEST_REFUSED(nxd_work_wait(works[tag], -1), NXD_ERROR_USER, "interrupted");
      nxd_work_destroy(works[tag]);
    }
    pthread_barrier_wait(&meet);
  } else {
    pthread_barrier_wait(&meet);
    check_lost(nxd_barrier(world));
  }
}

static void test_behind_messages(void** state) {
  (void)state;
  run_ranks(2, behind_messages);
}

/* --- Joining -------------------------------------------------------------------------------- */

static nxd_status_t join_as(int rank, int size, nxd_store_t* store, nxd_status_t status) {
  nxd_context_options_t options = interruptible();
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.rank = rank;
  options.size = size;
  options.store = store;
  nxd_context_t* ctx = NULL;
  arm(status);
  const nxd_status_t result = nxd_context_create(&options, &ctx);
  arm(NXD_OK);
  NXD_TEST_CHECK(ctx == NULL);
  return result;
}

/* One rank gives up before the others come; which rank decides by what way they hear of it. */
static void test_join(void** state) {
  (void)state;
  for (int first = 0; first < 2; ++first) {
    nxd_store_t* store = NULL;
    char name[32];
    snprintf(name, sizeof name, "rank %d left", first);
    assert_int_equal(nxd_store_create_local(&store), NXD_OK);
    NXD_TEST_REFUSED(join_as(first, 2, store, 99), 99, "nxd_context_create: interrupted");
    NXD_TEST_REFUSED(join_as(1 - first, 2, store, NXD_OK), NXD_ERROR_PEER_LOST, name);
    nxd_error_info_t info = {.struct_size = sizeof info};
    NXD_TEST_OK(nxd_last_error_info(&info));
    NXD_TEST_CHECK(info.root_rank == first);
    nxd_store_destroy(store);
  }
  assert_int_equal(nxd_test_failures(), 0);
}

/* No process listens at the launcher's port. */
static void test_join_without_server(void** state) {
  (void)state;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(bind(fd, (struct sockaddr*)&address, size), 0); /* taken, but not listened at */
  assert_int_equal(getsockname(fd, (struct sockaddr*)&address, &size), 0);
  char port[16];
  snprintf(port, sizeof port, "%d", ntohs(address.sin_port));
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", port, 1);
  const nxd_context_options_t options = interruptible();
  nxd_context_t* ctx = NULL;
  arm(NXD_ERROR_USER);
  NXD_TEST_REFUSED(nxd_context_create(&options, &ctx), NXD_ERROR_USER, "interrupted");
  arm(NXD_OK);
  assert_null(ctx);
  close(fd);
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  assert_int_equal(nxd_test_failures(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_call),
                                     cmocka_unit_test(test_while_peer_waits),
                                     cmocka_unit_test(test_past_timeout),
                                     cmocka_unit_test(test_connecting),
                                     cmocka_unit_test(test_work_wait),
                                     cmocka_unit_test(test_behind_work),
                                     cmocka_unit_test(test_behind_messages),
                                     cmocka_unit_test(test_finalize),
                                     cmocka_unit_test(test_join),
                                     cmocka_unit_test(test_join_without_server)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
