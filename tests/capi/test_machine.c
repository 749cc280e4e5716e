/* The device, the machine's peak, and bad calls of the profile. Its counts are tested from inside,
 * in tests/core/base, and threads that are released in tests/core/kernels. */
#include <stdlib.h>
#include <string.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

static void test_devices(void** state) {
  (void)state;
  unsetenv("NXD_XLA_BACKEND");
  unsetenv("NXD_PJRT_PLUGIN");
  unsetenv("NEURON_LIBRARY_PATH");
  nxd_device_t device = NXD_DEVICE_META;
  setenv("NXD_CPU_MODE", "1", 1);
  assert_int_equal(nxd_cpu_mode(), 1);
  assert_int_equal(nxd_get_device(&device), NXD_OK);
  assert_int_equal(device, NXD_DEVICE_CPU);
  unsetenv("NXD_CPU_MODE");
  assert_int_equal(nxd_cpu_mode(), 0);
  NXD_TEST_REFUSED(nxd_get_device(&device), NXD_ERROR_UNSUPPORTED, "libneuronpjrt.so");
  assert_non_null(strstr(nxd_last_error(), "NXD_CPU_MODE is not set"));
  assert_non_null(strstr(nxd_last_error(), "NXD_PJRT_PLUGIN and NEURON_LIBRARY_PATH are not set"));
  /* The path need not exist: whatever uses the device says so. */
  const char* const choices[] = {"NXD_XLA_BACKEND", "NXD_PJRT_PLUGIN", "NEURON_LIBRARY_PATH"};
  for (size_t i = 0; i < sizeof choices / sizeof *choices; ++i) {
    setenv(choices[i], "/no/plugin.so", 1);
    device = NXD_DEVICE_META;
    assert_int_equal(nxd_get_device(&device), NXD_OK);
    assert_int_equal(device, NXD_DEVICE_XLA);
    unsetenv(choices[i]);
  }
  setenv("NXD_CPU_MODE", "1", 1);
  NXD_TEST_REFUSED(nxd_get_device(NULL), NXD_ERROR_INVALID_ARGUMENT, "out_device");
}

static void test_measured_peak_is_plausible(void** state) {
  (void)state;
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
  double flops = -1;
  assert_int_equal(nxd_measure_gemm_peak(NXD_DTYPE_F32, 64, &flops), NXD_OK);
  assert_true(flops > 1e6 && flops < 1e16);
  assert_int_equal(nxd_measure_gemm_peak(NXD_DTYPE_I32, 64, &flops), bad);
  assert_true(flops == 0);
  assert_int_equal(nxd_measure_gemm_peak(NXD_DTYPE_F32, -1, &flops), bad);
  NXD_TEST_REFUSED(nxd_measure_gemm_peak(NXD_DTYPE_BF16, INT32_MAX, &flops), bad,
                   "size: expected matrices that fit in memory");
  assert_int_equal(nxd_measure_gemm_peak(NXD_DTYPE_F32, 64, NULL), bad);
}

static void test_bad_calls_of_the_profile(void** state) {
  (void)state;
  nxd_phase_stats_t stats = {0};
  assert_int_equal(nxd_profile_get_phase(0, NULL), NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_profile_get_phase(0, &stats), NXD_ERROR_ABI_MISMATCH);
  const nxd_phase_t phases[] = {NXD_PHASE_INVALID, NXD_PHASE_COMMUNICATION + 1};
  for (size_t i = 0; i < 2; ++i) {
    stats.struct_size = sizeof stats;
    stats.calls = 5;
    assert_int_equal(nxd_profile_get_phase(phases[i], &stats), NXD_ERROR_INVALID_ARGUMENT);
    assert_true(stats.calls == 0 && stats.name == NULL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_devices),
      cmocka_unit_test(test_measured_peak_is_plausible),
      cmocka_unit_test(test_bad_calls_of_the_profile),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
