/* Signals whose handler does not ask for calls of the system to be restarted, as those of profilers
 * and timers: each thread of the process gets one after the other while ranks run short programs.
 * No call of the library ends for that. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "exhaustion/programs.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

enum { kTimeoutMs = 60000, kMostRuns = 200, kFewSignals = 20 };

static atomic_int stopping;
static _Atomic uint64_t handled;

static void handle(int signal) {
  (void)signal;
  ++handled;
}

static void signal_threads(pid_t own) {
  DIR* tasks = opendir("/proc/self/task");
  if (!tasks) abort();
  for (const struct dirent* entry; (entry = readdir(tasks)) != NULL;) {
    const pid_t task = atoi(entry->d_name);
    if (task > 0 && task != own) syscall(SYS_tgkill, getpid(), task, SIGUSR2);
  }
  closedir(tasks);
}

static void* send_signals(void* unused) {
  (void)unused;
  const struct timespec pause = {0, 50000};
  while (!stopping) {
    signal_threads((pid_t)syscall(SYS_gettid));
    nanosleep(&pause, NULL);
  }
  return NULL;
}

static void run(const program_t* program, const char* path) {
  rank_end_t ends[kMostRanks];
  run_program(program, kTimeoutMs, path, ends);
  for (int i = 0; i < program->ranks; ++i) {
    if (ends[i].status == NXD_OK && !ends[i].wrong) continue;
    fail_msg("%s, rank %d: %s: %s: %s", program->name, i, ends[i].call,
             nxd_status_string(ends[i].status), ends[i].message);
  }
}

static void goes_on(void** unused) {
  (void)unused;
  char path[64];
  pthread_t sender;
  const struct sigaction action = {.sa_handler = handle}; /* without SA_RESTART */
  snprintf(path, sizeof path, "/tmp/nxd-interrupted-%d.json", (int)getpid());
  assert_int_equal(sigaction(SIGUSR2, &action, NULL), 0);
  assert_int_equal(pthread_create(&sender, NULL, send_signals, NULL), 0);
  for (int p = 0; p < n_programs; ++p) {
    /* Beside load the sender has its turn late. */
    const uint64_t enough = handled + kFewSignals;
    for (int i = 0; i == 0 || (handled < enough && i < kMostRuns); ++i) run(&programs[p], path);
    if (handled < enough) fail_msg("%s: too few signals were handled", programs[p].name);
  }
  stopping = 1;
  pthread_join(sender, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(goes_on)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
