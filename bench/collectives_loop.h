/* The loop of the collectives' benchmark, the same for every library that is measured: check the
 * result, warm up, time calls one by one, check again. The operation decides what bytes means:
 *
 *   all_reduce      the buffer of each rank, reduced in place
 *   reduce_scatter  what each rank sends; it receives bytes / ranks
 *   all_gather      what each rank receives; it sends bytes / ranks
 *   broadcast       the buffer
 *   all_to_all      what each rank sends, and receives
 *   ping_pong       the message between ranks 0 and 1; its time is half of there and back
 *   barrier         nothing
 *
 * Before each call every rank writes its input anew, as programs do: buffers that no one touches in
 * between stay divided over the caches as the call before left them, which makes it look faster.
 * The time of a call is the longest of all ranks. Calls of large buffers stand between barriers, so
 * that where ranks share a core none writes its next input in the time of another. None of these is
 * timed.
 *
 * Several subjects of one program take turns, a block of calls each, so that whatever else the
 * machine does at the time falls on all of them, and their ratios say something. */
#ifndef NXD_BENCH_COLLECTIVES_LOOP_H
#define NXD_BENCH_COLLECTIVES_LOOP_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <getopt.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef enum {
  ALL_REDUCE,
  REDUCE_SCATTER,
  ALL_GATHER,
  BROADCAST,
  ALL_TO_ALL,
  PING_PONG,
  BARRIER,
  N_OPERATIONS
} operation_t;
static const char* const kOperations[N_OPERATIONS] = {"all_reduce", "reduce_scatter", "all_gather",
                                                      "broadcast",  "all_to_all",     "ping_pong",
                                                      "barrier"};

typedef struct {
  operation_t operation;
  int is_bf16;
  size_t bytes;
} case_t;

/* A library under measurement. Functions give NULL, or the reason why they did not work; all ranks
 * give the same answer. */
typedef struct {
  const char* label;
  int rank, size;
  int unchecked; /* 1: calls compute nothing that could be compared */
  const char* (*call)(const case_t* what, void* send, void* recv);
  const char* (*barrier)(void);
  const char* (*largest)(double* values, size_t count); /* over ranks, in place */
} library_t;

/* A library and the buffers that it is measured with; each holds the largest case. */
typedef struct {
  library_t library;
  void *send, *recv;
} subject_t;

typedef struct {
  const char* cases; /* such as all_reduce:f32:1024,all_reduce:bf16:4096 */
  const char* out;   /* file that rank 0 appends lines to */
  const char* label;
  double seconds; /* that one case may take, or a few calls if those take longer */
  int pin;
} arguments_t;

enum {
  kMostCalls = 50000,
  kFewestCalls = 12,
  kWarmUps = 5,
  kBlocks = 4, /* of calls of one subject, with those of the others between them */
  kMostSubjects = 4,
  kLargeBytes = 256 * 1024
};

static const double kSpreadSeconds = 0.2;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Options of all programs; a program's own options follow in its table. */
#define COMMON_OPTIONS                                                            \
  {"cases", required_argument, NULL, 'c'}, {"out", required_argument, NULL, 'o'}, \
      {"label", required_argument, NULL, 'l'}, {"pin", no_argument, NULL, 'p'}, { \
    "seconds", required_argument, NULL, 's'                                       \
  }

/* Takes one of these options; 0 for any other, and for a value that cannot be understood. */
static int take_option(arguments_t* a, int option) {
  switch (option) {
    case 'c': a->cases = optarg; return 1;
    case 'o': a->out = optarg; return 1;
    case 'l': a->label = optarg; return 1;
    case 's': {
      char* end = NULL;
      a->seconds = strtod(optarg, &end);
      return *optarg && !*end && a->seconds > 0 && a->seconds < 1e6;
    }
    case 'p': a->pin = 1; return 1;
    default: return 0;
  }
}

static void pin_rank(int rank) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  int left = rank % CPU_COUNT(&all);
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &all) || left-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

/* The case at *text, which is moved on; 0 at the end or where the text cannot be understood. */
static int next_case(const char** text, case_t* out) {
  char operation[32], dtype[8];
  int length = 0;
  if (sscanf(*text, "%31[a-z_]:%7[a-z0-9]:%zu%n", operation, dtype, &out->bytes, &length) < 3) {
    if (**text) fprintf(stderr, "cannot understand the cases from '%s'\n", *text);
    return 0;
  }
  *text += length + ((*text)[length] == ',');
  out->is_bf16 = strcmp(dtype, "bf16") == 0;
  for (int i = 0; i < N_OPERATIONS; ++i) {
    if (strcmp(operation, kOperations[i]) != 0) continue;
    out->operation = (operation_t)i;
    return 1;
  }
  fprintf(stderr, "cannot understand the operation '%s'\n", operation);
  return 0;
}

