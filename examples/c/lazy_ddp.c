/* Data parallelism in its smallest form: a network of two linear layers, of which every rank has a
 * copy, on samples that the ranks share out anew each epoch. Start it as any program, with
 * NEURON_NUM_DEVICES ranks, or under torchrun, nxdrun, mpirun or srun; eagerly on the CPU, or
 * recorded on device XLA, where a step is one graph.
 *
 *   NXD_CPU_MODE=1 NEURON_NUM_DEVICES=2 ./lazy_ddp
 *   NXD_CPU_MODE=1 torchrun --nproc-per-node=2 --no-python ./lazy_ddp
 *   NXD_XLA_BACKEND=replay NEURON_NUM_DEVICES=2 ./lazy_ddp
 *
 * Built against an installed libnxd, whose place the program remembers:
 *   cc -std=c99 -O2 lazy_ddp.c -o lazy_ddp \
 *     $(pkg-config --cflags --libs nxd) -lm \
 *     -Wl,-rpath,$(pkg-config --variable=libdir nxd) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "nxd.h"

enum { kIn = 10, kHidden = 10, kOut = 5, kSamples = 240, kBatch = 24, kEpochs = 10 };

typedef struct {
  nxd_context_t* ctx;
  nxd_module_t *model, *net1, *net2;
  nxd_ddp_t* ddp;
  nxd_optimizer_t* optimizer;
  nxd_group_t* data_group; /* borrowed */
  nxd_device_t device;
  int32_t rank, size;
} example_t;

#define TRY(call)                          \
  do {                                     \
    const nxd_status_t status_ = (call);   \
    if (status_ != NXD_OK) return status_; \
  } while (0)

/* (x, target) -> mean squared error of net2(relu(net1(x))) */
static nxd_status_t model_forward(nxd_module_t* self, nxd_tensor_t* const* inputs,
                                  size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs,
                                  void* user_data) {
  (void)self;
  example_t* e = user_data;
  if (num_inputs != 2 || num_outputs != 1) return NXD_ERROR_USER;
  nxd_tensor_t *z = NULL, *h = NULL, *y = NULL;
  nxd_status_t status = nxd_module_forward(e->net1, inputs, 1, &z, 1);
  if (!status) status = nxd_op_call("relu", NULL, &z, 1, &h, 1);
  if (!status) status = nxd_module_forward(e->net2, &h, 1, &y, 1);
  nxd_tensor_t* pair[2] = {y, inputs[1]};
  if (!status) status = nxd_op_call("mse_loss", NULL, pair, 2, outputs, 1);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(h);
  nxd_tensor_destroy(z);
  return status;
}

/* Without tensor parallelism a column-parallel layer is a linear layer. */
static nxd_status_t make_model(example_t* e) {
  nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
  TRY(nxd_module_create(e->ctx, "Model", model_forward, e, NULL, &e->model));
  linear.device = e->device;
  linear.name = "net1";
  TRY(nxd_layer_create_column_parallel_linear(e->ctx, kIn, kHidden, &linear, &e->net1));
  TRY(nxd_module_add_child(e->model, "net1", e->net1));
  linear.name = "net2";
  TRY(nxd_layer_create_column_parallel_linear(e->ctx, kHidden, kOut, &linear, &e->net2));
  TRY(nxd_module_add_child(e->model, "net2", e->net2));
  nxd_ddp_options_t ddp = NXD_DDP_OPTIONS_INIT;
  ddp.reduce = NXD_REDUCE_AVG;
  TRY(nxd_ddp_create(e->model, &ddp, &e->ddp));
  nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
  sgd.learning_rate = 0.05;
  return nxd_optimizer_create_sgd_ddp(e->ddp, &sgd, &e->optimizer);
}

/* This rank's samples of an epoch, as the thread of a device loader reads them. */
typedef struct {
  int64_t indices[kSamples], count, share, at;
} epoch_t;

/* Features are waves of a sample's index, targets a function of the features. */
static nxd_status_t make_batch(const int64_t* indices, int64_t count, nxd_tensor_t** out) {
  float x[kBatch][kIn], target[kBatch][kOut];
  const int64_t x_shape[2] = {count, kIn}, target_shape[2] = {count, kOut};
  for (int64_t s = 0; s < count; ++s) {
    for (int i = 0; i < kIn; ++i) x[s][i] = (float)sin(0.37 * (double)indices[s] * (i + 1) + i);
    for (int o = 0; o < kOut; ++o) target[s][o] = x[s][o] * x[s][o + 1] + 0.5f * x[s][2 * o];
  }
  TRY(nxd_tensor_from_data(x, sizeof(float) * (size_t)count * kIn, x_shape, 2, NXD_DTYPE_F32,
                           &out[0]));
  return nxd_tensor_from_data(target, sizeof(float) * (size_t)count * kOut, target_shape, 2,
                              NXD_DTYPE_F32, &out[1]);
}

static nxd_status_t read_batch(nxd_tensor_t** outputs, size_t num_outputs, int32_t* out_end,
                               void* user_data) {
  epoch_t* epoch = user_data;
  if (num_outputs != 2) return NXD_ERROR_USER;
  *out_end = epoch->at + epoch->share > epoch->count;
  if (*out_end) return NXD_OK;
  epoch->at += epoch->share;
  return make_batch(epoch->indices + epoch->at - epoch->share, epoch->share, outputs);
}

