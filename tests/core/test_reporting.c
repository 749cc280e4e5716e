/* A failure that a test reports makes that test fail, by its name, without a look at the count. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/ranks.h"

#include "support/check.h"

static void passes(void** state) { (void)state; }

static void reports(void** state) {
  (void)state;
  nxd_test_fail(__FILE__, __LINE__, "the first report");
}

static int given;

static int set_given(void** state) {
  *state = &given;
  return 0;
}

static void has_state(void** state) { assert_ptr_equal(*state, &given); }

static int report_at_the_end(void** state) {
  (void)state;
  nxd_test_fail(__FILE__, __LINE__, "the last report");
  return 0;
}

static int run(const char* which) {
  const struct CMUnitTest good[] = {cmocka_unit_test(passes)};
  const struct CMUnitTest bad[] = {cmocka_unit_test(reports), cmocka_unit_test(passes)};
  const struct CMUnitTest torn[] = {cmocka_unit_test_teardown(passes, report_at_the_end)};
  const struct CMUnitTest states[] = {cmocka_unit_test_prestate(has_state, &given),
                                      cmocka_unit_test_setup(has_state, set_given)};
  const struct CMUnitTest inherits[] = {cmocka_unit_test(has_state)};
  if (strcmp(which, "good") == 0) return cmocka_run_group_tests(good, NULL, NULL);
  if (strcmp(which, "bad") == 0) return cmocka_run_group_tests(bad, NULL, NULL);
  if (strcmp(which, "torn") == 0) return cmocka_run_group_tests(torn, NULL, NULL);
  if (strcmp(which, "states") == 0) return cmocka_run_group_tests(states, NULL, NULL);
  if (strcmp(which, "inherits") == 0) return cmocka_run_group_tests(inherits, set_given, NULL);
  if (strcmp(which, "group") == 0) return cmocka_run_group_tests(good, NULL, report_at_the_end);
  return 99;
}

/* Runs this program with a word, and gives its lines and exit status. */
static int run_again(const char* which, char* output, size_t cap) {
  char self[4096], command[4200];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  assert_true(length > 0);
  self[length] = '\0';
  snprintf(command, sizeof command, "'%s' %s 2>&1", self, which);
  FILE* lines = popen(command, "r");
  assert_non_null(lines);
  const size_t got = fread(output, 1, cap - 1, lines);
  output[got] = '\0';
  return WEXITSTATUS(pclose(lines));
}

static void reported_failures_fail(void** state) {
  (void)state;
  char output[16384];
  assert_int_equal(run_again("good", output, sizeof output), 0);
  assert_int_equal(run_again("bad", output, sizeof output), 1);
  assert_non_null(strstr(output, "the first report"));
  assert_non_null(strstr(output, "ERROR   ] reports"));
  assert_non_null(strstr(output, "OK ] passes"));
  assert_int_equal(run_again("torn", output, sizeof output), 1);
  assert_non_null(strstr(output, "ERROR   ] passes"));
  assert_int_equal(run_again("group", output, sizeof output), 1);
}

static void fixtures_and_states_are_kept(void** state) {
  (void)state;
  char output[16384];
  assert_int_equal(run_again("states", output, sizeof output), 0);
  assert_int_equal(run_again("inherits", output, sizeof output), 0);
}

int main(int argc, char** argv) {
  if (argc > 1) return run(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reported_failures_fail),
      cmocka_unit_test(fixtures_and_states_are_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
