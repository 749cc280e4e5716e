/* Versions, names of statuses, the last error, and what the log's callback is told. */
#include <stdlib.h>
#include <string.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

static void test_basics(void** state) {
  (void)state;
  assert_int_equal(nxd_abi_version(), NXD_ABI_VERSION);
  assert_non_null(strstr(nxd_build_info(), nxd_version()));
  assert_non_null(strstr(nxd_build_info(), "\"gloo\""));
  assert_non_null(strstr(nxd_environment_table(), "NXD_TIMEOUT_MS"));
  assert_string_equal(nxd_status_string(NXD_ERROR_PEER_LOST), "PEER_LOST");
  assert_string_equal(nxd_status_string(77), "UNKNOWN");
  assert_string_equal(nxd_status_string(-77), "UNKNOWN");
}

static void test_last_error(void** state) {
  (void)state;
  NXD_TEST_REFUSED(nxd_log_set_level(99), NXD_ERROR_INVALID_ARGUMENT, "got 99");
  const size_t needed = nxd_last_error_copy(NULL, 0);
  assert_int_equal(needed, strlen(nxd_last_error()) + 1);
  char whole[512];
  assert_int_equal(nxd_last_error_copy(whole, sizeof whole), needed);
  assert_string_equal(whole, nxd_last_error());
  char cut[6];
  assert_int_equal(nxd_last_error_copy(cut, sizeof cut), needed);
  assert_int_equal(strlen(cut), 5);
  assert_memory_equal(cut, whole, 5);

  nxd_error_info_t info = {.struct_size = sizeof info};
  assert_int_equal(nxd_last_error_info(&info), NXD_OK);
  assert_int_equal(info.status, NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(info.root_rank, -1);
  assert_string_equal(info.group, "");
  assert_int_equal(nxd_last_error_info(NULL), NXD_ERROR_INVALID_ARGUMENT);
  info.struct_size = 3;
  assert_int_equal(nxd_last_error_info(&info), NXD_ERROR_ABI_MISMATCH);
}

/* Leaves a message as a callback does. */
static void test_set_last_error(void** state) {
  (void)state;
  nxd_set_last_error(NXD_ERROR_USER, "no batch is left");
  assert_string_equal(nxd_last_error(), "no batch is left");
  nxd_error_info_t info = {.struct_size = sizeof info};
  assert_int_equal(nxd_last_error_info(&info), NXD_OK);
  assert_int_equal(info.status, NXD_ERROR_USER);
  assert_int_equal(info.root_rank, -1);
  assert_string_equal(info.operation, "");
  nxd_set_last_error(NXD_ERROR_IO, nxd_last_error() + 3);
  assert_string_equal(nxd_last_error(), "batch is left");
  nxd_set_last_error(NXD_OK, "fine");
  assert_string_equal(nxd_last_error(), "batch is left");
  nxd_set_last_error(-77, NULL);
  assert_string_equal(nxd_last_error(), "");
  static char message[4000];
  memset(message, 'x', sizeof message - 1);
  nxd_set_last_error(NXD_ERROR_USER, message);
  assert_int_equal(strlen(nxd_last_error()), 2047);

  /* The error of a call in the callback, passed on, is still that call's. */
  nxd_context_t* ctx = NULL;
  nxd_group_t* world = NULL;
  assert_int_equal(nxd_context_create(NULL, &ctx), NXD_OK);
  assert_int_equal(nxd_context_get_world_group(ctx, &world), NXD_OK);
  assert_int_equal(nxd_group_abort(world), NXD_OK);
  assert_int_equal(nxd_barrier(world), NXD_ERROR_ABORTED);
  assert_int_equal(nxd_last_error_copy(message, sizeof message), strlen(nxd_last_error()) + 1);
  nxd_set_last_error(NXD_ERROR_ABORTED, message);
  assert_int_equal(nxd_last_error_info(&info), NXD_OK);
  assert_string_equal(info.group, "world");
  nxd_set_last_error(NXD_ERROR_USER, message);
  assert_int_equal(nxd_last_error_info(&info), NXD_OK);
  assert_string_equal(info.group, "");
  nxd_context_destroy(ctx);
}

/* A message that is too long ends with a whole character. */
static void test_long_message(void** state) {
  (void)state;
  for (int shift = 0; shift < 2; ++shift) {
    static char given[8000];
    memset(given, 'x', (size_t)shift);
    for (size_t i = (size_t)shift; i + 2 < sizeof given; i += 2) memcpy(given + i, "\xc3\xa9", 2);
    nxd_set_last_error(NXD_ERROR_USER, given);
    const char* message = nxd_last_error();
    const size_t length = strlen(message);
    assert_true(length > 2000 && length < strlen(given));
    assert_memory_equal(message + length - 2, "\xc3\xa9", 2);
  }
}

static int lines, released, other_lines;

static void count_line(nxd_log_level_t level, const char* message, void* user_data) {
  assert_ptr_equal(user_data, &lines);
  const int expected = level == NXD_LOG_WARN && strstr(message, "flight record of group \"world\"");
  ++*(expected ? &lines : &other_lines);
}

/* A group that fails and cannot write its record: one warning. */
static void warn_once(const char* record) {
  nxd_context_t* ctx = NULL;
  nxd_group_t* world = NULL;
  setenv("NXD_FLIGHT_RECORD", record, 1);
  assert_int_equal(nxd_context_create(NULL, &ctx), NXD_OK);
  unsetenv("NXD_FLIGHT_RECORD");
  assert_int_equal(nxd_context_get_world_group(ctx, &world), NXD_OK);
  assert_int_equal(nxd_group_abort(world), NXD_OK);
  assert_int_equal(nxd_barrier(world), NXD_ERROR_ABORTED);
  nxd_context_destroy(ctx);
}

static void count_release(void* user_data) {
  assert_ptr_equal(user_data, &lines);
  ++released;
}

static void test_log_callback(void** state) {
  (void)state;
  assert_int_equal(nxd_log_set_callback(count_line, &lines, count_release), NXD_OK);
  const struct {
    nxd_log_level_t level;
    int lines;
  } table[] = {{NXD_LOG_WARN, 1}, {NXD_LOG_ERROR, 0}, {NXD_LOG_INFO, 1},
               {NXD_LOG_OFF, 0},  {NXD_LOG_DEBUG, 1}, {NXD_LOG_WARN, 1}};
  for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
    assert_int_equal(nxd_log_set_level(table[i].level), NXD_OK);
    lines = 0;
    warn_once("/nonexistent/record.");
    assert_int_equal(lines, table[i].lines);
  }
  assert_int_equal(other_lines, 0);
  assert_int_equal(released, 0);
  assert_int_equal(nxd_log_set_callback(NULL, NULL, NULL), NXD_OK);
  assert_int_equal(released, 1);
  /* To stderr, not here. */
  lines = 0;
  warn_once("/nonexistent/record.");
  assert_int_equal(lines, 0);
  /* Without a callback there is user_data all the same. */
  assert_int_equal(nxd_log_set_callback(NULL, &lines, count_release), NXD_OK);
  warn_once("/nonexistent/record.");
  assert_int_equal(lines, 0);
  assert_int_equal(released, 1);
  assert_int_equal(nxd_log_set_callback(NULL, NULL, NULL), NXD_OK);
  assert_int_equal(released, 2);
}

static void find_line(nxd_log_level_t level, const char* message, void* user_data) {
  (void)level, (void)user_data;
  assert_null(strchr(message, '\n'));
  if (strstr(message, "/nonexistent/a\\u000anxd error: b.")) ++lines;
}

/* A name that has the end of a line in it, and the beginning of another. */
static void test_log_lines(void** state) {
  (void)state;
  lines = 0;
  assert_int_equal(nxd_log_set_callback(find_line, NULL, NULL), NXD_OK);
  warn_once("/nonexistent/a\nnxd error: b.");
  assert_int_equal(lines, 1);
  assert_int_equal(nxd_log_set_callback(NULL, NULL, NULL), NXD_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_basics),         cmocka_unit_test(test_last_error),
      cmocka_unit_test(test_set_last_error), cmocka_unit_test(test_long_message),
      cmocka_unit_test(test_log_callback),   cmocka_unit_test(test_log_lines),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
