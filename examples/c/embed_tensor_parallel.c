/* Tensor parallelism and ZeRO-1 inside a program that owns all of its memory: one malloc has the
 * parameters, the gradients and the activations of a two-layer network. libnxd_core multiplies what
 * each rank has of the weights, sums over the ranks, and divides the optimizer's state; the rest is
 * plain C. Links nxd-core alone. Losses do not depend on the ranks.
 *
 *   nxdrun -n 2 ./embed_tensor_parallel 2         (two tensor-parallel ranks)
 *   nxdrun -n 4 ./embed_tensor_parallel 2         (two of two, with ZeRO-1 over the pairs)
 *   ./embed_tensor_parallel                       (one rank)
 *
 * Built against an installed libnxd, whose place the program remembers:
 *   cc -std=c99 -O2 embed_tensor_parallel.c -o embed_tensor_parallel \
 *     $(pkg-config --cflags --libs nxd-core) -lm \
 *     -Wl,-rpath,$(pkg-config --variable=libdir nxd-core) */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "nxd.h"

enum { kFeatures = 12, kHidden = 32, kClasses = 4, kSamples = 64, kSteps = 40, kArrays = 4 };
enum { kW1, kB1, kW2, kB2 }; /* indices of the parameters */

/* An array of the one block of memory. */
typedef struct {
  float* data;
  int64_t shape[2];
  DLTensor tensor;
} array_t;

typedef struct {
  nxd_context_t* ctx;
  nxd_group_t* data_group;
  nxd_ddp_t* ddp;
  nxd_optimizer_t* optimizer;
  int32_t tp, tp_rank, dp, dp_rank;
  float* memory;
  size_t used;
  array_t params[kArrays], grads[kArrays];
  array_t x, h, z, dh, dz; /* of this rank's samples; h has this rank's part of the features */
  int labels[kSamples];
} example_t;

#define TRY(call)                          \
  do {                                     \
    const nxd_status_t status_ = (call);   \
    if (status_ != NXD_OK) return status_; \
  } while (0)

/* ---- memory: every array is a piece of one malloc */

/* cols 0: a vector. With no memory yet, only counts. */
static void carve(example_t* e, array_t* array, int64_t rows, int64_t cols) {
  const DLTensor tensor = {NULL, {kDLCPU, 0}, cols ? 2 : 1, {kDLFloat, 32, 1}, array->shape, NULL,
                           0};
  array->shape[0] = rows;
  array->shape[1] = cols;
  array->tensor = tensor;
  if (e->memory) array->tensor.data = array->data = e->memory + e->used;
  e->used += (size_t)(rows * (cols ? cols : 1));
}

static void carve_all(example_t* e) {
  const int64_t part = kHidden / e->tp, samples = kSamples / e->dp;
  e->used = 0;
  array_t* const sets[2] = {e->params, e->grads};
  for (int i = 0; i < 2; ++i) {
    carve(e, &sets[i][kW1], part, kFeatures); /* this rank's rows */
    carve(e, &sets[i][kB1], part, 0);
    carve(e, &sets[i][kW2], kClasses, part); /* this rank's columns */
    carve(e, &sets[i][kB2], kClasses, 0);
  }
  carve(e, &e->x, samples, kFeatures);
  carve(e, &e->h, samples, part);
  carve(e, &e->z, samples, kClasses);
  carve(e, &e->dh, samples, part);
  carve(e, &e->dz, samples, kClasses);
}

/* ---- values: those of the undivided network, whatever this rank has of them */

static nxd_status_t fill(example_t* e) {
  nxd_shard_options_t rows = NXD_SHARD_OPTIONS_INIT, columns = NXD_SHARD_OPTIONS_INIT;
  rows.has_dim = columns.has_dim = 1;
  columns.dim = 1;
  for (int64_t i = 0; i < e->params[kB1].shape[0]; ++i) e->params[kB1].data[i] = 0;
  for (int c = 0; c < kClasses; ++c) e->params[kB2].data[c] = 0;
  TRY(nxd_shard_initialize(e->ctx, "w1", NXD_INIT_NORMAL, 0, 0.3, &rows, &e->params[kW1].tensor));
  return nxd_shard_initialize(e->ctx, "w2", NXD_INIT_NORMAL, 0, 0.3, &columns,
                              &e->params[kW2].tensor);
}

