/* Trains a language model on token ids, or on text byte by byte, with the vocabulary, heads and
 * features of each layer split over tensor-parallel ranks, its layers over the stages of a
 * pipeline, and the batch over data-parallel copies. Start it as any program: it starts one process
 * per rank itself. Under torchrun, nxdrun, mpirun or srun it joins the ranks that are there; more
 * ranks than --tp times --pp are copies.
 *
 *   train_lm --tp 2 --text my.txt --out results
 *   train_lm --tp 1 --pp 2 --dp 2 --microbatches 4 --zero1
 *   train_lm --data corpus.u16 --config config.json --save-every 100 --keep 3 --resume
 *
 * The model is a small Llama of the sizes given, that of a configuration (--config), or one of a
 * Hugging Face directory, with its weights (--weights).
 *
 * It prints the loss as it goes, writes the curve to OUT/loss.svg and OUT/loss.csv, checkpoints to
 * OUT/checkpoints, while it trains on, and ends with a few lines that the model wrote.
 *
 * Built against an installed libnxd, whose place the program remembers:
 *   cc -std=c99 -O2 train_lm.c loss_plot.c output_directory.c run_checkpoints.c sampling.c \
 *     text.c -o train_lm $(pkg-config --cflags --libs nxd) -lm \
 *     -Wl,-rpath,$(pkg-config --variable=libdir nxd) */
#define _POSIX_C_SOURCE 200809L
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "loss_plot.h"
#include "nxd.h"
#include "output_directory.h"
#include "run_checkpoints.h"
#include "sampling.h"
#include "text.h"

/* Ways to train, by what parameters are kept in and how those of bf16 are updated. */
static const struct precision {
  const char* name;
  nxd_dtype_t dtype;
  nxd_bf16_update_t update;
  nxd_dtype_t autocast; /* INVALID: off */
} precisions[] = {
    {"f32", NXD_DTYPE_F32, NXD_BF16_UPDATE_MASTER, NXD_DTYPE_INVALID},
    {"bf16", NXD_DTYPE_BF16, NXD_BF16_UPDATE_MASTER, NXD_DTYPE_INVALID},
    {"bf16-stochastic", NXD_DTYPE_BF16, NXD_BF16_UPDATE_STOCHASTIC, NXD_DTYPE_INVALID},
    {"bf16-nearest", NXD_DTYPE_BF16, NXD_BF16_UPDATE_NEAREST, NXD_DTYPE_INVALID},
    {"autocast", NXD_DTYPE_F32, NXD_BF16_UPDATE_MASTER, NXD_DTYPE_BF16}};

typedef struct {
  int tp, pp, dp, virtual_size, microbatches, steps, layers, heads, kv_heads, sample;
  int sequence_parallel, zero1, save_every, keep, resume, stop_at;
  int64_t hidden, intermediate, sequence, batch;
  double learning_rate;
  uint64_t seed;
  const struct precision* precision;
  const char *text, *data, *out, *config, *weights, *save;
} arguments_t;

/* Everything of one rank; released by close_rank in any state. */
typedef struct {
  nxd_context_t* ctx;
  nxd_module_t* model;
  nxd_pp_t* pipeline;    /* NULL without --pp and --microbatches */
  nxd_module_t* trained; /* borrowed: the model, or what this rank has of it */
  nxd_ddp_t* ddp;        /* with --zero1 */
  nxd_optimizer_t* optimizer;
  nxd_group_t* data_group; /* borrowed */
  nxd_data_loader_t* data; /* with --data */
  run_checkpoints_t checkpoints;
  int32_t rank, size, copies, copy;
  int end;                 /* of the steps */
  double peak, step_flops; /* of all ranks together */
  char *config, *checkpoint_directory;
  text_t text;
  float* losses;
} rank_t;

