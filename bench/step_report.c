#include "step_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char* const kStageNames[kStages] = {"forward", "backward", "optimizer step"};

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

double median(double* values, int count) {
  qsort(values, (size_t)count, sizeof *values, ascending);
  return (values[count / 2] + values[(count - 1) / 2]) / 2;
}

double process_megabytes(const char* file, const char* field) {
  char path[64], line[256];
  snprintf(path, sizeof path, "/proc/self/%s", file);
  FILE* in = fopen(path, "r");
  double kilobytes = -1e3;
  while (in && fgets(line, sizeof line, in)) {
    if (strncmp(line, field, strlen(field)) != 0) continue;
    kilobytes = strtod(line + strlen(field), NULL);
    break;
  }
  if (in) fclose(in);
  return kilobytes * 1024e-6;
}

static void print_head(const measures_t* m, const step_options_t* o, int size, double tokens) {
  static const char* const schedules[] = {"default", "1F1B", "interleaved", "GPipe", "zero bubble"};
  char pipeline[64] = "";
  if (o->pp) {
    snprintf(pipeline, sizeof pipeline, ", pipeline of %d x %d (%s)", o->pp,
             o->chunks ? o->chunks : 1, schedules[o->schedule]);
  }
  printf(
      "%s, %s; %d rank%s, tensor parallel %d%s%s%s%s; %d microbatch%s; %.0f tokens, %.0f GFLOP a "
      "step\n",
      o->config ? o->config : "Llama", o->dtype == NXD_DTYPE_BF16 ? "bf16" : "f32", size,
      size == 1 ? "" : "s", o->tp, o->sequence_parallel ? " + sequence parallel" : "", pipeline,
      o->zero1 ? ", ZeRO-1"
      : o->ddp ? ", DDP"
               : "",
      o->plain ? ", plain kernels" : "", o->microbatches, o->microbatches == 1 ? "" : "es", tokens,
      m->step_flops * 1e-9);
}

/* The time of rank 0 by phase, and how near each is to its share of the peak. Collectives beside
 * products count for themselves, so that all phases may be longer than the step. */
static void print_phases(const measures_t* m, double step_mean, double rank_peak) {
  double rest = step_mean;
  printf("  %-18s %10s %8s %8s %12s %10s\n", "phase of rank 0", "ms", "share", "calls", "GFLOP/s",
         "of peak");
  for (int i = 0; i < kPhases; ++i) {
    const nxd_phase_stats_t* p = &m->phases[i];
    const double seconds = p->seconds / m->steps;
    rest -= seconds;
    printf("  %-18s %10.2f %7.1f%% %8.0f", p->name, seconds * 1e3, 100 * seconds / step_mean,
           (double)p->calls / m->steps);
    if (p->operations > 0 && p->seconds > 0) {
      const double rate = p->operations / p->seconds;
      printf(" %12.1f %9.1f%%", rate * 1e-9, 100 * rate / rank_peak);
    }
    printf("\n");
    if (p->waiting_seconds <= 0) continue;
    const double waiting = p->waiting_seconds / m->steps;
    printf("    %-16s %10.2f %7.1f%%\n", "of it waiting", waiting * 1e3, 100 * waiting / step_mean);
  }
  printf("  %-18s %10.2f %7.1f%%\n", rest < 0 ? "overlap" : "rest", fabs(rest) * 1e3,
         100 * fabs(rest) / step_mean);
}

/* AdamW reads a gradient, and reads and writes a parameter and two moments: 28 bytes of f32 an
 * element. With masters it is as much: 24 of these and moments, and 2 of each bf16. */
