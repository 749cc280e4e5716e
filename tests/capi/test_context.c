/* Contexts: joining, leaving, and everything that can be wrong with either. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/ranks.h"

#define OK(call) assert_int_equal(nxd_test_ok(__FILE__, __LINE__, #call, (call)), 1)
#define REFUSED(call, status, part) \
  assert_int_equal(nxd_test_refused(__FILE__, __LINE__, #call, (call), (status), (part)), 1)

typedef struct {
  nxd_context_options_t options;
  nxd_status_t expected;
  const char* part;
  int then_finalize, has_no_output;
} joiner_t;

static void* join_world(void* arg) {
  joiner_t* j = arg;
  nxd_context_t* ctx = NULL;
  const nxd_status_t status = nxd_context_create(&j->options, j->has_no_output ? NULL : &ctx);
  if (j->expected != NXD_OK) {
    nxd_test_refused(__FILE__, __LINE__, "nxd_context_create", status, j->expected, j->part);
    NXD_TEST_CHECK(ctx == NULL);
  } else if (NXD_TEST_OK(status) && j->then_finalize) {
    NXD_TEST_OK(nxd_context_finalize(ctx));
  }
  nxd_context_destroy(ctx);
  return NULL;
}

static joiner_t joiner(int rank, int size, nxd_store_t* store) {
  joiner_t j = {.options = NXD_CONTEXT_OPTIONS_INIT, .expected = NXD_OK, .then_finalize = 1};
  j.options.rendezvous = NXD_RENDEZVOUS_STORE;
  j.options.rank = rank;
  j.options.size = size;
  j.options.store = store;
  j.options.timeout_ms = 30000;
  return j;
}

static void run(joiner_t* joiners, int n) {
  pthread_t threads[8];
  const int before = nxd_test_failures();
  for (int i = 0; i < n; ++i) pthread_create(&threads[i], NULL, join_world, &joiners[i]);
  for (int i = 0; i < n; ++i) pthread_join(threads[i], NULL);
  assert_int_equal(nxd_test_failures(), before);
}

static nxd_store_t* local_store(void) {
  nxd_store_t* store = NULL;
  OK(nxd_store_create_local(&store));
  return store;
}

/* Several worlds through one store, one after the other. */
static void again(void** state) {
  (void)state;
  nxd_store_t* store = local_store();
  for (int turn = 0; turn < 3; ++turn) {
    joiner_t j[] = {joiner(0, 3, store), joiner(1, 3, store), joiner(2, 3, store)};
    run(j, 3);
  }
  nxd_store_destroy(store);
}

static void missing(void** state) {
  (void)state;
  nxd_store_t* store = local_store();
  joiner_t j[] = {joiner(0, 4, store), joiner(3, 4, store)};
  for (int i = 0; i < 2; ++i) {
    j[i].options.timeout_ms = 2000;
    j[i].expected = NXD_ERROR_TIMEOUT;
    j[i].part = "2 of 4 ranks did not come within 2000 ms: rank 1, 2";
  }
  run(j, 2);
  nxd_store_destroy(store);
}

static void no_rank_0(void** state) {
  (void)state;
  nxd_store_t* store = local_store();
  joiner_t j[] = {joiner(1, 2, store)};
  j[0].options.timeout_ms = 200;
  j[0].expected = NXD_ERROR_TIMEOUT;
  j[0].part = "rank 0 did not come";
  run(j, 1);
  nxd_store_destroy(store);
}

static void sizes_differ(void** state) {
  (void)state;
  nxd_store_t* store = local_store();
  joiner_t j[] = {joiner(0, 2, store), joiner(1, 3, store)};
  for (int i = 0; i < 2; ++i) {
    j[i].expected = NXD_ERROR_INVALID_ARGUMENT;
    j[i].part = "rank 0 has 2, rank 1 has 3";
  }
  run(j, 2);
  nxd_store_destroy(store);
}

/* A file of an earlier job, and two processes with one rank, look the same: the rank is taken. */
/* Ranks that looked for each other by different means would wait for ever. */
static void transports_differ(void** state) {
  (void)state;
  nxd_store_t* store = local_store();
  joiner_t j[] = {joiner(0, 2, store), joiner(1, 2, store)};
  j[1].options.transport = NXD_TRANSPORT_GLOO;
  for (int i = 0; i < 2; ++i) {
    j[i].expected = NXD_ERROR_INVALID_ARGUMENT;
    j[i].part = "about the transport: rank 0 has auto, rank 1 has gloo";
  }
  run(j, 2);
  nxd_store_destroy(store);
}

