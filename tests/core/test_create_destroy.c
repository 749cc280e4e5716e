/* Creates, uses and destroys what the core offers, again and again: scripts/leaks runs this under
 * valgrind, and as a test it holds that every user_data is released exactly once. */
#include <pthread.h>
#include <string.h>

#include "nxd.h"
#include "support/check.h"

enum { kRounds = 50 };

static void on_log(nxd_log_level_t level, const char* message, void* user_data) {
  (void)level;
  (void)message;
  (void)user_data;
}

static void on_destroy(void* user_data) { ++*(int*)user_data; }

static void test_log_callbacks(void** state) {
  (void)state;
  int destroyed = 0;
  for (int i = 0; i < kRounds; ++i) {
    assert_int_equal(nxd_log_set_callback(on_log, &destroyed, on_destroy), NXD_OK);
    assert_int_equal(destroyed, i);
  }
  assert_int_equal(nxd_log_set_callback(NULL, NULL, NULL), NXD_OK);
  assert_int_equal(destroyed, kRounds);
}

static void use_layouts(void) {
  nxd_parallel_options_t options = NXD_PARALLEL_OPTIONS_INIT;
  options.tensor_parallel_size = 4;
  for (nxd_axis_t axis = NXD_AXIS_WORLD; axis <= NXD_AXIS_EXPERT_DATA; ++axis) {
    int32_t ranks[64], count = 0;
    size_t size = 0;
    assert_int_equal(nxd_layout_get_group_count(&options, 64, axis, &count), NXD_OK);
    assert_int_equal(nxd_layout_get_group(&options, 64, axis, count - 1, ranks, 64, &size), NXD_OK);
    assert_int_equal((int64_t)size * count, 64);
  }
}

static void test_layouts(void** state) {
  (void)state;
  for (int i = 0; i < kRounds; ++i) use_layouts();
}

/* Each thread has its own last error, and ends with one set. */
static void* fail_once(void* argument) {
  (void)argument;
  int32_t count = 0;
  if (strcmp(nxd_last_error(), "") != 0) return "a fresh thread has an error";
  if (nxd_layout_get_group_count(NULL, 0, NXD_AXIS_DATA, &count) != NXD_ERROR_INVALID_ARGUMENT)
    return "a world of no ranks was taken";
  return strstr(nxd_last_error(), "world_size") ? NULL : "the message lacks world_size";
}

static void test_errors(void** state) {
  (void)state;
  for (int i = 0; i < kRounds; ++i) {
    pthread_t thread;
    void* complaint = NULL;
    assert_int_equal(pthread_create(&thread, NULL, fail_once, NULL), 0);
    assert_int_equal(pthread_join(thread, &complaint), 0);
    if (complaint) fail_msg("%s", (const char*)complaint);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_log_callbacks),
                                     cmocka_unit_test(test_layouts), cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
