/* ZeRO-1 inside a program that has its own model: a two-layer network, its backward pass and its
 * arrays are plain C, and libnxd_core reduces the gradients while the backward pass goes on, keeps
 * the optimizer's state divided over the ranks and updates the weights in place. Links nxd-core
 * alone. Losses do not depend on the number of ranks.
 *
 *   nxdrun -n 2 ./embed_zero1
 *   ./embed_zero1                    (one rank)
 *
 * Built against an installed libnxd, whose place the program remembers:
 *   cc -std=c99 -O2 embed_zero1.c -o embed_zero1 \
 *     $(pkg-config --cflags --libs nxd-core) -lm \
 *     -Wl,-rpath,$(pkg-config --variable=libdir nxd-core) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "nxd.h"

enum { kFeatures = 12, kHidden = 32, kClasses = 4, kSamples = 64, kSteps = 40, kParameters = 4 };

/* The caller's own memory: weights and what the backward pass adds up, in the order of use. */
typedef struct {
  float w1[kHidden][kFeatures], b1[kHidden], w2[kClasses][kHidden], b2[kClasses];
} weights_t;

typedef struct {
  nxd_context_t* ctx;
  nxd_ddp_t* ddp;
  nxd_optimizer_t* optimizer;
  int32_t rank, size;
  weights_t weights, grads;
} example_t;

enum { kW1, kB1, kW2, kB2 }; /* indices of the parameters */

#define TRY(call)                          \
  do {                                     \
    const nxd_status_t status_ = (call);   \
    if (status_ != NXD_OK) return status_; \
  } while (0)

/* ---- the data: class c is where a wave of the features is in its c-th quarter */

static int sample(int index, float* x) {
  double sum = 0;
  for (int i = 0; i < kFeatures; ++i) {
    x[i] = (float)sin(0.7 * (index + 1) * (i + 1) + 0.2 * i);
    sum += (double)x[i] * cos(1.1 * i);
  }
  const double place = 0.5 + 0.5 * sin(sum);
  const int label = (int)(place * kClasses);
  return label < kClasses ? label : kClasses - 1;
}

/* ---- the model: softmax(w2 tanh(w1 x + b1) + b2), and its cross entropy */

typedef struct {
  float x[kFeatures], h[kHidden], p[kClasses];
  int label;
} activations_t;

static double forward(const weights_t* w, int index, activations_t* a) {
  double z[kClasses], largest = -1e30, sum = 0;
  a->label = sample(index, a->x);
  for (int j = 0; j < kHidden; ++j) {
    double s = (double)w->b1[j];
    for (int i = 0; i < kFeatures; ++i) s += (double)w->w1[j][i] * (double)a->x[i];
    a->h[j] = (float)tanh(s);
  }
  for (int c = 0; c < kClasses; ++c) {
    z[c] = (double)w->b2[c];
    for (int j = 0; j < kHidden; ++j) z[c] += (double)w->w2[c][j] * (double)a->h[j];
    largest = fmax(largest, z[c]);
  }
  for (int c = 0; c < kClasses; ++c) sum += exp(z[c] - largest);
  for (int c = 0; c < kClasses; ++c) a->p[c] = (float)(exp(z[c] - largest) / sum);
  return -(z[a->label] - largest - log(sum));
}

/* Adds the gradients of the second layer; the first layer's follow from dh. */
static void backward_head(const weights_t* w, const activations_t* a, weights_t* g, float* dh) {
  for (int j = 0; j < kHidden; ++j) dh[j] = 0;
  for (int c = 0; c < kClasses; ++c) {
    const float dz = (a->p[c] - (c == a->label ? 1.0f : 0.0f)) / kSamples;
    g->b2[c] += dz;
    for (int j = 0; j < kHidden; ++j) {
      g->w2[c][j] += dz * a->h[j];
      dh[j] += dz * w->w2[c][j];
    }
  }
}

static void backward_body(const activations_t* a, const float* dh, weights_t* g) {
  for (int j = 0; j < kHidden; ++j) {
    const float ds = dh[j] * (1.0f - a->h[j] * a->h[j]);
    g->b1[j] += ds;
    for (int i = 0; i < kFeatures; ++i) g->w1[j][i] += ds * a->x[i];
  }
}

/* ---- libnxd: where the arrays are, and a step */

static DLTensor describe(float* data, int64_t* shape, int32_t ndim) {
  const DLTensor tensor = {data, {kDLCPU, 0}, ndim, {kDLFloat, 32, 1}, shape, NULL, 0};
  return tensor;
}

