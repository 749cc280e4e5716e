/* Bounds of a file store, in size and time: values beyond its bounds, counters that are none,
 * and a file that another process has locked and does not let go of. A signal keeps no lock.
 * Records that are not whole count for nothing, and additions of several processes count all. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/ranks.h"

#define OK(call) assert_int_equal(nxd_test_ok(__FILE__, __LINE__, #call, (call)), 1)
#define REFUSED(call, status, part) \
  assert_int_equal(nxd_test_refused(__FILE__, __LINE__, #call, (call), (status), (part)), 1)

/* How many of the next calls that let go of a lock end as by a signal, as on FUSE and NFS. */
static atomic_int interrupted;

/* Before the C library's. */
int flock(int fd, int operation) {
  if (operation == LOCK_UN && interrupted > 0) {
    --interrupted;
    errno = EINTR;
    return -1;
  }
  return (int)syscall(SYS_flock, fd, operation);
}

static char path[] = "/tmp/nxd-file-store-XXXXXX";

static int make_file(void** state) {
  (void)state;
  strcpy(path + strlen(path) - 6, "XXXXXX");
  const int fd = mkstemp(path);
  return fd < 0 ? -1 : close(fd);
}

static int remove_file(void** state) {
  (void)state;
  return unlink(path);
}

static void check_bounds(nxd_store_t* store) {
  int64_t sum = 0;
  char buf[8] = "";
  size_t size = 0;
  OK(nxd_store_set(store, "before", "b", 1));
  const size_t limit = (size_t)1 << 30;
  REFUSED(nxd_store_set(store, "large", "", limit + 1), NXD_ERROR_INVALID_ARGUMENT, "size");
  REFUSED(nxd_store_set(store, "large", "", SIZE_MAX), NXD_ERROR_INVALID_ARGUMENT, "size");
  REFUSED(nxd_store_get(store, "large", 0, buf, sizeof buf, &size), NXD_ERROR_TIMEOUT, "large");
  OK(nxd_store_get(store, "before", 0, buf, sizeof buf, &size));
  REFUSED(nxd_store_add(store, "before", 1, &sum), NXD_ERROR_INVALID_ARGUMENT,
          "expected an integer");
  assert_int_equal(sum, 0);
  OK(nxd_store_set(store, "empty", "", 0));
  REFUSED(nxd_store_add(store, "empty", 1, &sum), NXD_ERROR_INVALID_ARGUMENT,
          "expected an integer");
  OK(nxd_store_add(store, "most", INT64_MAX, &sum));
  OK(nxd_store_add(store, "most", 1, &sum));
  assert_true(sum == INT64_MIN);
  OK(nxd_store_add(store, "most", -1, &sum));
  assert_true(sum == INT64_MAX);
  OK(nxd_store_set(store, "after", "a", 1));
  OK(nxd_store_get(store, "after", 0, buf, sizeof buf, &size));
  assert_int_equal(size, 1);
}

static void bounds_of_files(void** state) {
  (void)state;
  nxd_store_t *store = NULL, *other = NULL;
  OK(nxd_store_create_file(path, &store));
  check_bounds(store);
  nxd_store_destroy(store);
  /* Another reader finds everything. */
  OK(nxd_store_create_file(path, &other));
  char buf[8] = "";
  size_t size = 0;
  OK(nxd_store_get(other, "after", 0, buf, sizeof buf, &size));
  nxd_store_destroy(other);
}

static void bounds_of_memory(void** state) {
  (void)state;
  nxd_store_t* store = NULL;
  OK(nxd_store_create_local(&store));
  check_bounds(store);
  nxd_store_destroy(store);
}

/* As a process would that was stopped in the middle of a record. */
static int hold_lock(void) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  assert_true(fd >= 0);
  assert_int_equal(flock(fd, LOCK_EX), 0);
  return fd;
}

static nxd_status_t give_up(void* data) {
  (void)data;
  return NXD_ERROR_USER;
}

