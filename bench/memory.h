/* What a process holds of the machine's memory. */
#ifndef NXD_BENCH_MEMORY_H
#define NXD_BENCH_MEMORY_H

#include <stdio.h>

/* Proportional set size in bytes: private memory, and each shared page over the number of processes
 * that have it mapped. 0 where the system does not tell. */
static double proportional_set_size(void) {
  FILE* file = fopen("/proc/self/smaps_rollup", "r");
  if (!file) return 0;
  char line[256];
  double kilobytes = 0;
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, "Pss: %lf", &kilobytes) == 1) break;
  }
  fclose(file);
  return kilobytes * 1024;
}

#endif
