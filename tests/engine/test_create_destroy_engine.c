/* Creates, uses and destroys what the engine offers, again and again and in several orders:
 * scripts/leaks runs this under valgrind, and as a test it holds that every user_data is released
 * exactly once. */
#include <stdlib.h>

#include "support/check.h"

#include "support/tensor_check.h"

enum { kRounds = 3, kMost = 16 };

/* Objects that a round has made; released forwards or backwards. */
typedef struct {
  void (*destroy[kMost])(void*);
  void* object[kMost];
  int count;
} heap_t;

static void* keep(heap_t* heap, void* object, void (*destroy)(void*)) {
  assert_true(heap->count < kMost);
  heap->object[heap->count] = object;
  heap->destroy[heap->count++] = destroy;
  return object;
}

static void drop_tensor(void* object) { nxd_tensor_destroy(object); }
static void drop_module(void* object) { nxd_module_destroy(object); }
static void drop_context(void* object) { nxd_context_destroy(object); }
static void drop_optimizer(void* object) { nxd_optimizer_destroy(object); }
static void drop_function(void* object) { nxd_function_destroy(object); }
static void drop_tape(void* object) { nxd_tape_destroy(object); }
static void drop_op(void* object) { nxd_op_destroy(object); }

static void release(heap_t* heap, int order) {
  for (int i = 0; i < heap->count; ++i) {
    const int at = order % 2 == 0 ? i : heap->count - 1 - i;
    heap->destroy[at](heap->object[at]);
  }
}

static nxd_context_t* join(heap_t* heap) {
  nxd_context_t* ctx = NULL;
  OK(nxd_context_create(NULL, &ctx));
  keep(heap, ctx, drop_context);
  OK(nxd_init_model_parallel(ctx, NULL));
  return ctx;
}

static nxd_tensor_t* numbers(heap_t* heap, int64_t rows, int64_t columns) {
  float values[64];
  for (int i = 0; i < 64; ++i) values[i] = (float)(i % 7) * 0.25f - 0.5f;
  return keep(heap, matrix_f32(rows, columns, values), drop_tensor);
}

static void test_tensors_and_ops(void** state) {
  (void)state;
  for (int round = 0; round < 2 * kRounds; ++round) {
    heap_t heap = {.count = 0};
    nxd_tensor_t* x = numbers(&heap, 2, 3);
    nxd_tensor_t *same = NULL, *y = NULL, *z = NULL, *grad = NULL;
    OK(nxd_tensor_retain(x, &same));
    keep(&heap, same, drop_tensor);
    OK(nxd_tensor_set_requires_grad(x, 1));
    nxd_op_t* op = NULL;
    OK(nxd_op_create("aten::relu", "", &op));
    keep(&heap, op, drop_op);
    OK(nxd_op_set_tensor(op, "self", x));
    OK(nxd_op_run(op));
    OK(nxd_op_share_tensor(op, 0, &y));
    keep(&heap, y, drop_tensor);
    OK(nxd_op_call("aten::sum", "", &y, 1, &z, 1));
    keep(&heap, z, drop_tensor);
    OK(nxd_backward(&z, NULL, 1, 0));
    OK(nxd_tensor_share_grad(x, &grad));
    keep(&heap, grad, drop_tensor);
    REFUSED(nxd_op_create("aten::no_such", "", &op), NXD_ERROR_INVALID_ARGUMENT, "no_such");
    release(&heap, round);
  }
}

static int released;
static void on_release(void* user_data) {
  (void)user_data;
  ++released;
}

static nxd_status_t twice(nxd_function_call_t* call, nxd_tensor_t* const* inputs, size_t n_inputs,
                          nxd_tensor_t** outputs, size_t n_outputs, void* user_data) {
  (void)n_inputs;
  (void)n_outputs;
  (void)user_data;
  nxd_tensor_t* const pair[] = {inputs[0], inputs[0]};
  const nxd_status_t status = nxd_function_call_save(call, inputs[0]);
  return status != NXD_OK ? status : nxd_op_call("aten::mul", "Tensor", pair, 2, outputs, 1);
}

