/* A pipeline whose stages are plain C: a network of tanh layers with its own forward and backward
 * pass, cut over the ranks there are. libnxd_core runs the schedule and carries the values; plain
 * SGD on the caller's arrays follows each step. Links nxd-core alone. Losses are the same to the
 * last digit for every number of ranks, chunks and every schedule.
 *
 *   ./pipeline_callbacks                                          (one rank)
 *   nxdrun -n 4 ./pipeline_callbacks --schedule zero-bubble
 *   NEURON_NUM_DEVICES=2 ./pipeline_callbacks --chunks 2 --timeline run.json
 *   torchrun --nproc-per-node=2 --no-python ./pipeline_callbacks --schedule gpipe
 *
 * Built against an installed libnxd, whose place the program remembers:
 *   cc -std=c99 -O2 pipeline_callbacks.c -o pipeline_callbacks \
 *     $(pkg-config --cflags --libs nxd-core) -lm \
 *     -Wl,-rpath,$(pkg-config --variable=libdir nxd-core) */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nxd.h"

enum { kLayers = 8, kWidth = 24, kRows = 16, kMicrobatches = 8, kSteps = 30, kMaxChunks = 8 };
static const float kRate = 0.5f;

/* The caller's own memory: a layer's weights, and what its backward pass adds up. */
typedef struct {
  float w[kWidth][kWidth], b[kWidth];
} layer_t;

typedef float rows_t[kRows][kWidth];

typedef struct {
  nxd_context_t* ctx;
  nxd_pp_t* pp;
  int32_t rank, ranks, chunks;
  nxd_pp_schedule_kind_t schedule;
  const char* timeline;
  int step;
  layer_t layers[kLayers], grads[kLayers]; /* of which this rank uses its own */
} example_t;

#define TRY(call)                          \
  do {                                     \
    const nxd_status_t status_ = (call);   \
    if (status_ != NXD_OK) return status_; \
  } while (0)

/* ---- the data: waves, and what is to be made of them */

static void read_sample(const example_t* e, int microbatch, rows_t x) {
  for (int r = 0; r < kRows; ++r) {
    const int sample = (e->step % 4 * kMicrobatches + microbatch) * kRows + r;
    for (int i = 0; i < kWidth; ++i) x[r][i] = (float)sin(0.11 * (sample + 1) * (i % 5 + 1) + i);
  }
}

static float target(const float* x, int i) { return 0.5f * x[i] * x[(i + 1) % kWidth]; }

/* ---- the model: h = h + tanh(w h + b), eight times; mean squared error */

static int first_layer(const example_t* e, int stage) {
  return stage * kLayers / (e->ranks * e->chunks);
}

static void layer_forward(const layer_t* l, rows_t h, rows_t y) {
  for (int r = 0; r < kRows; ++r) {
    for (int o = 0; o < kWidth; ++o) {
      float z = l->b[o];
      for (int i = 0; i < kWidth; ++i) z += l->w[o][i] * h[r][i];
      y[r][o] = h[r][o] + tanhf(z);
    }
  }
}

/* dy becomes dh; g, if it is not NULL, takes the weights' part. */
static void layer_backward(const layer_t* l, rows_t h, rows_t y, rows_t dy, layer_t* g) {
  for (int r = 0; r < kRows; ++r) {
    float dh[kWidth];
    memcpy(dh, dy[r], sizeof dh);
    for (int o = 0; o < kWidth; ++o) {
      const float t = y[r][o] - h[r][o], dz = dy[r][o] * (1 - t * t);
      if (g) g->b[o] += dz;
      for (int i = 0; i < kWidth; ++i) {
        if (g) g->w[o][i] += dz * h[r][i];
        dh[i] += dz * l->w[o][i];
      }
    }
    memcpy(dy[r], dh, sizeof dh);
  }
}