static void stale_file(void** state) {
  (void)state;
  char path[] = "/tmp/nxd-context-XXXXXX";
  close(mkstemp(path));
  for (int job = 0; job < 2; ++job) {
    nxd_store_t* stores[2] = {NULL};
    joiner_t j[2];
    for (int rank = 0; rank < 2; ++rank) {
      OK(nxd_store_create_file(path, &stores[rank]));
      j[rank] = joiner(rank, 2, stores[rank]);
      if (job == 1) {
        j[rank].expected = NXD_ERROR_INVALID_ARGUMENT;
        j[rank].part = "an earlier job";
      }
    }
    run(j, 2);
    if (job == 0) run(j, 2); /* the same job may join again */
    for (int rank = 0; rank < 2; ++rank) nxd_store_destroy(stores[rank]);
  }
  unlink(path);
}

static void tcp_world(void** state) {
  (void)state;
  nxd_store_t* stores[3] = {NULL};
  OK(nxd_store_create_tcp("127.0.0.1", 0, 1, 20000, &stores[0]));
  int32_t port = 0;
  OK(nxd_store_get_port(stores[0], &port));
  joiner_t j[3];
  for (int rank = 0; rank < 3; ++rank) {
    if (rank) OK(nxd_store_create_tcp("127.0.0.1", port, 0, 20000, &stores[rank]));
    j[rank] = joiner(rank, 3, stores[rank]);
  }
  run(j, 3);
  for (int rank = 0; rank < 3; ++rank) nxd_store_destroy(stores[rank]);
}

static void interfaces(void** state) {
  (void)state;
  nxd_store_t* store = local_store();
  /* Names behind the second are of no interface, or not of one host. */
  const char* const names[] = {"lo", "127.0.0.1",       "no-such-interface", "0.0.0.0",
                               "::", "255.255.255.255", "224.0.0.1"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    joiner_t j[] = {joiner(0, 2, store), joiner(1, 2, store)};
    for (int rank = 0; rank < 2; ++rank) {
      j[rank].options.interface_name = names[i];
      if (i < 2) continue;
      j[rank].expected = NXD_ERROR_INVALID_ARGUMENT;
      j[rank].part = names[i];
    }
    run(j, 2);
  }
  /* On one rank: the other is told why. */
  for (int bad = 0; bad < 2; ++bad) {
    joiner_t j[] = {joiner(0, 2, store), joiner(1, 2, store)};
    j[bad].options.interface_name = "no-such-interface";
    j[bad].expected = NXD_ERROR_INVALID_ARGUMENT;
    j[bad].part = "interface_name: expected";
    j[1 - bad].expected = NXD_ERROR_PEER_LOST;
    j[1 - bad].part = bad ? "rank 1 gave up: interface_name: expected a network interface"
                          : "rank 0 gave up: interface_name: expected a network interface";
    run(j, 2);
  }
  nxd_store_destroy(store);
}

/* Options that no rank can join with: the others do not wait for the rank that has them. */
static void bad_options(void** state) {
  (void)state;
  nxd_store_t* store = local_store();
  for (int bad = 0; bad < 2; ++bad) {
    for (int what = 0; what < 4; ++what) {
      static const char* const parts[] = {"transport", "timeout_ms", "plain_kernels", "out_ctx"};
      joiner_t j[] = {joiner(0, 2, store), joiner(1, 2, store)};
      nxd_context_options_t* options = &j[bad].options;
      if (what == 0) options->transport = 99;
      if (what == 1) options->timeout_ms = -1;
      if (what == 2) options->plain_kernels = 7;
      if (what == 3) j[bad].has_no_output = 1;
      j[bad].expected = NXD_ERROR_INVALID_ARGUMENT;
      j[bad].part = parts[what];
      j[1 - bad].expected = NXD_ERROR_PEER_LOST;
      j[1 - bad].part = bad ? "rank 1 left before all ranks" : "rank 0 left before all ranks";
      run(j, 2);
    }
  }
  joiner_t good[] = {joiner(0, 2, store), joiner(1, 2, store)};
  run(good, 2);
  nxd_store_destroy(store);
}