static nxd_status_t train_step(example_t* e, nxd_tensor_t* const* batch, double* out_loss) {
  nxd_tensor_t* loss = NULL;
  nxd_status_t status = nxd_module_zero_grad(e->model);
  if (!status) status = nxd_module_forward(e->model, batch, 2, &loss, 1);
  if (!status) status = nxd_backward(&loss, NULL, 1, 0);
  if (!status) status = nxd_optimizer_step(e->optimizer, NULL, NULL);
  if (!status) status = nxd_mark_step(1);
  if (!status) status = nxd_tensor_get_item(loss, out_loss); /* known by now */
  nxd_tensor_destroy(loss);
  return status;
}

/* Batches wait on the device. */
static nxd_status_t train_batches(example_t* e, nxd_device_loader_t* loader, double* out_mean) {
  double sum = 0;
  int64_t steps = 0;
  for (;; ++steps) {
    nxd_tensor_t* batch[2] = {NULL, NULL};
    int32_t end = 0;
    double loss = 0;
    TRY(nxd_device_loader_next(loader, batch, 2, &end));
    if (end) break;
    const nxd_status_t status = train_step(e, batch, &loss);
    nxd_tensor_destroy(batch[1]);
    nxd_tensor_destroy(batch[0]);
    TRY(status);
    sum += loss;
  }
  *out_mean = sum / (double)steps;
  return NXD_OK;
}

static nxd_status_t train_epoch(example_t* e, int number) {
  epoch_t epoch = {{0}, 0, kBatch / e->size, 0};
  size_t count = 0;
  double mean = 0;
  nxd_device_loader_t* loader = NULL;
  TRY(nxd_sample_epoch(kSamples, e->size, e->rank, number, 1, 1, 1, epoch.indices, kSamples,
                       &count));
  epoch.count = (int64_t)count;
  TRY(nxd_device_loader_create_callback(read_batch, &epoch, NULL, 2, e->device, NULL, &loader));
  const nxd_status_t status = train_batches(e, loader, &mean);
  nxd_device_loader_destroy(loader);
  TRY(status);
  TRY(nxd_all_reduce(e->data_group, &mean, &mean, 1, NXD_DTYPE_F64, NXD_REDUCE_AVG));
  char line[64];
  snprintf(line, sizeof line, "epoch %d loss %.6f", number, mean);
  return nxd_master_print(e->ctx, line);
}

static nxd_status_t print_counts(example_t* e) {
  nxd_device_metrics_t m = {0};
  char line[128];
  m.struct_size = sizeof m;
  TRY(nxd_device_get_metrics(&m));
  snprintf(line, sizeof line,
           "steps %d compiles %d loads %d executions %d implicit_syncs %d fallbacks %d",
           (int)m.steps, (int)m.compiles, (int)m.loads, (int)m.executions, (int)m.implicit_syncs,
           (int)m.fallbacks);
  return nxd_master_print(e->ctx, line);
}

static nxd_status_t run(example_t* e) {
  TRY(nxd_get_device(&e->device));
  TRY(nxd_context_create(NULL, &e->ctx));
  TRY(nxd_init_model_parallel(e->ctx, NULL));
  TRY(nxd_parallel_get_group(e->ctx, NXD_AXIS_DATA, &e->data_group));
  TRY(nxd_group_get_rank(e->data_group, &e->rank));
  TRY(nxd_group_get_size(e->data_group, &e->size));
  if (e->size > kBatch) {
    char line[64];
    snprintf(line, sizeof line, "expected at most %d ranks, got %d", kBatch, (int)e->size);
    nxd_set_last_error(NXD_ERROR_USER, line);
    return NXD_ERROR_USER;
  }
  TRY(make_model(e));
  for (int epoch = 0; epoch < kEpochs; ++epoch) TRY(train_epoch(e, epoch));
  TRY(print_counts(e));
  return nxd_context_finalize(e->ctx);
}

/* Starts the processes, unless a launcher has. */
static nxd_status_t run_all(example_t* e) {
  if (!getenv("NEURON_NUM_DEVICES")) return run(e);
  nxd_job_t* job = NULL;
  nxd_status_t status = nxd_spawn(NULL, &job);
  if (status == NXD_ERROR_INVALID_STATE) return run(e); /* this is one of its ranks */
  if (status == NXD_OK) status = nxd_job_wait(job, -1);
  nxd_job_destroy(job);
  return status;
}

int main(void) {
  example_t e = {0};
  const nxd_status_t status = run_all(&e);
  if (status != NXD_OK) {
    fprintf(stderr, "lazy_ddp: %s: %s\n", nxd_status_string(status), nxd_last_error());
  }
  nxd_optimizer_destroy(e.optimizer);
  nxd_ddp_destroy(e.ddp);
  nxd_module_destroy(e.net2);
  nxd_module_destroy(e.net1);
  nxd_module_destroy(e.model);
  nxd_context_destroy(e.ctx);
  return status == NXD_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
