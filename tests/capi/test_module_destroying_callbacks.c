/* Callbacks that destroy the handle of the call that they are part of: of modules, whose forward
 * and initial values are the caller's, of tapes, pipelines and optimizers. The call goes on with
 * what it has. An update rule that calls its own optimizer is told that it cannot. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nxd.h"
#include "support/check.h"
#include "support/destroyed.h"

enum { SIZE = 4 };

static nxd_context_t* ctx;
static nxd_module_t* module;
static nxd_tape_t* tape;
static nxd_optimizer_t* optimizer;
static nxd_pp_t* pp;
static int calls;
static char path[] = "/tmp/nxd_destroying_XXXXXX";

static void destroy_module(void) {
  nxd_module_destroy(module);
  module = NULL;
}

static nxd_tensor_t* ones(void) {
  const int64_t shape[] = {1, SIZE};
  const float data[SIZE] = {1, 1, 1, 1};
  nxd_tensor_t* out = NULL;
  assert_int_equal(nxd_tensor_from_data(data, sizeof data, shape, 2, NXD_DTYPE_F32, &out), NXD_OK);
  return out;
}

/* Its own parameter "weight" is the output: the first look at it is behind the destruction. */
static nxd_status_t forward(nxd_module_t* self, nxd_tensor_t* const* inputs, size_t num_inputs,
                            nxd_tensor_t** outputs, size_t num_outputs, void* user_data) {
  (void)inputs, (void)num_inputs, (void)num_outputs, (void)user_data;
  nxd_parameter_t* weight = NULL;
  nxd_tensor_t* tensor = NULL;
  destroy_module();
  if (nxd_test_destroyed != 0) return NXD_ERROR_USER;
  const nxd_status_t status = nxd_module_find_parameter(self, "weight", &weight);
  if (status != NXD_OK) return status;
  nxd_parameter_get_tensor(weight, &tensor);
  return nxd_tensor_retain(tensor, &outputs[0]);
}

static nxd_parameter_t* make_module(nxd_device_t device) {
  const int64_t shape[] = {1, SIZE};
  nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
  options.device = device;
  nxd_parameter_t* weight = NULL;
  nxd_test_destroyed = calls = 0;
  assert_int_equal(nxd_module_create(ctx, "Own", forward, NULL, nxd_test_count_destroyed, &module),
                   NXD_OK);
  assert_int_equal(nxd_module_add_parameter(module, "weight", shape, 2, &options, &weight), NXD_OK);
  return weight;
}

static void forwards(void** state) {
  (void)state;
  nxd_tensor_t *x = ones(), *y = NULL;
  make_module(NXD_DEVICE_CPU);
  assert_int_equal(nxd_module_forward(module, &x, 1, &y, 1), NXD_OK);
  assert_int_equal(nxd_test_destroyed, 1);
  nxd_tensor_destroy(y);
  make_module(NXD_DEVICE_CPU);
  assert_int_equal(nxd_module_forward_tape(module, &x, 1, &y, 1, &tape), NXD_OK);
  nxd_tape_destroy(tape);
  nxd_tensor_destroy(y);
  assert_int_equal(nxd_test_destroyed, 1);
  nxd_tensor_destroy(x);
}

static nxd_status_t initial(const char* name, const int64_t* shape, size_t ndim, int64_t first,
                            double* values, size_t count, void* user_data) {
  (void)shape, (void)ndim, (void)first, (void)user_data;
  destroy_module();
  for (size_t i = 0; i < count; ++i) values[i] = 1;
  ++calls;
  return nxd_test_destroyed == 0 && strstr(name, "weight") ? NXD_OK : NXD_ERROR_USER;
}

/* Two parameters: the second is found behind the destruction. */
static void make_initialised(nxd_device_t device) {
  const int64_t shape[] = {SIZE};
  nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
  options.device = device;
  make_module(device);
  assert_int_equal(nxd_module_add_parameter(module, "weight2", shape, 1, &options, NULL), NXD_OK);
  assert_int_equal(nxd_module_set_initializer(module, initial, NULL, NULL), NXD_OK);
}

static void initial_values(void** state) {
  (void)state;
  make_initialised(NXD_DEVICE_CPU);
  assert_int_equal(nxd_module_initialize(module, 1), NXD_OK);
  assert_int_equal(calls, 2);
  assert_int_equal(nxd_test_destroyed, 1);
  make_initialised(NXD_DEVICE_META);
  assert_int_equal(nxd_move_model_to_device(module, NXD_DEVICE_CPU), NXD_OK);
  assert_int_equal(calls, 2);
  assert_int_equal(nxd_test_destroyed, 1);
}

static nxd_status_t destroy_tape(nxd_parameter_t* parameter, void* user_data) {
  (void)parameter, (void)user_data;
  nxd_tape_destroy(tape);
  tape = NULL;
  ++calls;
  return NXD_OK;
}

static nxd_module_t* make_linear(void) {
  nxd_module_t* out = NULL;
  nxd_test_destroyed = calls = 0;
  assert_int_equal(nxd_layer_create_linear(ctx, SIZE, SIZE, NULL, &out), NXD_OK);
  return out;
}

static void tapes(void** state) {
  (void)state;
  nxd_module_t* linear = make_linear();
  nxd_parameter_t* weight = NULL;
  assert_int_equal(nxd_module_find_parameter(linear, "weight", &weight), NXD_OK);
  assert_int_equal(nxd_parameter_set_grad_hook(weight, destroy_tape, NULL, NULL), NXD_OK);
  nxd_tensor_t *x = ones(), *y = NULL, *grad = ones(), *grad_x = NULL;
  assert_int_equal(nxd_module_forward_tape(linear, &x, 1, &y, 1, &tape), NXD_OK);
  assert_int_equal(nxd_tape_backward(tape, &grad, 1, &grad_x, 1), NXD_OK);
  assert_int_equal(calls, 1);
  assert_non_null(grad_x);
  nxd_tensor_t* const all[] = {x, y, grad, grad_x};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) nxd_tensor_destroy(all[i]);
  nxd_module_destroy(linear);
}

