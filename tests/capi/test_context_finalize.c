/* Leaving a world together: a job whose ranks are all well ends well, whichever rank is late. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "support/ranks.h"

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* True if it came to be within so many seconds. */
static int await(atomic_int* flag, double seconds) {
  const struct timespec pause = {0, 1000000};
  for (const double end = now_s() + seconds; !atomic_load(flag) && now_s() < end;) {
    nanosleep(&pause, NULL);
  }
  return atomic_load(flag);
}

/* --- A look that is under way while the store ends ------------------------------------------- */

static struct {
  atomic_int armed;   /* rank 1 is about to finalize */
  atomic_int looking; /* rank 1 asks the store for a loss, in its first barrier */
  atomic_int gone;    /* rank 0 has finalized, and the store that it served has ended */
  int32_t port;
} race;

static nxd_status_t set(const char* key, const uint8_t* value, size_t size, void* store) {
  return nxd_store_set(store, key, value, size);
}

static nxd_status_t add(const char* key, int64_t amount, int64_t* out, void* store) {
  return nxd_store_add(store, key, amount, out);
}

/* A question for a loss reaches the server late: after its end, when anything lets it end first.
 * The second bounds the wait where nothing does. */
static nxd_status_t get(const char* key, uint8_t* buf, size_t cap, size_t* size, int32_t* found,
                        void* store) {
  if (atomic_load(&race.armed) && strstr(key, "failures/lost")) {
    atomic_store(&race.looking, 1);
    await(&race.gone, 1.5);
  }
  const nxd_status_t status = nxd_store_get(store, key, 0, buf, cap, size);
  *found = status == NXD_OK;
  return status == NXD_ERROR_TIMEOUT ? NXD_OK : status;
}

static nxd_context_t* join_over(int rank, nxd_store_t* store) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.rank = rank;
  options.size = 2;
  options.store = store;
  options.timeout_ms = 60000;
  nxd_context_t* ctx = NULL;
  NXD_TEST_OK(nxd_context_create(&options, &ctx));
  return ctx;
}

static void* serving_rank(void* arg) {
  nxd_store_t* store = arg;
  nxd_context_t* ctx = join_over(0, store);
  NXD_TEST_CHECK(await(&race.looking, 60));
  NXD_TEST_OK(nxd_context_finalize(ctx));
  nxd_context_destroy(ctx);
  nxd_store_destroy(store);
  atomic_store(&race.gone, 1);
  return NULL;
}

static void* looking_rank(void* arg) {
  (void)arg;
  nxd_store_t *tcp = NULL, *store = NULL;
  NXD_TEST_OK(nxd_store_create_tcp("127.0.0.1", race.port, 0, 60000, &tcp));
  const nxd_store_callbacks_t callbacks = {sizeof callbacks, tcp, NULL, set, get, add};
  NXD_TEST_OK(nxd_store_create_callbacks(&callbacks, &store));
  nxd_context_t* ctx = join_over(1, store);
  atomic_store(&race.armed, 1);
  NXD_TEST_OK(nxd_context_finalize(ctx));
  nxd_context_destroy(ctx);
  nxd_store_destroy(store);
  nxd_store_destroy(tcp);
  return NULL;
}

static void a_look_under_way_is_no_loss(void** state) {
  (void)state;
  nxd_store_t* store = NULL;
  assert_int_equal(nxd_store_create_tcp("127.0.0.1", 0, 1, 60000, &store), NXD_OK);
  assert_int_equal(nxd_store_get_port(store, &race.port), NXD_OK);
  pthread_t ranks[2];
  assert_int_equal(pthread_create(&ranks[0], NULL, serving_rank, store), 0);
  assert_int_equal(pthread_create(&ranks[1], NULL, looking_rank, NULL), 0);
  for (int rank = 0; rank < 2; ++rank) pthread_join(ranks[rank], NULL);
  assert_int_equal(nxd_test_failures(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_look_under_way_is_no_loss),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