/* Class c is where a wave of the features is in its c-th quarter. */
static int sample(int index, float* x) {
  double sum = 0;
  for (int i = 0; i < kFeatures; ++i) {
    x[i] = (float)sin(0.7 * (index + 1) * (i + 1) + 0.2 * i);
    sum += (double)x[i] * cos(1.1 * i);
  }
  const int label = (int)((0.5 + 0.5 * sin(sum)) * kClasses);
  return label < kClasses ? label : kClasses - 1;
}

static void load_samples(example_t* e) {
  const int count = kSamples / e->dp;
  for (int s = 0; s < count; ++s)
    e->labels[s] = sample(e->dp_rank * count + s, e->x.data + s * kFeatures);
}

/* ---- the model: softmax(W2 tanh(W1 x + b1) + b2), and its cross entropy */

static double cross_entropy(example_t* e) {
  double loss = 0;
  for (int s = 0; s < kSamples / e->dp; ++s) {
    const float* z = e->z.data + s * kClasses;
    float* dz = e->dz.data + s * kClasses;
    double largest = -1e30, sum = 0;
    for (int c = 0; c < kClasses; ++c) largest = fmax(largest, (double)z[c]);
    for (int c = 0; c < kClasses; ++c) sum += exp((double)z[c] - largest);
    for (int c = 0; c < kClasses; ++c) {
      const double p = exp((double)z[c] - largest) / sum;
      dz[c] = (float)((p - (c == e->labels[s])) / kSamples);
    }
    loss -= ((double)z[e->labels[s]] - largest - log(sum)) / kSamples;
  }
  return loss;
}

static nxd_status_t forward(example_t* e) {
  const size_t count = (size_t)(e->h.shape[0] * e->h.shape[1]);
  /* Column-parallel: every rank has x, and gets its own features of h. */
  TRY(nxd_column_linear_forward(e->ctx, &e->x.tensor, &e->params[kW1].tensor,
                                &e->params[kB1].tensor, NULL, &e->h.tensor));
  for (size_t i = 0; i < count; ++i) e->h.data[i] = tanhf(e->h.data[i]);
  /* Row-parallel: z is the sum over ranks, the same on all of them. */
  return nxd_row_linear_forward(e->ctx, &e->h.tensor, &e->params[kW2].tensor,
                                &e->params[kB2].tensor, NULL, &e->z.tensor);
}

static nxd_status_t backward(example_t* e) {
  const size_t count = (size_t)(e->h.shape[0] * e->h.shape[1]);
  TRY(nxd_row_linear_backward(e->ctx, &e->h.tensor, &e->params[kW2].tensor, &e->dz.tensor, NULL,
                              &e->dh.tensor, &e->grads[kW2].tensor, &e->grads[kB2].tensor));
  TRY(nxd_ddp_mark_ready(e->ddp, kB2));
  TRY(nxd_ddp_mark_ready(e->ddp, kW2)); /* their bucket may travel during what follows */
  for (size_t i = 0; i < count; ++i) e->dh.data[i] *= 1 - e->h.data[i] * e->h.data[i];
  /* x has no gradient to ask for, so nothing is summed here. */
  TRY(nxd_column_linear_backward(e->ctx, &e->x.tensor, &e->params[kW1].tensor, &e->dh.tensor, NULL,
                                 NULL, &e->grads[kW1].tensor, &e->grads[kB1].tensor));
  TRY(nxd_ddp_mark_ready(e->ddp, kB1));
  return nxd_ddp_mark_ready(e->ddp, kW1);
}

/* ---- libnxd: the layout, the optimizer, and a step */

