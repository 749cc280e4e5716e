/* Low limits of a process: memory, descriptors, threads, sizes of files. Under each value of a
 * limit short programs run in processes of their own: every rank gets a result or an error with a
 * message, no signal ends the process, and with the limit lifted the same program succeeds. */
#define _GNU_SOURCE
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "exhaustion/programs.h"

enum { kTimeoutMs = 2000, kRetryTimeoutMs = 60000, kProcessSeconds = 60, kSomeUser = 61234 };
enum { kError = 10, kFault = 20 }; /* how a process that fails as it should, or otherwise, exits */

static const program_t* program_named(const char* name) {
  for (int i = 0; i < n_programs; ++i)
    if (strcmp(programs[i].name, name) == 0) return &programs[i];
  fail_msg("no program %s", name);
  return NULL;
}

static void set_limit(int limit, rlim_t value) {
  struct rlimit both;
  if (getrlimit(limit, &both) != 0) abort();
  both.rlim_cur = value < both.rlim_max ? value : both.rlim_max;
  if (setrlimit(limit, &both) != 0) abort();
}

static int judge(const rank_end_t* end, const char* when, int may_fail) {
  if (end->status == NXD_OK && !end->wrong) return 0;
  const int is_error = end->status < 0 && end->status != NXD_ERROR_INTERNAL && end->message[0];
  if (may_fail && is_error && !end->wrong) return kError;
  fprintf(stderr, "%s: %s: %s: %s\n", when, end->call, nxd_status_string(end->status),
          end->message);
  return kFault;
}

/* In the process: its exit code. */
static int run_limited(const program_t* program, int limit, rlim_t value, const char* message) {
  rank_end_t ends[kMostRanks];
  char path[64];
  struct rlimit before;
  snprintf(path, sizeof path, "/tmp/nxd-limits-%d.json", (int)getpid());
  if (getrlimit(limit, &before) != 0) abort();
  set_limit(limit, value);
  run_program(program, kTimeoutMs, path, ends);
  if (setrlimit(limit, &before) != 0) abort();
  int code = 0, told = message == NULL;
  for (int i = 0; i < program->ranks; ++i) {
    const int one = judge(&ends[i], "with the limit", 1);
    if (one > code) code = one;
    told = told || one == 0 || strstr(ends[i].message, message) != NULL;
  }
  if (!told) {
    fprintf(stderr, "expected \"%s\" in a message\n", message);
    for (int i = 0; i < program->ranks; ++i) judge(&ends[i], "without it", 0);
    return kFault;
  }
  run_program(program, kRetryTimeoutMs, path, ends);
  for (int i = 0; i < program->ranks; ++i)
    if (judge(&ends[i], "without the limit", 0)) return kFault;
  return code;
}

/* Runs it in a process; whether the ranks got errors. message: part of one of these; NULL: any. */
static int fails_under(const char* name, int limit, rlim_t value, int as_other_user,
                       const char* message) {
  const program_t* program = program_named(name);
  const struct sigaction as_usual = {.sa_handler = SIG_DFL}; /* CMocka has handlers of its own */
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    for (int signal = 1; signal < NSIG; ++signal) (void)!sigaction(signal, &as_usual, NULL);
    alarm(kProcessSeconds);
    /* Root may have as many processes as it likes. The memory of a process that changes its user is
       out of reach for itself, unless it says otherwise. */
    if (as_other_user && geteuid() == 0 &&
        (setresuid(kSomeUser, kSomeUser, kSomeUser) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0))
      _exit(kFault);
    _exit(run_limited(program, limit, value, message));
  }
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (WIFSIGNALED(status))
    fail_msg("%s with limit %d at %llu: %s", name, limit, (unsigned long long)value,
             strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != kError)
    fail_msg("%s with limit %d at %llu: exit code %d", name, limit, (unsigned long long)value,
             WEXITSTATUS(status));
  return WEXITSTATUS(status) == kError;
}

static const char* const kinds[] = {"collectives", "collectives_gloo", "training"};
enum { kKinds = 3 };

static rlim_t address_space(void) {
  unsigned long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%lu", &pages), 1);
  fclose(file);
  return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void memory(void** state) {
  (void)state;
  /* Beyond what the process has and the stacks of the ranks' threads. */
  static const rlim_t megabytes[] = {20, 24, 32, 40, 64, 100, 160};
  int failures = 0;
  for (int kind = 0; kind < kKinds; ++kind)
    for (size_t i = 0; i < sizeof megabytes / sizeof *megabytes; ++i)
      failures +=
          fails_under(kinds[kind], RLIMIT_AS, address_space() + (megabytes[i] << 20), 0, NULL);
  assert_true(failures > 0);
}

static rlim_t open_descriptors(void) {
  rlim_t n = 0;
  DIR* directory = opendir("/proc/self/fd");
  assert_non_null(directory);
  while (readdir(directory)) ++n;
  closedir(directory);
  return n - 3; /* the directory itself, "." and ".." */
}

static void descriptors(void** state) {
  (void)state;
  int failures = 0;
  for (int kind = 0; kind < kKinds; ++kind)
    for (rlim_t more = 0; more < 24; more += more < 6 ? 1 : 4)
      failures += fails_under(kinds[kind], RLIMIT_NOFILE, open_descriptors() + more, 0, NULL);
  assert_true(failures > 0);
}

static void threads(void** state) {
  (void)state;
  int failures = 0;
  for (int kind = 0; kind < kKinds; ++kind)
    for (rlim_t more = 0; more < 6; ++more) /* than this one and the ranks' */
      failures += fails_under(kinds[kind], RLIMIT_NPROC, 3 + more, 1, NULL);
  assert_true(failures > 0);
}

/* The limit counts for memory that ranks share, too, and a signal comes with it. */
static void sizes_of_files(void** state) {
  (void)state;
  static const rlim_t bytes[] = {0, 100, 5000, 100000, 5000000, 500000000};
  int failures = 0;
  for (size_t i = 0; i < sizeof bytes / sizeof *bytes; ++i) {
    failures += fails_under("collectives", RLIMIT_FSIZE, bytes[i], 0, "ulimit -f");
    failures += fails_under("training", RLIMIT_FSIZE, bytes[i], 0, NULL);
    failures += fails_under("training_gloo", RLIMIT_FSIZE, bytes[i], 0, "File too large");
    failures += fails_under("stores", RLIMIT_FSIZE, bytes[i], 0, NULL);
  }
  assert_true(failures >= 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory),
      cmocka_unit_test(descriptors),
      cmocka_unit_test(threads),
      cmocka_unit_test(sizes_of_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
