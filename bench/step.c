/* One training step of a model beside the matrix-product peak of the same run. The peak, a product
 * of 2048 x 2048 matrices, is measured by all ranks at once between the steps, so that other load
 * of the machine weighs on both; its median counts.
 *
 *   bench_step                   the default Llama, one rank
 *   bench_step --tp 2            starts two processes itself; under a launcher it joins the ranks
 *   bench_step --dtype bf16 --vocab 32000 --microbatches 4
 *   bench_step --config config.json --sequence 256
 *   bench_step --pp 2 --microbatches 8 --schedule zero-bubble
 *   nxdrun -n 2 bench_step --zero1   data-parallel copies; also --ddp, or neither
 *   bench_step --memory          a rank's memory beside the planner's prediction; no step's time
 *   bench_step --checkpoint DIR  loads what is there before the steps, or saves after them
 *   NXD_XLA_BACKEND=replay bench_step --recorded     on device XLA
 *
 * Ratios are to be compared, not milliseconds. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "nxd.h"
#include "step_checkpoint.h"
#include "step_memory.h"
#include "step_options.h"
#include "step_report.h"
#include "step_schedule.h"

enum { kWarmUpSteps = 3, kMemorySteps = 2 };

/* Everything of one rank; released by close_rank in any state. */
typedef struct {
  nxd_context_t* ctx;
  nxd_module_t* model;
  nxd_pp_t* pp;          /* NULL without --pp */
  nxd_module_t* trained; /* borrowed: the model, or what this rank has of it */
  nxd_ddp_t* ddp;        /* NULL without --ddp and --zero1 */
  nxd_optimizer_t* optimizer;
  nxd_group_t* world; /* borrowed */
  nxd_tensor_t** ids; /* one per microbatch */
  int n_ids;
  nxd_tensor_t* next; /* of a BERT: labels of its sentence pairs; else NULL */
  nxd_tensor_t* loss; /* of the last microbatch, until the step has run; NULL in a pipeline */
  char config[16384];
  double process_bytes; /* before there is a model */
  double making;        /* seconds of the model, its optimizer and so on */
  int32_t rank, size;
  measures_t measures;
} rank_t;

static int failed(const char* call, nxd_status_t status) {
  if (status == NXD_OK) return 0;
  fprintf(stderr, "bench_step: %s: %s: %s\n", call, nxd_status_string(status), nxd_last_error());
  return 1;
}
/* Leaves the calling function, which gives 0 for failure. */
#define TRY(call)                        \
  do {                                   \
    if (failed(#call, (call))) return 0; \
  } while (0)

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double page_faults(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)usage.ru_minflt;
}

/* 0 where a launcher has started this process. */
static int spawn_ranks(const step_options_t* o, int* good) {
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  nxd_job_t* job = NULL;
  options.num_processes = o->tp * (o->pp ? o->pp : 1);
  options.omp_num_threads = o->threads ? o->threads : 1;
  nxd_status_t status = nxd_spawn(&options, &job);
  if (status == NXD_ERROR_INVALID_STATE) return 0;
  if (status == NXD_OK) status = nxd_job_wait(job, -1);
  *good = !failed("the ranks", status);
  nxd_job_destroy(job);
  return 1;
}

static nxd_device_t device_of(const step_options_t* o) {
  return o->recorded ? NXD_DEVICE_XLA : NXD_DEVICE_CPU;
}

/* Ids of one microbatch, or of all in a pipeline, drawn alike by all ranks. */
static int make_ids(nxd_tensor_t** out, const step_options_t* o, uint64_t microbatch) {
  const int64_t shape[2] = {o->batch * (o->pp ? o->microbatches : 1), o->sequence};
  const size_t count = (size_t)(shape[0] * o->sequence);
  int64_t* ids = malloc(count * sizeof *ids);
  if (!ids) return 0;
  uint64_t state = 88172645463325252U + microbatch;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    ids[i] = (int64_t)((state >> 33) % (uint64_t)o->vocab);
  }
  nxd_tensor_t* here = NULL;
  const nxd_status_t status =
      nxd_tensor_from_data(ids, count * sizeof *ids, shape, 2, NXD_DTYPE_I64, &here);
  free(ids);
  if (failed("nxd_tensor_from_data", status)) return 0;
  const int good = !failed("nxd_tensor_to_device", nxd_tensor_to_device(here, device_of(o), out));
  nxd_tensor_destroy(here);
  return good;
}

/* Labels of as many sentence pairs as the ids of a microbatch have, or of a pipeline's all. */
static int make_next(rank_t* r, const step_options_t* o) {
  const int64_t pairs = o->batch * (o->pp ? o->microbatches : 1);
  int64_t* labels = calloc((size_t)pairs, sizeof *labels);
  if (!labels) return 0;
  const nxd_status_t status = nxd_tensor_from_data(labels, (size_t)pairs * sizeof *labels, &pairs,
                                                   1, NXD_DTYPE_I64, &r->next);
  free(labels);
  return !failed("nxd_tensor_from_data", status);
}

