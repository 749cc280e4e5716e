/* Threads of OpenMP between calls: there after a call, gone after nxd_release_threads, and made
 * anew.
 */
#include <dirent.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "nxd.h"

static int threads(void) {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  assert_non_null(tasks);
  for (const struct dirent* entry; (entry = readdir(tasks));) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

/* A thread that has ended may stay in /proc a moment longer. */
static int threads_become(int expected) {
  for (int i = 0; i < 1000 && threads() != expected; ++i) usleep(10000);
  return threads();
}

static void ended_and_made_anew(void** state) {
  (void)state;
  omp_set_num_threads(2);
  for (int i = 0; i < 3; ++i) {
    double flops = 0;
    assert_int_equal(nxd_measure_gemm_peak(NXD_DTYPE_F32, 256, &flops), NXD_OK);
    assert_true(flops > 0);
    assert_int_equal(threads(), 2);
    assert_int_equal(nxd_release_threads(), NXD_OK);
    assert_int_equal(threads_become(1), 1);
  }
  assert_int_equal(nxd_release_threads(), NXD_OK); /* nothing to end */
}

static void refused_inside_a_region(void** state) {
  (void)state;
  nxd_status_t status[2] = {NXD_OK, NXD_OK};
#pragma omp parallel num_threads(2)
  status[omp_get_thread_num()] = nxd_release_threads();
  assert_int_equal(status[0], NXD_ERROR_INVALID_STATE);
  assert_int_equal(status[1], NXD_ERROR_INVALID_STATE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ended_and_made_anew),
      cmocka_unit_test(refused_inside_a_region),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
