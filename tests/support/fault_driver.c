/* Runs the ranks of a fault cell and judges what they report. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/fault.h"

enum { kEndMs = 45000, kNames = 64 };

typedef struct {
  const fault_cell_t* cell;
  const fault_kind_t* kind;
  fault_result_t* result;
  fault_link_t* link;
  nxd_store_t* store;
  nxd_job_t* job;
  int pipe_read;
  double started_ms, fault_ms, fire_ms; /* 0: not yet */
  int fired, told;
  int64_t child; /* of a culprit that forked */
  int ready[kFaultRanks], failed[kFaultRanks], closed[kFaultRanks];
  int ended[kFaultRanks], gone[kFaultRanks];
  double failed_ms[kFaultRanks];
  int64_t pids[kFaultRanks];
} run_t;

__attribute__((format(printf, 3, 4))) static void find(run_t* run, fault_outcome_t outcome,
                                                       const char* format, ...) {
  fault_result_t* result = run->result;
  if (result->outcome != kFaultPassed) return; /* the first says most */
  result->outcome = outcome;
  va_list args;
  va_start(args, format);
  vsnprintf(result->finding, sizeof result->finding, format, args);
  va_end(args);
}

static double allowed_ms(const run_t* run) {
  return 2.0 * (double)run->cell->timeout_ms + kFaultSlackMs;
}

/* --- Judging -------------------------------------------------------------------------------- */

static int expects_failure(const run_t* run, int rank) {
  if (!run->kind->survivors_fail) return 0;
  if (rank != run->cell->culprit) return 1;
  /* A culprit of its own making is told by what it did, or not at all. */
  return run->cell->fault == kFaultAbortContext || run->cell->fault == kFaultAbortGroup ||
         run->cell->fault == kFaultStop;
}

static int expects_end(const run_t* run, int rank) {
  return rank != run->cell->culprit || !run->kind->ends_culprit || run->cell->fault == kFaultStop;
}

/* If no rank is to blame: a rank of the other host, and the call that was waited for. */
static int names_right(const run_t* run, const fault_report_t* r) {
  if (!run->kind->cuts_link) return r->root_rank == run->cell->culprit;
  char rank[16], group[40];
  snprintf(rank, sizeof rank, "rank %d ", r->root_rank);
  snprintf(group, sizeof group, "on group \"%s\"", r->group);
  return r->root_rank >= 0 && r->root_rank < kFaultRanks &&
         fault_host(run->cell, r->root_rank) != fault_host(run->cell, r->rank) &&
         strstr(r->message, rank) && strstr(r->message, group) && r->operation[0] &&
         strstr(r->message, r->operation);
}

static void judge_failure(run_t* run, const fault_report_t* r) {
  if (r->rank == run->cell->culprit) {
    const int aborted =
        run->cell->fault == kFaultAbortContext || run->cell->fault == kFaultAbortGroup;
    if (aborted && r->status != NXD_ERROR_ABORTED)
      find(run, kFaultWrong, "culprit %d: expected ABORTED, got %s", r->rank, r->message);
    /* The error of a stopped rank depends on whether its peers have closed already. */
    return;
  }
  if (run->fault_ms == 0)
    find(run, kFaultWrong, "rank %d failed before the fault: %s", r->rank, r->message);
  const double took = r->at_ms - run->fault_ms;
  if (took > run->result->slowest_ms) {
    run->result->slowest_ms = took;
    snprintf(run->result->slowest, sizeof run->result->slowest, "rank %d (its call %.0f ms): %s",
             r->rank, r->call_ms, r->message);
  }
  if (r->status != NXD_ERROR_TIMEOUT && r->status != NXD_ERROR_PEER_LOST)
    find(run, kFaultWrong, "rank %d: expected TIMEOUT or PEER_LOST, got %s", r->rank, r->message);
  if (!names_right(run, r))
    find(run, kFaultWrong, "rank %d names rank %d, not %s %d: %s", r->rank, r->root_rank,
         run->kind->cuts_link ? "one of the other host, split" : "rank",
         run->kind->cuts_link ? run->cell->split : run->cell->culprit, r->message);
  if (took > allowed_ms(run) || r->call_ms > allowed_ms(run))
    find(run, kFaultHung, "rank %d took %.0f ms (its call %.0f ms): %s", r->rank, took, r->call_ms,
         r->message);
}

