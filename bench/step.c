/* One training step of a Llama beside the matrix-product peak of the same run. The peak is measured
 * by all ranks at once before the steps, between them and after them, so that other load of the
 * machine weighs on both.
 *
 *   bench_step                   the default model, one rank
 *   bench_step --tp 2            starts two processes itself; under a launcher it joins the ranks
 *   bench_step --dtype bf16 --vocab 32000
 *
 * Ratios are to be compared, not milliseconds. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "memory.h"
#include "nxd.h"

enum { kWarmUpSteps = 3, kPeaks = 4, kPhases = 4, kMostSteps = 10000 };
static const char* const kPhaseNames[kPhases] = {"forward", "backward", "finish gradients",
                                                 "optimizer"};

typedef struct {
  int tp, steps, sequence_parallel, plain;
  int64_t hidden, layers, heads, kv_heads, intermediate, vocab, sequence, batch;
  nxd_dtype_t dtype;
  const char* config;
} arguments_t;

/* Everything of one rank; released by close_rank in any state. */
typedef struct {
  nxd_context_t* ctx;
  nxd_module_t* model;
  nxd_optimizer_t* optimizer;
  nxd_group_t* world; /* borrowed */
  nxd_tensor_t* ids;
  int32_t rank, size;
  double step_flops, loss;
  double peaks[kPeaks];     /* sums over ranks */
  double cpu_peaks[kPeaks]; /* the same per second of CPU time */
  double reduces[kPeaks];   /* seconds of one sum of [tokens, hidden] f32 over the ranks */
  float* activations;
  double *seconds, *cpu, *faults;
  double* phases[kPhases];
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

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Sorts the values. */
static double median(double* values, int count) {
  qsort(values, (size_t)count, sizeof *values, ascending);
  return (values[count / 2] + values[(count - 1) / 2]) / 2;
}

static int read_option(arguments_t* a, const char* name, const char* value) {
  struct {
    const char* name;
    int* narrow;
    int64_t* wide;
  } numbers[] = {{"--tp", &a->tp, NULL},
                 {"--steps", &a->steps, NULL},
                 {"--hidden", NULL, &a->hidden},
                 {"--layers", NULL, &a->layers},
                 {"--heads", NULL, &a->heads},
                 {"--kv-heads", NULL, &a->kv_heads},
                 {"--intermediate", NULL, &a->intermediate},
                 {"--vocab", NULL, &a->vocab},
                 {"--sequence", NULL, &a->sequence},
                 {"--batch", NULL, &a->batch}};
  if (strcmp(name, "--sequence-parallel") == 0) return a->sequence_parallel = 1;
  if (strcmp(name, "--plain") == 0) return a->plain = 1;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers && value; ++i) {
    if (strcmp(name, numbers[i].name) != 0) continue;
    char* end = NULL;
    const long number = strtol(value, &end, 10);
    if (*end || number < 1 || number > 1000000) break;
    if (numbers[i].narrow) *numbers[i].narrow = (int)number;
    if (numbers[i].wide) *numbers[i].wide = number;
    return 2;
  }
  if (strcmp(name, "--config") == 0 && value) {
    a->config = value;
    return 2;
  }
  if (strcmp(name, "--dtype") == 0 && value) {
    a->dtype = strcmp(value, "bf16") == 0 ? NXD_DTYPE_BF16 : NXD_DTYPE_F32;
    if (a->dtype == NXD_DTYPE_BF16 || strcmp(value, "f32") == 0) return 2;
  }
  fprintf(stderr,
          "bench_step: cannot understand %s %s\n"
          "usage: bench_step [--tp N] [--dtype f32|bf16] [--vocab N] [--sequence N] [--batch N]\n"
          "  [--layers N] [--hidden N] [--heads N] [--kv-heads N] [--intermediate N]\n"
          "  [--sequence-parallel] [--plain] [--steps N] [--config FILE --vocab N]\n",
          name, value ? value : "");
  return 0;
}

