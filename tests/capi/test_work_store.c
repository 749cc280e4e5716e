/* Works over a store of the caller's own: what they ask of it is asked on threads that are inside a
 * call, and a work whose caller computes meanwhile picks up where it stopped. A store that fails
 * a rank's first call of a group fails it on all ranks. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

/* Set while a thread of the test is inside an nxd call, and on no other thread. */
static _Thread_local int is_inside;

/* The callbacks pass everything on to a local store, but for one that this thread has fail. */
static atomic_int calls;
static _Thread_local int fails_in; /* so many requests: 1 is the next */

static int fails(void) {
  NXD_TEST_CHECK(is_inside);
  atomic_fetch_add(&calls, 1);
  return fails_in > 0 && --fails_in == 0;
}

static nxd_status_t set(const char* key, const uint8_t* value, size_t size, void* store) {
  if (fails()) return NXD_ERROR_USER;
  return nxd_store_set(store, key, value, size);
}

static nxd_status_t get(const char* key, uint8_t* buf, size_t cap, size_t* out_size,
                        int32_t* out_found, void* store) {
  if (fails()) return NXD_ERROR_USER;
  const nxd_status_t status = nxd_store_get(store, key, 0, buf, cap, out_size);
  *out_found = status != NXD_ERROR_TIMEOUT;
  return *out_found && *out_size <= cap ? status : NXD_OK;
}

static nxd_status_t add(const char* key, int64_t amount, int64_t* out_value, void* store) {
  if (fails()) return NXD_ERROR_USER;
  return nxd_store_add(store, key, amount, out_value);
}

static nxd_status_t inside(nxd_status_t status) {
  is_inside = 0;
  return status;
}
#define INSIDE(call) (is_inside = 1, inside(call))

typedef struct {
  int rank, size;
  const char* host; /* NULL: as it is */
  nxd_store_t* store;
  void (*fn)(nxd_context_t* ctx, int rank, int size);
} rank_t;

static void* run_rank(void* arg) {
  const rank_t* r = arg;
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.rank = r->rank;
  options.size = r->size;
  options.store = r->store;
  options.host_id = r->host;
  options.timeout_ms = 30000;
  nxd_context_t* ctx = NULL;
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  parallel.tensor_parallel_size = r->size;
  if (!NXD_TEST_OK(INSIDE(nxd_context_create(&options, &ctx)))) return NULL;
  if (NXD_TEST_OK(INSIDE(nxd_init_model_parallel(ctx, &parallel)))) r->fn(ctx, r->rank, r->size);
  is_inside = 1;
  nxd_context_destroy(ctx);
  is_inside = 0;
  return NULL;
}

static nxd_store_t* used; /* by a work's callback */

/* The last of them is on a host of its own where hosts are given. */
static void run_on(const char* host, const char* last_host, int size,
                   void (*fn)(nxd_context_t*, int, int)) {
  enum { kMost = 3 };
  nxd_store_t *local = NULL, *store = NULL;
  assert_int_equal(nxd_store_create_local(&local), NXD_OK);
  const nxd_store_callbacks_t callbacks = {
      .struct_size = sizeof callbacks, .user_data = local, .set = set, .get = get, .add = add};
  assert_int_equal(nxd_store_create_callbacks(&callbacks, &store), NXD_OK);
  used = store;
  rank_t ranks[kMost];
  pthread_t threads[kMost];
  for (int rank = 0; rank < size; ++rank) {
    ranks[rank] = (rank_t){rank, size, rank == size - 1 ? last_host : host, store, fn};
    assert_int_equal(pthread_create(&threads[rank], NULL, run_rank, &ranks[rank]), 0);
  }
  for (int rank = 0; rank < size; ++rank) pthread_join(threads[rank], NULL);
  nxd_store_destroy(store);
  nxd_store_destroy(local);
  assert_int_equal(nxd_test_failures(), 0);
}

static void run(int size, void (*fn)(nxd_context_t*, int, int)) { run_on(NULL, NULL, size, fn); }

/* All ranks have come as far as their test says. */
static pthread_barrier_t all_have;

static atomic_int uses;

static void use_the_store(void* unused, nxd_status_t status) {
  (void)unused;
  NXD_TEST_OK(status);
  if (NXD_TEST_OK(INSIDE(nxd_store_set(used, "done", "1", 1)))) atomic_fetch_add(&uses, 1);
}

