/* A model, an activation and a loss of one's own, in C: a two-layer network split over all ranks
 * whose forward function, snake activation (Ziyin et al. 2020) and Huber loss are written here,
 * trained on data made by a formula. Losses do not depend on the number of ranks.
 *
 *   NXD_CPU_MODE=1 nxdrun -n 2 ./custom_model
 *   NXD_CPU_MODE=1 ./custom_model                    (one rank)
 *
 * Built against an installed libnxd, whose place the program remembers:
 *   cc -std=c99 -O2 custom_model.c -o custom_model \
 *     $(pkg-config --cflags --libs nxd) -lm \
 *     -Wl,-rpath,$(pkg-config --variable=libdir nxd) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "nxd.h"

enum { kSamples = 16, kFeatures = 6, kHidden = 8, kSteps = 30, kMaxElements = 256 };
static const double kFrequency = 1.5; /* of snake */
static const double kDelta = 0.5;     /* where Huber's loss turns from a square to a line */

typedef struct {
  nxd_context_t* ctx;
  nxd_function_t *snake, *huber;
  nxd_module_t *model, *up, *down;
  nxd_tensor_t *x, *target;
  nxd_optimizer_t* optimizer;
} example_t;

/* Inside callbacks errors are handed on; the message stays with the library. */
#define TRY(call)                          \
  do {                                     \
    const nxd_status_t status_ = (call);   \
    if (status_ != NXD_OK) return status_; \
  } while (0)

/* ---- tensors as plain arrays */

static nxd_status_t read_floats(nxd_tensor_t* tensor, float* values, int64_t* out_count) {
  TRY(nxd_tensor_get_element_count(tensor, out_count));
  if (*out_count > kMaxElements) return NXD_ERROR_USER;
  return nxd_tensor_copy_to_host(tensor, values, (size_t)*out_count * sizeof(float));
}

/* A tensor of values, with the shape of another. */
static nxd_status_t write_floats(const float* values, nxd_tensor_t* like, nxd_tensor_t** out) {
  int64_t shape[8], count = 0;
  size_t ndim = 0;
  TRY(nxd_tensor_get_shape(like, shape, 8, &ndim));
  TRY(nxd_tensor_get_element_count(like, &count));
  return nxd_tensor_from_data(values, (size_t)count * sizeof(float), shape, (int32_t)ndim,
                              NXD_DTYPE_F32, out);
}

/* ---- snake(z) = z + sin(a z)^2 / a, with the slope 1 + sin(2 a z) */

static nxd_status_t snake_forward(nxd_function_call_t* call, nxd_tensor_t* const* inputs,
                                  size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs,
                                  void* user_data) {
  (void)num_inputs, (void)num_outputs, (void)user_data;
  float z[kMaxElements];
  int64_t count = 0;
  TRY(read_floats(inputs[0], z, &count));
  for (int64_t i = 0; i < count; ++i) {
    const double wave = sin(kFrequency * (double)z[i]);
    z[i] = (float)((double)z[i] + wave * wave / kFrequency);
  }
  TRY(nxd_function_call_save(call, inputs[0]));
  return write_floats(z, inputs[0], outputs);
}

static nxd_status_t snake_backward(nxd_function_call_t* call, nxd_tensor_t* const* grad_outputs,
                                   size_t num_outputs, nxd_tensor_t** grad_inputs,
                                   size_t num_inputs, void* user_data) {
  (void)num_outputs, (void)num_inputs, (void)user_data;
  if (!grad_outputs[0]) return NXD_OK; /* zero, so the input's gradient is none */
  nxd_tensor_t* saved = NULL;
  float z[kMaxElements], g[kMaxElements];
  int64_t count = 0;
  TRY(nxd_function_call_get_saved(call, 0, &saved));
  TRY(read_floats(saved, z, &count));
  TRY(read_floats(grad_outputs[0], g, &count));
  for (int64_t i = 0; i < count; ++i) {
    g[i] = (float)((double)g[i] * (1.0 + sin(2.0 * kFrequency * (double)z[i])));
  }
  return write_floats(g, saved, grad_inputs);
}

/* ---- the mean of Huber's loss of prediction - target; the target gets no gradient */

