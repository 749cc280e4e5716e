/* The structs of sections 1 to 6 of nxd.h as compiled programs know them: sizes and offsets of
 * every field, and that a macro initialises as its function does. Only growth at the end is ever
 * right; then a line is added here, and none is changed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "nxd.h"
#include "support/check.h"

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " has changed its size")
#define FIELD(type, field, offset) \
  _Static_assert(offsetof(type, field) == (offset), #type "." #field " has moved")

SIZE(nxd_error_info_t, 40);
FIELD(nxd_error_info_t, struct_size, 0);
FIELD(nxd_error_info_t, status, 8);
FIELD(nxd_error_info_t, root_rank, 12);
FIELD(nxd_error_info_t, sequence, 16);
FIELD(nxd_error_info_t, group, 24);
FIELD(nxd_error_info_t, operation, 32);

SIZE(nxd_store_callbacks_t, 48);
FIELD(nxd_store_callbacks_t, struct_size, 0);
FIELD(nxd_store_callbacks_t, user_data, 8);
FIELD(nxd_store_callbacks_t, destroy, 16);
FIELD(nxd_store_callbacks_t, set, 24);
FIELD(nxd_store_callbacks_t, get, 32);
FIELD(nxd_store_callbacks_t, add, 40);

SIZE(nxd_context_options_t, 64);
FIELD(nxd_context_options_t, struct_size, 0);
FIELD(nxd_context_options_t, rendezvous, 8);
FIELD(nxd_context_options_t, rank, 12);
FIELD(nxd_context_options_t, size, 16);
FIELD(nxd_context_options_t, local_rank, 20);
FIELD(nxd_context_options_t, store, 24);
FIELD(nxd_context_options_t, timeout_ms, 32);
FIELD(nxd_context_options_t, interface_name, 40);
FIELD(nxd_context_options_t, seed, 48);
FIELD(nxd_context_options_t, plain_kernels, 56);
FIELD(nxd_context_options_t, reserved, 60);

SIZE(nxd_parallel_options_t, 40);
FIELD(nxd_parallel_options_t, struct_size, 0);
FIELD(nxd_parallel_options_t, tensor_parallel_size, 8);
FIELD(nxd_parallel_options_t, pipeline_parallel_size, 12);
FIELD(nxd_parallel_options_t, context_parallel_size, 16);
FIELD(nxd_parallel_options_t, expert_parallel_size, 20);
FIELD(nxd_parallel_options_t, platform, 24);
FIELD(nxd_parallel_options_t, lnc_size, 28);
FIELD(nxd_parallel_options_t, local_world_size, 32);
FIELD(nxd_parallel_options_t, reserved, 36);

SIZE(nxd_spawn_options_t, 24);
FIELD(nxd_spawn_options_t, struct_size, 0);
FIELD(nxd_spawn_options_t, n_processes, 8);
FIELD(nxd_spawn_options_t, omp_num_threads, 12);
FIELD(nxd_spawn_options_t, argv, 16);

SIZE(nxd_memory_stats_t, 48);
FIELD(nxd_memory_stats_t, struct_size, 0);
FIELD(nxd_memory_stats_t, bytes_in_use, 8);
FIELD(nxd_memory_stats_t, bytes_reserved, 16);
FIELD(nxd_memory_stats_t, peak_bytes_in_use, 24);
FIELD(nxd_memory_stats_t, allocations, 32);
FIELD(nxd_memory_stats_t, system_allocations, 40);

typedef nxd_status_t (*init_fn)(void* options, size_t size);

/* Looks the function up by name, so that one that is missing is a failure of this test and not of
 * the build. */
static void check_init(const char* name, const void* macro, size_t size) {
  unsigned char options[256], untouched[256];
  memset(options, 0xab, sizeof options);
  memset(untouched, 0xab, sizeof untouched);
  init_fn init = NULL;
  void* symbol = dlsym(RTLD_DEFAULT, name);
  memcpy(&init, &symbol, sizeof init);
  if (!init) fail_msg("%s is not exported", name);

  assert_int_equal(init(NULL, size), NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(init(options, sizeof(size_t) - 1), NXD_ERROR_ABI_MISMATCH);
  assert_memory_equal(options, untouched, sizeof options);
  assert_int_equal(init(options, size), NXD_OK);
  assert_memory_equal(options, macro, size);
  assert_memory_equal(options + size, untouched, sizeof options - size);
  /* A newer header's struct: what this library does not know is zero. */
  const unsigned char zeros[16] = {0};
  assert_int_equal(init(options, size + 16), NXD_OK);
  assert_memory_equal(options + size, zeros, sizeof zeros);
  size_t given = 0;
  memcpy(&given, options, sizeof given);
  assert_int_equal(given, size + 16);
}

static void test_context_options(void** state) {
  (void)state;
  const nxd_context_options_t macro = NXD_CONTEXT_OPTIONS_INIT;
  check_init("nxd_context_options_init", &macro, sizeof macro);
}

static void test_parallel_options(void** state) {
  (void)state;
  const nxd_parallel_options_t macro = NXD_PARALLEL_OPTIONS_INIT;
  check_init("nxd_parallel_options_init", &macro, sizeof macro);
}

static void test_spawn_options(void** state) {
  (void)state;
  const nxd_spawn_options_t macro = NXD_SPAWN_OPTIONS_INIT;
  check_init("nxd_spawn_options_init", &macro, sizeof macro);
}

static void test_version(void** state) {
  (void)state;
  assert_int_equal(nxd_abi_version(), NXD_ABI_VERSION);
  int major = 0, minor = 0, patch = 0;
  assert_int_equal(sscanf(nxd_version(), "%d.%d.%d", &major, &minor, &patch), 3);
  assert_int_equal(major, NXD_VERSION_MAJOR);
  assert_int_equal(minor, NXD_VERSION_MINOR);
  assert_int_equal(patch, NXD_VERSION_PATCH);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_context_options), cmocka_unit_test(test_parallel_options),
      cmocka_unit_test(test_spawn_options), cmocka_unit_test(test_version)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