static size_t largest_bytes(const char* cases) {
  case_t what;
  size_t largest = 64;
  while (next_case(&cases, &what)) {
    if (what.bytes > largest) largest = what.bytes;
  }
  return largest;
}

/* Small whole numbers: sums of some ranks are exact in bf16 too. */
static float value_of(size_t i, int rank) { return (float)((i * 7 + (size_t)rank * 13) % 31); }

static float sum_of(size_t i, int ranks) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += value_of(i, rank);
  return sum;
}

static void write_element(void* data, size_t i, int is_bf16, float value) {
  if (is_bf16) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    ((uint16_t*)data)[i] = (uint16_t)(bits >> 16);
  } else {
    ((float*)data)[i] = value;
  }
}

static float read_element(const void* data, size_t i, int is_bf16) {
  if (!is_bf16) return ((const float*)data)[i];
  const uint32_t bits = (uint32_t)((const uint16_t*)data)[i] << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static size_t elements_of(const case_t* what) { return what->bytes / (what->is_bf16 ? 2 : 4); }

/* The expected element i of the result, and the number of elements. */
static size_t result_elements(const case_t* what, int size) {
  const size_t n = elements_of(what), part = n / (size_t)size;
  if (what->operation == REDUCE_SCATTER) return part;
  const int has_parts = what->operation == ALL_GATHER || what->operation == ALL_TO_ALL;
  return has_parts ? part * (size_t)size : n;
}
static float result_element(const case_t* what, size_t i, int rank, int size) {
  const size_t part = elements_of(what) / (size_t)size;
  switch (what->operation) {
    case ALL_REDUCE: return sum_of(i, size);
    case REDUCE_SCATTER: return sum_of((size_t)rank * part + i, size);
    case ALL_GATHER: return value_of(i % part, (int)(i / part));
    case ALL_TO_ALL: return value_of((size_t)rank * part + i % part, (int)(i / part));
    default: return value_of(i, 0);
  }
}

static int works_in_place(const case_t* what) {
  return what->operation == ALL_REDUCE || what->operation == BROADCAST;
}

/* One call on numbers that say where they came from, and a look at all that came out. */
static const char* check(const subject_t* subject, const case_t* what) {
  static char wrong[128];
  const library_t* library = &subject->library;
  if (library->unchecked || what->operation == BARRIER) {
    return library->call(what, subject->send, subject->recv);
  }
  const size_t n = elements_of(what);
  const int in_place = works_in_place(what);
  const int gives = what->operation != BROADCAST || library->rank == 0;
  for (size_t i = 0; i < n; ++i) {
    write_element(subject->recv, i, what->is_bf16, -1);
    write_element(in_place ? subject->recv : subject->send, i, what->is_bf16,
                  gives ? value_of(i, library->rank) : -1);
  }
  const char* failure = library->call(what, subject->send, subject->recv);
  if (failure) return failure;
  double first_wrong = 0;
  for (size_t i = 0; i < result_elements(what, library->size) && first_wrong == 0; ++i) {
    const float want = result_element(what, i, library->rank, library->size);
    if (read_element(subject->recv, i, what->is_bf16) != want) first_wrong = (double)(i + 1);
  }
  failure = library->largest(&first_wrong, 1);
  if (failure || first_wrong == 0) return failure;
  snprintf(wrong, sizeof wrong, "WRONG RESULT at element %.0f", first_wrong - 1);
  return wrong;
}

/* Seconds of count calls, each the longest of all ranks. */
static const char* time_calls(const subject_t* subject, const case_t* what, double* seconds,
                              size_t count) {
  const library_t* library = &subject->library;
  for (size_t i = 0; i < count; ++i) {
    /* Zeros, so that no number of sums in place leaves the ordinary numbers. */
    memset(works_in_place(what) ? subject->recv : subject->send, 0, what->bytes);
    const int is_large = what->bytes >= kLargeBytes;
    const char* failure = is_large ? library->barrier() : NULL;
    const double start = now();
    if (!failure) failure = library->call(what, subject->send, subject->recv);
    seconds[i] = now() - start;
    if (what->operation == PING_PONG) seconds[i] /= 2;
    if (!failure && is_large) failure = library->barrier();
    if (failure) return failure;
  }
  return library->largest(seconds, count);
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Outcome of one subject's calls of a case. */
typedef struct {
  const char* failure;
  double* seconds; /* of each call; ascending in the end */
  size_t calls;
} series_t;

/* A first look: is the result right, and how many calls does the budget allow? */
static void begin(const subject_t* subject, const case_t* what, double budget, series_t* series) {
  series->calls = 0;
  series->failure = check(subject, what);
  if (!series->failure) series->failure = time_calls(subject, what, series->seconds, kWarmUps);
  if (series->failure) return;
  qsort(series->seconds, kWarmUps, sizeof *series->seconds, ascending);
  double calls = budget / (series->seconds[kWarmUps / 2] + 1e-7);
  if (calls < kFewestCalls) calls = kFewestCalls;
  if (calls > kMostCalls) calls = kMostCalls;
  series->calls = (size_t)calls / kBlocks * kBlocks;
}

/* The first calls of a block find the caches as another subject left them, and do not count. */
static const char* time_block(const subject_t* subject, const case_t* what, int block,
                              const series_t* series) {
  const size_t count = series->calls / kBlocks;
  double warm_up[kWarmUps];
  const char* failure = time_calls(subject, what, warm_up, kWarmUps);
  return failure ? failure
                 : time_calls(subject, what, series->seconds + (size_t)block * count, count);
}

static void measure(const subject_t* subjects, int count, const case_t* what, double budget,
                    series_t* series) {
  for (int s = 0; s < count; ++s) begin(&subjects[s], what, budget, &series[s]);
  for (int block = 0; block < kBlocks; ++block) {
    for (int s = 0; s < count; ++s) {
      if (series[s].failure) continue;
      series[s].failure = time_block(&subjects[s], what, block, &series[s]);
    }
  }
  for (int s = 0; s < count; ++s) {
    if (series[s].failure) continue;
    qsort(series[s].seconds, series[s].calls, sizeof *series[s].seconds, ascending);
    series[s].failure = check(&subjects[s], what);
  }
}

static FILE* open_out(const library_t* library, const arguments_t* a) {
  if (library->rank != 0) return NULL;
  FILE* out = a->out ? fopen(a->out, "a") : stdout;
  if (!out) perror(a->out);
  return out;
}

/* A line of rank 0 that says what was measured. */
static void write_version(const library_t* library, const arguments_t* a, const char* version) {
  FILE* out = open_out(library, a);
  if (!out) return;
  fprintf(out, "# %s: %.*s\n", library->label, (int)strcspn(version, "\n"), version);
  if (out != stdout) fclose(out);
}

/* Processes that were just started often share a core, and ranks that wait for one another may stay
 * there. In a program that also computes they would not. */
static void spread_over_cores(void) {
  const double end = now() + kSpreadSeconds;
  while (now() < end) {
  }
}

static void write_line(FILE* out, const library_t* library, const case_t* what,
                       const series_t* series) {
  fprintf(out, "%s\t%s\t%d\t%zu\t%s\t", kOperations[what->operation],
          what->is_bf16 ? "bf16" : "f32", library->size, what->bytes, library->label);
  if (series->failure) {
    fprintf(out, "n/a\tn/a\tn/a\t0\t%.*s\n", (int)strcspn(series->failure, "\n"), series->failure);
  } else {
    fprintf(out, "%.3f\t%.3f\t%.3f\t%zu\tok\n", series->seconds[series->calls / 2] * 1e6,
            series->seconds[(series->calls - 1) * 99 / 100] * 1e6, series->seconds[0] * 1e6,
            series->calls);
  }
}

/* All cases. The first subject is what is measured; the others, bounds of an all-reduce, take turns
 * with it in that operation alone. Gives the program's exit code. */
static int run_cases(const subject_t* subjects, int count, const arguments_t* a) {
  double* seconds = malloc((size_t)count * kMostCalls * sizeof *seconds);
  const char* cases = a->cases;
  case_t what;
  spread_over_cores();
  while (seconds && next_case(&cases, &what)) {
    const int taking_turns = what.operation == ALL_REDUCE ? count : 1;
    series_t series[kMostSubjects];
    for (int s = 0; s < taking_turns; ++s) series[s].seconds = seconds + (size_t)s * kMostCalls;
    measure(subjects, taking_turns, &what, a->seconds, series);
    FILE* out = open_out(&subjects[0].library, a);
    if (!out) continue;
    for (int s = 0; s < taking_turns; ++s) write_line(out, &subjects[s].library, &what, &series[s]);
    if (out != stdout) fclose(out);
  }
  const int done = seconds != NULL && *cases == '\0';
  free(seconds);
  return done ? 0 : 1;
}

#endif