static int failed(const char* call, nxd_status_t status) {
  if (status == NXD_OK) return 0;
  fprintf(stderr, "train_lm: %s: %s: %s\n", call, nxd_status_string(status), nxd_last_error());
  return 1;
}
/* Leaves the calling function, which gives 0 for failure. */
#define TRY(call)                        \
  do {                                   \
    if (failed(#call, (call))) return 0; \
  } while (0)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void usage(FILE* out) {
  fputs(
      "usage: train_lm [--tp N] [--pp N] [--dp N] [--virtual N] [--microbatches N] [--zero1]\n"
      "  [--sequence-parallel] [--dtype f32|bf16|bf16-stochastic|bf16-nearest|autocast]\n"
      "  [--config FILE | --weights DIR | [--hidden N] [--layers N] [--heads N] [--kv-heads N]\n"
      "  [--intermediate N]] [--seq N] [--batch N] [--steps N] [--lr X] [--seed N]\n"
      "  [--text FILE | --data FILE] [--out DIR] [--save FILE] [--sample N] [--save-every N]\n"
      "  [--keep N] [--resume] [--stop-at N]\n",
      out);
}

/* An option, and one place for its value. */
typedef struct {
  const char* name;
  int* narrow;
  int64_t* wide;
  double* real; /* above the least number, not at it */
  const char** words;
  double least;
} place_t;

static int store(const place_t* place, const char* value) {
  char* end = NULL;
  const double number = place->words ? 0 : strtod(value, &end);
  const int is_whole = number >= place->least && number <= 1e9 && number == (int)number;
  if (place->words) {
    *place->words = value;
  } else if (!*value || *end ||
             !(place->real ? number > place->least && number <= 1e9 : is_whole)) {
    fprintf(stderr, "train_lm: --%s: expected a %s %g and up to 1e9, got %s\n", place->name,
            place->real ? "number above" : "whole number of at least", place->least, value);
    return 0;
  }
  if (place->narrow) *place->narrow = (int)number;
  if (place->wide) *place->wide = (int64_t)number;
  if (place->real) *place->real = number;
  return 1;
}

static const struct precision* precision_of(const char* name) {
  for (size_t i = 0; i < sizeof precisions / sizeof *precisions; ++i) {
    if (strcmp(name, precisions[i].name) == 0) return &precisions[i];
  }
  fprintf(stderr, "train_lm: --dtype: unknown %s\n", name);
  return NULL;
}

/* Options that have no effect beside others: the sizes of a model, where a file has them, and a
 * text, where there are ids. */
static int check_idle(const place_t* places, const char* given, int count) {
  static const char* const pairs[][2] = {
      {"text", "data"},           {"hidden", "config"},       {"hidden", "weights"},
      {"layers", "config"},       {"layers", "weights"},      {"heads", "config"},
      {"heads", "weights"},       {"kv-heads", "config"},     {"kv-heads", "weights"},
      {"intermediate", "config"}, {"intermediate", "weights"}};
  for (size_t pair = 0; pair < sizeof pairs / sizeof *pairs; ++pair) {
    int found = 0;
    for (int i = 0; i < count; ++i) {
      if (!given[i]) continue;
      found += strcmp(places[i].name, pairs[pair][0]) == 0;
      found += strcmp(places[i].name, pairs[pair][1]) == 0;
    }
    if (found < 2) continue;
    fprintf(stderr, "train_lm: --%s has no effect beside --%s\n", pairs[pair][0], pairs[pair][1]);
    return 0;
  }
  return 1;
}

static int is_pipeline(const arguments_t* a) { return a->pp > 1 || a->microbatches > 1; }

static const arguments_t defaults = {.tp = 2,
                                     .pp = 1,
                                     .dp = 1,
                                     .virtual_size = 1,
                                     .keep = 3,
                                     .microbatches = 1,
                                     .steps = 240,
                                     .layers = 4,
                                     .heads = 8,
                                     .kv_heads = 4,
                                     .sample = 400,
                                     .hidden = 256,
                                     .intermediate = 704,
                                     .sequence = 256,
                                     .batch = 8,
                                     .learning_rate = 2e-3,
                                     .precision = &precisions[0],
                                     .out = "out"};

/* 1, 0 after --help, -1 for arguments that are wrong. */
static int read_arguments(arguments_t* a, int argc, char** argv) {
  int64_t seed = 1;
  const place_t places[] = {{"tp", &a->tp, 0, 0, 0, 1},
                            {"pp", &a->pp, 0, 0, 0, 1},
                            {"dp", &a->dp, 0, 0, 0, 1},
                            {"virtual", &a->virtual_size, 0, 0, 0, 1},
                            {"save-every", &a->save_every, 0, 0, 0, 1},
                            {"keep", &a->keep, 0, 0, 0, 0},
                            {"stop-at", &a->stop_at, 0, 0, 0, 1},
                            {"microbatches", &a->microbatches, 0, 0, 0, 1},
                            {"steps", &a->steps, 0, 0, 0, 1},
                            {"layers", &a->layers, 0, 0, 0, 1},
                            {"heads", &a->heads, 0, 0, 0, 1},
                            {"kv-heads", &a->kv_heads, 0, 0, 0, 1},
                            {"sample", &a->sample, 0, 0, 0, 0},
                            {"hidden", 0, &a->hidden, 0, 0, 1},
                            {"intermediate", 0, &a->intermediate, 0, 0, 1},
                            {"seq", 0, &a->sequence, 0, 0, 2},
                            {"batch", 0, &a->batch, 0, 0, 1},
                            {"seed", 0, &seed, 0, 0, 0},
                            {"lr", 0, 0, &a->learning_rate, 0, 0},
                            {"text", 0, 0, 0, &a->text, 0},
                            {"data", 0, 0, 0, &a->data, 0},
                            {"out", 0, 0, 0, &a->out, 0},
                            {"config", 0, 0, 0, &a->config, 0},
                            {"weights", 0, 0, 0, &a->weights, 0},
                            {"save", 0, 0, 0, &a->save, 0}};
  enum { kPlaces = sizeof places / sizeof *places, kFirst = 256 };
  struct option known[kPlaces + 6] = {{"dtype", required_argument, NULL, 'd'},
                                      {"sequence-parallel", no_argument, NULL, 's'},
                                      {"zero1", no_argument, NULL, 'z'},
                                      {"resume", no_argument, NULL, 'r'},
                                      {"help", no_argument, NULL, 'h'}};
  for (int i = 0; i < kPlaces; ++i) {
    known[i + 5] = (struct option){places[i].name, required_argument, NULL, kFirst + i};
  }
  char given[kPlaces] = {0};
  *a = defaults;
  for (int c; (c = getopt_long(argc, argv, "h", known, NULL)) != -1;) {
    if (c == 'h') return 0;
    if (c == 's') a->sequence_parallel = 1;
    if (c == 'z') a->zero1 = 1;
    if (c == 'r') a->resume = 1;
    if (c == 'd') a->precision = precision_of(optarg);
    if (c == '?' || !a->precision) return -1;
    if (c < kFirst) continue;
    if (!store(&places[c - kFirst], optarg)) return -1;
    given[c - kFirst] = 1;
  }
  a->seed = (uint64_t)seed;
  if (!check_idle(places, given, kPlaces)) return -1;
  if (a->virtual_size > 1 && !is_pipeline(a)) {
    fputs("train_lm: --virtual has no effect without --pp or --microbatches\n", stderr);
    return -1;
  }
  return optind == argc ? 1 : -1;
}

/* A path, to be freed. */
static char* joined(const char* directory, const char* name) {
  const size_t room = strlen(directory) + strlen(name) + 2;
  char* path = malloc(room);
  if (path) snprintf(path, room, "%s/%s", directory, name);
  return path;
}

/* A Hugging Face configuration: a file's, or one made of the sizes given. */
static char* make_config(const arguments_t* a) {
  if (a->config) return read_whole_file(a->config, NULL);
  if (a->weights) {
    char* path = joined(a->weights, "config.json");
    char* config = path ? read_whole_file(path, NULL) : NULL;
    free(path);
    return config;
  }
  const size_t room = 1024;
  char* config = malloc(room);
  if (!config) return NULL;
  snprintf(config, room,
           "{\"model_type\": \"llama\", \"hidden_size\": %lld, \"num_hidden_layers\": %d,"
           " \"num_attention_heads\": %d, \"num_key_value_heads\": %d,"
           " \"intermediate_size\": %lld, \"vocab_size\": 256, \"rms_norm_eps\": 1e-5,"
           " \"max_position_embeddings\": %lld, \"initializer_range\": 0.02}",
           (long long)a->hidden, a->layers, a->heads, a->kv_heads, (long long)a->intermediate,
           (long long)a->sequence);
  return config;
}

/* Starts one process per rank, waits for them and tells how they ended. 0 where this process is a
 * rank itself, by a launcher too. */
static int spawn_ranks(int n, int* good) {
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  nxd_job_t* job = NULL;
  options.num_processes = n;
  nxd_status_t status = nxd_spawn(&options, &job);
  if (status == NXD_ERROR_INVALID_STATE) return 0;
  if (status == NXD_OK) status = nxd_job_wait(job, -1);
  *good = !failed("the ranks", status);
  nxd_job_destroy(job);
  return 1;
}

/* The dtype that matrices are multiplied in. */
static nxd_dtype_t products(const arguments_t* a) {
  return a->precision->autocast == NXD_DTYPE_BF16 ? NXD_DTYPE_BF16 : a->precision->dtype;
}

/* Cuts the model; each rank keeps its stage, whose weights are made here. */
static int make_pipeline(rank_t* r, const arguments_t* a) {
  const int64_t shape[2] = {a->batch, a->sequence};
  nxd_tensor_t* example = NULL;
  TRY(nxd_tensor_create(shape, 2, NXD_DTYPE_I64, NXD_DEVICE_META, &example));
  nxd_tensor_t* inputs[2] = {example, example};
  nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  options.num_microbatches = a->microbatches;
  options.virtual_size = a->virtual_size;
  options.partition = NXD_PP_PARTITION_COST;
  options.broadcast_and_average_loss = 1;
  const nxd_status_t status = nxd_pp_create(r->model, inputs, 2, &options, &r->pipeline);
  nxd_tensor_destroy(example);
  TRY(status);
  TRY(nxd_pp_get_local_module(r->pipeline, &r->trained));
  return 1;
}

static int make_model(rank_t* r, const arguments_t* a) {
  const int cut = is_pipeline(a);
  nxd_model_options_t model = NXD_MODEL_OPTIONS_INIT;
  model.dtype = a->precision->dtype;
  model.sequence_parallel = a->sequence_parallel;
  model.device = cut ? NXD_DEVICE_META : NXD_DEVICE_CPU;
  TRY(nxd_model_create(r->ctx, r->config, &model, &r->model));
  r->trained = r->model;
  if (cut && !make_pipeline(r, a)) return 0;
  if (a->weights) TRY(nxd_module_load_safetensors(r->trained, a->weights, 1, NULL));
  return 1;
}

/* A checkpoint that the run goes on from has those of the run that saved it: the options count. */
static int set_rates(rank_t* r, const arguments_t* a) {
  nxd_lr_schedule_options_t schedule = NXD_LR_SCHEDULE_OPTIONS_INIT;
  schedule.kind = NXD_LR_SCHEDULE_COSINE;
  schedule.warmup_steps = a->steps / 20 + 1;
  schedule.total_steps = a->steps + 1;
  schedule.final_factor = 0.1;
  TRY(nxd_optimizer_set_lr_schedule(r->optimizer, &schedule));
  TRY(nxd_optimizer_set_learning_rate(r->optimizer, a->learning_rate));
  return 1;
}

static int make_optimizer(rank_t* r, const arguments_t* a) {
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  adamw.learning_rate = a->learning_rate;
  adamw.beta2 = 0.95;
  adamw.weight_decay = 0.1;
  adamw.bf16_update = a->precision->update;
  if (a->zero1) {
    nxd_ddp_options_t ddp = NXD_DDP_OPTIONS_INIT;
    ddp.zero_stage = 1;
    ddp.reduce = r->pipeline ? NXD_REDUCE_SUM : NXD_REDUCE_AVG;
    TRY(nxd_ddp_create(r->trained, &ddp, &r->ddp));
    if (r->pipeline) TRY(nxd_pp_set_ddp(r->pipeline, r->ddp));
    TRY(nxd_optimizer_create_adamw_ddp(r->ddp, &adamw, &r->optimizer));
  } else {
    TRY(nxd_optimizer_create_adamw(r->trained, &adamw, &r->optimizer));
  }
  return set_rates(r, a);
}

static int open_rank(rank_t* r, const arguments_t* a) {
  nxd_context_options_t context = NXD_CONTEXT_OPTIONS_INIT;
  context.seed = a->seed;
  context.timeout_ms = 120000;
  TRY(nxd_context_create(&context, &r->ctx));
  TRY(nxd_context_get_rank(r->ctx, &r->rank));
  TRY(nxd_context_get_size(r->ctx, &r->size));
  if (!make_output_directory(r->ctx, a->out)) return 0;
  if (a->save && !make_directory_of_output(r->ctx, a->save)) return 0;
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  parallel.tensor_parallel_size = a->tp;
  parallel.pipeline_parallel_size = a->pp;
  TRY(nxd_init_model_parallel(r->ctx, &parallel));
  TRY(nxd_parallel_get_group(r->ctx, NXD_AXIS_DATA, &r->data_group));
  TRY(nxd_group_get_size(r->data_group, &r->copies));
  TRY(nxd_group_get_rank(r->data_group, &r->copy));
  if (!make_model(r, a) || !make_optimizer(r, a)) return 0;
  TRY(nxd_model_get_step_flops(r->model, a->batch * r->copies, a->sequence, &r->step_flops));
  if (a->data) {
    TRY(nxd_data_loader_create(r->ctx, &a->data, 1, a->batch, a->sequence, NULL, &r->data));
  }
  r->checkpoints = (run_checkpoints_t){.ctx = r->ctx,
                                       .directory = r->checkpoint_directory,
                                       .rank = r->rank,
                                       .keep = a->keep,
                                       .losses = r->losses};
  if (!run_begin(&r->checkpoints, r->trained, r->optimizer, r->data)) return 0;

  /* The peak rate of all ranks together, measured while all of them compute. */
  nxd_group_t* world = NULL;
  TRY(nxd_context_get_world_group(r->ctx, &world));
  TRY(nxd_barrier(world));
  TRY(nxd_measure_gemm_peak(products(a), 1024, &r->peak));
  TRY(nxd_all_reduce(world, &r->peak, &r->peak, 1, NXD_DTYPE_F64, NXD_REDUCE_SUM));
  return 1;
}

static void close_rank(rank_t* r) {
  run_close(&r->checkpoints);
  nxd_data_loader_destroy(r->data);
  nxd_optimizer_destroy(r->optimizer);
  nxd_pp_destroy(r->pipeline);
  nxd_ddp_destroy(r->ddp);
  nxd_module_destroy(r->model);
  nxd_context_destroy(r->ctx);
  text_free(&r->text);
  free(r->config);
  free(r->checkpoint_directory);
  free(r->losses);
}

/* Random windows of the text; copies of the model take different ones. */
static void take_windows(const rank_t* r, const arguments_t* a, int step, int64_t* ids) {
  for (int64_t row = 0; row < a->batch; ++row) {
    const uint64_t draw =
        ((uint64_t)step * (uint64_t)r->copies + (uint64_t)r->copy) * (uint64_t)a->batch +
        (uint64_t)row;
    const size_t at = random_bits(a->seed, draw) % (r->text.size - (size_t)a->sequence);
    for (int64_t i = 0; i < a->sequence; ++i) {
      ids[row * a->sequence + i] = r->text.bytes[at + (size_t)i];
    }
  }
}

/* Ids of this copy's part of a step's batch. */
static int make_batch(const rank_t* r, const arguments_t* a, int step, nxd_tensor_t** out_ids) {
  const int64_t shape[2] = {a->batch, a->sequence};
  const size_t count = (size_t)(a->batch * a->sequence);
  int64_t* ids = malloc(count * sizeof *ids);
  if (!ids) return 0;
  if (!r->data) take_windows(r, a, step, ids);
  nxd_status_t status = r->data ? nxd_data_loader_next(r->data, ids, NULL, count) : NXD_OK;
  if (!status) {
    status = nxd_tensor_from_data(ids, count * sizeof *ids, shape, 2, NXD_DTYPE_I64, out_ids);
  }
  free(ids);
  return !failed("batch", status);
}

/* Forward and backward; the loss is the mean over all copies. */
static int run_model(rank_t* r, const arguments_t* a, nxd_tensor_t* ids, double* out_loss) {
  nxd_tensor_t* inputs[2] = {ids, ids}; /* the model shifts its labels itself */
  TRY(nxd_set_autocast(a->precision->autocast, NULL));
  nxd_tensor_t* loss = NULL;
  const nxd_status_t status = r->pipeline ? nxd_pp_run_train(r->pipeline, inputs, 2, out_loss)
                                          : nxd_module_forward(r->model, inputs, 2, &loss, 1);
  TRY(nxd_set_autocast(NXD_DTYPE_INVALID, NULL));
  TRY(status);
  if (r->pipeline) return 1;
  const int good = !failed("nxd_backward", nxd_backward(&loss, NULL, 1, 0)) &&
                   !failed("nxd_tensor_get_item", nxd_tensor_get_item(loss, out_loss));
  nxd_tensor_destroy(loss);
  if (!good) return 0;
  TRY(nxd_all_reduce(r->data_group, out_loss, out_loss, 1, NXD_DTYPE_F64, NXD_REDUCE_AVG));
  return 1;
}

static int train_step(rank_t* r, const arguments_t* a, int step, double* out_loss) {
  nxd_tensor_t* ids = NULL;
  if (!make_batch(r, a, step, &ids)) return 0;
  TRY(nxd_module_zero_grad(r->trained));
  const int good = run_model(r, a, ids, out_loss);
  nxd_tensor_destroy(ids);
  if (!good) return 0;
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  finish.max_norm = 1.0;
  /* A pipeline has divided by the tokens of all copies. */
  finish.data_parallel_reduce = r->pipeline ? NXD_REDUCE_SUM : NXD_REDUCE_AVG;
  nxd_step_report_t report = {.struct_size = sizeof report};
  TRY(nxd_optimizer_step(r->optimizer, &finish, &report));
  if (report.skipped && r->rank == 0) printf("step %d: skipped, gradients overflow\n", step + 1);
  return 1;
}

/* The first step to make: 0, or that after the newest checkpoint. */
static int find_start(rank_t* r, const arguments_t* a, int* out_first) {
  *out_first = 0;
  if (!a->resume) return 1;
  if (!run_resume(&r->checkpoints, a->steps, out_first) || !set_rates(r, a)) return 0;
  if (r->end < *out_first) r->end = *out_first; /* the curve keeps the steps already made */
  if (r->rank != 0) return 1;
  printf("going on after step %d\n", *out_first);
  fflush(stdout);
  return 1;
}

static int train(rank_t* r, const arguments_t* a) {
  int first = 0;
  if (!find_start(r, a, &first)) return 0;
  const double tokens = (double)(a->batch * a->sequence * r->copies);
  const int every = a->steps / 20 > 0 ? a->steps / 20 : 1;
  const double start = now();
  double last = start;
  int last_step = first;
  for (int step = first; step < r->end; ++step) {
    double loss = 0;
    if (!train_step(r, a, step, &loss)) return 0;
    r->losses[step] = (float)loss;
    const int saves = a->save_every > 0 && (step + 1) % a->save_every == 0;
    if (saves && !run_save(&r->checkpoints, step + 1)) return 0;
    if (r->rank != 0 || ((step + 1) % every != 0 && step + 1 != a->steps && step != 0)) continue;
    const double t = now(), each = (t - last) / (step + 1 - last_step);
    printf("step %4d/%d  loss %6.3f  %7.0f tokens/s  %3.0f%% of the GEMM peak  %4.0f s left\n",
           step + 1, a->steps, loss, tokens / each, 100 * r->step_flops / each / r->peak,
           (t - start) / (step + 1 - first) * (a->steps - step - 1));
    fflush(stdout);
    last = t;
    last_step = step + 1;
  }
  return run_end(&r->checkpoints);
}

static void print_header(const rank_t* r, const arguments_t* a) {
  if (r->rank != 0) return;
  printf(
      "%d rank%s: tensor parallel %d%s, pipeline parallel %d, data parallel %d; %s; %.1f GFLOP a "
      "step; "
      "GEMM peak %.0f GFLOP/s over all ranks\n",
      r->size, r->size == 1 ? "" : "s", a->tp,
      a->sequence_parallel ? " with sequence parallelism" : "", a->pp, r->copies,
      a->precision->name, r->step_flops * 1e-9, r->peak * 1e-9);
  printf("%s, %lld x %lld tokens a step per copy\n",
         a->data   ? a->data
         : a->text ? a->text
                   : "text",
         (long long)a->batch, (long long)a->sequence);
  fflush(stdout);
}

/* Generation needs the whole model, one that was trained on bytes and knows no other ids. */
static int writes_bytes(const rank_t* r, const arguments_t* a) {
  nxd_plan_model_t model = NXD_PLAN_MODEL_INIT;
  if (a->pp > 1 || a->weights || a->data) return 0;
  return nxd_plan_model_from_config(r->config, &model) == NXD_OK && model.vocab_size == 256;
}

/* Rank 0's files and the model's own words. */
static int finish(rank_t* r, const arguments_t* a) {
  if (r->rank == 0) {
    if (!write_loss_plot(a->out, r->losses, r->end)) return 0;
    printf("wrote %s/loss.svg and %s/loss.csv\n", a->out, a->out);
  }
  if (a->save) TRY(nxd_module_save_safetensors(r->trained, a->save));
  if (a->sample > 0 && writes_bytes(r, a)) {
    const sample_t sample = {.ctx = r->ctx,
                             .model = r->model,
                             .window = a->sequence,
                             .length = a->sample,
                             .temperature = 0.7,
                             .seed = a->seed};
    char* written = NULL;
    TRY(write_sample(&sample, "This License", &written));
    for (char* c = written; *c; ++c) {
      if (*c != '\n' && (*c < ' ' || *c > '~')) *c = '.'; /* bytes that are no text yet */
    }
    if (r->rank == 0) printf("the model writes:\n%s\n", written);
    free(written);
  }
  TRY(nxd_context_finalize(r->ctx));
  return 1;
}

int main(int argc, char** argv) {
  arguments_t a;
  rank_t r = {0};
  const int parsed = read_arguments(&a, argc, argv);
  if (parsed != 1) {
    usage(parsed == 0 ? stdout : stderr);
    return parsed == 0 ? 0 : 2;
  }
  const double ranks = (double)a.tp * a.pp * a.dp;
  int good = 0;
  if (ranks > INT_MAX) {
    fprintf(stderr, "train_lm: expected at most %d ranks, got %g\n", INT_MAX, ranks);
    return 2;
  }
  if (ranks > 1 && spawn_ranks((int)ranks, &good)) return good ? 0 : 1;
  good = (a.data || text_read(a.text, &r.text)) && (r.config = make_config(&a)) != NULL &&
         (r.checkpoint_directory = joined(a.out, "checkpoints")) != NULL;
  r.end = a.stop_at > 0 && a.stop_at < a.steps ? a.stop_at : a.steps;
  if (good && !a.data && r.text.size <= (size_t)a.sequence) {
    fprintf(stderr, "train_lm: expected a text of more than %lld bytes, got %zu\n",
            (long long)a.sequence, r.text.size);
    good = 0;
  }
  if (good && (r.losses = calloc((size_t)a.steps, sizeof *r.losses)) == NULL) {
    fprintf(stderr, "train_lm: no memory for the losses of %d steps\n", a.steps);
    good = 0;
  }
  if (good && (good = open_rank(&r, &a))) {
    print_header(&r, &a);
    good = train(&r, &a) && finish(&r, &a);
  }
  close_rank(&r);
  return good ? 0 : 1;
}