static nxd_status_t huber_forward(nxd_function_call_t* call, nxd_tensor_t* const* inputs,
                                  size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs,
                                  void* user_data) {
  (void)num_inputs, (void)num_outputs, (void)user_data;
  float prediction[kMaxElements], target[kMaxElements];
  int64_t count = 0;
  TRY(read_floats(inputs[0], prediction, &count));
  TRY(read_floats(inputs[1], target, &count));
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double error = fabs((double)prediction[i] - (double)target[i]);
    sum += error <= kDelta ? 0.5 * error * error : kDelta * (error - 0.5 * kDelta);
  }
  const float mean = (float)(sum / (double)count);
  TRY(nxd_function_call_save(call, inputs[0]));
  TRY(nxd_function_call_save(call, inputs[1]));
  return nxd_tensor_from_data(&mean, sizeof mean, NULL, 0, NXD_DTYPE_F32, outputs);
}

static nxd_status_t huber_backward(nxd_function_call_t* call, nxd_tensor_t* const* grad_outputs,
                                   size_t num_outputs, nxd_tensor_t** grad_inputs,
                                   size_t num_inputs, void* user_data) {
  (void)num_outputs, (void)num_inputs, (void)user_data;
  if (!grad_outputs[0]) return NXD_OK;
  nxd_tensor_t *first = NULL, *second = NULL;
  float prediction[kMaxElements], target[kMaxElements];
  int64_t count = 0;
  double scale = 0;
  TRY(nxd_function_call_get_saved(call, 0, &first));
  TRY(nxd_function_call_get_saved(call, 1, &second));
  TRY(nxd_tensor_get_item(grad_outputs[0], &scale));
  TRY(read_floats(first, prediction, &count));
  TRY(read_floats(second, target, &count));
  for (int64_t i = 0; i < count; ++i) {
    const double error = (double)prediction[i] - (double)target[i];
    prediction[i] = (float)(fmin(fmax(error, -kDelta), kDelta) * scale / (double)count);
  }
  return write_floats(prediction, first, grad_inputs);
}

/* ---- the model: (x, target) -> loss */

static nxd_status_t model_forward(nxd_module_t* self, nxd_tensor_t* const* inputs,
                                  size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs,
                                  void* user_data) {
  (void)self;
  example_t* e = user_data;
  if (num_inputs != 2 || num_outputs != 1) return NXD_ERROR_USER;
  nxd_tensor_t *z = NULL, *h = NULL, *y = NULL;
  nxd_tensor_t* x = inputs[0];
  nxd_status_t status = nxd_module_forward(e->up, &x, 1, &z, 1);
  if (!status) status = nxd_function_apply(e->snake, &z, 1, &h, 1);
  if (!status) status = nxd_module_forward(e->down, &h, 1, &y, 1);
  nxd_tensor_t* pair[2] = {y, inputs[1]};
  if (!status) status = nxd_function_apply(e->huber, pair, 2, outputs, 1);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(h);
  nxd_tensor_destroy(z);
  return status;
}

static nxd_status_t make_functions(example_t* e) {
  nxd_function_options_t snake = NXD_FUNCTION_OPTIONS_INIT;
  snake.name = "example::snake";
  snake.forward = snake_forward;
  snake.backward = snake_backward;
  TRY(nxd_function_create(&snake, &e->snake));
  nxd_function_options_t huber = NXD_FUNCTION_OPTIONS_INIT;
  huber.name = "example::huber";
  huber.forward = huber_forward;
  huber.backward = huber_backward;
  return nxd_function_create(&huber, &e->huber);
}

/* Overwrites a parameter, wherever its shards are, with amplitude * sin(rate * index + phase). */
static nxd_status_t set_wave(example_t* e, const char* name, double amplitude, double rate,
                             double phase) {
  nxd_parameter_t* parameter = NULL;
  nxd_tensor_t* whole = NULL;
  int64_t shape[2];
  size_t ndim = 0, count = 1;
  float values[kMaxElements];
  TRY(nxd_module_find_parameter(e->model, name, &parameter));
  TRY(nxd_parameter_get_global_shape(parameter, shape, 2, &ndim));
  for (size_t i = 0; i < ndim; ++i) count *= (size_t)shape[i];
  for (size_t i = 0; i < count; ++i) {
    values[i] = (float)(amplitude * sin(rate * (double)i + phase));
  }
  TRY(nxd_tensor_from_data(values, count * sizeof(float), shape, (int32_t)ndim, NXD_DTYPE_F32,
                           &whole));
  const nxd_status_t status = nxd_parameter_set_full(parameter, whole);
  nxd_tensor_destroy(whole);
  return status;
}