static int all(const int flags[kFaultRanks]) {
  for (int rank = 0; rank < kFaultRanks; ++rank)
    if (!flags[rank]) return 0;
  return 1;
}

/* True if with this report the driver's own fault becomes due. */
static int starts_fault(const run_t* run, const fault_report_t* r) {
  if (run->kind->cuts_link) return r->event == kReportReady && all(run->ready);
  const int starts = run->cell->fault == kFaultForkKill ? kReportForked : kReportReady;
  return run->kind->signal && r->rank == run->cell->culprit && r->event == starts;
}

static void take(run_t* run, const fault_report_t* r) {
  switch (r->event) {
    case kReportReady:
    case kReportForked: {
      run->ready[r->rank] = 1;
      if (r->event == kReportForked) run->child = r->number[0];
      if (!starts_fault(run, r)) break;
      uint64_t seed = run->cell->seed ^ 0x5bd1e995u;
      const double pause_ms = (double)fault_draw_pause_us(&seed) / 1e3;
      /* A link takes its time for what is large. */
      run->fire_ms = fault_now_ms() + pause_ms * (run->kind->cuts_link && run->cell->large ? 5 : 1);
      break;
    }
    case kReportFault: run->fault_ms = r->at_ms; break;
    case kReportFailed:
      run->failed[r->rank] = 1;
      run->failed_ms[r->rank] = r->at_ms;
      judge_failure(run, r);
      break;
    case kReportClosed:
      run->closed[r->rank] = 1;
      if (r->at_ms - run->failed_ms[r->rank] > allowed_ms(run))
        find(run, kFaultHung, "rank %d took %.0f ms to let go of what had failed", r->rank,
             r->at_ms - run->failed_ms[r->rank]);
      break;
    case kReportWrong:
      find(run, kFaultWrong, "rank %d (%s): %s", r->rank, r->group, r->message);
      break;
    case kReportEnd:
      run->ended[r->rank] = 1;
      if (r->number[0] || r->number[1] || r->number[2])
        find(run, kFaultLeaked, "rank %d: %+lld threads, %+lld descriptors, %+lld mappings",
             r->rank, (long long)r->number[0], (long long)r->number[1], (long long)r->number[2]);
      break;
    default: find(run, kFaultWrong, "rank %d: report %d", r->rank, r->event);
  }
}

/* --- Letting it happen ---------------------------------------------------------------------- */

static void fire(run_t* run) {
  run->fired = 1;
  run->fault_ms = fault_now_ms();
  if (run->kind->cuts_link) {
    fault_link_cut(run->link);
    if (run->cell->held) nxd_store_set(run->store, "cut", "1", 1);
  } else {
    kill((pid_t)run->pids[run->cell->culprit], run->kind->signal);
  }
}

static int all_failed(const run_t* run, int but) {
  for (int rank = 0; rank < kFaultRanks; ++rank)
    if (rank != but && expects_failure(run, rank) && !run->failed[rank]) return 0;
  return 1;
}

/* The survivors have noticed: the culprit may let go. */
static void tell(run_t* run) {
  run->told = 1;
  if (run->kind->cuts_link) fault_link_mend(run->link);
  nxd_store_set(run->store, "told", "1", 1);
  if (run->cell->culprit < 0) return;
  const pid_t culprit = (pid_t)run->pids[run->cell->culprit];
  if (run->cell->fault == kFaultStop) kill(culprit, SIGCONT);
  if (run->cell->fault == kFaultStopKill) kill(culprit, SIGKILL);
}

static void look_at_processes(run_t* run) {
  for (int rank = 0; rank < kFaultRanks; ++rank) {
    int32_t running = 0, code = 0;
    if (run->gone[rank]) continue;
    nxd_job_get_exit_code(run->job, rank, &running, &code);
    if (running) continue;
    run->gone[rank] = 1;
    const int killed = run->cell->culprit == rank && !expects_end(run, rank);
    if (killed ? code != 128 + SIGKILL : code != 0)
      find(run, kFaultCrashed, "rank %d ended with exit code %d", rank, code);
  }
}

