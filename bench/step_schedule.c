#define _DEFAULT_SOURCE
#include "step_schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "step_report.h"

enum { kForward, kBackward, kInput, kWeight, kKinds };

/* Durations of one kind of task in one stage. */
typedef struct {
  double* seconds;
  int count, room;
} durations_t;

static int add(durations_t* d, double seconds) {
  if (d->count == d->room) {
    const int room = d->room ? 2 * d->room : 64;
    double* grown = realloc(d->seconds, (size_t)room * sizeof *grown);
    if (!grown) return 0;
    d->seconds = grown;
    d->room = room;
  }
  d->seconds[d->count++] = seconds;
  return 1;
}

static int kind_of(const char* name) {
  static const char* const names[kKinds] = {"forward", "backward", "input gradient",
                                            "weight gradient"};
  for (int kind = 0; kind < kKinds; ++kind) {
    if (strncmp(name, names[kind], strlen(names[kind])) == 0) return kind;
  }
  return -1;
}

/* The tasks of a trace as nxd_pp_write_timeline writes it, sorted into stages x kKinds lists. */
static int read_tasks(const char* text, durations_t* lists, int stages, int ranks) {
  static const char head[] = "{\"ph\":\"X\",";
  for (const char* at = text; (at = strstr(at, head)); at += sizeof head - 1) {
    char name[64], category[16];
    int rank = 0;
    double micros = 0;
    const int found = sscanf(at,
                             "{\"ph\":\"X\",\"name\":\"%63[^\"]\",\"pid\":%d,\"tid\":%*d,"
                             "\"cat\":\"%15[^\"]\",\"ts\":%*f,\"dur\":%lf",
                             name, &rank, category, &micros);
    if (found != 4) return 0;
    if (strcmp(category, "compute") != 0) continue;
    const char* chunk = strstr(name, " chunk ");
    const int kind = kind_of(name);
    const int stage = chunk ? atoi(chunk + sizeof " chunk " - 1) * ranks + rank : -1;
    if (kind < 0 || stage < 0 || stage >= stages) return 0;
    if (!add(&lists[stage * kKinds + kind], 1e-6 * micros)) return 0;
  }
  return 1;
}

static char* read_text(const char* path) {
  FILE* file = fopen(path, "rb");
  char* text = NULL;
  if (file && fseek(file, 0, SEEK_END) == 0) {
    const long size = ftell(file);
    rewind(file);
    text = size > 0 ? calloc((size_t)size + 1, 1) : NULL;
    if (text && fread(text, 1, (size_t)size, file) != (size_t)size) text[0] = 0;
  }
  if (file) fclose(file);
  return text;
}

static int simulate(nxd_pp_t* pp, durations_t* lists, int stages, nxd_pp_report_t* report) {
  double* times = calloc(3 * (size_t)stages, sizeof *times);
  if (!times) return 0;
  for (int stage = 0; stage < stages; ++stage) {
    for (int kind = 0; kind < kKinds; ++kind) {
      durations_t* d = &lists[stage * kKinds + kind];
      /* A whole backward pass counts as input gradients alone. */
      const int slot = kind == kForward ? 0 : kind == kWeight ? 2 : 1;
      if (d->count > 0) times[slot * stages + stage] = median(d->seconds, d->count);
    }
  }
  nxd_pp_costs_t costs = NXD_PP_COSTS_INIT;
  costs.forward = times;
  costs.backward_input = times + stages;
  costs.backward_weight = times + 2 * (size_t)stages;
  nxd_pp_schedule_t* schedule = NULL;
  const int good = nxd_pp_get_schedule(pp, &schedule) == NXD_OK &&
                   nxd_pp_schedule_get_report(schedule, &costs, report) == NXD_OK;
  if (!good) fprintf(stderr, "bench_step: the schedule's report: %s\n", nxd_last_error());
  free(times);
  return good;
}

int report_schedule(nxd_pp_t* pp, int ranks, int chunks, int rank, nxd_pp_report_t* report) {
  const int stages = ranks * chunks;
  char path[] = "/tmp/bench_step_XXXXXX.json";
  const int file = mkstemps(path, 5);
  if (file < 0 || close(file) != 0) {
    fprintf(stderr, "bench_step: no temporary file\n");
    return 0;
  }
  const nxd_status_t status = nxd_pp_write_timeline(pp, path);
  if (status != NXD_OK) fprintf(stderr, "bench_step: the timeline: %s\n", nxd_last_error());
  int good = status == NXD_OK;
  if (good && rank == 0) {
    char* text = read_text(path);
    durations_t* lists = calloc((size_t)stages * kKinds, sizeof *lists);
    good = text && lists && read_tasks(text, lists, stages, ranks) &&
           simulate(pp, lists, stages, report);
    for (int i = 0; lists && i < stages * kKinds; ++i) free(lists[i].seconds);
    free(lists);
    free(text);
  }
  unlink(path);
  return good;
}