static nxd_status_t make_optimizer(example_t* e) {
  static const char* const names[kParameters] = {"w1", "b1", "w2", "b2"};
  int64_t shapes[kParameters][2] = {
      {kHidden, kFeatures}, {kHidden}, {kClasses, kHidden}, {kClasses}};
  const int32_t ndims[kParameters] = {2, 1, 2, 1};
  float* values[kParameters] = {&e->weights.w1[0][0], e->weights.b1, &e->weights.w2[0][0],
                                e->weights.b2};
  float* sums[kParameters] = {&e->grads.w1[0][0], e->grads.b1, &e->grads.w2[0][0], e->grads.b2};
  DLTensor tensors[2 * kParameters];
  DLTensor *params[kParameters], *grads[kParameters];
  for (int i = 0; i < kParameters; ++i) {
    tensors[i] = describe(values[i], shapes[i], ndims[i]);
    tensors[kParameters + i] = describe(sums[i], shapes[i], ndims[i]);
    params[i] = &tensors[i];
    grads[i] = &tensors[kParameters + i];
  }
  nxd_ddp_options_t ddp = NXD_DDP_OPTIONS_INIT;
  ddp.zero_stage = 1;
  ddp.bucket_bytes = 1024; /* two buckets, so that there is something to overlap */
  TRY(nxd_ddp_create_buffers(e->ctx, NULL, names, params, grads, kParameters, &ddp, &e->ddp));
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  adamw.learning_rate = 0.02;
  adamw.weight_decay = 0.01;
  TRY(nxd_optimizer_create_adamw_ddp(e->ddp, &adamw, &e->optimizer));
  const char* biases[] = {"b?"};
  int32_t group = 0;
  TRY(nxd_optimizer_add_group(e->optimizer, biases, 1, &group));
  return nxd_optimizer_set_hyperparameter(e->optimizer, group, NXD_HYPERPARAMETER_WEIGHT_DECAY, 0);
}

/* Every rank takes its share of the samples; the sum of the ranks' gradients is the whole's. */
static nxd_status_t train_step(example_t* e, nxd_group_t* world, int step) {
  static activations_t acts[kSamples];
  static float dh[kSamples][kHidden];
  const int first = kSamples * e->rank / e->size, last = kSamples * (e->rank + 1) / e->size;
  double loss = 0;
  const weights_t zeros = {0};
  e->grads = zeros;
  for (int s = first; s < last; ++s) loss += forward(&e->weights, s, &acts[s]) / kSamples;
  for (int s = first; s < last; ++s) backward_head(&e->weights, &acts[s], &e->grads, dh[s]);
  TRY(nxd_ddp_mark_ready(e->ddp, kB2));
  TRY(nxd_ddp_mark_ready(e->ddp, kW2)); /* its bucket may travel during what follows */
  for (int s = first; s < last; ++s) backward_body(&acts[s], dh[s], &e->grads);
  TRY(nxd_ddp_mark_ready(e->ddp, kB1));
  TRY(nxd_ddp_mark_ready(e->ddp, kW1));
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  finish.max_norm = 1.0;
  nxd_step_report_t report = {0};
  report.struct_size = sizeof report;
  TRY(nxd_optimizer_step(e->optimizer, &finish, &report));
  TRY(nxd_all_reduce(world, &loss, &loss, 1, NXD_DTYPE_F64, NXD_REDUCE_SUM));
  char line[96];
  snprintf(line, sizeof line, "step %d loss %.6f norm %.6f", step, loss, report.norm);
  return nxd_master_print(e->ctx, line);
}

static nxd_status_t run(example_t* e) {
  TRY(nxd_context_create(NULL, &e->ctx));
  TRY(nxd_context_get_rank(e->ctx, &e->rank));
  TRY(nxd_context_get_size(e->ctx, &e->size));
  /* Only rank 0's weights count: the others get them from it. */
  for (int i = 0; i < kHidden * kFeatures; ++i)
    e->weights.w1[i / kFeatures][i % kFeatures] = (float)(0.3 * sin(1.7 * i));
  for (int i = 0; i < kClasses * kHidden; ++i)
    e->weights.w2[i / kHidden][i % kHidden] = (float)(0.3 * cos(2.3 * i));
  TRY(make_optimizer(e));
  nxd_group_t* world = NULL;
  TRY(nxd_context_get_world_group(e->ctx, &world));
  for (int step = 0; step < kSteps; ++step) TRY(train_step(e, world, step));
  uint64_t bytes = 0;
  TRY(nxd_optimizer_get_state_bytes(e->optimizer, &bytes));
  char line[96];
  snprintf(line, sizeof line, "%d ranks; rank 0 keeps %llu bytes of state for %zu of weights",
           e->size, (unsigned long long)bytes, sizeof(weights_t));
  TRY(nxd_master_print(e->ctx, line));
  return nxd_context_finalize(e->ctx);
}

int main(void) {
  static example_t e;
  const nxd_status_t status = run(&e);
  if (status != NXD_OK) {
    fprintf(stderr, "embed_zero1: %s: %s\n", nxd_status_string(status), nxd_last_error());
  }
  nxd_optimizer_destroy(e.optimizer);
  nxd_ddp_destroy(e.ddp);
  nxd_context_destroy(e.ctx);
  return status == NXD_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