static void held_lock(void** state) {
  (void)state;
  nxd_store_t* store = NULL;
  OK(nxd_store_create_file(path, &store));
  const int holder = hold_lock();
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.rank = 1;
  options.size = 2;
  options.store = store;
  options.timeout_ms = 300;
  nxd_context_t* ctx = NULL;
  REFUSED(nxd_context_create(&options, &ctx), NXD_ERROR_TIMEOUT, "held its lock");
  assert_null(ctx);
  char buf[8];
  size_t size = 0;
  REFUSED(nxd_store_get(store, "key", 0, buf, sizeof buf, &size), NXD_ERROR_TIMEOUT,
          "held its lock");
  /* No caller need wait for an hour. */
  options.timeout_ms = 3600000;
  options.interrupt = give_up;
  REFUSED(nxd_context_create(&options, &ctx), NXD_ERROR_USER, "interrupt");
  assert_null(ctx);
  close(holder);
  OK(nxd_store_set(store, "key", "v", 1));
  OK(nxd_store_get(store, "key", 0, buf, sizeof buf, &size));
  nxd_store_destroy(store);
}

static atomic_int has_ended;

static void* get_late(void* store) {
  char buf[8];
  size_t size = 0;
  const nxd_status_t status = nxd_store_get(store, "key", 60000, buf, sizeof buf, &size);
  has_ended = 1;
  return (void*)(intptr_t)status;
}

/* A thread that waits for the file does not make another one wait as long. */
static void held_lock_and_threads(void** state) {
  (void)state;
  nxd_store_t* store = NULL;
  pthread_t thread;
  char buf[8];
  size_t size = 0;
  void* status = NULL;
  OK(nxd_store_create_file(path, &store));
  OK(nxd_store_set(store, "key", "v", 1));
  const int holder = hold_lock();
  has_ended = 0;
  assert_int_equal(pthread_create(&thread, NULL, get_late, store), 0);
  usleep(100000); /* it waits by then */
  REFUSED(nxd_store_get(store, "key", 0, buf, sizeof buf, &size), NXD_ERROR_TIMEOUT,
          "held its lock");
  assert_false(has_ended);
  close(holder);
  assert_int_equal(pthread_join(thread, &status), 0);
  assert_int_equal((intptr_t)status, NXD_OK);
  nxd_store_destroy(store);
}

/* A name that takes all the room of a message leaves some for what is wrong. */
static void long_name(void** state) {
  (void)state;
  static char name[9000];
  memset(name, 'n', sizeof name - 1);
  nxd_store_t* store = NULL;
  REFUSED(nxd_store_create_file(name, &store), NXD_ERROR_IO, strerror(ENAMETOOLONG));
  assert_non_null(strstr(nxd_last_error(), "file store \"nnn"));
  assert_null(store);
}

static void interrupted_release(void** state) {
  (void)state;
  nxd_store_t *one = NULL, *two = NULL;
  char buf[8] = "";
  size_t size = 0;
  int64_t sum = 0;
  OK(nxd_store_create_file(path, &one));
  OK(nxd_store_create_file(path, &two));
  interrupted = 3;
  OK(nxd_store_set(one, "key", "v", 1));
  assert_int_equal(interrupted, 0);
  OK(nxd_store_get(two, "key", 300, buf, sizeof buf, &size));
  interrupted = 1;
  OK(nxd_store_get(one, "key", 0, buf, sizeof buf, &size));
  OK(nxd_store_add(two, "sum", 2, &sum));
  assert_int_equal(sum, 2);
  nxd_store_destroy(one);
  nxd_store_destroy(two);
}

/* The machine went down before all of the last record was on the disk. */
static void broken_record(void** state) {
  (void)state;
  nxd_store_t *before = NULL, *after = NULL, *other = NULL;
  char buf[8] = "";
  size_t size = 0;
  OK(nxd_store_create_file(path, &before));
  OK(nxd_store_set(before, "whole", "w", 1));
  OK(nxd_store_set(before, "broken", "b", 1));
  nxd_store_destroy(before);
  struct stat status;
  assert_int_equal(stat(path, &status), 0);
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  assert_int_equal(pwrite(fd, "", 1, status.st_size - 1), 1);
  close(fd);
  OK(nxd_store_create_file(path, &after));
  OK(nxd_store_get(after, "whole", 0, buf, sizeof buf, &size));
  REFUSED(nxd_store_get(after, "broken", 0, buf, sizeof buf, &size), NXD_ERROR_TIMEOUT, "broken");
  OK(nxd_store_set(after, "next", "n", 1));
  OK(nxd_store_create_file(path, &other));
  OK(nxd_store_get(other, "next", 0, buf, sizeof buf, &size));
  REFUSED(nxd_store_get(other, "broken", 0, buf, sizeof buf, &size), NXD_ERROR_TIMEOUT, "broken");
  nxd_store_destroy(other);
  nxd_store_destroy(after);
}

