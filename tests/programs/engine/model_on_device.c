/* Trains a model of any family on the device of nxd_get_device, with all ranks as one
 * tensor-parallel group under sequence parallelism, as data-parallel ones with ZeRO-1, or as the
 * stages of a pipeline, and prints losses and the device's counts. Each step has another learning
 * rate. With "threads" two ranks of the first kind are threads.
 *   model_on_device DIRECTORY [tensor|zero|pipeline|threads [STEPS]]     ten steps by default */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nxd.h"

static void check(nxd_status_t status, int line) {
  if (status == NXD_OK) return;
  fprintf(stderr, "model_on_device: line %d: %s\n", line, nxd_last_error());
  exit(1);
}
#define CHECK(call) check(call, __LINE__)

enum { kTokens = 64, kVocabulary = 100, kMostInputs = 5 };

static int num_steps = 10;

/* A BERT takes two more inputs, which are left out, and whether the second sentence follows. */
struct batch {
  nxd_tensor_t* inputs[kMostInputs];
  size_t count;
};

struct model {
  nxd_module_t* module; /* the parameters of this rank */
  nxd_pp_t* pipeline;   /* or NULL */
  nxd_ddp_t* ddp;       /* or NULL */
};

static double pass(const struct model* model, struct batch* batch, nxd_tensor_t** kept) {
  double loss = 0;
  *kept = NULL;
  if (model->pipeline) {
    CHECK(nxd_pp_run_train(model->pipeline, batch->inputs, batch->count, &loss));
    return loss;
  }
  CHECK(nxd_module_forward(model->module, batch->inputs, batch->count, kept, 1));
  CHECK(nxd_backward(kept, NULL, 1, 0));
  return loss;
}

static void train(nxd_context_t* ctx, const struct model* model, struct batch* batch) {
  nxd_optimizer_t* adamw;
  if (model->ddp) {
    CHECK(nxd_optimizer_create_adamw_ddp(model->ddp, NULL, &adamw));
  } else {
    CHECK(nxd_optimizer_create_adamw(model->module, NULL, &adamw));
  }
  for (int step = 0; step < num_steps; ++step) {
    nxd_tensor_t* loss;
    char line[80];
    double value = pass(model, batch, &loss);
    CHECK(nxd_optimizer_set_hyperparameter(adamw, -1, NXD_HYPERPARAMETER_LEARNING_RATE,
                                           1e-3 / (1 + 0.1 * step)));
    CHECK(nxd_optimizer_step(adamw, NULL, NULL));
    CHECK(nxd_module_zero_grad(model->module));
    CHECK(nxd_mark_step(1));
    if (loss) CHECK(nxd_tensor_get_item(loss, &value));
    snprintf(line, sizeof line, "step %d loss %.7f", step, value);
    CHECK(nxd_master_print(ctx, line));
    nxd_tensor_destroy(loss);
  }
  nxd_optimizer_destroy(adamw);
}

static nxd_ddp_t* zero_of(nxd_module_t* module) {
  nxd_ddp_t* ddp;
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.zero_stage = 1;
  options.bucket_bytes = 100000;
  options.reduce = NXD_REDUCE_AVG;
  CHECK(nxd_ddp_create(module, &options, &ddp));
  return ddp;
}

static nxd_pp_t* pipeline_of(nxd_module_t* module, struct batch* batch) {
  nxd_pp_t* pipeline;
  nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  options.num_microbatches = 2;
  options.broadcast_and_average_loss = 1;
  CHECK(nxd_pp_create(module, batch->inputs, batch->count, &options, &pipeline));
  return pipeline;
}

/* This rank's counts; those of its process, where ranks are threads. */
static void print_counts(int32_t rank) {
  nxd_device_metrics_t m = {.struct_size = sizeof m};
  CHECK(nxd_device_get_metrics(&m));
  printf("rank %d: %llu steps, %llu executions, %llu programs, %llu syncs, %llu fallbacks\n",
         (int)rank, (unsigned long long)m.steps, (unsigned long long)m.executions,
         (unsigned long long)(m.compiles + m.loads), (unsigned long long)m.implicit_syncs,
         (unsigned long long)m.fallbacks);
  fflush(stdout);
}

/* Tells whether the step's module has collectives of StableHLO itself. */
static void print_collectives(nxd_context_t* ctx) {
  size_t needed;
  char *text, line[40];
  CHECK(nxd_device_get_step_graph(NXD_GRAPH_FORMAT_STABLEHLO, NULL, 0, &needed));
  text = malloc(needed);
  if (!text) exit(1);
  CHECK(nxd_device_get_step_graph(NXD_GRAPH_FORMAT_STABLEHLO, text, needed, &needed));
  snprintf(line, sizeof line, "native_collectives %d", strstr(text, "replica_groups") != NULL);
  CHECK(nxd_master_print(ctx, line));
  free(text);
}

