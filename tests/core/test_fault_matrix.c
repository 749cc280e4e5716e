/* Every kind of fault under every kind of collective: each survivor names the culprit within twice
 * the timeout, a new world of the survivors works, and nothing is left over.
 *
 * Without arguments a short form for CMocka; scripts/faults runs the whole matrix again and again.
 */
#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

typedef struct {
  int repetitions;
  const char* transport;
  int64_t timeout_ms;
  uint64_t seed;
  const char *fault, *collective; /* NULL: all */
} options_t;

typedef struct {
  int runs, bad;
} tally_t;

static int usage(const char* text) {
  fprintf(text ? stderr : stdout,
          "%s%susage: faults [--repetitions N] [--transport gloo|shared_memory|hierarchical]\n"
          "              [--timeout-ms T] [--seed S] [--fault NAME] [--collective NAME]\n",
          text ? text : "", text ? "\n" : "");
  return text ? 2 : 0;
}

/* One line per cell of the matrix. */
static void run_cell(const options_t* options, int fault, int collective, int large, uint64_t* seed,
                     tally_t* tally) {
  int counts[kFaultCrashed + 1] = {0};
  double slowest = 0;
  for (int n = 0; n < options->repetitions; ++n) {
    fault_cell_t cell = {fault, collective, large, 0, 0, 0, options->timeout_ms};
    cell.world = (int)fault_draw(seed, 2);
    cell.culprit = (int)fault_draw(seed, kFaultRanks);
    cell.seed = fault_draw(seed, UINT32_MAX);
    fault_result_t result;
    fault_run(&cell, options->transport, &result);
    ++counts[result.verdict];
    if (result.slowest_ms > slowest) slowest = result.slowest_ms;
    if (result.verdict == kFaultPassed) continue;
    char name[160];
    describe(&cell, options->transport, name, sizeof name);
    printf("  %s: %s: %s\n", name, fault_verdicts[result.verdict], result.finding);
    fflush(stdout);
  }
  const int bad = options->repetitions - counts[kFaultPassed];
  printf("%-8s %-16s %-15s %s %5d runs %4d bad  slowest %6.0f ms = %.2f of the timeout\n",
         bad ? "FAILED" : "passed", fault_kinds[fault].name, fault_collectives[collective],
         large ? "large" : "small", options->repetitions, bad, slowest,
         slowest / (double)options->timeout_ms);
  fflush(stdout);
  tally->runs += options->repetitions;
  tally->bad += bad;
}

static int run_long_form(const options_t* options) {
  uint64_t seed = options->seed;
  tally_t tally = {0, 0};
  printf("faults: transport %s, timeout %lld ms, %d repetitions, seed %llu\n", options->transport,
         (long long)options->timeout_ms, options->repetitions, (unsigned long long)seed);
  for (int fault = 0; fault < kFaults; ++fault) {
    if (options->fault && strcmp(options->fault, fault_kinds[fault].name) != 0) continue;
    for (int collective = 0; collective < kFaultCollectives; ++collective) {
      if (options->collective && strcmp(options->collective, fault_collectives[collective]) != 0)
        continue;
      for (int large = 0; large < (collective == kFaultBarrier ? 1 : 2); ++large)
        run_cell(options, fault, collective, large, &seed, &tally);
    }
  }
  printf("faults: %d runs, %d bad\n", tally.runs, tally.bad);
  if (tally.runs == 0) return usage("no such fault or collective");
  return tally.bad ? 1 : 0;
}

int main(int argc, char** argv) {
  if (fault_is_rank()) return fault_rank_main();
  if (argc == 1) return run_short_form();
  options_t options = {1, "gloo", 2000, (uint64_t)time(NULL), NULL, NULL};
  static const struct option names[] = {{"repetitions", required_argument, NULL, 'n'},
                                        {"transport", required_argument, NULL, 't'},
                                        {"timeout-ms", required_argument, NULL, 'm'},
                                        {"seed", required_argument, NULL, 's'},
                                        {"fault", required_argument, NULL, 'f'},
                                        {"collective", required_argument, NULL, 'c'},
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
      case 'h': return usage(NULL);
      default: return usage("unknown option");
    }
  }
  if (optind != argc || options.repetitions < 1 || options.timeout_ms < 1)
    return usage("expected positive numbers, and nothing else");
  return run_long_form(&options);
}