static void print_update(const measures_t* m, const step_options_t* o, int size) {
  const nxd_phase_stats_t* p = &m->phases[NXD_PHASE_OPTIMIZER];
  const double each = o->stochastic ? 22 : 28;
  const double copies = o->zero1 ? (double)size / (o->tp * (o->pp ? o->pp : 1)) : 1;
  if (p->seconds <= 0) return;
  printf("%-34s %10.1f   (%.0f MB a rank; with the norm's reading)\n", "optimizer pass, GB/s",
         each * m->elements / copies / (p->seconds / m->steps) * 1e-9,
         each * m->elements / copies * 1e-6);
}

/* The time of the passes is that of forwards and backwards, which the schedule has the order of. */
static void print_schedule(const measures_t* m, double passes) {
  const nxd_pp_report_t* limit = &m->schedule;
  printf("%-34s %10.1f   (bubble %.1f%%; the passes reach %.1f%% of it)\n",
         "limit of the schedule, ms", limit->makespan * 1e3, 100 * limit->bubble_share,
         100 * limit->makespan / passes);
}

static void print_memory(const nxd_memory_stats_t* pool) {
  printf("%-34s %10.0f   (arena %.0f)\n", "pool at most, MB",
         (double)pool->peak_bytes_in_use * 1e-6, (double)pool->arena_bytes_reserved * 1e-6);
  /* Pool and arena keep what they held at most, so this is the most of it too. */
  printf("%-34s %10.0f   (resident at most %.0f)\n", "proportional set size, MB",
         process_megabytes("smaps_rollup", "Pss:"), process_megabytes("status", "VmHWM:"));
}

int print_report(measures_t* m, const step_options_t* o, int size) {
  nxd_memory_stats_t pool = {.struct_size = sizeof pool};
  if (nxd_memory_get_stats(&pool) != NXD_OK) {
    fprintf(stderr, "bench_step: nxd_memory_get_stats: %s\n", nxd_last_error());
    return 0;
  }
  double mean = 0;
  for (int i = 0; i < m->steps; ++i) mean += m->seconds[i] / m->steps;
  const double step = median(m->seconds, m->steps), least = m->seconds[0];
  const double cpu = median(m->cpu, m->steps), least_cpu = m->cpu[0];
  const double faults = median(m->faults, m->steps), most_faults = m->faults[m->steps - 1];
  const double peak = median(m->peaks, kPeaks), cpu_peak = median(m->cpu_peaks, kPeaks);
  const double tokens =
      (double)(o->batch * o->sequence * o->microbatches * (size / (o->tp * (o->pp ? o->pp : 1))));
  print_head(m, o, size, tokens);
  printf("%-34s %10.1f   (least %.1f, %d steps)\n", "step, ms", step * 1e3, least * 1e3, m->steps);
  for (int i = 0; i < kStages; ++i) {
    printf("  %-32s %10.1f\n", kStageNames[i], median(m->stages[i], m->steps) * 1e3);
  }
  printf("%-34s %10.1f\n", "CPU time of all ranks, ms", cpu * 1e3);
  printf("%-34s %10.1f   (least %.1f)\n", "CPU time of a rank, ms", cpu / size * 1e3,
         least_cpu / size * 1e3);
  printf("%-34s %10.0f\n", "tokens/s", tokens / step);
  printf("%-34s %10.0f   (%.0f to %.0f, between the steps)\n", "GEMM peak of all ranks, GFLOP/s",
         peak * 1e-9, m->peaks[0] * 1e-9, m->peaks[kPeaks - 1] * 1e-9);
  printf("%-34s %9.1f%%   (%.1f%% of the CPU time, for a machine with other load)\n",
         "share of the GEMM peak", 100 * m->step_flops / (peak * step),
         100 * m->step_flops / (cpu_peak / size * cpu));
  if (o->pp) print_schedule(m, median(m->stages[1], m->steps));
  print_phases(m, mean, peak / size);
  print_update(m, o, size);
  printf("%-34s %10.0f   (at most %.0f)\n", "page faults a step", faults, most_faults);
  print_memory(&pool);
  printf("%-34s %10.4f\n", "loss after the last step", m->loss);
  return 1;
}
