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

/* The status of a context that is made with the variable. */
static nxd_status_t with(const char* variable, const char* value) {
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  nxd_context_t* ctx = NULL;
  setenv(variable, value, 1);
  nxd_status_t status = nxd_context_create(&options, &ctx);
  nxd_context_destroy(ctx);
  unsetenv(variable);
  return status;
}

static void test_seeds_of_64_bits(void** state) {
  (void)state;
  static const char* const good[] = {"0", "9223372036854775808", "18446744073709551615", "-1", ""};
  for (size_t i = 0; i < sizeof good / sizeof *good; ++i) NXD_TEST_OK(with("NXD_SEED", good[i]));
  static const char* const bad[] = {"18446744073709551616", "-9223372036854775809", "1.0", " 1",
                                    "x"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    NXD_TEST_REFUSED(with("NXD_SEED", bad[i]), NXD_ERROR_INVALID_ARGUMENT,
                     "NXD_SEED: expected an integer from -2^63 to 2^64 - 1");
  }
}

static void test_unknown_log_levels(void** state) {
  (void)state;
  static const char* const good[] = {"debug", "info", "warn", "error", "off", ""};
  for (size_t i = 0; i < sizeof good / sizeof *good; ++i) {
    NXD_TEST_OK(with("NXD_LOG_LEVEL", good[i]));
  }
  static const char* const bad[] = {"warning", "WARN", "2", "debug "};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    NXD_TEST_REFUSED(with("NXD_LOG_LEVEL", bad[i]), NXD_ERROR_INVALID_ARGUMENT,
                     "NXD_LOG_LEVEL: expected debug, info, warn, error or off, got");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_contexts_warn_once),
                                     cmocka_unit_test(test_seeds_of_64_bits),
                                     cmocka_unit_test(test_unknown_log_levels)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