/* The signal for files that are too large does not end the process, and the store goes on. */
static void file_limit(void** state) {
  (void)state;
  nxd_store_t* store = NULL;
  static char large[10000];
  size_t size = 0;
  struct rlimit limit, low;
  OK(nxd_store_create_file(path, &store));
  OK(nxd_store_set(store, "before", "b", 1));
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  low = limit;
  low.rlim_cur = 5000;
  void (*const old)(int) = signal(SIGXFSZ, SIG_DFL);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
  const nxd_status_t given = nxd_store_set(store, "large", large, sizeof large);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, old);
  REFUSED(given, NXD_ERROR_IO, "cannot write");
  REFUSED(nxd_store_get(store, "large", 0, large, sizeof large, &size), NXD_ERROR_TIMEOUT, "large");
  OK(nxd_store_set(store, "large", large, sizeof large));
  OK(nxd_store_get(store, "large", 0, large, sizeof large, &size));
  assert_int_equal(size, sizeof large);
  nxd_store_destroy(store);
}

static void additions_of_processes(void** state) {
  (void)state;
  enum { kProcesses = 4, kAdditions = 250 };
  int64_t sum = 0;
  for (int i = 0; i < kProcesses; ++i) {
    if (fork() != 0) continue;
    nxd_store_t* own = NULL;
    int failed = nxd_store_create_file(path, &own) != NXD_OK;
    for (int k = 0; k < kAdditions && !failed; ++k) {
      failed = nxd_store_add(own, "sum", 1, &sum) != NXD_OK;
    }
    _exit(failed);
  }
  for (int i = 0; i < kProcesses; ++i) {
    int ended = -1;
    assert_true(wait(&ended) > 0);
    assert_int_equal(ended, 0);
  }
  nxd_store_t* store = NULL;
  OK(nxd_store_create_file(path, &store));
  OK(nxd_store_add(store, "sum", 0, &sum));
  assert_int_equal(sum, kProcesses * kAdditions);
  nxd_store_destroy(store);
}

/* A file that somebody has cut short, or written anew, is told at once: its ranks do not wait. */
static void cut_short(void** state) {
  (void)state;
  nxd_store_t* store = NULL;
  OK(nxd_store_create_file(path, &store));
  OK(nxd_store_set(store, "key", "a value that is longer than what is left", 40));
  assert_int_equal(truncate(path, 20), 0);
  char buf[64] = "";
  size_t size = 0;
  int64_t sum = 0;
  REFUSED(nxd_store_get(store, "other", 60000, buf, sizeof buf, &size), NXD_ERROR_CORRUPT, path);
  REFUSED(nxd_store_set(store, "other", "b", 1), NXD_ERROR_CORRUPT, "bytes");
  REFUSED(nxd_store_add(store, "sum", 1, &sum), NXD_ERROR_CORRUPT, path);
  struct stat status;
  assert_int_equal(stat(path, &status), 0);
  assert_int_equal(status.st_size, 20);
  nxd_store_destroy(store);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(bounds_of_files, make_file, remove_file),
      cmocka_unit_test(bounds_of_memory),
      cmocka_unit_test_setup_teardown(held_lock, make_file, remove_file),
      cmocka_unit_test_setup_teardown(held_lock_and_threads, make_file, remove_file),
      cmocka_unit_test(long_name),
      cmocka_unit_test_setup_teardown(interrupted_release, make_file, remove_file),
      cmocka_unit_test_setup_teardown(broken_record, make_file, remove_file),
      cmocka_unit_test_setup_teardown(file_limit, make_file, remove_file),
      cmocka_unit_test_setup_teardown(cut_short, make_file, remove_file),
      cmocka_unit_test_setup_teardown(additions_of_processes, make_file, remove_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
