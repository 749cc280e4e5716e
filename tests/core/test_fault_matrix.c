/* Every kind of fault under every kind of collective: each survivor names the culprit within twice
 * the timeout, a new world of the survivors works, and nothing is left over.
 *
 * Without arguments a short form for CMocka, on one host; with the argument "cut_link" one for the
 * link between two, with exit code 77 where there can be none. scripts/faults runs the whole matrix
 * again and again.
 */
#include <getopt.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/fault.h"

static void describe(const fault_cell_t* cell, const char* transport, char* out, size_t cap) {
  const int n = snprintf(out, cap, "%s %s %s %s%s", transport, fault_kinds[cell->fault].name,
                         fault_collectives[cell->collective], cell->large ? "large" : "small",
                         cell->world ? " world" : "");
  if (fault_kinds[cell->fault].cuts_link) {
    snprintf(out + n, cap - (size_t)n, " split %d aside %d%s%s seed %llu", cell->split, cell->aside,
             cell->held ? " held" : "", cell->agent ? " agent" : "",
             (unsigned long long)cell->seed);
  } else {
    snprintf(out + n, cap - (size_t)n, " culprit %d seed %llu", cell->culprit,
             (unsigned long long)cell->seed);
  }
}

/* The rest of a cell of the matrix. */
static void draw_rest(fault_cell_t* cell, uint64_t seed) {
  cell->world = (int)fault_draw(&seed, 2);
  cell->culprit = (int)fault_draw(&seed, kFaultRanks);
  cell->seed = fault_draw(&seed, UINT32_MAX);
  if (!fault_kinds[cell->fault].cuts_link) return;
  cell->culprit = -1;
  const uint64_t axis = fault_draw(&seed, 3);
  cell->split = 1 << axis;
  cell->held = (int)fault_draw(&seed, 2);
  cell->agent = (int)fault_draw(&seed, 2);
  /* The world's calls cross the link for all. */
  if (!cell->world && fault_draw(&seed, 2))
    cell->aside = 1 << (axis + 1 + fault_draw(&seed, 2)) % 3;
}

/* Runs a cell, and says what came of it. */
static int passes(const fault_cell_t* cell, const char* transport, fault_link_t* link) {
  char name[160];
  describe(cell, transport, name, sizeof name);
  fault_result_t result;
  fault_run(cell, transport, link, &result);
  printf("%s: %s %s (%.0f ms)\n", name, fault_outcomes[result.outcome], result.finding,
         result.slowest_ms);
  fflush(stdout);
  return result.outcome == kFaultPassed;
}

/* --- The short form -------------------------------------------------------------------------- */

static uint64_t first_seed;

