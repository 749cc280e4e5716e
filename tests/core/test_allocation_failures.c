/* The n-th call of a kind fails, for every n (or for some, the same each time): memory, mappings,
 * threads, descriptors, what the kernel sets up, and files. Each time a fresh process runs a short
 * program of one to four ranks. Every rank must get a result or an error, with a message, in time;
 * nothing may be left; and the same program must succeed afterwards in the same process. usage:
 * test_allocation_failures [--whole] [--program NAME] [--kind NAME] [--mode NAME]
 *                                 [--from N] [--to N] [--stride N] [--jobs N] [--here]
 *   modes: one fails; many: 200 in a row; rest: all until the ranks have let go of everything
 *   --here: in this process, for a debugger; takes all of program, kind, mode and from
 * NXD_FAILURES_OFFSET=N lets others of the calls fail, "random" some that no run has chosen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "exhaustion/failing_calls.h"
#include "exhaustion/programs.h"
#include "support/resource_snapshot.h"

enum { kOne, kMany, kRest, kModes };
static const char* const mode_names[kModes] = {"one", "many", "rest"};
static const uint64_t mode_counts[kModes] = {1, 200, UINT64_MAX};

/* Bounds of collectives while calls fail, and after; and of a process, which ends one that hangs.
 */
enum { kTimeoutMs = 4000, kRetryTimeoutMs = 600000, kProcessSeconds = 60, kMostLeaks = 6 };

typedef struct {
  const program_t* program;
  fail_kind_t kind;
  int mode;
  uint64_t n;
} attempt_t;

/* A process's report of itself. */
typedef struct {
  int done;
  uint64_t counted, failed, failed_in_gloo;
  uintptr_t maker;
  rank_end_t ends[kMostRanks], retry[kMostRanks];
  resource_snapshot_t before, after;
  size_t leaked; /* blocks; without Gloo's where a call of Gloo's failed */
  struct {
    uintptr_t maker;
    size_t size;
  } leaks[kMostLeaks];
} report_t;

typedef struct {
  uint64_t calls, runs, absorbed, errors, bad;
  uint64_t by_status[64]; /* ranks, by -status */
  int beyond;             /* processes in which no call failed */
  double seconds;         /* of all processes together */
} tally_t;

static const char* file_path(void) {
  static char path[64];
  snprintf(path, sizeof path, "/tmp/nxd-exhaustion-%d.json", (int)getpid());
  return path;
}

/* ---- in the process ----------------------------------------------------------------------------
 */

static void attempt(const attempt_t* a, report_t* report) {
  const char* path = file_path();
  report->before = resource_snapshot();
  track_memory();
  fail_calls(a->kind, a->n, a->n == 0 ? 0 : mode_counts[a->mode]);
  run_program(a->program, a->n == 0 ? kRetryTimeoutMs : kTimeoutMs, path, report->ends);
  fail_no_calls();
  report->counted = calls_counted();
  report->failed = calls_failed();
  report->failed_in_gloo = calls_failed_in_gloo();
  report->maker = first_failed_call();
  run_program(a->program, kRetryTimeoutMs, path, report->retry);
  report->after = resource_snapshot();
  /* The kernel may count a thread for a moment after it was joined. */
  for (int i = 0; i < 60000 && report->after.threads > report->before.threads; ++i) {
    usleep(1000);
    report->after = resource_snapshot();
  }
  const size_t blocks = tracked_blocks();
  for (size_t i = 0; i < blocks; ++i) {
    size_t size = 0;
    const uintptr_t maker = tracked_block(i, &size);
    if (report->failed_in_gloo && is_code_of_gloo(maker)) continue;
    if (report->leaked < kMostLeaks) {
      report->leaks[report->leaked].maker = maker;
      report->leaks[report->leaked].size = size;
    }
    ++report->leaked;
  }
  report->done = 1;
}

/* ---- judging it --------------------------------------------------------------------------------
 */

static void name_code(uintptr_t code, char* out, size_t size) {
  Dl_info info;
  if (code == 0 || dladdr((void*)code, &info) == 0) {
    snprintf(out, size, "nowhere");
    return;
  }
  const char* file =
      strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname;
  snprintf(out, size, "%s+0x%lx (%s)", file, (unsigned long)(code - (uintptr_t)info.dli_fbase),
           info.dli_sname ? info.dli_sname : "?");
}

static int is_error(nxd_status_t status) {
  return status < 0 && status != NXD_ERROR_INTERNAL && status >= NXD_ERROR_USER;
}