static nxd_status_t twice_back(nxd_function_call_t* call, nxd_tensor_t* const* grad_outputs,
                               size_t n_outputs, nxd_tensor_t** grad_inputs, size_t n_inputs,
                               void* user_data) {
  (void)n_outputs;
  (void)n_inputs;
  (void)user_data;
  nxd_tensor_t* saved = NULL;
  const nxd_status_t status = nxd_function_call_get_saved(call, 0, &saved);
  if (status != NXD_OK) return status;
  nxd_tensor_t* const pair[] = {saved, grad_outputs[0]};
  return nxd_op_call("aten::mul", "Tensor", pair, 2, grad_inputs, 1);
}

static void test_functions(void** state) {
  (void)state;
  for (int round = 0; round < 2 * kRounds; ++round) {
    heap_t heap = {.count = 0};
    nxd_function_options_t options = NXD_FUNCTION_OPTIONS_INIT;
    options.name = "test::twice";
    options.forward = twice;
    options.backward = twice_back;
    options.destroy = on_release;
    nxd_function_t* function = NULL;
    released = 0;
    OK(nxd_function_create(&options, &function));
    keep(&heap, function, drop_function);
    nxd_tensor_t *x = numbers(&heap, 2, 2), *y = NULL, *sum = NULL;
    OK(nxd_tensor_set_requires_grad(x, 1));
    OK(nxd_function_apply(function, &x, 1, &y, 1));
    keep(&heap, y, drop_tensor);
    if (round % 3 != 0) { /* otherwise the graph is dropped without a backward pass */
      OK(nxd_op_call("aten::sum", "", &y, 1, &sum, 1));
      keep(&heap, sum, drop_tensor);
      OK(nxd_backward(&sum, NULL, 1, 0));
    }
    release(&heap, round);
    assert_int_equal(released, 1);
  }
}

typedef nxd_status_t (*make_fn)(nxd_context_t* ctx, nxd_module_t** out);

static nxd_status_t make_column(nxd_context_t* ctx, nxd_module_t** out) {
  return nxd_layer_create_column_parallel_linear(ctx, 4, 4, NULL, out);
}
static nxd_status_t make_row(nxd_context_t* ctx, nxd_module_t** out) {
  return nxd_layer_create_row_parallel_linear(ctx, 4, 4, NULL, out);
}
static nxd_status_t make_linear(nxd_context_t* ctx, nxd_module_t** out) {
  return nxd_layer_create_linear(ctx, 4, 4, NULL, out);
}
static nxd_status_t make_sequential(nxd_context_t* ctx, nxd_module_t** out) {
  nxd_module_t* inner[2] = {NULL, NULL};
  nxd_status_t status = make_linear(ctx, &inner[0]);
  if (status == NXD_OK) status = make_row(ctx, &inner[1]);
  if (status == NXD_OK) status = nxd_module_create_sequential(ctx, inner, 2, out);
  nxd_module_destroy(inner[0]);
  nxd_module_destroy(inner[1]);
  return status;
}
static nxd_status_t make_layer_norm(nxd_context_t* ctx, nxd_module_t** out) {
  return nxd_layer_create_layer_norm(ctx, 4, NULL, out);
}
static nxd_status_t make_rms_norm(nxd_context_t* ctx, nxd_module_t** out) {
  return nxd_layer_create_rms_norm(ctx, 4, NULL, out);
}
static nxd_status_t make_mlp(nxd_context_t* ctx, nxd_module_t** out) {
  return nxd_layer_create_gated_mlp(ctx, 4, 8, NULL, out);
}
static nxd_status_t make_dropout(nxd_context_t* ctx, nxd_module_t** out) {
  return nxd_layer_create_dropout(ctx, 0.5, "drop", -1, out);
}