/* A context lets go of a link before it is mended. */
static int may_tell(const run_t* run) {
  return run->kind->cuts_link ? all(run->closed) : all_failed(run, run->cell->culprit);
}

static void drain(run_t* run, int pause_ms) {
  struct pollfd p = {run->pipe_read, POLLIN, 0};
  fault_report_t report;
  if (poll(&p, 1, pause_ms) <= 0) return;
  while (read(run->pipe_read, &report, sizeof report) == (ssize_t)sizeof report) take(run, &report);
}

typedef struct {
  char names[4 * kFaultRanks];
} rank_list_t;

static rank_list_t who_waits(const run_t* run) {
  rank_list_t list = {""};
  size_t n = 0;
  for (int rank = 0; rank < kFaultRanks; ++rank)
    if (expects_failure(run, rank) && !run->failed[rank])
      n += (size_t)snprintf(list.names + n, sizeof list.names - n, " %d", rank);
  return list;
}

static void watch(run_t* run) {
  while (run->result->outcome == kFaultPassed && !all(run->gone)) {
    const double now = fault_now_ms();
    if (run->fire_ms > 0 && !run->fired && now >= run->fire_ms) fire(run);
    const double left = run->fired || run->fire_ms <= 0 ? 5 : run->fire_ms - now;
    if (left < 2 && left > 0) {
      usleep((useconds_t)(left * 1e3));
      continue;
    }
    drain(run, 2);
    if (run->kind->survivors_fail && !run->told && may_tell(run)) tell(run);
    look_at_processes(run);
    const double since = run->fault_ms > 0 ? now - run->fault_ms : 0;
    if (run->kind->survivors_fail && !all_failed(run, run->cell->culprit) &&
        since > allowed_ms(run) + 500)
      find(run, kFaultHung, "ranks%s still wait after %.0f ms", who_waits(run).names, since);
    if (now - run->started_ms > kEndMs + 2 * (double)run->cell->timeout_ms)
      find(run, kFaultHung, "the run does not end");
  }
  drain(run, 0);
  if (run->result->outcome != kFaultPassed) return;
  for (int rank = 0; rank < kFaultRanks; ++rank) {
    if (expects_failure(run, rank) && !run->failed[rank])
      find(run, kFaultWrong, "rank %d noticed nothing", rank);
    if (expects_end(run, rank) && !run->ended[rank])
      find(run, kFaultCrashed, "rank %d ended without a last report", rank);
  }
}

/* --- What a run may leave behind ------------------------------------------------------------- */

typedef struct {
  char names[kNames][64];
  int count;
} listing_t;

/* Shared memory of this library, by name. */
static listing_t shared_memory(void) {
  listing_t list = {.count = 0};
  DIR* d = opendir("/dev/shm");
  for (struct dirent* e; d && (e = readdir(d)) && list.count < kNames;)
    if (!strncmp(e->d_name, "nxd", 3)) snprintf(list.names[list.count++], 64, "%.63s", e->d_name);
  if (d) closedir(d);
  return list;
}

static const char* first_new(const listing_t* before, const listing_t* now) {
  for (int i = 0; i < now->count; ++i) {
    int known = 0;
    for (int j = 0; j < before->count; ++j) known |= !strcmp(now->names[i], before->names[j]);
    if (!known) return now->names[i];
  }
  return NULL;
}

/* Other programs on this machine may use the library as well, and let go of theirs in a while. */
static void look_for_shared_memory(run_t* run, const listing_t* before) {
  for (int i = 0;; ++i) {
    const listing_t now = shared_memory();
    const char* name = first_new(before, &now);
    if (!name) return;
    if (i == 100) {
      find(run, kFaultLeaked, "/dev/shm/%s is left over", name);
      return;
    }
    usleep(50000);
  }
}

static void look_for_processes(run_t* run) {
  for (int rank = 0; rank < kFaultRanks; ++rank) {
    if (run->pids[rank] > 0 && kill((pid_t)run->pids[rank], 0) == 0)
      find(run, kFaultLeaked, "the process of rank %d is left over", rank);
  }
}