/* The rows before each of a stage's layers and after the last. Gives how many layers that are. */
static int stage_forward(const example_t* e, const nxd_pp_call_t* call, DLTensor* const* in,
                         rows_t* h) {
  const int first = first_layer(e, call->stage), last = first_layer(e, call->stage + 1);
  if (call->stage == 0) {
    read_sample(e, call->microbatch, h[0]);
  } else {
    memcpy(h[0], in[0]->data, sizeof h[0]);
  }
  for (int l = first; l < last; ++l) layer_forward(&e->layers[l], h[l - first], h[l - first + 1]);
  return last - first;
}

static int is_last(const example_t* e, const nxd_pp_call_t* call) {
  return call->stage + 1 == e->ranks * e->chunks;
}

/* dy: NULL, or where the gradient goes. The data are read again: every stage can. */
static double loss_of(const example_t* e, const nxd_pp_call_t* call, rows_t y, rows_t dy) {
  static rows_t x;
  double sum = 0;
  read_sample(e, call->microbatch, x);
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kWidth; ++i) {
      const float error = y[r][i] - target(x[r], i);
      sum += (double)error * (double)error;
      if (dy) dy[r][i] = (float)call->loss_weight * 2 * error / (kRows * kWidth);
    }
  }
  return sum / (kRows * kWidth);
}

/* ---- the stages, as libnxd calls them */

static nxd_status_t forward(const nxd_pp_call_t* call, DLTensor* const* in, DLTensor* const* out,
                            double* out_loss, void* user_data) {
  static rows_t h[kLayers + 1];
  const example_t* e = user_data;
  const int n = stage_forward(e, call, in, h);
  if (is_last(e, call)) {
    *out_loss = loss_of(e, call, h[n], NULL);
  } else {
    memcpy(out[0]->data, h[n], sizeof h[n]);
  }
  return NXD_OK;
}

/* Computes the stage's rows anew from its inputs, which libnxd has kept, instead of keeping all of
 * them here. */
static void stage_backward(example_t* e, const nxd_pp_call_t* call, DLTensor* const* in,
                           DLTensor* const* grad_out, DLTensor* const* grad_in, int weights) {
  static rows_t h[kLayers + 1], d;
  const int n = stage_forward(e, call, in, h), first = first_layer(e, call->stage);
  if (is_last(e, call)) {
    (void)loss_of(e, call, h[n], d);
  } else {
    memcpy(d, grad_out[0]->data, sizeof d);
  }
  for (int l = n - 1; l >= 0; --l)
    layer_backward(&e->layers[first + l], h[l], h[l + 1], d, weights ? &e->grads[first + l] : NULL);
  if (grad_in && call->stage > 0) memcpy(grad_in[0]->data, d, sizeof d);
}

static nxd_status_t backward(const nxd_pp_call_t* call, DLTensor* const* in,
                             DLTensor* const* grad_out, DLTensor* const* grad_in, void* user_data) {
  stage_backward(user_data, call, in, grad_out, grad_in, 1);
  return NXD_OK;
}

static nxd_status_t backward_input(const nxd_pp_call_t* call, DLTensor* const* in,
                                   DLTensor* const* grad_out, DLTensor* const* grad_in,
                                   void* user_data) {
  stage_backward(user_data, call, in, grad_out, grad_in, 0);
  return NXD_OK;
}

static nxd_status_t backward_weight(const nxd_pp_call_t* call, DLTensor* const* in,
                                    DLTensor* const* grad_out, void* user_data) {
  stage_backward(user_data, call, in, grad_out, NULL, 1);
  return NXD_OK;
}

/* ---- libnxd: the pipeline, and a step */

static nxd_status_t make_pipeline(example_t* e) {
  static const int64_t shape[2] = {kRows, kWidth};
  const nxd_pp_value_t value = {"h", shape, 2, NXD_DTYPE_F32, 1, 0};
  nxd_pp_value_t values[kMaxChunks];
  size_t num_inputs[kMaxChunks], num_outputs[kMaxChunks];
  const int32_t stages = e->ranks * e->chunks;
  for (int c = 0; c < e->chunks; ++c) {
    const int stage = c * e->ranks + e->rank;
    values[c] = value;
    num_inputs[c] = stage > 0;
    num_outputs[c] = stage + 1 < stages;
  }
  nxd_pp_stage_callbacks_t callbacks = {
      sizeof callbacks, e, NULL, forward, backward, backward_input, backward_weight};
  nxd_pp_callbacks_options_t options = NXD_PP_CALLBACKS_OPTIONS_INIT;
  options.num_microbatches = kMicrobatches;
  options.virtual_size = e->chunks;
  options.schedule = e->schedule;
  options.broadcast_and_average_loss = 1;
  TRY(nxd_pp_create_callbacks(e->ctx, &options, values, num_inputs, values, num_outputs, &callbacks,
                              &e->pp));
  return e->timeline ? nxd_pp_set_timeline(e->pp, 1) : NXD_OK;
}

