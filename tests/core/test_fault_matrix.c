/* Every kind of fault under every kind of collective: each survivor names the culprit within twice
 * the timeout, a new world of the survivors works, and nothing is left over.
 *
 * Without arguments a short form for CMocka; scripts/faults runs the whole matrix again and again.
 */
#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/fault.h"

static void describe(const fault_cell_t* cell, const char* transport, char* out, size_t cap) {
  snprintf(out, cap, "%s %s %s %s%s culprit %d seed %llu", transport, fault_kinds[cell->fault].name,
           fault_collectives[cell->collective], cell->large ? "large" : "small",
           cell->world ? " world" : "", cell->culprit, (unsigned long long)cell->seed);
}

/* --- The short form -------------------------------------------------------------------------- */

static uint64_t first_seed;

static void short_form(const char* transport, int first_collective) {
  uint64_t seed = first_seed;
  for (int fault = 0; fault < kFaults; ++fault) {
    fault_cell_t cell = {.fault = fault, .timeout_ms = 1500};
    cell.collective = (fault + first_collective) % kFaultCollectives;
    cell.large = (fault + first_collective / 2) % 2;
    cell.world = (int)fault_draw(&seed, 2);
    cell.culprit = (int)fault_draw(&seed, kFaultRanks);
    cell.seed = fault_draw(&seed, UINT32_MAX);
    char name[160];
    describe(&cell, transport, name, sizeof name);
    fault_result_t result;
    fault_run(&cell, transport, &result);
    printf("%s: %s %s (%.0f ms)\n", name, fault_verdicts[result.verdict], result.finding,
           result.slowest_ms);
    fflush(stdout);
    if (result.verdict != kFaultPassed)
      fail_msg("%s: %s: %s", name, fault_verdicts[result.verdict], result.finding);
  }
}

static void over_gloo(void** state) {
  (void)state;
  short_form("gloo", 0);
}

static void over_shared_memory(void** state) {
  (void)state;
  short_form("shared_memory", 3);
}

static void over_several_hosts(void** state) {
  (void)state;
  short_form("hierarchical", 5);
}

