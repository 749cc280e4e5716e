/* Completion of works without a wait: callbacks come once, with the work's status, and descriptors
 * become readable. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

enum { kRanks = 2, kChain = 50 };

static nxd_group_t* world_of(nxd_context_t* ctx) {
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  return world;
}

/* Counts its calls, and lets a thread wait for them. */
typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int calls;
  nxd_status_t status;
  pthread_t thread;
} calls_t;

static calls_t no_calls(void) {
  const calls_t calls = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  return calls;
}

static void on_done(void* user_data, nxd_status_t status) {
  calls_t* calls = user_data;
  pthread_mutex_lock(&calls->mutex);
  ++calls->calls;
  calls->status = status;
  calls->thread = pthread_self();
  pthread_cond_broadcast(&calls->changed);
  pthread_mutex_unlock(&calls->mutex);
}

static void await_calls(calls_t* calls, int wanted) {
  pthread_mutex_lock(&calls->mutex);
  while (calls->calls < wanted) pthread_cond_wait(&calls->changed, &calls->mutex);
  pthread_mutex_unlock(&calls->mutex);
}

/* --- Callbacks ------------------------------------------------------------------------------- */

static void outcomes(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  nxd_group_t* world = world_of(ctx);
  nxd_work_t* work = NULL;
  float x = 1;
  calls_t well = no_calls(), late = no_calls(), badly = no_calls();

  NXD_TEST_OK(nxd_all_reduce_async(world, &x, &x, 1, NXD_DTYPE_F32, NXD_REDUCE_SUM, &work));
  NXD_TEST_OK(nxd_work_set_callback(work, on_done, &well));
  NXD_TEST_REFUSED(nxd_work_set_callback(work, on_done, &late), NXD_ERROR_INVALID_STATE,
                   "has a callback already");
  await_calls(&well, 1);
  NXD_TEST_CHECK(well.status == NXD_OK && x == (float)size);
  NXD_TEST_OK(nxd_work_wait(work, -1));
  nxd_work_destroy(work);
  NXD_TEST_CHECK(well.calls == 1);

  /* A work that is done: on this thread, at once. */
  NXD_TEST_OK(nxd_barrier_async(world, &work));
  NXD_TEST_OK(nxd_work_wait(work, -1));
  NXD_TEST_OK(nxd_work_set_callback(work, on_done, &late));
  NXD_TEST_CHECK(late.calls == 1 && pthread_equal(late.thread, pthread_self()));
  nxd_work_destroy(work);

  NXD_TEST_OK(nxd_broadcast_async(world, rank == 0 ? NULL : &x, 1, NXD_DTYPE_F32, 0, &work));
  NXD_TEST_OK(nxd_work_set_callback(work, on_done, &badly));
  await_calls(&badly, 1);
  NXD_TEST_CHECK(badly.status == NXD_ERROR_INVALID_ARGUMENT);
  nxd_work_destroy(work);
}

/* The first work waits for the peer, so the second has not begun when it is cancelled or destroyed.
 */
static void cancelled(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  (void)size;
  nxd_group_t* world = world_of(ctx);
  calls_t cancelled = no_calls(), destroyed = no_calls();
  if (rank == 0) {
    nxd_work_t* works[3];
    for (int i = 0; i < 3; ++i) NXD_TEST_OK(nxd_barrier_async(world, &works[i]));
    NXD_TEST_OK(nxd_work_set_callback(works[1], on_done, &cancelled));
    NXD_TEST_OK(nxd_work_set_callback(works[2], on_done, &destroyed));
    NXD_TEST_OK(nxd_work_cancel(works[1]));
    NXD_TEST_CHECK(cancelled.calls == 1 && cancelled.status == NXD_ERROR_ABORTED);
    NXD_TEST_CHECK(pthread_equal(cancelled.thread, pthread_self()));
    nxd_work_destroy(works[2]);
    NXD_TEST_OK(nxd_send(world, &rank, 1, NXD_DTYPE_I32, 1, 0));
    NXD_TEST_OK(nxd_work_wait(works[0], -1));
    nxd_work_destroy(works[0]);
    nxd_work_destroy(works[1]);
  } else {
    NXD_TEST_OK(nxd_receive(world, &rank, 1, NXD_DTYPE_I32, 0, 0));
    NXD_TEST_OK(nxd_barrier(world));
    for (int i = 0; i < 2; ++i) {
      NXD_TEST_REFUSED(nxd_barrier(world), NXD_ERROR_INVALID_ARGUMENT, "cancelled");
    }
  }
  NXD_TEST_OK(nxd_barrier(world));
  NXD_TEST_CHECK(destroyed.calls == 0);
}