/* The fault of a process that has ended; NULL for none. */
static const char* fault_of(const attempt_t* a, const report_t* r, int status) {
  if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGKILL ? "hung" : "ended by a signal";
  if (!r->done || WEXITSTATUS(status) != 0) return "ended early";
  for (int i = 0; i < a->program->ranks; ++i) {
    if (r->ends[i].wrong) return "a wrong result";
    if (r->ends[i].status == NXD_OK) continue;
    if (!is_error(r->ends[i].status)) return "a status that it must not give";
    if (r->ends[i].message[0] == '\0') return "an error without a message";
  }
  for (int i = 0; i < a->program->ranks; ++i)
    if (r->retry[i].wrong || r->retry[i].status != NXD_OK) return "no success afterwards";
  if (a->n == 0)
    for (int i = 0; i < a->program->ranks; ++i)
      if (r->ends[i].status != NXD_OK) return "an error although no call failed";
  const int64_t left = r->after.descriptors - r->before.descriptors;
  if (left != 0 && (left < 0 || left > (int64_t)r->failed_in_gloo)) return "descriptors left";
  if (r->after.threads != r->before.threads) return "threads left";
  if (r->after.mappings != r->before.mappings) return "mappings left";
  if (r->leaked) return "memory left";
  return NULL;
}

static void print_ends(const char* when, const rank_end_t* ends, int ranks) {
  for (int i = 0; i < ranks; ++i) {
    if (ends[i].status == NXD_OK && !ends[i].wrong) continue;
    printf("    %s, rank %d: %s: %s: %s\n", when, i, ends[i].call,
           nxd_status_string(ends[i].status), ends[i].message);
  }
}

static void print_fault(const attempt_t* a, const report_t* r, int status, const char* fault) {
  char code[256];
  name_code(r->maker, code, sizeof code);
  printf("  BAD: %s: --program %s --kind %s --mode %s --from %llu", fault, a->program->name,
         fail_kind_names[a->kind], mode_names[a->mode], (unsigned long long)a->n);
  if (WIFSIGNALED(status)) printf(" (%s)", strsignal(WTERMSIG(status)));
  printf("\n    first call to fail: %s\n", code);
  print_ends("failing", r->ends, a->program->ranks);
  print_ends("afterwards", r->retry, a->program->ranks);
  if (r->done)
    printf("    descriptors %ld -> %ld, threads %ld -> %ld, mappings %ld -> %ld, %zu blocks left\n",
           (long)r->before.descriptors, (long)r->after.descriptors, (long)r->before.threads,
           (long)r->after.threads, (long)r->before.mappings, (long)r->after.mappings, r->leaked);
  for (size_t i = 0; r->done && i < kMostLeaks && i < r->leaked; ++i) {
    name_code(r->leaks[i].maker, code, sizeof code);
    printf("      %zu bytes of %s\n", r->leaks[i].size, code);
  }
}

/* True if a call failed in it. */
static int judge(const attempt_t* a, const report_t* r, int status, tally_t* tally) {
  const char* fault = fault_of(a, r, status);
  if (!fault && r->failed == 0) return 0;
  ++tally->runs;
  int errors = 0;
  for (int i = 0; i < a->program->ranks; ++i) {
    const nxd_status_t s = r->ends[i].status;
    errors += s != NXD_OK;
    if (s <= 0 && s > -64) ++tally->by_status[-s];
  }
  if (fault) {
    ++tally->bad;
    print_fault(a, r, status, fault);
  } else {
    ++*(errors ? &tally->errors : &tally->absorbed);
  }
  return 1;
}

/* ---- processes ---------------------------------------------------------------------------------
 */

enum { kMostJobs = 16 };

typedef struct {
  pid_t pid; /* 0: free */
  attempt_t attempt;
  report_t* report;
  tally_t* tally;
  double started;
  double started_in_turns;
} job_t;

static job_t jobs[kMostJobs];
static int n_jobs = 6, running; /* most of them wait, for a timeout of the peers of a failed rank */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds in which this process had its turns. Beside load, or stopped, it has none for a while,
 * and nor have the jobs: one that makes no progress then does not hang. */
static double seconds_in_turns(void) {
  const double longest_turn = 0.05;
  static double last, sum;
  const double time = now();
  sum += time - last < longest_turn ? time - last : longest_turn;
  last = time;
  return sum;
}

