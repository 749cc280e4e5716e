/* Support for tests of the ABI: layouts fixed at compile time, and what every options struct must
 * do with the sizes of older and newer headers. */
#ifndef NXD_TESTS_SUPPORT_ABI_H
#define NXD_TESTS_SUPPORT_ABI_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE first"
#endif
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "nxd.h"
#include "support/check.h"

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " has changed its size")
#define FIELD(type, field, offset) \
  _Static_assert(offsetof(type, field) == (offset), #type "." #field " has moved")

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

/* Calls a function with the options; what it makes it also releases. */
typedef nxd_status_t (*use_options_fn)(const void* options);

/* Options that the function takes, as headers of other sizes would have them: struct_size is their
 * first field. */
static void check_struct_size(use_options_fn use, const void* good, size_t size) {
  _Alignas(16) unsigned char options[256] = {0};
  size_t given = size;
  memcpy(options, good, size);
  memcpy(options, &given, sizeof given);
  if (use(options) != NXD_OK) fail_msg("good options: %s", nxd_last_error());

  const size_t small[] = {0, sizeof(size_t) - 1};
  for (size_t i = 0; i < 2; ++i) {
    memcpy(options, &small[i], sizeof given);
    assert_int_equal(use(options), NXD_ERROR_ABI_MISMATCH);
    assert_non_null(strstr(nxd_last_error(), "struct_size"));
  }
  given = size + 16;
  memcpy(options, &given, sizeof given);
  if (use(options) != NXD_OK) fail_msg("a longer struct: %s", nxd_last_error());
  for (size_t byte = size; byte < given; byte += 15) {
    options[byte] = 1;
    assert_int_equal(use(options), NXD_ERROR_ABI_MISMATCH);
    options[byte] = 0;
  }
}

#endif