/* No other thread is inside a call then. */
static void in_a_callback(nxd_context_t* ctx, int rank, int size) {
  (void)size;
  nxd_group_t* world = NULL;
  nxd_work_t* work = NULL;
  int32_t value = 0;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  if (rank == 0) {
    NXD_TEST_OK(nxd_receive_async(world, &value, 1, NXD_DTYPE_I32, 1, 0, &work));
    NXD_TEST_OK(nxd_work_set_callback(work, use_the_store, NULL));
  }
  pthread_barrier_wait(&all_have);
  if (rank == 1) NXD_TEST_OK(INSIDE(nxd_send(world, &value, 1, NXD_DTYPE_I32, 0, 0)));
  for (int i = 0; i < 5000 && atomic_load(&uses) == 0; ++i) usleep(1000);
  NXD_TEST_CHECK(atomic_load(&uses) == 1);
  pthread_barrier_wait(&all_have);
  nxd_work_destroy(work);
}

/* The group's connections are made by its first work. */
static nxd_work_t* start_first(nxd_context_t* ctx, int32_t* value) {
  nxd_group_t* group = NULL;
  nxd_work_t* work = NULL;
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_TENSOR, &group));
  NXD_TEST_OK(nxd_all_reduce_async(group, value, value, 1, NXD_DTYPE_I32, NXD_REDUCE_SUM, &work));
  return work;
}

static void by_waiting(nxd_context_t* ctx, int rank, int size) {
  int32_t value = rank;
  nxd_work_t* work = start_first(ctx, &value);
  const int before = atomic_load(&calls);
  NXD_TEST_OK(INSIDE(nxd_work_wait(work, -1)));
  NXD_TEST_CHECK(value == size * (size - 1) / 2 && atomic_load(&calls) > before);
  nxd_work_destroy(work);
}

/* Outside of the calls nothing is asked, for longer than a request waits. */
static void by_testing(nxd_context_t* ctx, int rank, int size) {
  int32_t value = rank, done = 0;
  nxd_work_t* work = start_first(ctx, &value);
  usleep(250000);
  NXD_TEST_OK(INSIDE(nxd_work_test(work, &done)));
  while (!done) {
    usleep(500);
    if (!NXD_TEST_OK(INSIDE(nxd_work_test(work, &done)))) break;
  }
  NXD_TEST_CHECK(value == size * (size - 1) / 2);
  nxd_work_destroy(work);
}

/* While nothing is asked, the work waits for a rank of the world, also on a host that has one rank
 * of the group. */
static void by_naming(nxd_context_t* ctx, int rank, int size) {
  int32_t value = rank, found = 0;
  nxd_work_t* work = start_first(ctx, &value);
  static const char key[] = "\"awaited\":";
  char record[16384];
  size_t needed = 0;
  /* Its own thread has to come as far as that. */
  for (int tries = 0; found == 0 && tries < 30000; ++tries) {
    usleep(10000);
    NXD_TEST_OK(nxd_context_get_flight_record(ctx, record, sizeof record, &needed));
    for (const char* at = record; (at = strstr(at, key)) != NULL; ++found) {
      at += sizeof key - 1;
      const int awaited = atoi(at);
      NXD_TEST_CHECK(awaited >= 0 && awaited < size && awaited != rank);
    }
  }
  NXD_TEST_CHECK(found > 0);
  pthread_barrier_wait(&all_have); /* a call of any rank serves the others' works */
  NXD_TEST_OK(INSIDE(nxd_work_wait(work, -1)));
  NXD_TEST_CHECK(value == size * (size - 1) / 2);
  nxd_work_destroy(work);
}

/* A call on another group that waits serves as well, and so does one that uses the store. */
static void by_other_calls(nxd_context_t* ctx, int rank, int size) {
  int32_t value = rank, done = 0;
  nxd_group_t* world = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  nxd_work_t* work = start_first(ctx, &value);
  /* The others wait in the barrier, for rank 0. */
  if (rank == 0) NXD_TEST_OK(INSIDE(nxd_work_wait(work, -1)));
  NXD_TEST_OK(INSIDE(nxd_barrier(world)));
  while (!done && nxd_test_failures() == 0) NXD_TEST_OK(INSIDE(nxd_work_test(work, &done)));
  NXD_TEST_CHECK(value == size * (size - 1) / 2);
  nxd_work_destroy(work);
}

/* A message whose own group has a first work in progress, which waits for the store. */
static void by_a_message(nxd_context_t* ctx, int rank, int size) {
  int32_t value = rank, sent = 7 + rank;
  nxd_group_t* group = NULL;
  nxd_work_t* work = start_first(ctx, &value);
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_TENSOR, &group));
  usleep(150000); /* it has come as far as that */
  NXD_TEST_OK(rank == 0 ? INSIDE(nxd_send(group, &sent, 1, NXD_DTYPE_I32, 1, 0))
                        : INSIDE(nxd_receive(group, &sent, 1, NXD_DTYPE_I32, 0, 0)));
  NXD_TEST_CHECK(sent == 7);
  NXD_TEST_OK(INSIDE(nxd_work_wait(work, -1)));
  NXD_TEST_CHECK(value == size * (size - 1) / 2);
  nxd_work_destroy(work);
}

