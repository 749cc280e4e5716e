/* The clock and the medians of measurements in C. Included behind a definition of _GNU_SOURCE. */
#ifndef NXD_BENCH_TIMING_H
#define NXD_BENCH_TIMING_H

#include <stddef.h>
#include <stdlib.h>
#include <time.h>

static inline double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int compare_times(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Sorts the values. */
static inline double median(double* values, size_t count) {
  qsort(values, count, sizeof *values, compare_times);
  return values[count / 2];
}

#endif
