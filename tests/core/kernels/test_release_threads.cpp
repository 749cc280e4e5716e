// Threads between calls, the library's own and OpenMP's: there after a call, gone after
// nxd_release_threads, made anew.
#include <dirent.h>
#include <omp.h>
#include <unistd.h>

#include "core/kernel_support.h"
#include "core/kernels/parallel.h"
#include "nxd.h"

namespace {

int threads() {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  assert_non_null(tasks);
  while (const dirent* entry = readdir(tasks)) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

// A thread that has ended may stay in /proc a moment longer.
int threads_become(int expected) {
  for (int i = 0; i < 6000 && threads() != expected; ++i) usleep(10000);
  return threads();
}

void ended_and_made_anew(void**) {
  omp_set_num_threads(2);
  for (int i = 0; i < 3; ++i) {
    double flops = 0;
    assert_int_equal(nxd_measure_gemm_peak(NXD_DTYPE_F32, 256, &flops), NXD_OK);
    assert_true(flops > 0);
    assert_int_equal(threads(), 2);
    nxd::kernels::parallel_ranges(100, 1 << 20, [](int64_t, int64_t) {});
    assert_int_equal(threads(), 3);
    assert_int_equal(nxd_release_threads(), NXD_OK);
    assert_int_equal(threads_become(1), 1);
  }
  assert_int_equal(nxd_release_threads(), NXD_OK);  // nothing to end
}

void refused_inside_a_region(void**) {
  nxd_status_t status[2] = {NXD_OK, NXD_OK};
#pragma omp parallel num_threads(2)
  status[omp_get_thread_num()] = nxd_release_threads();
  assert_int_equal(status[0], NXD_ERROR_INVALID_STATE);
  assert_int_equal(status[1], NXD_ERROR_INVALID_STATE);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(ended_and_made_anew),
      cmocka_unit_test(refused_inside_a_region),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