static void short_form(const char* transport, int first_collective) {
  uint64_t seed = first_seed;
  for (int fault = 0; fault < kFaults; ++fault) {
    if (fault_kinds[fault].cuts_link) continue;
    fault_cell_t cell = {.fault = fault, .timeout_ms = 1500};
    cell.collective = (fault + first_collective) % kFaultCollectives;
    cell.large = (fault + first_collective / 2) % 2;
    draw_rest(&cell, fault_draw(&seed, UINT32_MAX));
    if (!passes(&cell, transport, NULL)) fail_msg("a fault is not borne as it should be");
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

/* Each collective once, over the two transports in turn. */
static void over_cut_link(void** state) {
  fault_link_t* link = *state;
  uint64_t seed = first_seed;
  for (int collective = 0; collective < kFaultCollectives; ++collective) {
    fault_cell_t cell = {.fault = kFaultCutLink, .collective = collective, .timeout_ms = 1500};
    cell.large = collective != kFaultBarrier && (int)fault_draw(&seed, 2);
    draw_rest(&cell, fault_draw(&seed, UINT32_MAX));
    const int gloo = (collective + (int)(first_seed % 2)) % 2;
    if (!passes(&cell, gloo ? "gloo" : "hierarchical", link))
      fail_msg("a cut link is not borne as it should be");
  }
}

/* The same faults each time, or those of NXD_FAULT_SEED, which may be "random". */
static void draw_first_seed(void) {
  const char* given = getenv("NXD_FAULT_SEED");
  first_seed = 1;
  if (given)
    first_seed = strcmp(given, "random") ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
  printf("NXD_FAULT_SEED=%llu\n", (unsigned long long)first_seed);
  fflush(stdout);
}

enum { kSkipped = 77 };

static int run_short_form_of_link(void) {
  static fault_link_t link;
  char why[80];
  if (!fault_link_open(&link, why, sizeof why)) {
    printf("skip: a cut link: %s; run as root, with iproute2 and iptables\n", why);
    return kSkipped;
  }
  draw_first_seed();
  const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(over_cut_link, &link)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  fault_link_close(&link);
  return failed;
}

static int run_short_form(void) {
  draw_first_seed();
  const struct CMUnitTest tests[] = {cmocka_unit_test(over_gloo),
                                     cmocka_unit_test(over_shared_memory),
                                     cmocka_unit_test(over_several_hosts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* --- The long form --------------------------------------------------------------------------- */

enum { kMostJobs = 16, kMostTransports = 3, kCells = kFaults * kFaultCollectives * 2 };
enum { kCountEveryMs = 60000 };

typedef struct {
  int repetitions, jobs;
  const char* transports[kMostTransports];
  int n_transports;
  int64_t timeout_ms;
  uint64_t seed;
  const char *fault, *collective; /* NULL: all */
  int has_link;
} options_t;

/* Counts of one cell of the matrix over one transport. */
typedef struct {
  _Atomic int runs, bad;
  _Atomic int64_t slowest_us;
} tally_t;

/* State that the jobs share. */
typedef struct {
  tally_t tallies[kMostTransports][kCells];
  /* The signal that ends it all, and who sent it. No further run is begun, and one under way does
   * not count. */
  _Atomic int stops, sender;
} progress_t;

static progress_t* progress;

static void stop_here(int signal_number, siginfo_t* info, void* unused) {
  (void)unused;
  progress->sender = (int)info->si_pid;
  progress->stops = signal_number;
}

static int usage(const char* text) {
  fprintf(text ? stderr : stdout,
          "%s%susage: faults [--repetitions N] [--transport NAME[,NAME...]] [--timeout-ms T]\n"
          "              [--seed S] [--fault NAME] [--collective NAME] [--jobs N]\n"
          "transports: gloo, shared_memory, hierarchical\n",
          text ? text : "", text ? "\n" : "");
  return text ? 2 : 0;
}

static void run_once(const fault_cell_t* cell, const char* transport, fault_link_t* link,
                     tally_t* tally) {
  fault_result_t result;
  fault_run(cell, transport, link, &result);
  if (progress->stops) return;
  ++tally->runs;
  const int64_t slowest_us = (int64_t)(result.slowest_ms * 1e3);
  int64_t most = tally->slowest_us;
  while (slowest_us > most &&
         !atomic_compare_exchange_weak(&tally->slowest_us, &most, slowest_us)) {
  }
  const int slow = result.slowest_ms > 2 * (double)cell->timeout_ms;
  if (result.outcome == kFaultPassed && !slow) return;
  tally->bad += result.outcome != kFaultPassed;
  char name[160];
  describe(cell, transport, name, sizeof name);
  printf("  %s: %s: %s after %.0f ms\n", name, fault_outcomes[result.outcome],
         slow && !result.finding[0] ? result.slowest : result.finding, result.slowest_ms);
  fflush(stdout);
}

static int fault_of(int cell) { return cell / 2 / kFaultCollectives; }
static int collective_of(int cell) { return cell / 2 % kFaultCollectives; }

static int is_wanted(const options_t* options, int cell, const char* transport) {
  const fault_kind_t* kind = &fault_kinds[fault_of(cell)];
  const int collective = collective_of(cell), large = cell % 2;
  if (options->fault && strcmp(options->fault, kind->name) != 0) return 0;
  if (options->collective && strcmp(options->collective, fault_collectives[collective]) != 0)
    return 0;
  if (kind->cuts_link && (!options->has_link || !strcmp(transport, "shared_memory"))) return 0;
  return !(large && collective == kFaultBarrier);
}

static void count_runs(const options_t* options, const char* when) {
  for (int t = 0; t < options->n_transports; ++t) {
    int runs = 0, bad = 0;
    for (int i = 0; i < kCells; ++i) {
      runs += progress->tallies[t][i].runs;
      bad += progress->tallies[t][i].bad;
    }
    printf("faults: %s: %d runs, %d bad%s\n", options->transports[t], runs, bad, when);
  }
  fflush(stdout);
}

/* All cells, repetition after repetition, so that a run cut short has seen them equally often. This
 * job takes one of every so many runs. The first job counts aloud. */
static void run_turns(const options_t* options, int job, fault_link_t* link) {
  uint64_t seed = options->seed;
  int turn = 0;
  double counted_ms = fault_now_ms();
  const int n_cells = kCells * options->n_transports;
  for (int n = 0; n < options->repetitions * n_cells && !progress->stops; ++n) {
    const int i = n % n_cells / options->n_transports, t = n % options->n_transports;
    if (!is_wanted(options, i, options->transports[t])) continue;
    const uint64_t own_seed = fault_draw(&seed, UINT32_MAX);
    if (turn++ % options->jobs != job) continue;
    fault_cell_t cell = {.fault = fault_of(i),
                         .collective = collective_of(i),
                         .large = i % 2,
                         .timeout_ms = options->timeout_ms};
    draw_rest(&cell, own_seed);
    run_once(&cell, options->transports[t], link, &progress->tallies[t][i]);
    if (job == 0 && fault_now_ms() - counted_ms >= kCountEveryMs) {
      count_runs(options, " so far");
      counted_ms = fault_now_ms();
    }
  }
}

/* Each job has a link of its own. */
static int run_job(const options_t* options, int job) {
  fault_link_t link;
  char why[80];
  if (options->has_link && !fault_link_open(&link, why, sizeof why)) {
    printf("faults: job %d: %s\n", job, why);
    return 1;
  }
  run_turns(options, job, options->has_link ? &link : NULL);
  if (options->has_link) fault_link_close(&link);
  return 0;
}

static int print_tallies(const options_t* options) {
  int runs = 0, bad = 0;
  for (int n = 0; n < kCells * options->n_transports; ++n) {
    const int i = n / options->n_transports, t = n % options->n_transports;
    const tally_t* tally = &progress->tallies[t][i];
    if (tally->runs == 0) continue;
    const double slowest = (double)tally->slowest_us / 1e3;
    printf("%-8s %-13s %-16s %-15s %s %5d runs %4d bad  slowest %6.0f ms = %.2f of the timeout\n",
           tally->bad ? "FAILED" : "passed", options->transports[t], fault_kinds[fault_of(i)].name,
           fault_collectives[collective_of(i)], i % 2 ? "large" : "small", tally->runs, tally->bad,
           slowest, slowest / (double)options->timeout_ms);
    runs += tally->runs;
    bad += tally->bad;
  }
  count_runs(options, "");
  if (progress->stops)
    printf("faults: cut short by signal %d of process %d\n", progress->stops, progress->sender);
  printf("faults: %d runs, %d bad\n", runs, bad);
  if (runs == 0 && !progress->stops) return usage("no such fault or collective");
  return bad ? 1 : 0;
}

/* True if links are wanted, and can be had. */
static int wants_link(const options_t* options) {
  if (options->fault && strcmp(options->fault, fault_kinds[kFaultCutLink].name) != 0) return 0;
  fault_link_t link;
  char why[80];
  if (fault_link_open(&link, why, sizeof why)) {
    fault_link_close(&link);
    return 1;
  }
  printf("faults: cut_link is left out: %s\n", why);
  return 0;
}

static int run_long_form(options_t* options) {
  progress =
      mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (progress == MAP_FAILED) return 1;
  options->has_link = wants_link(options);
  for (int t = 0; t < options->n_transports; ++t) printf("faults: %s\n", options->transports[t]);
  printf("faults: timeout %lld ms, %d repetitions, %d at a time, seed %llu\n",
         (long long)options->timeout_ms, options->repetitions, options->jobs,
         (unsigned long long)options->seed);
  fflush(stdout);
  const struct sigaction action = {.sa_sigaction = stop_here, .sa_flags = SA_RESTART | SA_SIGINFO};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  for (int job = 1; job < options->jobs; ++job) {
    const pid_t child = fork();
    if (child < 0) return 1;
    if (child > 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    _exit(run_job(options, job));
  }
  int ended_well = run_job(options, 0) == 0, status = 0;
  while (wait(&status) > 0) ended_well = ended_well && status == 0;
  const int code = print_tallies(options);
  if (!ended_well) printf("faults: a job ended early\n");
  munmap(progress, sizeof *progress);
  return ended_well ? code : 1;
}

/* Cuts the names apart, in place. */
static int parse_transports(char* names, options_t* options) {
  static const char* const known[] = {"gloo", "shared_memory", "hierarchical"};
  options->n_transports = 0;
  for (char* name = strtok(names, ","); name; name = strtok(NULL, ",")) {
    int good = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; ++i) good |= !strcmp(name, known[i]);
    if (!good || options->n_transports == kMostTransports) return 0;
    options->transports[options->n_transports++] = name;
  }
  return options->n_transports > 0;
}

int main(int argc, char** argv) {
  if (fault_is_rank()) return fault_rank_main();
  if (argc == 1) return run_short_form();
  if (argc == 2 && !strcmp(argv[1], "cut_link")) return run_short_form_of_link();
  options_t options = {.repetitions = 1,
                       .jobs = 1,
                       .transports = {"gloo"},
                       .n_transports = 1,
                       .timeout_ms = 2000,
                       .seed = (uint64_t)time(NULL)};
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
      case 't':
        if (!parse_transports(optarg, &options)) return usage("unknown transport");
        break;
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
