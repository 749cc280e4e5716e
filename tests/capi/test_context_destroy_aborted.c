/* A thread that an abort woke may destroy the aborted object at once, while the thread that aborts
 * still tells the store: the object lives until it has, and the store is asked nothing after. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

enum { kRanks = 2, kAborting = 0 };

/* The store takes its time to set a key once a rank is about to abort. */
static atomic_int slow, inside, slow_calls;

static nxd_status_t set(const char* key, const uint8_t* value, size_t size, void* store) {
  const int is_slow = atomic_load(&slow);
  if (is_slow) {
    atomic_fetch_add(&inside, 1);
    atomic_fetch_add(&slow_calls, 1);
    usleep(150000);
  }
  const nxd_status_t status = nxd_store_set(store, key, value, size);
  if (is_slow) atomic_fetch_sub(&inside, 1);
  return status;
}

static nxd_status_t get(const char* key, uint8_t* buf, size_t cap, size_t* out_size,
                        int32_t* out_found, void* store) {
  const nxd_status_t status = nxd_store_get(store, key, 0, buf, cap, out_size);
  *out_found = status != NXD_ERROR_TIMEOUT;
  return *out_found && *out_size <= cap ? status : NXD_OK;
}

static nxd_status_t add(const char* key, int64_t amount, int64_t* out_value, void* store) {
  return nxd_store_add(store, key, amount, out_value);
}

typedef struct round {
  /* Aborts on its own thread; destroys on the thread that was woken, and gives the context unless
   * that was destroyed. */
  nxd_group_t* (*waits_in)(nxd_context_t* ctx);
  nxd_status_t (*abort)(nxd_context_t* ctx, nxd_group_t* group);
  nxd_context_t* (*destroy)(nxd_context_t* ctx, nxd_group_t* group);
  nxd_store_t* local;
  pthread_barrier_t meet;
} round_t;

typedef struct {
  round_t* round;
  int rank;
} rank_t;

typedef struct {
  const round_t* round;
  nxd_context_t* ctx;
  nxd_group_t* group;
} aborting_t;

static void* abort_later(void* arg) {
  const aborting_t* a = arg;
  usleep(100000); /* most likely the other thread waits */
  atomic_store(&slow, 1);
  NXD_TEST_OK(a->round->abort(a->ctx, a->group));
  atomic_store(&slow, 0);
  return NULL;
}

static nxd_context_t* join(round_t* round, int rank) {
  const nxd_store_callbacks_t callbacks = {.struct_size = sizeof callbacks,
                                           .user_data = round->local,
                                           .set = set,
                                           .get = get,
                                           .add = add};
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.rank = rank;
  options.size = kRanks;
  options.timeout_ms = 30000;
  nxd_context_t* ctx = NULL;
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  parallel.tensor_parallel_size = kRanks;
  NXD_TEST_OK(nxd_store_create_callbacks(&callbacks, &options.store));
  NXD_TEST_OK(nxd_context_create(&options, &ctx));
  NXD_TEST_OK(nxd_init_model_parallel(ctx, &parallel));
  nxd_store_destroy(options.store);
  return ctx;
}

static void* run_rank(void* arg) {
  const rank_t* r = arg;
  round_t* round = r->round;
  nxd_context_t* ctx = join(round, r->rank);
  nxd_group_t* group = round->waits_in(ctx);
  nxd_context_t* left = ctx;
  if (r->rank == kAborting) {
    pthread_t thread;
    aborting_t aborting = {round, ctx, group};
    pthread_create(&thread, NULL, abort_later, &aborting);
    NXD_TEST_REFUSED(nxd_barrier(group), NXD_ERROR_ABORTED, "aborted");
    left = round->destroy(ctx, group);
    NXD_TEST_CHECK(atomic_load(&inside) == 0);
    pthread_join(thread, NULL);
  }
  pthread_barrier_wait(&round->meet);
  if (r->rank != kAborting) left = round->destroy(ctx, group);
  nxd_context_destroy(left);
  return NULL;
}

static void run(round_t round) {
  atomic_store(&slow_calls, 0);
  assert_int_equal(nxd_store_create_local(&round.local), NXD_OK);
  pthread_barrier_init(&round.meet, NULL, kRanks);
  pthread_t threads[kRanks];
  rank_t ranks[kRanks];
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks[rank] = (rank_t){&round, rank};
    pthread_create(&threads[rank], NULL, run_rank, &ranks[rank]);
  }
  for (int rank = 0; rank < kRanks; ++rank) pthread_join(threads[rank], NULL);
  pthread_barrier_destroy(&round.meet);
  nxd_store_destroy(round.local);
  assert_true(atomic_load(&slow_calls) > 0);
  assert_int_equal(nxd_test_failures(), 0);
}

static nxd_group_t* world_of(nxd_context_t* ctx) {
  nxd_group_t* group = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &group));
  return group;
}

static nxd_group_t* layouts_of(nxd_context_t* ctx) {
  nxd_group_t* group = NULL;
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_TENSOR, &group));
  return group;
}

static nxd_group_t* own_of(nxd_context_t* ctx) {
  static const int32_t members[kRanks] = {0, 1};
  nxd_group_t* group = NULL;
  NXD_TEST_OK(nxd_group_create(ctx, members, kRanks, "own", &group));
  return group;
}

static nxd_status_t abort_context(nxd_context_t* ctx, nxd_group_t* group) {
  (void)group;
  return nxd_context_abort(ctx);
}

static nxd_status_t abort_group(nxd_context_t* ctx, nxd_group_t* group) {
  (void)ctx;
  return nxd_group_abort(group);
}

static nxd_context_t* destroy_context(nxd_context_t* ctx, nxd_group_t* group) {
  (void)group;
  nxd_context_destroy(ctx);
  return NULL;
}

static nxd_context_t* destroy_group(nxd_context_t* ctx, nxd_group_t* group) {
  nxd_group_destroy(group);
  return ctx;
}

static nxd_context_t* destroy_layout(nxd_context_t* ctx, nxd_group_t* group) {
  (void)group;
  NXD_TEST_OK(nxd_destroy_model_parallel(ctx));
  return ctx;
}

static void contexts(void** state) {
  (void)state;
  run((round_t){.waits_in = world_of, .abort = abort_context, .destroy = destroy_context});
}

static void a_contexts_groups(void** state) {
  (void)state;
  run((round_t){.waits_in = world_of, .abort = abort_group, .destroy = destroy_context});
  run((round_t){.waits_in = layouts_of, .abort = abort_group, .destroy = destroy_context});
}

static void groups(void** state) {
  (void)state;
  run((round_t){.waits_in = own_of, .abort = abort_group, .destroy = destroy_group});
  run((round_t){.waits_in = own_of, .abort = abort_context, .destroy = destroy_group});
}

static void layouts(void** state) {
  (void)state;
  run((round_t){.waits_in = layouts_of, .abort = abort_group, .destroy = destroy_layout});
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(contexts),
                                     cmocka_unit_test(a_contexts_groups), cmocka_unit_test(groups),
                                     cmocka_unit_test(layouts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