static int read_arguments(arguments_t* a, int argc, char** argv) {
  const arguments_t defaults = {.tp = 1,
                                .steps = 12,
                                .hidden = 512,
                                .layers = 8,
                                .heads = 8,
                                .kv_heads = 4,
                                .intermediate = 1408,
                                .vocab = 8192,
                                .sequence = 512,
                                .batch = 4,
                                .dtype = NXD_DTYPE_F32};
  *a = defaults;
  for (int i = 1; i < argc;) {
    const int taken = read_option(a, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
    if (!taken) return 0;
    i += taken;
  }
  if (a->steps > kMostSteps) a->steps = kMostSteps;
  return 1;
}

/* A Hugging Face configuration: the file given, or one made of the sizes given. */
static int make_config(const arguments_t* a, char* config, size_t room) {
  if (!a->config) {
    snprintf(config, room,
             "{\"model_type\": \"llama\", \"hidden_size\": %lld, \"num_hidden_layers\": %lld,"
             " \"num_attention_heads\": %lld, \"num_key_value_heads\": %lld,"
             " \"intermediate_size\": %lld, \"vocab_size\": %lld,"
             " \"max_position_embeddings\": %lld}",
             (long long)a->hidden, (long long)a->layers, (long long)a->heads,
             (long long)a->kv_heads, (long long)a->intermediate, (long long)a->vocab,
             (long long)a->sequence);
    return 1;
  }
  FILE* file = fopen(a->config, "rb");
  const size_t size = file ? fread(config, 1, room - 1, file) : 0;
  config[size] = 0;
  if (file) fclose(file);
  if (size > 0 && size < room - 1) return 1;
  fprintf(stderr, "bench_step: cannot read a configuration of at most %zu bytes from %s\n",
          room - 2, a->config);
  return 0;
}

static int spawn_ranks(int n) {
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  nxd_job_t* job = NULL;
  options.n_processes = n;
  options.omp_num_threads = 1;
  TRY(nxd_spawn(&options, &job));
  const int good = !failed("nxd_job_wait", nxd_job_wait(job, -1));
  nxd_job_destroy(job);
  return good;
}

/* Ids that all ranks draw alike; below the --vocab given with a configuration file. */
static int make_ids(rank_t* r, const arguments_t* a) {
  const int64_t shape[2] = {a->batch, a->sequence};
  const size_t count = (size_t)(a->batch * a->sequence);
  int64_t* ids = malloc(count * sizeof *ids);
  if (!ids) return 0;
  uint64_t state = 88172645463325252U;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    ids[i] = (int64_t)((state >> 33) % (uint64_t)a->vocab);
  }
  const nxd_status_t status =
      nxd_tensor_from_data(ids, count * sizeof *ids, shape, 2, NXD_DTYPE_I64, &r->ids);
  free(ids);
  return !failed("nxd_tensor_from_data", status);
}

static int open_rank(rank_t* r, const arguments_t* a) {
  char config[16384];
  if (!make_config(a, config, sizeof config)) return 0;
  nxd_context_options_t context = NXD_CONTEXT_OPTIONS_INIT;
  context.seed = 1;
  context.timeout_ms = 120000;
  context.plain_kernels = a->plain;
  TRY(nxd_context_create(&context, &r->ctx));
  TRY(nxd_context_get_rank(r->ctx, &r->rank));
  TRY(nxd_context_get_size(r->ctx, &r->size));
  TRY(nxd_context_get_world_group(r->ctx, &r->world));
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  parallel.tensor_parallel_size = a->tp;
  TRY(nxd_init_model_parallel(r->ctx, &parallel));
  nxd_model_options_t model = NXD_MODEL_OPTIONS_INIT;
  model.dtype = a->dtype;
  model.sequence_parallel = a->sequence_parallel;
  TRY(nxd_model_create(r->ctx, config, &model, &r->model));
  TRY(nxd_adamw_create(r->model, NULL, &r->optimizer));
  const int64_t copies = r->size / a->tp;
  TRY(nxd_model_get_step_flops(r->model, a->batch * copies, a->sequence, &r->step_flops));
  double** const lists[] = {&r->seconds,   &r->cpu,       &r->faults,   &r->phases[0],
                            &r->phases[1], &r->phases[2], &r->phases[3]};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; ++i) {
    *lists[i] = calloc((size_t)a->steps, sizeof(double));
    if (!*lists[i]) return 0;
  }
  r->activations = calloc((size_t)(a->batch * a->sequence * a->hidden), sizeof(float));
  return r->activations && make_ids(r, a);
}