/* --- A store of callbacks, which may fail ----------------------------------------------------- */

typedef struct {
  nxd_store_t* behind;
  int fail_after, calls, destroyed;
  pthread_t owner;
  int foreign_thread;
} host_t;

static int fails(host_t* host) {
  if (!pthread_equal(pthread_self(), host->owner)) host->foreign_thread = 1;
  return host->fail_after > 0 && ++host->calls > host->fail_after;
}
static nxd_status_t host_set(const char* key, const uint8_t* value, size_t size, void* user_data) {
  host_t* host = user_data;
  return fails(host) ? NXD_ERROR_USER : nxd_store_set(host->behind, key, value, size);
}
static nxd_status_t host_get(const char* key, uint8_t* buf, size_t cap, size_t* out_size,
                             int32_t* out_found, void* user_data) {
  host_t* host = user_data;
  if (fails(host)) return NXD_ERROR_USER;
  const nxd_status_t status = nxd_store_get(host->behind, key, 0, buf, cap, out_size);
  *out_found = status != NXD_ERROR_TIMEOUT;
  return NXD_OK;
}
static nxd_status_t host_add(const char* key, int64_t amount, int64_t* out, void* user_data) {
  host_t* host = user_data;
  return fails(host) ? NXD_ERROR_USER : nxd_store_add(host->behind, key, amount, out);
}
static void host_destroy(void* user_data) { ++((host_t*)user_data)->destroyed; }

typedef struct {
  host_t host;
  int rank;
  nxd_status_t status;
} hosted_t;

static void* join_hosted(void* arg) {
  hosted_t* h = arg;
  h->host.owner = pthread_self();
  nxd_store_callbacks_t cb = {sizeof cb, &h->host, host_destroy, host_set, host_get, host_add};
  nxd_store_t* store = NULL;
  NXD_TEST_OK(nxd_store_create_callbacks(&cb, &store));
  joiner_t j = joiner(h->rank, 2, store);
  j.options.timeout_ms = h->host.fail_after ? 500 : 30000;
  nxd_context_t* ctx = NULL;
  h->status = nxd_context_create(&j.options, &ctx);
  nxd_store_destroy(store);
  NXD_TEST_CHECK((ctx != NULL) == (h->status == NXD_OK));
  if (ctx) {
    nxd_group_t* world = NULL;
    NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
    NXD_TEST_OK(nxd_barrier(world));
    NXD_TEST_CHECK(h->host.destroyed == 0); /* the context keeps the store */
    NXD_TEST_OK(nxd_context_finalize(ctx));
    nxd_context_destroy(ctx);
  } else if (h->host.fail_after) {
    NXD_TEST_CHECK(strstr(nxd_last_error(), "callback") != NULL);
  }
  NXD_TEST_CHECK(h->host.destroyed == 1);
  NXD_TEST_CHECK(!h->host.foreign_thread);
  return NULL;
}

static void callback_store(void** state) {
  (void)state;
  for (int fail_after = 0; fail_after <= 5; ++fail_after) {
    nxd_store_t* behind = local_store();
    hosted_t h[2] = {0};
    pthread_t threads[2];
    const int before = nxd_test_failures();
    for (int rank = 0; rank < 2; ++rank) {
      h[rank].host.behind = behind;
      h[rank].host.fail_after = rank == 1 ? fail_after : 0;
      h[rank].rank = rank;
    }
    if (fail_after > 0) { /* rank 0 would wait half a minute for it */
      pthread_create(&threads[1], NULL, join_hosted, &h[1]);
      pthread_join(threads[1], NULL);
      assert_true(h[1].status == NXD_ERROR_USER || h[1].status == NXD_ERROR_TIMEOUT);
      if (fail_after < 4) assert_int_equal(h[1].status, NXD_ERROR_USER);
    } else {
      for (int rank = 0; rank < 2; ++rank)
        pthread_create(&threads[rank], NULL, join_hosted, &h[rank]);
      for (int rank = 0; rank < 2; ++rank) pthread_join(threads[rank], NULL);
      assert_int_equal(h[0].status, NXD_OK);
      assert_int_equal(h[1].status, NXD_OK);
    }
    assert_int_equal(nxd_test_failures(), before);
    nxd_store_destroy(behind);
  }
}

