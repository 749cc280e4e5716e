/* An MLP of three layers that learns ten labels by SGD, made of operators alone. One switch runs it
 * eagerly on the CPU or recorded on device XLA:
 *
 *   NXD_CPU_MODE=1 ./lazy_mlp
 *   NXD_XLA_BACKEND=replay ./lazy_mlp
 *
 * It prints the losses, and what the device has done. The learning rate falls at every step, which
 * compiles nothing.
 *
 * Built against an installed libnxd, whose place the program remembers:
 *   cc -std=c99 -O2 lazy_mlp.c -o lazy_mlp \
 *     $(pkg-config --cflags --libs nxd) -lm \
 *     -Wl,-rpath,$(pkg-config --variable=libdir nxd) */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "nxd.h"

enum { kLayers = 3, kRows = 8, kSteps = 40 };
static const int64_t kSizes[kLayers + 1] = {784, 64, 64, 10};

#define TRY(call)                                                                 \
  do {                                                                            \
    const nxd_status_t status = (call);                                           \
    if (status != NXD_OK) {                                                       \
      fprintf(stderr, "lazy_mlp: %s: %s: %s\n", #call, nxd_status_string(status), \
              nxd_last_error());                                                  \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)

static uint32_t random_state = 1;

/* In [-scale, scale), the same on every machine. */
static float next_value(float scale) {
  random_state = random_state * 1664525u + 1013904223u;
  return ((float)(random_state >> 8) / 8388608.0f - 1.0f) * scale;
}

static nxd_tensor_t* move(nxd_tensor_t* host, nxd_device_t device) {
  nxd_tensor_t* moved = NULL;
  TRY(nxd_tensor_to_device(host, device, &moved));
  nxd_tensor_destroy(host);
  return moved;
}

static nxd_tensor_t* random_matrix(int64_t rows, int64_t cols, float scale, nxd_device_t device) {
  const int64_t shape[2] = {rows, cols};
  const size_t count = (size_t)(rows * cols);
  float* values = malloc(count * sizeof *values);
  nxd_tensor_t* host = NULL;
  if (!values) exit(1);
  for (size_t i = 0; i < count; ++i) values[i] = next_value(scale);
  TRY(nxd_tensor_from_data(values, count * sizeof *values, shape, 2, NXD_DTYPE_F32, &host));
  free(values);
  return move(host, device);
}

static nxd_tensor_t* labels_on(nxd_device_t device) {
  const int64_t shape[1] = {kRows};
  int64_t labels[kRows];
  nxd_tensor_t* host = NULL;
  for (int i = 0; i < kRows; ++i) labels[i] = i;
  TRY(nxd_tensor_from_data(labels, sizeof labels, shape, 1, NXD_DTYPE_I64, &host));
  return move(host, device);
}

static nxd_tensor_t* call(const char* name, nxd_tensor_t* a, nxd_tensor_t* b) {
  nxd_tensor_t* inputs[2] = {a, b};
  nxd_tensor_t* output = NULL;
  TRY(nxd_op_call(name, NULL, inputs, b ? 2 : 1, &output, 1));
  return output;
}

static nxd_tensor_t* forward(nxd_tensor_t* const* weights, nxd_tensor_t* x, nxd_tensor_t* labels) {
  nxd_tensor_t* hidden = NULL;
  for (int i = 0; i < kLayers; ++i) {
    nxd_tensor_t* product = call("aten::linear", i == 0 ? x : hidden, weights[i]);
    nxd_tensor_destroy(hidden);
    hidden = i + 1 < kLayers ? call("aten::relu", product, NULL) : product;
    if (hidden != product) nxd_tensor_destroy(product);
  }
  nxd_tensor_t* loss = call("aten::cross_entropy_loss", hidden, labels);
  nxd_tensor_destroy(hidden);
  return loss;
}

/* weight -= rate * gradient, outside of the graph that backward walks. */
static void update(nxd_tensor_t* weight, double rate) {
  nxd_tensor_t *value = NULL, *gradient = NULL;
  nxd_op_t* op = NULL;
  TRY(nxd_tensor_detach(weight, &value));
  TRY(nxd_tensor_share_grad(weight, &gradient));
  TRY(nxd_op_create("aten::sub_", "Tensor", &op));
  TRY(nxd_op_set_tensor(op, "self", value));
  TRY(nxd_op_set_tensor(op, "other", gradient));
  TRY(nxd_op_set_double(op, "alpha", rate));
  TRY(nxd_op_run(op));
  nxd_op_destroy(op);
  nxd_tensor_destroy(gradient);
  nxd_tensor_destroy(value);
  TRY(nxd_tensor_set_grad(weight, NULL));
}

static void train(nxd_tensor_t* const* weights, nxd_tensor_t* x, nxd_tensor_t* labels) {
  for (int step = 0; step < kSteps; ++step) {
    double value = 0;
    nxd_tensor_t* loss = forward(weights, x, labels);
    TRY(nxd_backward(&loss, NULL, 1, 0));
    for (int i = 0; i < kLayers; ++i) update(weights[i], 0.05 / (1 + step));
    TRY(nxd_mark_step(1));
    TRY(nxd_tensor_get_item(loss, &value)); /* known by now: no sync */
    printf("step %d loss %.7f\n", step, value);
    nxd_tensor_destroy(loss);
  }
}

int main(void) {
  nxd_device_t device;
  nxd_tensor_t* weights[kLayers];
  nxd_device_metrics_t m = {0};
  m.struct_size = sizeof m;
  TRY(nxd_get_device(&device));
  for (int i = 0; i < kLayers; ++i) {
    weights[i] = random_matrix(kSizes[i + 1], kSizes[i], 0.1f, device);
    TRY(nxd_tensor_set_requires_grad(weights[i], 1));
  }
  nxd_tensor_t* x = random_matrix(kRows, kSizes[0], 1, device);
  nxd_tensor_t* labels = labels_on(device);
  train(weights, x, labels);
  TRY(nxd_device_get_metrics(&m));
  printf("steps %d compiles %d loads %d executions %d implicit_syncs %d fallbacks %d\n",
         (int)m.steps, (int)m.compiles, (int)m.loads, (int)m.executions, (int)m.implicit_syncs,
         (int)m.fallbacks);
  nxd_tensor_destroy(labels);
  nxd_tensor_destroy(x);
  for (int i = 0; i < kLayers; ++i) nxd_tensor_destroy(weights[i]);
  return 0;
}