static void close_rank(rank_t* r) {
  nxd_tensor_destroy(r->ids);
  nxd_optimizer_destroy(r->optimizer);
  nxd_module_destroy(r->model);
  nxd_context_destroy(r->ctx);
  free(r->seconds);
  free(r->cpu);
  free(r->faults);
  free(r->activations);
  for (int i = 0; i < kPhases; ++i) free(r->phases[i]);
}

/* One step; marks[0..4] are the times between its phases. */
static int train_step(rank_t* r, double* marks) {
  nxd_tensor_t* loss = NULL;
  nxd_tensor_t* inputs[2] = {r->ids, r->ids}; /* the model shifts its labels itself */
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  finish.max_norm = 1.0;
  int good = !failed("nxd_module_zero_grad", nxd_module_zero_grad(r->model));
  marks[0] = now(CLOCK_MONOTONIC);
  good = good && !failed("nxd_module_forward", nxd_module_forward(r->model, inputs, 2, &loss, 1));
  marks[1] = now(CLOCK_MONOTONIC);
  good = good && !failed("nxd_backward", nxd_backward(&loss, NULL, 1, 0));
  marks[2] = now(CLOCK_MONOTONIC);
  good = good && !failed("nxd_finish_gradients", nxd_finish_gradients(r->model, &finish, NULL));
  marks[3] = now(CLOCK_MONOTONIC);
  good = good && !failed("nxd_optimizer_step", nxd_optimizer_step(r->optimizer)) &&
         !failed("nxd_tensor_get_item", nxd_tensor_get_item(loss, &r->loss));
  marks[4] = now(CLOCK_MONOTONIC);
  nxd_tensor_destroy(loss);
  return good;
}

/* The sum that tensor parallelism needs twice per layer forward and twice backward. */
static int measure_reduce(rank_t* r, size_t count, double* out) {
  enum { kRepeats = 9 };
  double seconds[kRepeats];
  for (int i = 0; i < kRepeats; ++i) {
    TRY(nxd_barrier(r->world));
    const double start = now(CLOCK_MONOTONIC);
    TRY(nxd_all_reduce(r->world, r->activations, r->activations, count, NXD_DTYPE_F32,
                       NXD_REDUCE_SUM));
    seconds[i] = now(CLOCK_MONOTONIC) - start;
  }
  *out = median(seconds, kRepeats);
  return 1;
}

static int measure_limits(rank_t* r, const arguments_t* a, int index) {
  double flops[2] = {0, 0};
  TRY(nxd_barrier(r->world));
  const double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
  TRY(nxd_measure_gemm_peak(a->dtype, 1024, &flops[0]));
  flops[1] = flops[0] * (now(CLOCK_MONOTONIC) - wall) / (now(CLOCK_PROCESS_CPUTIME_ID) - cpu);
  TRY(nxd_all_reduce(r->world, flops, flops, 2, NXD_DTYPE_F64, NXD_REDUCE_SUM));
  r->peaks[index] = flops[0];
  r->cpu_peaks[index] = flops[1];
  if (a->tp == 1) return 1;
  return measure_reduce(r, (size_t)(a->batch * a->sequence * a->hidden), &r->reduces[index]);
}

static int run_steps(rank_t* r, const arguments_t* a) {
  double marks[kPhases + 1];
  for (int i = 0; i < kWarmUpSteps; ++i) {
    if (!train_step(r, marks)) return 0;
  }
  int peaks = 0;
  for (int step = 0; step < a->steps; ++step) {
    if (step == peaks * a->steps / (kPeaks - 1) && peaks < kPeaks - 1) {
      if (!measure_limits(r, a, peaks++)) return 0;
    }
    const double cpu = now(CLOCK_PROCESS_CPUTIME_ID), faults = page_faults();
    const double start = now(CLOCK_MONOTONIC);
    if (!train_step(r, marks)) return 0;
    r->seconds[step] = now(CLOCK_MONOTONIC) - start;
    r->cpu[step] = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    r->faults[step] = page_faults() - faults;
    for (int i = 0; i < kPhases; ++i) r->phases[i][step] = marks[i + 1] - marks[i];
  }
  for (; peaks < kPeaks; ++peaks) {
    if (!measure_limits(r, a, peaks)) return 0;
  }
  return 1;
}