/* The models shift their labels themselves. A BERT has neither a mask nor token types here. */
static size_t inputs_of(const rank_t* r, nxd_tensor_t* ids, nxd_tensor_t* inputs[5]) {
  nxd_tensor_t* const all[5] = {ids, ids, NULL, NULL, r->next};
  memcpy(inputs, all, sizeof all);
  return r->next ? 5 : 2;
}

static int open_measures(rank_t* r, const step_options_t* o) {
  measures_t* m = &r->measures;
  m->steps = o->steps;
  const int copies = r->size / (o->tp * (o->pp ? o->pp : 1));
  const int64_t sequences = o->batch * o->microbatches * copies;
  TRY(nxd_model_get_step_flops(r->model, sequences, o->sequence, &m->step_flops));
  size_t count = 0;
  TRY(nxd_module_get_parameter_count(r->trained, &count));
  for (size_t i = 0; i < count; ++i) {
    nxd_parameter_t* parameter = NULL;
    nxd_tensor_t* tensor = NULL;
    int64_t elements = 0;
    TRY(nxd_module_get_parameter(r->trained, i, &parameter, NULL));
    TRY(nxd_parameter_get_tensor(parameter, &tensor));
    TRY(nxd_tensor_get_element_count(tensor, &elements));
    m->elements += (double)elements;
  }
  double** const lists[] = {&m->seconds,   &m->cpu,       &m->faults,
                            &m->stages[0], &m->stages[1], &m->stages[2]};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; ++i) {
    *lists[i] = calloc((size_t)o->steps, sizeof(double));
    if (!*lists[i]) return 0;
  }
  return 1;
}

static int make_optimizer(rank_t* r, const step_options_t* o) {
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  if (o->stochastic) adamw.bf16_update = NXD_BF16_UPDATE_STOCHASTIC;
  if (!o->ddp && !o->zero1) {
    TRY(nxd_optimizer_create_adamw(r->trained, &adamw, &r->optimizer));
    return 1;
  }
  nxd_ddp_options_t ddp = NXD_DDP_OPTIONS_INIT;
  ddp.reduce = r->pp ? NXD_REDUCE_SUM : NXD_REDUCE_AVG;
  ddp.zero_stage = o->zero1;
  TRY(nxd_ddp_create(r->trained, &ddp, &r->ddp));
  TRY(nxd_optimizer_create_adamw_ddp(r->ddp, &adamw, &r->optimizer));
  if (r->pp) TRY(nxd_pp_set_ddp(r->pp, r->ddp));
  return 1;
}

static int make_pipeline(rank_t* r, const step_options_t* o) {
  nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  options.num_microbatches = o->microbatches;
  options.virtual_size = o->chunks;
  options.schedule = o->schedule;
  options.partition = o->cost ? NXD_PP_PARTITION_COST : NXD_PP_PARTITION_EVEN;
  options.broadcast_and_average_loss = 1;
  nxd_tensor_t* inputs[5];
  const size_t n_inputs = inputs_of(r, r->ids[0], inputs);
  TRY(nxd_pp_create(r->model, inputs, n_inputs, &options, &r->pp));
  TRY(nxd_pp_get_local_module(r->pp, &r->trained));
  return 1;
}

static int open_rank(rank_t* r, step_options_t* o) {
  if (!make_config(o, r->config, sizeof r->config)) return 0;
  nxd_context_options_t context = NXD_CONTEXT_OPTIONS_INIT;
  context.seed = 1;
  context.timeout_ms = 120000;
  context.plain_kernels = o->plain;
  TRY(nxd_context_create(&context, &r->ctx));
  TRY(nxd_context_get_rank(r->ctx, &r->rank));
  TRY(nxd_context_get_size(r->ctx, &r->size));
  TRY(nxd_context_get_world_group(r->ctx, &r->world));
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  parallel.tensor_parallel_size = o->tp;
  parallel.pipeline_parallel_size = o->pp;
  if (o->reduce_bf16) parallel.reduce_dtype = NXD_DTYPE_BF16;
  TRY(nxd_init_model_parallel(r->ctx, &parallel));
  double unused;
  TRY(nxd_measure_gemm_peak(o->dtype, 64, &unused)); /* loads the products' library */
  r->process_bytes = process_bytes();
  const double start = now(CLOCK_MONOTONIC);
  nxd_model_options_t model = NXD_MODEL_OPTIONS_INIT;
  model.dtype = o->dtype;
  model.sequence_parallel = o->sequence_parallel;
  model.device = device_of(o);
  TRY(nxd_model_create(r->ctx, r->config, &model, &r->model));
  const int batches = o->pp ? 1 : o->microbatches;
  r->ids = calloc((size_t)batches, sizeof *r->ids);
  for (; r->ids && r->n_ids < batches; ++r->n_ids) {
    if (!make_ids(&r->ids[r->n_ids], o, (uint64_t)r->n_ids)) return 0;
  }
  if (r->ids && is_bert(r->config) && !make_next(r, o)) return 0;
  if (o->recompute) TRY(nxd_apply_checkpoint(r->model, NULL, 0, 1));
  r->trained = r->model;
  if (!r->ids || (o->pp && !make_pipeline(r, o)) || !make_optimizer(r, o)) return 0;
  r->making = now(CLOCK_MONOTONIC) - start;
  return open_measures(r, o);
}