/* --- After finalize, in a forked child, and bad calls ----------------------------------------- */

static void after_finalize(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  const int32_t both[] = {0, 1};
  nxd_group_t *world = NULL, *group = NULL, *made = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_group_create(ctx, both, 2, "made", &made));
  NXD_TEST_OK(nxd_context_finalize(ctx));
  NXD_TEST_REFUSED(nxd_barrier(world), NXD_ERROR_INVALID_STATE, "finalized");
  NXD_TEST_REFUSED(nxd_barrier(made), NXD_ERROR_INVALID_STATE, "finalized");
  NXD_TEST_REFUSED(nxd_context_finalize(ctx), NXD_ERROR_INVALID_STATE, "finalized");
  NXD_TEST_REFUSED(nxd_init_model_parallel(ctx, NULL), NXD_ERROR_INVALID_STATE, "finalized");
  NXD_TEST_REFUSED(nxd_group_create(ctx, both, 2, NULL, &group), NXD_ERROR_INVALID_STATE,
                   "finalized");
  NXD_TEST_CHECK(group == NULL);
  int32_t value = -1;
  NXD_TEST_OK(nxd_context_get_rank(ctx, &value));
  NXD_TEST_CHECK(value == rank);
  NXD_TEST_OK(nxd_context_get_size(ctx, &value));
  NXD_TEST_CHECK(value == size);
  void* memory = NULL;
  NXD_TEST_OK(nxd_arena_alloc(ctx, 100, &memory));
  NXD_TEST_OK(nxd_arena_free(ctx, memory));
  NXD_TEST_OK(nxd_context_set_step(ctx, 7, 0));
  nxd_group_destroy(made);
}

static void finalized(void** state) {
  (void)state;
  nxd_test_run_ranks(2, 0, after_finalize, NULL);
}

static int refuses_child(nxd_status_t status) {
  return status == NXD_ERROR_INVALID_STATE && strstr(nxd_last_error(), "forked");
}

/* Getters, settings and aborts are refused as calls that need other ranks are. */
static int child_is_refused(nxd_context_t* ctx, nxd_group_t* world, nxd_payloads_t* payloads) {
  int32_t value = 0;
  const void* data = NULL;
  size_t size = 0;
  return refuses_child(nxd_barrier(world)) && refuses_child(nxd_context_finalize(ctx)) &&
         refuses_child(nxd_init_model_parallel(ctx, NULL)) &&
         refuses_child(nxd_context_get_rank(ctx, &value)) &&
         refuses_child(nxd_context_set_step(ctx, 7, 0)) && refuses_child(nxd_context_abort(ctx)) &&
         refuses_child(nxd_arena_free(ctx, NULL)) &&
         refuses_child(nxd_parallel_get_size(ctx, NXD_AXIS_WORLD, &value)) &&
         !nxd_model_parallel_is_initialized(ctx) &&
         refuses_child(nxd_group_get_size(world, &value)) &&
         refuses_child(nxd_group_set_timeout(world, 1000)) &&
         refuses_child(nxd_group_abort(world)) &&
         refuses_child(nxd_payloads_get(payloads, 0, &data, &size));
}

static void in_child(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  (void)size;
  nxd_group_t* world = NULL;
  nxd_payloads_t* payloads = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_group_rendezvous(world, "before the fork", NULL, 0, &payloads));
  NXD_TEST_OK(nxd_init_model_parallel(ctx, NULL));
  const pid_t pid = fork();
  if (pid == 0) {
    const int bad = !child_is_refused(ctx, world, payloads);
    nxd_payloads_destroy(payloads);
    nxd_context_destroy(ctx);
    _exit(bad);
  }
  int status = -1;
  NXD_TEST_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  nxd_payloads_destroy(payloads);
  /* The child has not touched its parent. */
  int32_t sum = 0;
  NXD_TEST_OK(nxd_all_reduce(world, &rank, &sum, 1, NXD_DTYPE_I32, NXD_REDUCE_SUM));
  NXD_TEST_CHECK(sum == 1);
}

static void forked(void** state) {
  (void)state;
  nxd_test_run_ranks(2, 0, in_child, NULL);
}