static nxd_status_t make_model(example_t* e) {
  const double quarter = 2 * atan(1.0); /* a sine so much further on is a cosine */
  nxd_linear_options_t up = NXD_LINEAR_OPTIONS_INIT, down = NXD_LINEAR_OPTIONS_INIT;
  up.gather_output = NXD_TOGGLE_OFF;
  down.input_is_parallel = 1;
  TRY(nxd_module_create(e->ctx, "SnakeNetwork", model_forward, e, NULL, &e->model));
  TRY(nxd_layer_create_column_parallel_linear(e->ctx, kFeatures, kHidden, &up, &e->up));
  TRY(nxd_layer_create_row_parallel_linear(e->ctx, kHidden, 1, &down, &e->down));
  TRY(nxd_module_add_child(e->model, "up", e->up));
  TRY(nxd_module_add_child(e->model, "down", e->down));
  TRY(set_wave(e, "up.weight", 0.5, 0.7, 0.3));
  TRY(set_wave(e, "up.bias", 0.1, 1.0, quarter));
  TRY(set_wave(e, "down.weight", 0.4, 0.9, 0.2 + quarter));
  return set_wave(e, "down.bias", 0.05, 0.0, quarter);
}

/* The same samples on every rank. */
static nxd_status_t make_data(example_t* e) {
  const int64_t x_shape[2] = {kSamples, kFeatures}, target_shape[2] = {kSamples, 1};
  float x[kSamples * kFeatures], target[kSamples];
  for (int i = 0; i < kSamples * kFeatures; ++i) x[i] = (float)sin(0.37 * i + 0.1);
  for (int i = 0; i < kSamples; ++i) target[i] = (float)(sin(1.3 * i) + 0.5 * cos(0.4 * i));
  TRY(nxd_tensor_from_data(x, sizeof x, x_shape, 2, NXD_DTYPE_F32, &e->x));
  return nxd_tensor_from_data(target, sizeof target, target_shape, 2, NXD_DTYPE_F32, &e->target);
}

static nxd_status_t train_step(example_t* e, int step) {
  nxd_tensor_t* inputs[2] = {e->x, e->target};
  nxd_tensor_t* loss = NULL;
  double value = 0;
  char line[64];
  TRY(nxd_module_zero_grad(e->model));
  TRY(nxd_module_forward(e->model, inputs, 2, &loss, 1));
  nxd_status_t status = nxd_tensor_get_item(loss, &value);
  if (!status) status = nxd_backward(&loss, NULL, 1, 0);
  nxd_tensor_destroy(loss);
  TRY(status);
  TRY(nxd_optimizer_step(e->optimizer, NULL, NULL));
  snprintf(line, sizeof line, "step %d loss %.9g", step, value);
  return nxd_master_print(e->ctx, line);
}

static nxd_status_t run(example_t* e) {
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  adamw.learning_rate = 0.02;
  adamw.weight_decay = 0.01;
  TRY(nxd_context_create(NULL, &e->ctx));
  TRY(nxd_context_get_size(e->ctx, &parallel.tensor_parallel_size));
  TRY(nxd_init_model_parallel(e->ctx, &parallel));
  TRY(make_functions(e));
  TRY(make_model(e));
  TRY(make_data(e));
  TRY(nxd_optimizer_create_adamw(e->model, &adamw, &e->optimizer));
  for (int step = 0; step < kSteps; ++step) TRY(train_step(e, step));
  return nxd_context_finalize(e->ctx);
}

int main(void) {
  example_t e = {0};
  const nxd_status_t status = run(&e);
  if (status != NXD_OK) {
    fprintf(stderr, "custom_model: %s: %s\n", nxd_status_string(status), nxd_last_error());
  }
  nxd_optimizer_destroy(e.optimizer);
  nxd_tensor_destroy(e.target);
  nxd_tensor_destroy(e.x);
  nxd_module_destroy(e.down);
  nxd_module_destroy(e.up);
  nxd_module_destroy(e.model);
  nxd_function_destroy(e.huber);
  nxd_function_destroy(e.snake);
  nxd_context_destroy(e.ctx);
  return status == NXD_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