static nxd_status_t pass_on(nxd_module_t* self, nxd_tensor_t* const* inputs, size_t n_inputs,
                            nxd_tensor_t** outputs, size_t n_outputs, void* user_data) {
  (void)user_data;
  nxd_module_t* child = NULL;
  const nxd_status_t status = nxd_module_find_module(self, "inner", &child);
  return status != NXD_OK ? status
                          : nxd_module_forward(child, inputs, n_inputs, outputs, n_outputs);
}

static nxd_status_t make_nested(nxd_context_t* ctx, nxd_module_t** out) {
  nxd_module_t* inner = NULL;
  nxd_status_t status = nxd_layer_create_column_parallel_linear(ctx, 4, 4, NULL, &inner);
  if (status == NXD_OK) status = nxd_module_create(ctx, "Outer", pass_on, NULL, on_release, out);
  if (status == NXD_OK) status = nxd_module_add_child(*out, "inner", inner);
  nxd_module_destroy(inner);
  return status;
}

static void use_module(make_fn make, int round) {
  heap_t heap = {.count = 0};
  nxd_context_t* ctx = join(&heap);
  nxd_module_t* module = NULL;
  OK(make(ctx, &module));
  keep(&heap, module, drop_module);
  nxd_tensor_t *x = numbers(&heap, 3, 4), *y = NULL, *grad = NULL;
  nxd_tape_t* tape = NULL;
  OK(nxd_module_forward_tape(module, &x, 1, &y, 1, &tape));
  keep(&heap, y, drop_tensor);
  keep(&heap, tape, drop_tape);
  if (round % 3 != 0) {
    OK(nxd_tape_backward(tape, &y, 1, &grad, 1));
    keep(&heap, grad, drop_tensor);
  }
  REFUSED(nxd_module_forward(module, NULL, 0, &grad, 1), NXD_ERROR_INVALID_ARGUMENT, "");
  release(&heap, round);
}

static void test_modules(void** state) {
  (void)state;
  static const make_fn makers[] = {make_column,     make_row,        make_linear,
                                   make_sequential, make_layer_norm, make_rms_norm,
                                   make_mlp,        make_dropout,    make_nested};
  released = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < sizeof makers / sizeof *makers; ++i) use_module(makers[i], round);
  }
  assert_int_equal(released, kRounds);
}

static void test_training(void** state) {
  (void)state;
  static const char config[] =
      "{\"model_type\": \"llama\", \"vocab_size\": 16, \"hidden_size\": 8, "
      "\"intermediate_size\": 8, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
      "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 8}";
  const int64_t values[] = {1, 5, 3, 2, 9, 15}, shape[] = {2, 3};
  for (int round = 0; round < kRounds; ++round) {
    heap_t heap = {.count = 0};
    nxd_context_t* ctx = join(&heap);
    nxd_module_t* model = NULL;
    nxd_optimizer_t* optimizer = NULL;
    OK(nxd_model_create(ctx, config, NULL, &model));
    keep(&heap, model, drop_module);
    OK(nxd_optimizer_create_adamw(model, NULL, &optimizer));
    keep(&heap, optimizer, drop_optimizer);
    nxd_tensor_t* ids =
        keep(&heap, tensor_of(values, sizeof *values, shape, 2, NXD_DTYPE_I64), drop_tensor);
    for (int step = 0; step < 2; ++step) {
      nxd_tensor_t* const inputs[] = {ids, ids};
      nxd_tensor_t* loss = NULL;
      double norm = 0;
      OK(nxd_module_forward(model, inputs, 2, &loss, 1));
      keep(&heap, loss, drop_tensor);
      OK(nxd_backward(&loss, NULL, 1, 0));
      OK(nxd_finish_grads(model, NULL, &norm));
      assert_true(norm > 0);
      OK(nxd_optimizer_update(optimizer));
      OK(nxd_module_zero_grad(model));
    }
    release(&heap, round);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tensors_and_ops), cmocka_unit_test(test_functions),
      cmocka_unit_test(test_modules), cmocka_unit_test(test_training)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
