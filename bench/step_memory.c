#include "step_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "step_report.h"

enum { kRates = 8 };

double process_bytes(void) {
  return 1e6 * (process_megabytes("smaps_rollup", "Pss_Anon:") +
                process_megabytes("smaps_rollup", "Pss_Shmem:"));
}

static int has_type(const char* config, const char* type) {
  const char* field = strstr(config, "\"model_type\"");
  field = field ? strchr(field, ':') : NULL;
  field = field ? strchr(field, '"') : NULL;
  return field && strncmp(field + 1, type, strlen(type)) == 0 && field[1 + strlen(type)] == '"';
}

int is_bert(const char* config) { return has_type(config, "bert"); }

static nxd_plan_layout_t layout_of(const step_options_t* o, int size) {
  nxd_plan_layout_t layout = NXD_PLAN_LAYOUT_INIT;
  layout.tensor_parallel_size = o->tp;
  layout.pipeline_parallel_size = o->pp ? o->pp : 1;
  layout.data_parallel_size = size / (o->tp * layout.pipeline_parallel_size);
  layout.virtual_size = o->chunks;
  layout.schedule = o->schedule;
  layout.num_microbatches = o->microbatches;
  layout.microbatch_size = (int32_t)o->batch;
  layout.sequence_length = (int32_t)o->sequence;
  layout.dtype = o->dtype;
  layout.zero_stage = o->zero1;
  layout.sequence_parallel = o->sequence_parallel;
  layout.recompute = o->recompute;
  layout.partition = o->cost ? NXD_PP_PARTITION_COST : NXD_PP_PARTITION_EVEN;
  return layout;
}

/* Rates tell whether there are products in BF16, or operands are widened. The best of several in
 * turn, as other load of the machine makes some slow. */
static int measure_rates(nxd_plan_machine_t* machine) {
  const nxd_dtype_t dtypes[2] = {NXD_DTYPE_F32, NXD_DTYPE_BF16};
  double* const rates[2] = {&machine->gemm_rate_f32, &machine->gemm_rate_bf16};
  for (int i = 0; i < 2 * kRates; ++i) {
    double rate = 0;
    if (nxd_measure_gemm_peak(dtypes[i % 2], 256, &rate) != NXD_OK) return 0;
    if (rate > *rates[i % 2]) *rates[i % 2] = rate;
  }
  return 1;
}

int print_memory_plan(const char* config, const step_options_t* o, int size, double most_bytes,
                      double process) {
  nxd_plan_model_t model = NXD_PLAN_MODEL_INIT;
  nxd_plan_machine_t machine = NXD_PLAN_MACHINE_INIT;
  const nxd_plan_layout_t layout = layout_of(o, size);
  nxd_plan_prediction_t plan = {.struct_size = sizeof plan};
  nxd_memory_stats_t pool = {.struct_size = sizeof pool};
  if (nxd_plan_model_from_config(config, &model) != NXD_OK ||
      (o->dtype == NXD_DTYPE_BF16 && !measure_rates(&machine)) ||
      nxd_plan_predict(&model, &machine, &layout, &plan) != NXD_OK ||
      nxd_memory_get_stats(&pool) != NXD_OK) {
    fprintf(stderr, "bench_step: no prediction: %s\n", nxd_last_error());
    return 0;
  }
  printf("%-34s %10.0f   (without the process's own %.0f)\n", "memory of a rank, MB",
         1e-6 * most_bytes, 1e-6 * process);
  printf("%-34s %10.0f   (in use at most %.0f; arena %.0f)\n", "  rank 0's pool",
         1e-6 * (double)pool.bytes_reserved, 1e-6 * (double)pool.peak_bytes_in_use,
         1e-6 * (double)pool.arena_bytes_in_use);
  printf("%-34s %10.0f   (%+.1f %%)\n", "predicted, MB", 1e-6 * (double)plan.total_bytes,
         100 * ((double)plan.total_bytes / most_bytes - 1));
  printf("  parameters %.0f, gradients %.0f, optimizer %.0f, activations %.0f, buffers %.0f\n",
         1e-6 * (double)plan.parameter_bytes, 1e-6 * (double)plan.grad_bytes,
         1e-6 * (double)plan.optimizer_bytes, 1e-6 * (double)plan.activation_bytes,
         1e-6 * (double)plan.buffer_bytes);
  return 1;
}