/* Not while the pipeline is made, and its model is traced. */
static nxd_status_t destroy_pipeline(nxd_module_t* self, nxd_tensor_t* const* inputs,
                                     size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs,
                                     void* user_data) {
  (void)self, (void)num_inputs, (void)num_outputs, (void)user_data;
  if (pp) ++calls;
  nxd_pp_destroy(pp);
  pp = NULL;
  return nxd_tensor_retain(inputs[0], &outputs[0]);
}

static void pipelines(void** state) {
  (void)state;
  nxd_module_t *children[] = {make_linear(), NULL, make_linear()}, *model = NULL;
  assert_int_equal(nxd_module_create(ctx, "Own", destroy_pipeline, NULL, NULL, &children[1]),
                   NXD_OK);
  assert_int_equal(nxd_module_create_sequential(ctx, children, 3, &model), NXD_OK);
  nxd_tensor_t *x = ones(), *y = NULL;
  const nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  assert_int_equal(nxd_pp_create(model, &x, 1, &options, &pp), NXD_OK);
  assert_int_equal(nxd_pp_run_eval(pp, &x, 1, NULL, &y, 1), NXD_OK);
  assert_int_equal(calls, 1);
  nxd_tensor_destroy(x);
  nxd_tensor_destroy(y);
  for (int i = 0; i < 3; ++i) nxd_module_destroy(children[i]);
  nxd_module_destroy(model);
}

static nxd_status_t destroy_optimizer(const nxd_update_t* update, void* user_data) {
  (void)update, (void)user_data;
  nxd_optimizer_destroy(optimizer);
  optimizer = NULL;
  ++calls;
  return nxd_test_destroyed == 0 ? NXD_OK : NXD_ERROR_USER;
}

static nxd_status_t refused(nxd_status_t status) {
  return status == NXD_ERROR_INVALID_STATE && strstr(nxd_last_error(), "update's own rule")
             ? NXD_OK
             : NXD_ERROR_USER;
}

static nxd_status_t call_optimizer(const nxd_update_t* update, void* user_data) {
  (void)user_data;
  ++calls;
  float* state = update->states[0];
  for (int64_t i = 0; i < update->count; ++i) state[i] += 1;
  const nxd_status_t all[] = {
      refused(nxd_optimizer_step(optimizer, NULL, NULL)), refused(nxd_optimizer_update(optimizer)),
      refused(nxd_optimizer_save(optimizer, path)), refused(nxd_optimizer_load(optimizer, path)),
      nxd_optimizer_set_learning_rate(optimizer, 0.5)};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
    if (all[i] != NXD_OK) return all[i];
  return NXD_OK;
}

/* A step over a linear layer whose gradients are there. */
static nxd_module_t* make_step(nxd_update_fn rule) {
  nxd_module_t* linear = make_linear();
  nxd_custom_optimizer_options_t options = NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT;
  options.update = rule;
  options.destroy = nxd_test_count_destroyed;
  options.num_states = 1;
  assert_int_equal(nxd_optimizer_create_custom(linear, &options, &optimizer), NXD_OK);
  nxd_tensor_t *x = ones(), *y = NULL, *grad = ones();
  assert_int_equal(nxd_module_forward(linear, &x, 1, &y, 1), NXD_OK);
  assert_int_equal(nxd_backward(&y, &grad, 1, 0), NXD_OK);
  nxd_tensor_t* const all[] = {x, y, grad};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) nxd_tensor_destroy(all[i]);
  return linear;
}

static void optimizers(void** state) {
  (void)state;
  nxd_module_t* linear = make_step(destroy_optimizer);
  assert_int_equal(nxd_optimizer_step(optimizer, NULL, NULL), NXD_OK);
  assert_int_equal(calls, 2); /* weight and bias */
  assert_int_equal(nxd_test_destroyed, 1);
  nxd_module_destroy(linear);
  linear = make_step(destroy_optimizer);
  assert_int_equal(nxd_optimizer_update(optimizer), NXD_OK);
  assert_int_equal(calls, 2);
  assert_int_equal(nxd_test_destroyed, 1);
  nxd_module_destroy(linear);
}

static void rules_that_call(void** state) {
  (void)state;
  nxd_module_t* linear = make_step(call_optimizer);
  assert_int_equal(nxd_optimizer_step(optimizer, NULL, NULL), NXD_OK);
  assert_int_equal(calls, 2);
  assert_int_equal(nxd_optimizer_save(optimizer, path), NXD_OK);
  assert_int_equal(nxd_optimizer_load(optimizer, path), NXD_OK);
  assert_int_equal(nxd_optimizer_step(optimizer, NULL, NULL), NXD_OK);
  assert_int_equal(calls, 4);
  nxd_optimizer_destroy(optimizer);
  nxd_module_destroy(linear);
}

static int set_up(void** state) {
  (void)state;
  const int file = mkstemp(path);
  if (file < 0 || close(file) != 0) return 1;
  return nxd_context_create(NULL, &ctx) == NXD_OK && nxd_init_model_parallel(ctx, NULL) == NXD_OK
             ? 0
             : 1;
}

static int tear_down(void** state) {
  (void)state;
  nxd_context_destroy(ctx);
  return unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forwards),   cmocka_unit_test(initial_values),
      cmocka_unit_test(tapes),      cmocka_unit_test(pipelines),
      cmocka_unit_test(optimizers), cmocka_unit_test(rules_that_call),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
