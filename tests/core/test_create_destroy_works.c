/* Makes works, waits for them or not, and destroys them with their groups, again and again: memory
 * is scripts/leaks' part, threads and descriptors are counted here. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/ranks.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

enum { kRounds = 12, kWorks = 10 };

static int entries_of(const char* directory) {
  int count = 0;
  DIR* dir = opendir(directory);
  if (!dir) return -1;
  while (readdir(dir)) ++count;
  closedir(dir);
  return count;
}

/* Every second group has works pending when it is destroyed. */
static void use_works(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  const int32_t ranks[] = {0, 1};
  nxd_group_t* group = NULL;
  NXD_TEST_OK(nxd_group_create(ctx, ranks, (size_t)size, "brief", &group));
  int32_t values[kWorks] = {0}, token = 0;
  nxd_work_t *works[kWorks], *message = NULL;
  for (int i = 0; i < kWorks; ++i) {
    NXD_TEST_OK(nxd_all_reduce_async(group, &values[i], &values[i], 1, NXD_DTYPE_I32,
                                     NXD_REDUCE_SUM, &works[i]));
  }
  for (int i = 0; i < kWorks; ++i) NXD_TEST_OK(nxd_work_wait(works[i], -1));
  if (size > 1) {
    NXD_TEST_OK(nxd_receive_async(group, &token, 1, NXD_DTYPE_I32, 1 - rank, 9, &message));
  }
  for (int i = 0; i < kWorks; i += 2) nxd_work_destroy(works[i]);
  nxd_group_destroy(group);
  for (int i = 1; i < kWorks; i += 2) nxd_work_destroy(works[i]);
  if (message) {
    const nxd_status_t status = nxd_work_wait(message, 0);
    NXD_TEST_CHECK(status == NXD_ERROR_ABORTED || status == NXD_ERROR_PEER_LOST);
  }
  nxd_work_destroy(message);
}

static void check_rounds(int size) {
  /* The first one starts what the process keeps, such as a sanitizer's own thread. */
  nxd_test_run_ranks(size, 0, use_works, NULL);
  const int threads = entries_of("/proc/self/task"), descriptors = entries_of("/proc/self/fd");
  for (int round = 0; round < kRounds; ++round) nxd_test_run_ranks(size, 0, use_works, NULL);
  /* The kernel may list a thread for a moment after it was joined: in either count. A thread that
   * each round leaves behind makes the second one larger by kRounds. */
  for (int i = 0; i < 60000 && entries_of("/proc/self/task") > threads; ++i) usleep(1000);
  assert_true(entries_of("/proc/self/task") <= threads);
  assert_int_equal(entries_of("/proc/self/fd"), descriptors);
}

static void test_alone(void** state) {
  (void)state;
  check_rounds(1);
}
static void test_with_peer(void** state) {
  (void)state;
  check_rounds(2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone),
                                     cmocka_unit_test(test_with_peer)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