static nxd_status_t join(example_t* e, int tp) {
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  parallel.tensor_parallel_size = tp;
  TRY(nxd_context_create(NULL, &e->ctx));
  TRY(nxd_init_model_parallel(e->ctx, &parallel));
  TRY(nxd_parallel_get_size(e->ctx, NXD_AXIS_TENSOR, &e->tp));
  TRY(nxd_parallel_get_rank(e->ctx, NXD_AXIS_TENSOR, &e->tp_rank));
  TRY(nxd_parallel_get_size(e->ctx, NXD_AXIS_DATA, &e->dp));
  TRY(nxd_parallel_get_rank(e->ctx, NXD_AXIS_DATA, &e->dp_rank));
  return nxd_parallel_get_group(e->ctx, NXD_AXIS_DATA, &e->data_group);
}

static nxd_status_t make_optimizer(example_t* e) {
  static const char* const names[kArrays] = {"w1", "b1", "w2", "b2"};
  DLTensor *params[kArrays], *grads[kArrays];
  for (int i = 0; i < kArrays; ++i) {
    params[i] = &e->params[i].tensor;
    grads[i] = &e->grads[i].tensor;
  }
  nxd_ddp_options_t ddp = NXD_DDP_OPTIONS_INIT;
  ddp.zero_stage = 1;
  ddp.bucket_bytes = 1024; /* two buckets, so that there is something to overlap */
  TRY(nxd_ddp_create_buffers(e->ctx, e->data_group, names, params, grads, kArrays, &ddp, &e->ddp));
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  adamw.learning_rate = 0.02;
  return nxd_optimizer_create_adamw_ddp(e->ddp, &adamw, &e->optimizer);
}

static nxd_status_t train_step(example_t* e, int step) {
  TRY(forward(e));
  double loss = cross_entropy(e);
  TRY(backward(e));
  TRY(nxd_optimizer_step(e->optimizer, NULL, NULL));
  TRY(nxd_all_reduce(e->data_group, &loss, &loss, 1, NXD_DTYPE_F64, NXD_REDUCE_SUM));
  char line[64];
  snprintf(line, sizeof line, "step %d loss %.6f", step, loss);
  return nxd_master_print(e->ctx, line);
}

static nxd_status_t run(example_t* e, int tp) {
  TRY(join(e, tp));
  if (kHidden % e->tp || kSamples % e->dp) {
    fprintf(stderr, "%d units do not divide by %d ranks, or %d samples by %d\n", kHidden,
            (int)e->tp, kSamples, (int)e->dp);
    return NXD_ERROR_USER;
  }
  carve_all(e);
  e->memory = malloc(e->used * sizeof(float));
  if (!e->memory) return NXD_ERROR_OUT_OF_MEMORY;
  carve_all(e);
  TRY(fill(e));
  load_samples(e);
  TRY(make_optimizer(e));
  for (int step = 0; step < kSteps; ++step) TRY(train_step(e, step));
  char line[96];
  snprintf(line, sizeof line, "%d x %d ranks; each keeps %zu bytes of arrays", (int)e->dp,
           (int)e->tp, e->used * sizeof(float));
  TRY(nxd_master_print(e->ctx, line));
  return nxd_context_finalize(e->ctx);
}

/* The number of tensor-parallel ranks; 0 when the arguments are wrong. */
static int read_arguments(int argc, char** argv) {
  static const struct option known[] = {{NULL, 0, NULL, 0}};
  if (getopt_long(argc, argv, "", known, NULL) != -1 || argc - optind > 1) return 0;
  if (optind == argc) return 1;
  char* end = NULL;
  const long tp = strtol(argv[optind], &end, 10);
  return *argv[optind] && !*end && tp >= 1 && tp <= kHidden ? (int)tp : 0;
}

int main(int argc, char** argv) {
  static example_t e;
  const int tp = read_arguments(argc, argv);
  if (!tp) {
    fprintf(stderr, "usage: embed_tensor_parallel [RANKS], from 1 to %d\n", kHidden);
    return 2;
  }
  const nxd_status_t status = run(&e, tp);
  if (status != NXD_OK) {
    fprintf(stderr, "embed_tensor_parallel: %s: %s\n", nxd_status_string(status), nxd_last_error());
  }
  nxd_optimizer_destroy(e.optimizer);
  nxd_ddp_destroy(e.ddp);
  nxd_context_destroy(e.ctx);
  free(e.memory);
  return status == NXD_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