/* The store fails one request of the last rank's, whose context stays. The others hear of it. */
static void by_failing(nxd_context_t* ctx, int rank, int size) {
  int32_t value = rank;
  nxd_group_t* group = NULL;
  nxd_error_info_t info = {.struct_size = sizeof info};
  const int is_failing = rank == size - 1;
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_TENSOR, &group));
  fails_in = is_failing;
  NXD_TEST_REFUSED(INSIDE(nxd_all_reduce(group, &value, &value, 1, NXD_DTYPE_I32, NXD_REDUCE_SUM)),
                   is_failing ? NXD_ERROR_USER : NXD_ERROR_PEER_LOST,
                   is_failing ? "callback" : "left");
  NXD_TEST_OK(nxd_last_error_info(&info));
  NXD_TEST_CHECK(is_failing || info.root_rank == size - 1);
  pthread_barrier_wait(&all_have);
}

/* The last rank comes first, so that it makes the memory of all, and cannot say where that is. */
static void by_making(nxd_context_t* ctx, int rank, int size) {
  nxd_group_t* group = NULL;
  nxd_error_info_t info = {.struct_size = sizeof info};
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_TENSOR, &group));
  if (rank == size - 1) {
    fails_in = 2;
    NXD_TEST_REFUSED(INSIDE(nxd_barrier(group)), NXD_ERROR_USER, "set callback");
    pthread_barrier_wait(&all_have);
  } else {
    pthread_barrier_wait(&all_have);
    NXD_TEST_REFUSED(INSIDE(nxd_barrier(group)), NXD_ERROR_PEER_LOST, "rank 2 could make no");
    NXD_TEST_OK(nxd_last_error_info(&info));
    NXD_TEST_CHECK(info.root_rank == size - 1);
  }
  pthread_barrier_wait(&all_have);
}

/* No thread is inside: no request is made, and the work ends with its group. A rank that aborts
 * before the other has its groups would make that one fail earlier. The calls that abort are
 * inside: they may serve the last requests that the works were waiting for, which then have ended
 * well before.
 */
static void by_nobody(nxd_context_t* ctx, int rank, int size) {
  int32_t value = rank;
  nxd_work_t* work = start_first(ctx, &value);
  pthread_barrier_wait(&all_have); /* started their first work */
  usleep(150000);
  is_inside = 1;
  NXD_TEST_OK(nxd_context_abort(ctx));
  const nxd_status_t status = nxd_work_wait(work, 20000);
  NXD_TEST_CHECK(status == NXD_ERROR_ABORTED || status == NXD_ERROR_PEER_LOST ||
                 (status == NXD_OK && value == size * (size - 1) / 2));
  nxd_work_destroy(work);
  is_inside = 0;
}

static void test_waiting(void** state) {
  (void)state;
  run(2, by_waiting);
  run(3, by_waiting);
}
static void test_testing(void** state) {
  (void)state;
  run(2, by_testing);
}
static void test_naming(void** state) {
  (void)state;
  assert_int_equal(pthread_barrier_init(&all_have, NULL, 3), 0);
  run_on("one", "two", 3, by_naming);
  pthread_barrier_destroy(&all_have);
}
static void test_other_calls(void** state) {
  (void)state;
  run(3, by_other_calls);
}
static void test_a_message(void** state) {
  (void)state;
  run(2, by_a_message);
  run_on("one", "two", 2, by_a_message);
}
static void test_failing(void** state) {
  (void)state;
  assert_int_equal(pthread_barrier_init(&all_have, NULL, 3), 0);
  run(3, by_failing);
  run_on("one", "two", 3, by_failing);
  run(3, by_making);
  pthread_barrier_destroy(&all_have);
}
static void test_nobody(void** state) {
  (void)state;
  assert_int_equal(pthread_barrier_init(&all_have, NULL, 2), 0);
  run(2, by_nobody);
  pthread_barrier_destroy(&all_have);
}

static void test_in_a_callback(void** state) {
  (void)state;
  assert_int_equal(pthread_barrier_init(&all_have, NULL, 2), 0);
  run(2, in_a_callback);
  pthread_barrier_destroy(&all_have);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_waiting),   cmocka_unit_test(test_testing),
      cmocka_unit_test(test_naming),    cmocka_unit_test(test_other_calls),
      cmocka_unit_test(test_a_message), cmocka_unit_test(test_failing),
      cmocka_unit_test(test_nobody),    cmocka_unit_test(test_in_a_callback)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