static nxd_status_t train_step(example_t* e) {
  double loss = 0;
  memset(e->grads, 0, sizeof e->grads);
  TRY(nxd_pp_run(e->pp, 1, &loss));
  for (int l = 0; l < kLayers; ++l) {
    for (int i = 0; i < kWidth; ++i) {
      e->layers[l].b[i] -= kRate * e->grads[l].b[i];
      for (int j = 0; j < kWidth; ++j) e->layers[l].w[i][j] -= kRate * e->grads[l].w[i][j];
    }
  }
  char line[64];
  snprintf(line, sizeof line, "step %d loss %.17g", e->step, loss);
  return nxd_master_print(e->ctx, line);
}

static nxd_status_t run(example_t* e) {
  TRY(nxd_context_create(NULL, &e->ctx));
  TRY(nxd_context_get_rank(e->ctx, &e->rank));
  TRY(nxd_context_get_size(e->ctx, &e->ranks));
  nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
  layout.pipeline_parallel_size = e->ranks;
  TRY(nxd_init_model_parallel(e->ctx, &layout));
  for (int l = 0; l < kLayers; ++l) {
    for (int i = 0; i < kWidth * kWidth; ++i)
      e->layers[l].w[i / kWidth][i % kWidth] = (float)(0.1 * sin(1.7 * i + 5.3 * l));
  }
  TRY(make_pipeline(e));
  for (e->step = 0; e->step < kSteps; ++e->step) TRY(train_step(e));
  if (e->timeline) TRY(nxd_pp_write_timeline(e->pp, e->timeline));
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

static int read_arguments(example_t* e, int argc, char** argv) {
  static const char* const schedules[] = {"default", "1f1b", "interleaved", "gpipe", "zero-bubble"};
  static const struct option options[] = {{"chunks", required_argument, NULL, 'c'},
                                          {"schedule", required_argument, NULL, 's'},
                                          {"timeline", required_argument, NULL, 't'},
                                          {NULL, 0, NULL, 0}};
  e->chunks = 1;
  for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    if (c == '?') return 0;
    if (c == 'c') {
      char* end = NULL;
      const long chunks = strtol(optarg, &end, 10);
      e->chunks = *optarg && !*end && chunks >= 1 && chunks <= kMaxChunks ? (int32_t)chunks : 0;
    }
    if (c == 't') e->timeline = optarg;
    if (c != 's') continue;
    e->schedule = NXD_PP_SCHEDULE_INVALID;
    for (int k = 0; k < 5; ++k) {
      if (!strcmp(optarg, schedules[k])) e->schedule = k;
    }
    if (e->schedule == NXD_PP_SCHEDULE_INVALID) return 0;
  }
  return optind == argc && e->chunks >= 1 && e->chunks <= kMaxChunks;
}

int main(int argc, char** argv) {
  static example_t e;
  if (!read_arguments(&e, argc, argv)) {
    fprintf(stderr,
            "usage: pipeline_callbacks [--schedule 1f1b|interleaved|gpipe|zero-bubble] "
            "[--chunks N] [--timeline FILE.json]\n");
    return 2;
  }
  const nxd_status_t status = run_all(&e);
  if (status != NXD_OK)
    fprintf(stderr, "pipeline_callbacks: %s: %s\n", nxd_status_string(status), nxd_last_error());
  nxd_pp_destroy(e.pp);
  nxd_context_destroy(e.ctx);
  return status == NXD_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
