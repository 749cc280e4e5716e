/* Variables that programs for Neuron devices set, and that have no effect, are named in the log
 * when a context is made, each once in the process: those that nobody reads wherever the program
 * trains, and those of the device where NXD_CPU_MODE=1 says that it trains eagerly. */
#include <stdlib.h>
#include <string.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

static int found;
static const char* wanted;

static void look(nxd_log_level_t level, const char* line, void* user_data) {
  (void)user_data;
  if (level == NXD_LOG_WARN && strstr(line, wanted) && strstr(line, " has no effect: ")) ++found;
}

/* Lines that name the variable when two contexts are made. */
static int warnings_of(const char* variable) {
  found = 0;
  wanted = variable;
  nxd_log_set_callback(look, NULL, NULL);
  for (int i = 0; i < 2; ++i) {
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    nxd_context_t* ctx = NULL;
    NXD_TEST_OK(nxd_context_create(&options, &ctx));
    nxd_context_destroy(ctx);
  }
  nxd_log_set_callback(NULL, NULL, NULL);
  return found;
}

static void test_contexts_warn_once(void** state) {
  (void)state;
  unsetenv("NXD_XLA_BACKEND");
  setenv("NXD_CPU_MODE", "1", 1);
  assert_int_equal(warnings_of("XLA_USE_BF16"), 0);
  setenv("XLA_USE_BF16", "1", 1);
  assert_int_equal(warnings_of("XLA_USE_BF16"), 1);
  assert_int_equal(warnings_of("XLA_USE_BF16"), 0);
  unsetenv("NXD_CPU_MODE");
  setenv("XLA_DOWNCAST_BF16", "1", 1);
  assert_int_equal(warnings_of("XLA_DOWNCAST_BF16"), 1);
  /* A device may read it. */
  setenv("NEURON_RT_STOCHASTIC_ROUNDING_EN", "1", 1);
  assert_int_equal(warnings_of("NEURON_RT_STOCHASTIC_ROUNDING_EN"), 0);
  setenv("NXD_CPU_MODE", "1", 1);
  setenv("NXD_XLA_BACKEND", "replay", 1);
  assert_int_equal(warnings_of("NEURON_RT_STOCHASTIC_ROUNDING_EN"), 0);
  unsetenv("NXD_XLA_BACKEND");
  assert_int_equal(warnings_of("NEURON_RT_STOCHASTIC_ROUNDING_EN"), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_contexts_warn_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