static void from_environment(void** state) {
  (void)state;
  nxd_context_t* ctx = NULL;
  OK(nxd_context_create(NULL, &ctx));
  int32_t size = 0;
  OK(nxd_context_get_size(ctx, &size));
  assert_int_equal(size, 1);
  OK(nxd_context_finalize(ctx));
  nxd_context_destroy(ctx);
  const struct {
    const char *rank, *size, *local, *port, *part;
  } wrong[] = {
      {"0", NULL, NULL, NULL, "RANK=0 is set but WORLD_SIZE is not"},
      {NULL, "2", NULL, NULL, "WORLD_SIZE=2 is set but RANK is not"},
      {"2", "2", NULL, "1", "RANK: expected 0 to 1, got 2"},
      {"x", "2", NULL, "1", "RANK: expected an integer, got \"x\""},
      {"0", "0", NULL, "1", "WORLD_SIZE: expected 1 to"},
      {"0", "2", "5", "1", "LOCAL_RANK"},
      {"0", "2", "0", NULL, "MASTER_PORT: expected an integer, is not set"},
      {"1", "2", "0", "99999", "MASTER_PORT: expected 1 to 65535"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    if (wrong[i].rank) setenv("RANK", wrong[i].rank, 1);
    if (wrong[i].size) setenv("WORLD_SIZE", wrong[i].size, 1);
    if (wrong[i].local) setenv("LOCAL_RANK", wrong[i].local, 1);
    if (wrong[i].port) setenv("MASTER_PORT", wrong[i].port, 1);
    REFUSED(nxd_context_create(NULL, &ctx), NXD_ERROR_INVALID_ARGUMENT, wrong[i].part);
    assert_null(ctx);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("LOCAL_RANK");
    unsetenv("MASTER_PORT");
  }
}

static void bad_calls(void** state) {
  (void)state;
  nxd_context_t* ctx = (nxd_context_t*)1;
  nxd_context_options_t o = NXD_CONTEXT_OPTIONS_INIT, filled;
  memset(&filled, 0xee, sizeof filled);
  OK(nxd_context_options_init(&filled, sizeof filled));
  assert_memory_equal(&o, &filled, sizeof o);
  REFUSED(nxd_context_options_init(NULL, sizeof o), NXD_ERROR_INVALID_ARGUMENT, "options");
  REFUSED(nxd_context_options_init(&o, 4), NXD_ERROR_ABI_MISMATCH, "4");
  REFUSED(nxd_context_create(&o, NULL), NXD_ERROR_INVALID_ARGUMENT, "out_ctx");
  o.struct_size = 3;
  REFUSED(nxd_context_create(&o, &ctx), NXD_ERROR_ABI_MISMATCH, "struct_size");
  assert_null(ctx);
  o.struct_size = sizeof o;
  o.rendezvous = 9;
  REFUSED(nxd_context_create(&o, &ctx), NXD_ERROR_INVALID_ARGUMENT, "rendezvous");
  o.rendezvous = NXD_RENDEZVOUS_STORE;
  REFUSED(nxd_context_create(&o, &ctx), NXD_ERROR_INVALID_ARGUMENT, "options.size");
  o.size = 2;
  REFUSED(nxd_context_create(&o, &ctx), NXD_ERROR_INVALID_ARGUMENT, "options.store");
  o.rank = 2;
  REFUSED(nxd_context_create(&o, &ctx), NXD_ERROR_INVALID_ARGUMENT, "options.rank");
  o.timeout_ms = -1;
  REFUSED(nxd_context_create(&o, &ctx), NXD_ERROR_INVALID_ARGUMENT, "timeout_ms");

  int32_t n = 7;
  size_t size = 7;
  nxd_group_t* group = (nxd_group_t*)1;
  REFUSED(nxd_context_get_rank(NULL, &n), NXD_ERROR_INVALID_ARGUMENT, "ctx");
  assert_int_equal(n, 0);
  REFUSED(nxd_context_get_world_group(NULL, &group), NXD_ERROR_INVALID_ARGUMENT, "ctx");
  assert_null(group);
  REFUSED(nxd_context_finalize(NULL), NXD_ERROR_INVALID_ARGUMENT, "ctx");
  REFUSED(nxd_context_abort(NULL), NXD_ERROR_INVALID_ARGUMENT, "ctx");
  REFUSED(nxd_master_print(NULL, "x"), NXD_ERROR_INVALID_ARGUMENT, "ctx");
  REFUSED(nxd_barrier(NULL), NXD_ERROR_INVALID_ARGUMENT, "group");
  REFUSED(nxd_group_abort(NULL), NXD_ERROR_INVALID_ARGUMENT, "group");
  REFUSED(nxd_init_model_parallel(NULL, NULL), NXD_ERROR_INVALID_ARGUMENT, "ctx");
  assert_int_equal(nxd_model_parallel_is_initialized(NULL), 0);
  nxd_context_destroy(NULL);
  nxd_group_destroy(NULL);

  OK(nxd_context_create(NULL, &ctx));
  REFUSED(nxd_context_get_rank(ctx, NULL), NXD_ERROR_INVALID_ARGUMENT, "out_rank");
  REFUSED(nxd_context_set_step(ctx, -1, 0), NXD_ERROR_INVALID_ARGUMENT, "step");
  REFUSED(nxd_context_set_step(ctx, 0, -1), NXD_ERROR_INVALID_ARGUMENT, "microbatch");
  int64_t step = 9, microbatch = 9;
  OK(nxd_context_get_step(ctx, &step, &microbatch));
  assert_int_equal(step, 0);
  assert_int_equal(microbatch, 0);
  OK(nxd_context_set_step(ctx, 3, 1));
  OK(nxd_context_get_step(ctx, &step, &microbatch));
  assert_int_equal(step, 3);
  assert_int_equal(microbatch, 1);
  OK(nxd_context_set_step(ctx, INT64_C(1) << 40, 0));
  OK(nxd_context_get_step(ctx, &step, NULL));
  assert_true(step == INT64_C(1) << 40);
  REFUSED(nxd_context_get_step(ctx, NULL, &microbatch), NXD_ERROR_INVALID_ARGUMENT, "out_step");
  REFUSED(nxd_context_get_step(NULL, &step, &microbatch), NXD_ERROR_INVALID_ARGUMENT, "ctx");
  assert_int_equal(step, 0);
  OK(nxd_context_set_plain_kernels(ctx, 1));
  OK(nxd_context_get_plain_kernels(ctx, &n));
  assert_int_equal(n, 1);
  const int32_t twice[] = {0, 0}, outside[] = {0, 4}, self[] = {0};
  REFUSED(nxd_group_create(ctx, twice, 2, NULL, &group), NXD_ERROR_INVALID_ARGUMENT, "num_ranks");
  REFUSED(nxd_group_create(ctx, outside + 1, 1, NULL, &group), NXD_ERROR_INVALID_ARGUMENT, "got 4");
  REFUSED(nxd_group_create(ctx, NULL, 1, NULL, &group), NXD_ERROR_INVALID_ARGUMENT, "ranks");
  REFUSED(nxd_group_create(ctx, NULL, 0, NULL, &group), NXD_ERROR_INVALID_ARGUMENT, "ranks");
  OK(nxd_group_create(ctx, self, 1, NULL, &group));
  int32_t ranks[1] = {9};
  OK(nxd_group_get_ranks(group, ranks, 1, &size));
  assert_int_equal(size, 1);
  assert_int_equal(ranks[0], 0);
  REFUSED(nxd_group_set_timeout(group, 0), NXD_ERROR_INVALID_ARGUMENT, "timeout_ms");
  OK(nxd_init_model_parallel(ctx, NULL));
  REFUSED(nxd_parallel_get_size(ctx, 17, &n), NXD_ERROR_INVALID_ARGUMENT, "axis");
  nxd_group_t* none = (nxd_group_t*)1;
  REFUSED(nxd_parallel_get_group(ctx, -1, &none), NXD_ERROR_INVALID_ARGUMENT, "axis");
  assert_null(none);
  nxd_context_destroy(ctx); /* before its group: the order is free */
  nxd_group_destroy(group);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(again),
      cmocka_unit_test(missing),
      cmocka_unit_test(no_rank_0),
      cmocka_unit_test(sizes_differ),
      cmocka_unit_test(transports_differ),
      cmocka_unit_test(stale_file),
      cmocka_unit_test(tcp_world),
      cmocka_unit_test(interfaces),
      cmocka_unit_test(bad_options),
      cmocka_unit_test(callback_store),
      cmocka_unit_test(finalized),
      cmocka_unit_test(forked),
      cmocka_unit_test(from_environment),
      cmocka_unit_test(bad_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
