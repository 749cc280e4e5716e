#include "support/ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/variant.h"

#include <cmocka.h>

static atomic_int failures;
static int charged; /* of the failures, those that a test has failed for; main thread */

typedef struct {
  nxd_context_options_t options;
  int tp;
  nxd_test_rank_fn fn;
  void* user_data;
} rank_args_t;

void nxd_test_fail(const char* file, int line, const char* format, ...) {
  char message[2048];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  fprintf(stderr, "%s:%d: %s\n", file, line, message);
  atomic_fetch_add(&failures, 1);
}

int nxd_test_ok(const char* file, int line, const char* call, nxd_status_t status) {
  if (status == NXD_OK) return 1;
  nxd_test_fail(file, line, "%s: %s: %s", call, nxd_status_string(status), nxd_last_error());
  return 0;
}

int nxd_test_refused(const char* file, int line, const char* call, nxd_status_t status,
                     nxd_status_t expected, const char* message_part) {
  if (status != expected) {
    nxd_test_fail(file, line, "%s: expected %s, got %s: %s", call, nxd_status_string(expected),
                  nxd_status_string(status), nxd_last_error());
    return 0;
  }
  if (message_part && !strstr(nxd_last_error(), message_part)) {
    nxd_test_fail(file, line, "%s: expected \"%s\" in the message, got: %s", call, message_part,
                  nxd_last_error());
    return 0;
  }
  return 1;
}

int nxd_test_failures(void) { return atomic_load(&failures); }

static void* rank_main(void* arg) {
  rank_args_t* args = arg;
  nxd_context_t* ctx = NULL;
  if (!NXD_TEST_OK(nxd_context_create(&args->options, &ctx))) return NULL;
  int usable = 1;
  if (args->tp > 0) {
    nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
    parallel.tensor_parallel_size = args->tp;
    usable = NXD_TEST_OK(nxd_init_model_parallel(ctx, &parallel));
  }
  if (usable) args->fn(ctx, args->options.rank, args->options.size, args->user_data);
  nxd_context_destroy(ctx);
  return NULL;
}

void nxd_test_run_ranks_with(const nxd_context_options_t* options, int size, int tp,
                             nxd_test_rank_fn fn, void* user_data) {
  const int before = nxd_test_failures();
  nxd_store_t* store = NULL;
  assert_int_equal(nxd_store_create_local(&store), NXD_OK);
  /* So many ranks are on each host, by name. */
  const char* per_host = getenv("NXD_TEST_RANKS_PER_HOST");
  char(*hosts)[16] = calloc((size_t)size, sizeof *hosts);
  rank_args_t* args = calloc((size_t)size, sizeof *args);
  pthread_t* threads = calloc((size_t)size, sizeof *threads);
  for (int rank = 0; rank < size; ++rank) {
    args[rank].options = *options;
    args[rank].options.rendezvous = NXD_RENDEZVOUS_STORE;
    args[rank].options.rank = rank;
    args[rank].options.size = size;
    args[rank].options.store = store;
    if (per_host) {
      snprintf(hosts[rank], sizeof hosts[rank], "host%d", rank / atoi(per_host));
      args[rank].options.host_id = hosts[rank];
    }
    args[rank].tp = tp;
    args[rank].fn = fn;
    args[rank].user_data = user_data;
    if (pthread_create(&threads[rank], NULL, rank_main, &args[rank]) != 0) abort();
  }
  for (int rank = 0; rank < size; ++rank) pthread_join(threads[rank], NULL);
  free(threads);
  free(args);
  free(hosts);
  nxd_store_destroy(store);
  if (nxd_test_failures() != before) {
    charged = nxd_test_failures();
    fail_msg("%d checks of the ranks failed", charged - before);
  }
}

void nxd_test_run_ranks(int size, int tp, nxd_test_rank_fn fn, void* user_data) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  nxd_test_run_ranks_with(&options, size, tp, fn, user_data);
}

/* Every group of tests runs through these, by the linker's --wrap: a test in which a failure was
 * reported fails by its own name, whether or not it looks at the count itself. */
int __real__cmocka_run_group_tests(const char* name, const struct CMUnitTest* tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char* name, const struct CMUnitTest* tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);

static const nxd_test_variant_t* variant;
static struct CMUnitTest* running; /* the test as it was given */
static CMFixtureFunction group_setup, group_teardown;
static void* group_state; /* kept from CMocka, which would give it to tests instead of theirs */

static int set_group_up(void** state) {
  (void)state;
  group_state = NULL;
  return group_setup ? group_setup(&group_state) : 0;
}

static int tear_group_down(void** state) {
  (void)state;
  return group_teardown ? group_teardown(&group_state) : 0;
}

static int set_test_up(void** state) {
  running = *state;
  if (variant) variant->begin(running->name);
  *state = group_state ? group_state : running->initial_state;
  return running->setup_func ? running->setup_func(state) : 0;
}

static int tear_test_down(void** state) {
  const int result = running->teardown_func ? running->teardown_func(state) : 0;
  const int reported = nxd_test_failures() - charged;
  charged += reported;
  if (reported == 0) return result;
  fprintf(stderr, "%s: %d checks failed\n", running->name, reported);
  return 1;
}

void nxd_test_set_variant(const nxd_test_variant_t* given) { variant = given; }

/* Copies the tests that are not left out; their number. */
static size_t choose(const struct CMUnitTest* tests, size_t n, struct CMUnitTest* chosen) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    const char* reason = variant ? variant->why_not(tests[i].name) : NULL;
    if (reason) {
      printf("left out: %s: %s\n", tests[i].name, reason);
    } else {
      chosen[count++] = tests[i];
    }
  }
  return count;
}

int __wrap__cmocka_run_group_tests(const char* name, const struct CMUnitTest* tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown) {
  struct CMUnitTest* given = calloc(n, sizeof *given);
  struct CMUnitTest* wrapped = calloc(n, sizeof *wrapped);
  if (!given || !wrapped) abort();
  const size_t count = choose(tests, n, given);
  for (size_t i = 0; i < count; ++i) {
    wrapped[i] = given[i];
    wrapped[i].setup_func = set_test_up;
    wrapped[i].teardown_func = tear_test_down;
    wrapped[i].initial_state = &given[i];
  }
  group_setup = setup;
  group_teardown = teardown;
  int failed = __real__cmocka_run_group_tests(name, wrapped, count, set_group_up, tear_group_down);
  if (variant && count) failed += variant->conclude();
  free(wrapped);
  free(given);
  /* Beside the tests: by a fixture of the group. */
  return failed + nxd_test_failures() - charged;
}