static void close_rank(rank_t* r) {
  for (int i = 0; i < r->n_ids; ++i) nxd_tensor_destroy(r->ids[i]);
  free(r->ids);
  nxd_tensor_destroy(r->next);
  nxd_tensor_destroy(r->loss);
  nxd_optimizer_destroy(r->optimizer);
  nxd_ddp_destroy(r->ddp);
  nxd_pp_destroy(r->pp);
  nxd_module_destroy(r->model);
  nxd_context_destroy(r->ctx);
  free(r->measures.seconds);
  free(r->measures.cpu);
  free(r->measures.faults);
  for (int i = 0; i < kStages; ++i) free(r->measures.stages[i]);
}

/* Forward and backward of one microbatch; adds their times. */
static int run_microbatch(rank_t* r, nxd_tensor_t* ids, double* stages) {
  nxd_tensor_t* inputs[5];
  const size_t n_inputs = inputs_of(r, ids, inputs);
  nxd_tensor_destroy(r->loss);
  r->loss = NULL;
  const double start = now(CLOCK_MONOTONIC);
  TRY(nxd_module_forward(r->model, inputs, n_inputs, &r->loss, 1));
  const double middle = now(CLOCK_MONOTONIC);
  TRY(nxd_backward(&r->loss, NULL, 1, 0));
  stages[0] += middle - start;
  stages[1] += now(CLOCK_MONOTONIC) - middle;
  return 1;
}

/* Forwards and backwards of all microbatches: in a pipeline they cannot be told apart. */
static int run_microbatches(rank_t* r, double* stages) {
  if (r->pp) {
    nxd_tensor_t* inputs[5];
    const size_t n_inputs = inputs_of(r, r->ids[0], inputs);
    const double start = now(CLOCK_MONOTONIC);
    TRY(nxd_pp_run_train(r->pp, inputs, n_inputs, &r->measures.loss));
    stages[1] += now(CLOCK_MONOTONIC) - start;
    return 1;
  }
  for (int i = 0; i < r->n_ids; ++i) {
    if (r->ddp) TRY(nxd_ddp_set_sync(r->ddp, i + 1 == r->n_ids));
    if (!run_microbatch(r, r->ids[i], stages)) return 0;
  }
  return 1;
}

static int train_step(rank_t* r, double* stages) {
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  finish.max_norm = 1.0;
  /* A pipeline has weighted its microbatches over all data-parallel ranks. */
  finish.scale = 1.0 / r->n_ids;
  finish.data_parallel_reduce = r->pp ? NXD_REDUCE_SUM : NXD_REDUCE_AVG;
  for (int i = 0; i < kStages; ++i) stages[i] = 0;
  TRY(nxd_module_zero_grad(r->trained));
  if (!run_microbatches(r, stages)) return 0;
  const double start = now(CLOCK_MONOTONIC);
  TRY(nxd_optimizer_step(r->optimizer, &finish, NULL));
  TRY(nxd_mark_step(1)); /* does nothing on the CPU */
  if (r->loss) TRY(nxd_tensor_get_item(r->loss, &r->measures.loss));
  stages[2] = now(CLOCK_MONOTONIC) - start;
  return 1;
}

static int measure_peak(rank_t* r, const step_options_t* o, int index) {
  double flops[2] = {0, 0};
  TRY(nxd_barrier(r->world));
  const double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
  TRY(nxd_measure_gemm_peak(o->dtype, o->small_peak ? 64 : 0, &flops[0]));
  flops[1] = flops[0] * (now(CLOCK_MONOTONIC) - wall) / (now(CLOCK_PROCESS_CPUTIME_ID) - cpu);
  TRY(nxd_all_reduce(r->world, flops, flops, 2, NXD_DTYPE_F64, NXD_REDUCE_SUM));
  r->measures.peaks[index] = flops[0];
  r->measures.cpu_peaks[index] = flops[1];
  return 1;
}