static void ended_by_abort(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  const int32_t ranks[] = {0, 1};
  nxd_group_t* group = NULL;
  NXD_TEST_OK(nxd_group_create(ctx, ranks, (size_t)size, "aborted", &group));
  if (rank == 0) {
    calls_t calls = no_calls();
    nxd_work_t* work = NULL;
    NXD_TEST_OK(nxd_barrier_async(group, &work));
    NXD_TEST_OK(nxd_work_set_callback(work, on_done, &calls));
    NXD_TEST_OK(nxd_group_abort(group));
    await_calls(&calls, 1);
    NXD_TEST_CHECK(calls.status == NXD_ERROR_ABORTED);
    nxd_work_destroy(work);
  }
  nxd_group_destroy(group);
}

/* Each callback destroys its work and starts the next. */
typedef struct {
  nxd_group_t* group;
  nxd_work_t* work;
  float sum;
  int left;
  calls_t ended;
} chain_t;

static void go_on(void* user_data, nxd_status_t status);

static nxd_status_t start_next(chain_t* chain) {
  const nxd_status_t status = nxd_all_reduce_async(chain->group, &chain->sum, &chain->sum, 1,
                                                   NXD_DTYPE_F32, NXD_REDUCE_AVG, &chain->work);
  return status != NXD_OK ? status : nxd_work_set_callback(chain->work, go_on, chain);
}

static void go_on(void* user_data, nxd_status_t status) {
  chain_t* chain = user_data;
  nxd_work_destroy(chain->work);
  chain->sum += 1;
  if (status == NXD_OK && --chain->left > 0) status = start_next(chain);
  if (status != NXD_OK || chain->left == 0) on_done(&chain->ended, status);
}

static void chained(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  (void)rank;
  (void)size;
  chain_t chain = {.group = world_of(ctx), .left = kChain, .ended = no_calls()};
  NXD_TEST_OK(start_next(&chain));
  await_calls(&chain.ended, 1);
  NXD_TEST_CHECK(chain.ended.status == NXD_OK && chain.sum == kChain);
}

/* nxd_work_destroy waits for a callback that runs on another thread. */
typedef struct {
  calls_t entered, left;
  pthread_barrier_t* both;
  nxd_work_t* work;
} slow_t;

/* Gives the other thread time to go on too early, if it does. */
static void be_slow(void* user_data, nxd_status_t status) {
  slow_t* slow = user_data;
  on_done(&slow->entered, status);
  pthread_barrier_wait(slow->both);
  for (int i = 0; i < 20000; ++i) sched_yield();
  on_done(&slow->left, status);
}

static void* destroy(void* user_data) {
  slow_t* slow = user_data;
  pthread_barrier_wait(slow->both);
  nxd_work_destroy(slow->work);
  NXD_TEST_CHECK(slow->left.calls == 1);
  return NULL;
}

static void destroyed_meanwhile(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  (void)rank;
  (void)size;
  pthread_barrier_t both;
  pthread_barrier_init(&both, NULL, 2);
  slow_t slow = {.entered = no_calls(), .left = no_calls(), .both = &both};
  NXD_TEST_OK(nxd_barrier_async(world_of(ctx), &slow.work));
  /* It is there before the callback, which waits for it: that of a work that is done by now runs on
   * this thread. */
  pthread_t destroyer;
  NXD_TEST_CHECK(pthread_create(&destroyer, NULL, destroy, &slow) == 0);
  NXD_TEST_OK(nxd_work_set_callback(slow.work, be_slow, &slow));
  await_calls(&slow.entered, 1);
  pthread_join(destroyer, NULL);
  pthread_barrier_destroy(&both);
}

/* --- Signals -------------------------------------------------------------------------------- */

/* A collector of garbage stops a thread that has run its program's code by a signal, whenever it
 * collects, and waits for the answer. */
static sem_t answers;

static void answer(int signal) {
  (void)signal;
  sem_post(&answers);
}

typedef struct {
  calls_t calls;
  sigset_t blocked;
  long thread;
} signals_t;

static void look_at_signals(void* user_data, nxd_status_t status) {
  signals_t* seen = user_data;
  pthread_sigmask(SIG_SETMASK, NULL, &seen->blocked);
  seen->thread = syscall(SYS_gettid);
  on_done(&seen->calls, status);
}