static void make_jobs(void) {
  for (int i = 0; i < n_jobs; ++i) {
    jobs[i].report =
        mmap(NULL, sizeof(report_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (jobs[i].report == MAP_FAILED) abort();
  }
}

/* Waits until a job has ended. */
static job_t* await_end(int* out_status) {
  for (;;) {
    const double time = seconds_in_turns();
    for (int i = 0; i < n_jobs; ++i) {
      if (jobs[i].pid == 0) continue;
      if (time - jobs[i].started_in_turns > kProcessSeconds) kill(jobs[i].pid, SIGKILL);
      if (waitpid(jobs[i].pid, out_status, WNOHANG) == jobs[i].pid) return &jobs[i];
    }
    const struct timespec pause = {0, 500000};
    nanosleep(&pause, NULL);
  }
}

/* Waits until a job has ended, and judges it. */
static void end_one(void) {
  int status = 0;
  job_t* job = await_end(&status);
  job->tally->seconds += now() - job->started;
  if (!judge(&job->attempt, job->report, status, job->tally)) ++job->tally->beyond;
  char path[64];
  snprintf(path, sizeof path, "/tmp/nxd-exhaustion-%d.json", (int)job->pid);
  remove_output(path);
  job->pid = 0;
  --running;
}

/* Waits for a free job, and starts it. */
static job_t* start(const attempt_t* a, tally_t* tally) {
  while (running == n_jobs) end_one();
  job_t* job = jobs;
  while (job->pid != 0) ++job;
  job->attempt = *a;
  job->tally = tally;
  memset(job->report, 0, sizeof *job->report);
  job->started = now();
  job->started_in_turns = seconds_in_turns();
  fflush(stdout);
  job->pid = fork();
  if (job->pid == 0) {
    attempt(a, job->report);
    _exit(0);
  }
  ++running;
  return job;
}

/* Lets the calls from, from + stride, ... up to `to` fail. Gives up when several processes came
 * after the last call. */
static void sweep(attempt_t a, uint64_t from, uint64_t to, uint64_t stride, tally_t* tally) {
  for (uint64_t next = from; next <= to && tally->beyond < 4; next += stride) {
    a.n = next;
    start(&a, tally);
  }
}

/* How many calls of the kind the program makes when none fails. */
static uint64_t count_calls(attempt_t a, tally_t* tally) {
  a.n = 0;
  const job_t* job = start(&a, tally);
  while (job->pid != 0) end_one();
  return job->report->counted;
}

/* ---- what is tried -----------------------------------------------------------------------------
 */

static const char *only_program, *only_kind, *only_mode;
static uint64_t only_from, only_to, stride_of_whole = 1;
static int whole, here;
static uint64_t offset;

static int leaves_out(const char* only, const char* name) { return only && strcmp(only, name); }

/* Samples of the short form, for a kind and mode of a program; 0: the mode is left out. */
static uint64_t samples(fail_kind_t kind, int mode) {
  if (kind != kFailMemory) return mode == kRest ? 0 : 1;
  return mode == kOne ? 6 : 2;
}

static void print_row(const attempt_t* a, const tally_t* t) {
  printf("%-18s %-10s %-4s %6llu %6llu %8llu %6llu | %6llu %5llu %5llu %5llu %5llu | %4llu %7.1f\n",
         a->program->name, fail_kind_names[a->kind], mode_names[a->mode],
         (unsigned long long)t->calls, (unsigned long long)t->runs, (unsigned long long)t->absorbed,
         (unsigned long long)t->errors, (unsigned long long)t->by_status[-NXD_ERROR_OUT_OF_MEMORY],
         (unsigned long long)t->by_status[-NXD_ERROR_IO],
         (unsigned long long)t->by_status[-NXD_ERROR_PEER_LOST],
         (unsigned long long)t->by_status[-NXD_ERROR_TIMEOUT],
         (unsigned long long)(t->by_status[-NXD_ERROR_INVALID_ARGUMENT] +
                              t->by_status[-NXD_ERROR_INVALID_STATE] +
                              t->by_status[-NXD_ERROR_ABORTED] + t->by_status[-NXD_ERROR_CORRUPT]),
         (unsigned long long)t->bad, t->seconds);
  fflush(stdout);
}

enum { kMostRows = 400 };
static struct {
  attempt_t attempt;
  tally_t tally;
} rows[kMostRows];
static int n_rows;

static void try_mode(attempt_t a, uint64_t calls) {
  if (n_rows == kMostRows) abort();
  rows[n_rows].attempt = a;
  tally_t* tally = &rows[n_rows++].tally;
  *tally = (tally_t){.calls = calls};
  if (only_from) {
    sweep(a, only_from, only_to ? only_to : only_from, 1, tally);
  } else if (whole) {
    sweep(a, 1 + offset % stride_of_whole, UINT64_MAX, stride_of_whole, tally);
  } else if (samples(a.kind, a.mode) > 0) {
    const uint64_t stride = calls / samples(a.kind, a.mode) + 1;
    sweep(a, 1 + offset % stride, calls, stride, tally);
  }
}

static void print_rows(tally_t* total) {
  while (running > 0) end_one();
  for (int i = 0; i < n_rows; ++i) {
    const tally_t* tally = &rows[i].tally;
    if (tally->runs > 0) print_row(&rows[i].attempt, tally);
    total->runs += tally->runs;
    total->absorbed += tally->absorbed;
    total->errors += tally->errors;
    total->bad += tally->bad;
  }
  n_rows = 0;
}

/* A long run shows its rows as they come; a short one lets all of them wait together. */
static void try_all(tally_t* total) {
  for (int p = 0; p < n_programs; ++p) {
    if (leaves_out(only_program, programs[p].name)) continue;
    for (fail_kind_t kind = 0; kind < kFailKinds; ++kind) {
      if (leaves_out(only_kind, fail_kind_names[kind])) continue;
      attempt_t a = {&programs[p], kind, kOne, 0};
      const uint64_t calls = count_calls(a, total);
      for (a.mode = 0; calls > 0 && a.mode < kModes; ++a.mode)
        if (!leaves_out(only_mode, mode_names[a.mode])) try_mode(a, calls);
      if (whole || only_from) print_rows(total);
    }
  }
  print_rows(total);
}

static int run_here(void) {
  attempt_t a = {NULL, 0, 0, only_from};
  for (int p = 0; p < n_programs; ++p)
    if (only_program && !strcmp(only_program, programs[p].name)) a.program = &programs[p];
  for (fail_kind_t kind = 0; only_kind && kind < kFailKinds; ++kind)
    if (!strcmp(only_kind, fail_kind_names[kind])) a.kind = kind;
  for (int mode = 0; only_mode && mode < kModes; ++mode)
    if (!strcmp(only_mode, mode_names[mode])) a.mode = mode;
  if (!a.program) return 2;
  static report_t report;
  tally_t tally = {0};
  attempt(&a, &report);
  const int failed = judge(&a, &report, 0, &tally);
  print_ends("failing", report.ends, a.program->ranks);
  printf("%s\n", tally.bad ? "bad" : failed ? "well" : "no call failed");
  return tally.bad != 0;
}

static void read_arguments(int argc, char** argv) {
  const char* given = getenv("NXD_FAILURES_OFFSET");
  offset = 1;
  if (given) offset = strcmp(given, "random") ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
  static const struct option options[] = {
      {"whole", no_argument, &whole, 1},         {"here", no_argument, &here, 1},
      {"program", required_argument, NULL, 'p'}, {"kind", required_argument, NULL, 'k'},
      {"mode", required_argument, NULL, 'm'},    {"from", required_argument, NULL, 'f'},
      {"to", required_argument, NULL, 't'},      {"stride", required_argument, NULL, 's'},
      {"jobs", required_argument, NULL, 'j'},    {NULL, 0, NULL, 0}};
  for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    switch (c) {
      case 0: break;
      case 'p': only_program = optarg; break;
      case 'k': only_kind = optarg; break;
      case 'm': only_mode = optarg; break;
      case 'f': only_from = strtoull(optarg, NULL, 10); break;
      case 't': only_to = strtoull(optarg, NULL, 10); break;
      case 's': stride_of_whole = strtoull(optarg, NULL, 10); break;
      case 'j': n_jobs = atoi(optarg); break;
      default: exit(2);
    }
  }
  if (stride_of_whole == 0) stride_of_whole = 1;
  if (n_jobs < 1 || n_jobs > kMostJobs) n_jobs = 1;
}

int main(int argc, char** argv) {
  read_arguments(argc, argv);
  /* Objects that are made once and kept, such as tables of the library's, are made here. */
  for (int p = 0; p < n_programs; ++p) {
    rank_end_t ends[kMostRanks];
    run_program(&programs[p], kRetryTimeoutMs, file_path(), ends);
    for (int i = 0; i < programs[p].ranks; ++i) {
      if (ends[i].status == NXD_OK && !ends[i].wrong) continue;
      print_ends(programs[p].name, ends, programs[p].ranks);
      return 1;
    }
  }
  if (here) return run_here();
  make_jobs();
  if ((!whole && !only_from) || stride_of_whole > 1)
    printf("NXD_FAILURES_OFFSET=%llu\n", (unsigned long long)offset);
  printf("%-18s %-10s %-4s %6s %6s %8s %6s | %6s %5s %5s %5s %5s | %4s %7s\n", "program", "kind",
         "mode", "calls", "runs", "absorbed", "errors", "MEMORY", "IO", "LOST", "TIME", "other",
         "bad", "seconds");
  tally_t total = {0};
  const double start = now();
  try_all(&total);
  printf("%llu runs with failures: %llu absorbed, %llu ended in errors, %llu bad; %.0f s\n",
         (unsigned long long)total.runs, (unsigned long long)total.absorbed,
         (unsigned long long)total.errors, (unsigned long long)total.bad, now() - start);
  return total.bad != 0;
}