/* --- A run ----------------------------------------------------------------------------------- */

/* The store between the driver and the ranks. Ranks of two hosts share files, but no address. */
static int open_store(run_t* run, const char* directory) {
  char text[560];
  if (run->kind->cuts_link) {
    snprintf(text, sizeof text, "%s.store", directory);
    setenv("NXD_FAULT_FILE", text, 1);
    return fault_link_begin_run(run->link, run->cell->agent) &&
           nxd_store_create_file(text, &run->store) == NXD_OK;
  }
  int32_t port = 0;
  if (nxd_store_create_tcp("127.0.0.1", 0, 1, 10000, &run->store) != NXD_OK ||
      nxd_store_get_port(run->store, &port) != NXD_OK)
    return 0;
  snprintf(text, sizeof text, "%d", port);
  setenv("NXD_FAULT_PORT", text, 1);
  return 1;
}

static void remove_store(const run_t* run, const char* directory) {
  char path[560];
  unsetenv("NXD_FAULT_FILE");
  if (!run->kind->cuts_link) return;
  snprintf(path, sizeof path, "%s.store", directory);
  unlink(path);
  fault_link_end_run(run->link);
}

static int start(run_t* run, const char* transport, const char* directory) {
  int ends[2];
  if (pipe(ends) != 0) return 0;
  run->pipe_read = ends[0];
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  char text[160];
  const fault_cell_t* cell = run->cell;
  snprintf(text, sizeof text, "%d %d %d %d %d %llu %lld %d %d %d %d", cell->fault, cell->collective,
           cell->large, cell->world, cell->culprit, (unsigned long long)cell->seed,
           (long long)cell->timeout_ms, cell->split, cell->aside, cell->held, ends[1]);
  setenv("NXD_FAULT_CELL", text, 1);
  setenv("NXD_TRANSPORT", transport, 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  int good = open_store(run, directory);
  char* outer = getenv("TMPDIR") ? strdup(getenv("TMPDIR")) : NULL;
  setenv("TMPDIR", directory, 1);
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  options.num_processes = kFaultRanks;
  good = good && nxd_spawn(&options, &run->job) == NXD_OK;
  unsetenv("NXD_FAULT_CELL");
  outer ? setenv("TMPDIR", outer, 1) : unsetenv("TMPDIR");
  free(outer);
  close(ends[1]);
  for (int rank = 0; good && rank < kFaultRanks; ++rank)
    nxd_job_get_pid(run->job, rank, &run->pids[rank]);
  return good;
}

void fault_run(const fault_cell_t* cell, const char* transport, fault_link_t* link,
               fault_result_t* result) {
  memset(result, 0, sizeof *result);
  run_t run = {.cell = cell,
               .kind = &fault_kinds[cell->fault],
               .result = result,
               .link = link,
               .pipe_read = -1};
  run.started_ms = fault_now_ms();
  const listing_t before = shared_memory();
  const char* outer = getenv("TMPDIR");
  char directory[512];
  snprintf(directory, sizeof directory, "%s/nxd-faults-XXXXXX", outer ? outer : "/tmp");
  if (!mkdtemp(directory)) {
    find(&run, kFaultWrong, "mkdtemp: %s", strerror(errno));
    return;
  }
  if (start(&run, transport, directory)) {
    watch(&run);
  } else {
    find(&run, kFaultWrong, "cannot start: %s", nxd_last_error());
  }
  /* The ranks that hang would take their time to heed anything gentler. */
  if (run.job && result->outcome != kFaultPassed) nxd_job_kill(run.job, SIGKILL);
  nxd_job_destroy(run.job);
  nxd_store_destroy(run.store);
  remove_store(&run, directory);
  if (run.child > 0) kill((pid_t)run.child, SIGKILL);
  if (run.pipe_read >= 0) close(run.pipe_read);
  look_for_processes(&run);
  look_for_shared_memory(&run, &before);
  if (rmdir(directory) != 0) find(&run, kFaultLeaked, "%s: %s", directory, strerror(errno));
}