static void print_head(const rank_t* r, const arguments_t* a, double tokens) {
  printf("Llama %s, %s; %d rank%s, tensor parallel %d%s%s; %.0f tokens, %.0f GFLOP a step\n",
         a->config ? a->config : "built in", a->dtype == NXD_DTYPE_BF16 ? "bf16" : "f32", r->size,
         r->size == 1 ? "" : "s", a->tp, a->sequence_parallel ? " + sequence parallel" : "",
         a->plain ? ", plain kernels" : "", tokens, r->step_flops * 1e-9);
}

static int print_table(rank_t* r, const arguments_t* a) {
  nxd_memory_stats_t memory = {.struct_size = sizeof memory};
  TRY(nxd_memory_get_stats(&memory));
  if (r->rank != 0) return 1;
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const double step = median(r->seconds, a->steps), least = r->seconds[0];
  const double cpu = median(r->cpu, a->steps);
  const double peak = median(r->peaks, kPeaks), cpu_peak = median(r->cpu_peaks, kPeaks);
  const double tokens = (double)(a->batch * a->sequence * (r->size / a->tp));
  print_head(r, a, tokens);
  printf("%-34s %10.1f   (least %.1f, %d steps)\n", "step, ms", step * 1e3, least * 1e3, a->steps);
  for (int i = 0; i < kPhases; ++i) {
    printf("  %-32s %10.1f\n", kPhaseNames[i], median(r->phases[i], a->steps) * 1e3);
  }
  printf("%-34s %10.1f\n", "CPU time of rank 0, ms", cpu * 1e3);
  printf("%-34s %10.0f\n", "tokens/s", tokens / step);
  printf("%-34s %10.0f   (%.0f to %.0f, between the steps)\n", "GEMM peak of all ranks, GFLOP/s",
         peak * 1e-9, r->peaks[0] * 1e-9, r->peaks[kPeaks - 1] * 1e-9);
  printf("%-34s %9.1f%%   (%.1f%% of the CPU time, for a machine with other load)\n",
         "share of the GEMM peak", 100 * r->step_flops / (peak * step),
         100 * r->step_flops / (cpu_peak * cpu));
  if (a->tp > 1) {
    const double reduce = median(r->reduces, kPeaks);
    const double count = 4 * (double)a->layers + 2;
    printf("%-34s %10.2f   (%.0f of them are %.1f%% of the step)\n",
           "sum of [tokens, hidden] f32, ms", reduce * 1e3, count, 100 * count * reduce / step);
  }
  printf("%-34s %10.0f\n", "page faults a step", median(r->faults, a->steps));
  printf("%-34s %10.0f   (resident %.0f)\n", "pool at most, MB",
         (double)memory.peak_bytes_in_use * 1e-6, (double)usage.ru_maxrss * 1024e-6);
  /* Pool and arena keep what they held at most. */
  printf("%-34s %10.0f   (arena %.0f)\n", "proportional set size, MB",
         proportional_set_size() * 1e-6, (double)memory.arena_bytes_reserved * 1e-6);
  printf("%-34s %10.4f\n", "loss after the last step", r->loss);
  return 1;
}

int main(int argc, char** argv) {
  arguments_t a;
  rank_t r = {0};
  if (!read_arguments(&a, argc, argv)) return 2;
  if (!getenv("RANK") && a.tp > 1) return spawn_ranks(a.tp) ? 0 : 1;
  const int good = open_rank(&r, &a) && run_steps(&r, &a) && print_table(&r, &a) &&
                   !failed("nxd_context_finalize", nxd_context_finalize(r.ctx));
  close_rank(&r);
  return good ? 0 : 1;
}
