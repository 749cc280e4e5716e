/* Measurements of bench_step on a rank, and the tables that it prints of them. */
#ifndef NXD_BENCH_STEP_REPORT_H
#define NXD_BENCH_STEP_REPORT_H

#include "step_options.h"

enum { kPeaks = 10, kStages = 3, kPhases = NXD_PHASE_COMMUNICATION + 1 };

typedef struct {
  int steps;
  double step_flops, loss;
  double elements;          /* of this rank's parameters */
  double peaks[kPeaks];     /* sums over ranks */
  double cpu_peaks[kPeaks]; /* the same per second of CPU time */
  double *seconds, *faults;
  double* cpu;              /* of all ranks */
  nxd_pp_report_t schedule; /* of a pipeline, with the times of its tasks */
  double* stages[kStages];
  nxd_phase_stats_t phases[kPhases]; /* of all measured steps */
} measures_t;

double median(double* values, int count); /* sorts the values */

/* size is the number of ranks. 0, with a message, for failure. */
int print_report(measures_t* m, const step_options_t* options, int size);

/* A line of /proc/self/FILE in MB; -1 where it cannot be read. */
double process_megabytes(const char* file, const char* field);

#endif
