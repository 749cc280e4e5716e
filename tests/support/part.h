/* Parts of a test that run in processes of their own: a job whose ranks run this program again,
 * with the part's name in NXD_TEST_PART, which main looks for. Include it after CMocka. */
#ifndef NXD_TESTS_SUPPORT_PART_H
#define NXD_TESTS_SUPPORT_PART_H

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "nxd.h"

static inline nxd_job_t* nxd_test_start_part(const char* part, int ranks) {
  setenv("NXD_TEST_PART", part, 1);
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  options.num_processes = ranks;
  nxd_job_t* job = NULL;
  const nxd_status_t status = nxd_spawn(&options, &job);
  unsetenv("NXD_TEST_PART");
  if (status != NXD_OK) fail_msg("part %s: %s", part, nxd_last_error());
  return job;
}

/* The rank's exit code, once it has ended: within the limit, or the test fails. */
static inline int nxd_test_await_exit(nxd_job_t* job, int rank, int limit_s) {
  const time_t start = time(NULL);
  for (;;) {
    int32_t running = 1, code = 0;
    assert_int_equal(nxd_job_get_exit_code(job, rank, &running, &code), NXD_OK);
    if (!running) return code;
    if (time(NULL) - start > limit_s) fail_msg("rank %d still runs after %d s", rank, limit_s);
    usleep(5000);
  }
}

enum { kNxdTestNone = -1, kNxdTestStopped = -1 };

/* Runs a part. Each rank ends with 0, but the lost one, if there is one, with its own code, or it
 * is stopped and does not end by itself. */
static inline void nxd_test_run_part(const char* part, int ranks, int lost, int lost_code,
                                     int limit_s) {
  nxd_job_t* job = nxd_test_start_part(part, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == lost && lost_code == kNxdTestStopped) continue;
    const int code = nxd_test_await_exit(job, rank, limit_s);
    if (code != (rank == lost ? lost_code : 0))
      fail_msg("part %s: rank %d of %d ended with %d", part, rank, ranks, code);
  }
  if (lost_code == kNxdTestStopped && lost != kNxdTestNone) {
    int32_t running = 0, code = 0;
    assert_int_equal(nxd_job_get_exit_code(job, lost, &running, &code), NXD_OK);
    assert_int_equal(running, 1);
  }
  nxd_job_destroy(job);
}

#endif