static void signals(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  (void)size;
  nxd_group_t* world = world_of(ctx);
  nxd_work_t* work = NULL;
  signals_t seen = {.calls = no_calls()};
  sigset_t held, before;
  if (rank == 0) {
    sigemptyset(&held);
    sigaddset(&held, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &held, &before);
    NXD_TEST_OK(nxd_barrier_async(world, &work));
    NXD_TEST_OK(nxd_work_set_callback(work, look_at_signals, &seen));
    /* The other comes to the barrier now: the work had not ended before it had its callback. */
    NXD_TEST_OK(nxd_send(world, &rank, 1, NXD_DTYPE_I32, 1, 0));
  } else {
    NXD_TEST_OK(nxd_receive(world, &rank, 1, NXD_DTYPE_I32, 0, 0));
    for (int i = 0; i < 3; ++i) NXD_TEST_OK(nxd_barrier(world));
    return;
  }
  NXD_TEST_OK(nxd_barrier(world));
  await_calls(&seen.calls, 1);
  nxd_work_destroy(work);
  NXD_TEST_CHECK(!pthread_equal(seen.calls.thread, pthread_self()));
  NXD_TEST_CHECK(!sigismember(&seen.blocked, SIGUSR1) && sigismember(&seen.blocked, SIGUSR2));
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  struct timespec bound;
  clock_gettime(CLOCK_REALTIME, &bound);
  bound.tv_sec += 30;
  const int was_there = syscall(SYS_tgkill, getpid(), seen.thread, SIGUSR1) == 0;
  if (was_there) {
    NXD_TEST_CHECK(sem_timedwait(&answers, &bound) == 0);
  } else {
    NXD_TEST_CHECK(errno == ESRCH); /* it ends when it has nothing to do for two seconds */
  }
  NXD_TEST_OK(nxd_barrier(world));
}

/* --- Descriptors ----------------------------------------------------------------------------- */

static int is_readable(int descriptor, int timeout_ms) {
  struct pollfd entry = {.fd = descriptor, .events = POLLIN};
  return poll(&entry, 1, timeout_ms) == 1 && (entry.revents & POLLIN);
}

static void descriptors(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  (void)size;
  nxd_group_t* world = world_of(ctx);
  if (rank == 0) {
    nxd_work_t* work = NULL;
    int32_t descriptor = -1, again = -1;
    NXD_TEST_OK(nxd_barrier_async(world, &work));
    NXD_TEST_OK(nxd_work_get_descriptor(work, &descriptor));
    NXD_TEST_CHECK(!is_readable(descriptor, 0));
    NXD_TEST_OK(nxd_send(world, &rank, 1, NXD_DTYPE_I32, 1, 0));
    NXD_TEST_CHECK(is_readable(descriptor, 60000));
    int32_t done = 0;
    NXD_TEST_OK(nxd_work_test(work, &done));
    NXD_TEST_CHECK(done == 1);
    NXD_TEST_OK(nxd_work_get_descriptor(work, &again));
    NXD_TEST_CHECK(again == descriptor && is_readable(again, 0));
    nxd_work_destroy(work);
  } else {
    NXD_TEST_OK(nxd_receive(world, &rank, 1, NXD_DTYPE_I32, 0, 0));
    NXD_TEST_OK(nxd_barrier(world));
  }
  /* Asked for when it is done. */
  nxd_work_t* work = NULL;
  int32_t descriptor = -1;
  NXD_TEST_OK(nxd_barrier_async(world, &work));
  NXD_TEST_OK(nxd_work_wait(work, -1));
  NXD_TEST_OK(nxd_work_get_descriptor(work, &descriptor));
  NXD_TEST_CHECK(is_readable(descriptor, 0));
  NXD_TEST_REFUSED(nxd_work_get_descriptor(work, NULL), NXD_ERROR_INVALID_ARGUMENT,
                   "out_descriptor");
  NXD_TEST_REFUSED(nxd_work_set_callback(work, NULL, NULL), NXD_ERROR_INVALID_ARGUMENT,
                   "callback: expected a function, got NULL");
  nxd_work_destroy(work);
}

#define TEST(name)                             \
  static void test_##name(void** state) {      \
    (void)state;                               \
    nxd_test_run_ranks(kRanks, 0, name, NULL); \
  }
TEST(outcomes)
TEST(cancelled)
TEST(ended_by_abort)
TEST(chained)
TEST(destroyed_meanwhile)
TEST(descriptors)

static void test_signals(void** state) {
  (void)state;
  const struct sigaction act = {.sa_handler = answer};
  struct sigaction before;
  assert_int_equal(sem_init(&answers, 0, 0), 0);
  assert_int_equal(sigaction(SIGUSR1, &act, &before), 0);
  nxd_test_run_ranks(kRanks, 0, signals, NULL);
  assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_outcomes),
                                     cmocka_unit_test(test_cancelled),
                                     cmocka_unit_test(test_ended_by_abort),
                                     cmocka_unit_test(test_chained),
                                     cmocka_unit_test(test_destroyed_meanwhile),
                                     cmocka_unit_test(test_descriptors),
                                     cmocka_unit_test(test_signals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