static int run_short_form(void) {
  first_seed = (uint64_t)time(NULL);
  const char* given = getenv("NXD_FAULT_SEED");
  if (given) first_seed = strtoull(given, NULL, 10);
  printf("NXD_FAULT_SEED=%llu\n", (unsigned long long)first_seed);
  fflush(stdout);
  const struct CMUnitTest tests[] = {cmocka_unit_test(over_gloo),
                                     cmocka_unit_test(over_shared_memory),
                                     cmocka_unit_test(over_several_hosts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* --- The long form --------------------------------------------------------------------------- */

enum { kMostJobs = 16, kCells = kFaults * kFaultCollectives * 2 };

typedef struct {
  int repetitions, jobs;
  const char* transport;
  int64_t timeout_ms;
  uint64_t seed;
  const char *fault, *collective; /* NULL: all */
} options_t;

/* Of one cell of the matrix; shared between the jobs. */
typedef struct {
  _Atomic int runs, bad;
  _Atomic int64_t slowest_us;
} tally_t;

static int usage(const char* text) {
  fprintf(
      text ? stderr : stdout,
      "%s%susage: faults [--repetitions N] [--transport gloo|shared_memory|hierarchical]\n"
      "              [--timeout-ms T] [--seed S] [--fault NAME] [--collective NAME] [--jobs N]\n",
      text ? text : "", text ? "\n" : "");
  return text ? 2 : 0;
}

static void run_once(const options_t* options, fault_cell_t cell, tally_t* tally) {
  uint64_t seed = cell.seed;
  cell.world = (int)fault_draw(&seed, 2);
  cell.culprit = (int)fault_draw(&seed, kFaultRanks);
  cell.seed = fault_draw(&seed, UINT32_MAX);
  fault_result_t result;
  fault_run(&cell, options->transport, &result);
  ++tally->runs;
  const int64_t slowest_us = (int64_t)(result.slowest_ms * 1e3);
  int64_t most = tally->slowest_us;
  while (slowest_us > most &&
         !atomic_compare_exchange_weak(&tally->slowest_us, &most, slowest_us)) {
  }
  if (result.verdict == kFaultPassed) return;
  ++tally->bad;
  char name[160];
  describe(&cell, options->transport, name, sizeof name);
  printf("  %s: %s: %s\n", name, fault_verdicts[result.verdict], result.finding);
  fflush(stdout);
}

static int is_wanted(const options_t* options, int fault, int collective, int large) {
  if (options->fault && strcmp(options->fault, fault_kinds[fault].name) != 0) return 0;
  if (options->collective && strcmp(options->collective, fault_collectives[collective]) != 0)
    return 0;
  return !(large && collective == kFaultBarrier);
}

/* All cells, repetition after repetition, so that a run cut short has seen them equally often. Of
 * every so many runs this job takes one. */
static void run_job(const options_t* options, int job, tally_t* tallies) {
  uint64_t seed = options->seed;
  int turn = 0;
  for (int n = 0; n < options->repetitions; ++n) {
    for (int i = 0; i < kCells; ++i) {
      const int large = i % 2, collective = i / 2 % kFaultCollectives;
      const int fault = i / 2 / kFaultCollectives;
      if (!is_wanted(options, fault, collective, large)) continue;
      const uint64_t own_seed = fault_draw(&seed, UINT32_MAX);
      if (turn++ % options->jobs != job) continue;
      const fault_cell_t cell = {fault, collective, large, 0, 0, own_seed, options->timeout_ms};
      run_once(options, cell, &tallies[i]);
    }
  }
}

static int print_tallies(const options_t* options, tally_t* tallies) {
  int runs = 0, bad = 0;
  for (int i = 0; i < kCells; ++i) {
    const tally_t* t = &tallies[i];
    if (t->runs == 0) continue;
    const double slowest = (double)t->slowest_us / 1e3;
    printf("%-8s %-16s %-15s %s %5d runs %4d bad  slowest %6.0f ms = %.2f of the timeout\n",
           t->bad ? "FAILED" : "passed", fault_kinds[i / 2 / kFaultCollectives].name,
           fault_collectives[i / 2 % kFaultCollectives], i % 2 ? "large" : "small", t->runs, t->bad,
           slowest, slowest / (double)options->timeout_ms);
    runs += t->runs;
    bad += t->bad;
  }
  printf("faults: %d runs, %d bad\n", runs, bad);
  if (runs == 0) return usage("no such fault or collective");
  return bad ? 1 : 0;
}

static int run_long_form(const options_t* options) {
  tally_t* tallies = mmap(NULL, kCells * sizeof *tallies, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (tallies == MAP_FAILED) return 1;
  printf("faults: transport %s, timeout %lld ms, %d repetitions, %d at a time, seed %llu\n",
         options->transport, (long long)options->timeout_ms, options->repetitions, options->jobs,
         (unsigned long long)options->seed);
  fflush(stdout);
  for (int job = 1; job < options->jobs; ++job) {
    const pid_t child = fork();
    if (child < 0) return 1;
    if (child > 0) continue;
    run_job(options, job, tallies);
    _exit(0);
  }
  run_job(options, 0, tallies);
  int ended_well = 1, status = 0;
  while (wait(&status) > 0) ended_well = ended_well && status == 0;
  const int code = print_tallies(options, tallies);
  if (!ended_well) printf("faults: a job ended early\n");
  munmap(tallies, kCells * sizeof *tallies);
  return ended_well ? code : 1;
}

int main(int argc, char** argv) {
  if (fault_is_rank()) return fault_rank_main();
  if (argc == 1) return run_short_form();
  options_t options = {1, 1, "gloo", 2000, (uint64_t)time(NULL), NULL, NULL};
  static const struct option names[] = {{"repetitions", required_argument, NULL, 'n'},
                                        {"transport", required_argument, NULL, 't'},
                                        {"timeout-ms", required_argument, NULL, 'm'},
                                        {"seed", required_argument, NULL, 's'},
                                        {"fault", required_argument, NULL, 'f'},
                                        {"collective", required_argument, NULL, 'c'},
                                        {"jobs", required_argument, NULL, 'j'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
    switch (c) {
      case 'n': options.repetitions = atoi(optarg); break;
      case 't': options.transport = optarg; break;
      case 'm': options.timeout_ms = atoll(optarg); break;
      case 's': options.seed = strtoull(optarg, NULL, 10); break;
      case 'f': options.fault = optarg; break;
      case 'c': options.collective = optarg; break;
      case 'j': options.jobs = atoi(optarg); break;
      case 'h': return usage(NULL);
      default: return usage("unknown option");
    }
  }
  if (optind != argc || options.repetitions < 1 || options.timeout_ms < 1 || options.jobs < 1 ||
      options.jobs > kMostJobs)
    return usage("expected positive numbers, and nothing else");
  return run_long_form(&options);
}