/* Adds the phases of the step that has just been measured. */
static int add_phases(measures_t* m) {
  for (int i = 0; i < kPhases; ++i) {
    nxd_phase_stats_t stats = {.struct_size = sizeof stats};
    TRY(nxd_profile_get_phase(i, &stats));
    m->phases[i].name = stats.name;
    m->phases[i].seconds += stats.seconds;
    m->phases[i].waiting_seconds += stats.waiting_seconds;
    m->phases[i].operations += stats.operations;
    m->phases[i].calls += stats.calls;
  }
  return 1;
}

static int measure_step(rank_t* r, int step) {
  measures_t* m = &r->measures;
  double stages[kStages];
  TRY(nxd_profile_start());
  const double cpu = now(CLOCK_PROCESS_CPUTIME_ID), faults = page_faults();
  const double start = now(CLOCK_MONOTONIC);
  if (!train_step(r, stages)) return 0;
  m->seconds[step] = now(CLOCK_MONOTONIC) - start;
  m->cpu[step] = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  m->faults[step] = page_faults() - faults;
  for (int i = 0; i < kStages; ++i) m->stages[i][step] = stages[i];
  TRY(nxd_profile_stop());
  return add_phases(m);
}

static int run_steps(rank_t* r, const step_options_t* o) {
  double stages[kStages];
  for (int i = 0; i < kWarmUpSteps; ++i) {
    if (!train_step(r, stages)) return 0;
  }
  if (r->pp) TRY(nxd_pp_set_timeline(r->pp, 1));
  int peaks = 0;
  for (int step = 0; step < o->steps; ++step) {
    for (; peaks * o->steps <= step * (kPeaks - 1); ++peaks) {
      if (!measure_peak(r, o, peaks)) return 0;
    }
    if (!measure_step(r, step)) return 0;
  }
  for (; peaks < kPeaks; ++peaks) {
    if (!measure_peak(r, o, peaks)) return 0;
  }
  measures_t* m = &r->measures;
  TRY(nxd_all_reduce(r->world, m->cpu, m->cpu, (size_t)o->steps, NXD_DTYPE_F64, NXD_REDUCE_SUM));
  m->schedule.struct_size = sizeof m->schedule;
  return !r->pp || report_schedule(r->pp, o->pp, o->chunks ? o->chunks : 1, r->rank, &m->schedule);
}

/* The most that a rank has. Pool and arena keep what they held at most, from the second step on:
 * the first ends with the optimizer's states. */
static int measure_memory(rank_t* r, const step_options_t* o) {
  double stages[kStages];
  for (int i = 0; i < kMemorySteps; ++i) {
    if (!train_step(r, stages)) return 0;
  }
  double most = process_bytes() - r->process_bytes;
  TRY(nxd_all_reduce(r->world, &most, &most, 1, NXD_DTYPE_F64, NXD_REDUCE_MAX));
  return r->rank != 0 || print_memory_plan(r->config, o, r->size, most, r->process_bytes);
}

static int print_compiles(void) {
  nxd_device_metrics_t m = {.struct_size = sizeof m};
  TRY(nxd_device_get_metrics(&m));
  printf("%-34s %10.2f   (%llu graphs, %llu operators fell back)\n", "compiling, s",
         m.compile_seconds, (unsigned long long)m.compiles, (unsigned long long)m.fallbacks);
  return 1;
}

static int train(rank_t* r, const step_options_t* o) {
  if (o->memory) return measure_memory(r, o);
  if (!run_steps(r, o)) return 0;
  if (r->rank != 0) return 1;
  return print_report(&r->measures, o, r->size) && (!o->recorded || print_compiles());
}

static int has_checkpoint(rank_t* r, const char* directory) {
  nxd_checkpoint_t* checkpoint = NULL;
  if (nxd_checkpoint_open_newest(r->ctx, directory, 0, &checkpoint) != NXD_OK) return 0;
  const int there = checkpoint != NULL;
  nxd_checkpoint_destroy(checkpoint);
  return there;
}

static int run(rank_t* r, const step_options_t* o) {
  if (!o->checkpoint) return train(r, o);
  if (r->rank == 0) printf("%-34s %10.1f\n", "making model and optimizer, s", r->making);
  const int load = has_checkpoint(r, o->checkpoint);
  if (load && !load_checkpoint(r->ctx, r->trained, r->optimizer, o->checkpoint)) return 0;
  return train(r, o) && (load || save_checkpoint(r->ctx, r->trained, r->optimizer, o->checkpoint));
}

int main(int argc, char** argv) {
  step_options_t o;
  rank_t r = {0};
  if (!read_step_options(&o, argc, argv)) return 2;
  int good = 0;
  if ((o.tp > 1 || o.pp > 1 || o.threads) && spawn_ranks(&o, &good)) return good ? 0 : 1;
  good = open_rank(&r, &o) && run(&r, &o) &&
         !failed("nxd_context_finalize", nxd_context_finalize(r.ctx));
  close_rank(&r);
  return good ? 0 : 1;
}