static nxd_tensor_t* on_device(const int64_t* data, size_t bytes, const int64_t* shape,
                               int32_t ndim, nxd_device_t device) {
  nxd_tensor_t *here, *there;
  CHECK(nxd_tensor_from_data(data, bytes, shape, ndim, NXD_DTYPE_I64, &here));
  CHECK(nxd_tensor_to_device(here, device, &there));
  nxd_tensor_destroy(here);
  return there;
}

/* Data-parallel ranks have batches of their own. */
static struct batch make_batch(int copy, int is_bert, nxd_device_t device) {
  int64_t tokens[kTokens];
  const int64_t shape[] = {2, kTokens / 2}, follows[] = {0, 1};
  struct batch batch = {{NULL}, (size_t)(is_bert ? kMostInputs : 2)};
  for (int i = 0; i < kTokens; ++i) tokens[i] = (i * 7 + i * i + copy) % kVocabulary;
  for (int i = 0; i < 2; ++i) {
    batch.inputs[i] = on_device(tokens, sizeof tokens, shape, 2, device);
  }
  if (is_bert) batch.inputs[4] = on_device(follows, sizeof follows, shape, 1, device);
  return batch;
}

static void run(nxd_context_t* ctx, const char* directory, const char* kind) {
  char report[16384];
  size_t needed;
  int32_t rank, ranks;
  nxd_device_t device;
  const int zero = strcmp(kind, "zero") == 0, pipeline = strcmp(kind, "pipeline") == 0;
  nxd_module_t* module;
  struct model model;
  struct batch batch;
  nxd_group_t* world;
  nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
  nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;

  CHECK(nxd_get_device(&device));
  CHECK(nxd_context_get_size(ctx, &ranks));
  CHECK(nxd_context_get_rank(ctx, &rank));
  layout.tensor_parallel_size = zero || pipeline ? 1 : ranks;
  layout.pipeline_parallel_size = pipeline ? ranks : 1;
  CHECK(nxd_init_model_parallel(ctx, &layout));
  options.device = device;
  options.sequence_parallel = !zero && !pipeline;
  CHECK(nxd_model_from_pretrained(ctx, directory, &options, &module));
  batch = make_batch(zero ? rank : 0, strstr(directory, "bert") != NULL, device);
  model.ddp = zero ? zero_of(module) : NULL;
  model.pipeline = pipeline ? pipeline_of(module, &batch) : NULL;
  model.module = module;
  if (pipeline) CHECK(nxd_pp_get_local_module(model.pipeline, &model.module));
  train(ctx, &model, &batch);
  print_collectives(ctx);
  CHECK(nxd_context_get_world_group(ctx, &world));
  CHECK(nxd_barrier(world)); /* threads have one device, and one report */
  print_counts(rank);
  CHECK(nxd_device_get_report(report, sizeof report, &needed));
  CHECK(nxd_master_print(ctx, report));
  nxd_ddp_destroy(model.ddp);
  nxd_pp_destroy(model.pipeline);
  for (size_t i = 0; i < batch.count; ++i) nxd_tensor_destroy(batch.inputs[i]);
  nxd_module_destroy(module);
  CHECK(nxd_context_finalize(ctx));
  nxd_context_destroy(ctx);
}

struct rank {
  nxd_context_options_t options;
  const char* directory;
};

static void* run_rank(void* given) {
  const struct rank* rank = given;
  nxd_context_t* ctx;
  CHECK(nxd_context_create(&rank->options, &ctx));
  run(ctx, rank->directory, "threads");
  return NULL;
}

static int run_threads(const char* directory) {
  struct rank ranks[2];
  pthread_t other;
  nxd_store_t* store;
  CHECK(nxd_store_create_local(&store));
  for (int i = 0; i < 2; ++i) {
    const nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    ranks[i].options = options;
    ranks[i].options.rendezvous = NXD_RENDEZVOUS_STORE;
    ranks[i].options.store = store;
    ranks[i].options.rank = i;
    ranks[i].options.size = 2;
    ranks[i].directory = directory;
  }
  if (pthread_create(&other, NULL, run_rank, &ranks[1]) != 0) return 1;
  run_rank(&ranks[0]);
  pthread_join(other, NULL);
  nxd_store_destroy(store);
  return 0;
}

int main(int argc, char** argv) {
  nxd_context_t* ctx;
  if (argc < 2 || argc > 4) return 2;
  if (argc == 4) num_steps = atoi(argv[3]);
  if (argc > 2 && strcmp(argv[2], "threads") == 0) return run_threads(argv[1]);
  CHECK(nxd_context_create(NULL, &ctx));
  run(ctx, argv[1], argc > 2 ? argv[2] : "tensor");
  return 0;
}
