/* Custom functions: gradients, ownership, threads, and failures of callbacks. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/tensor_check.h"

/* State of the callbacks of y = x0^2 x1: what they do and see. */
typedef struct {
  nxd_status_t forward_status, backward_status;
  int forwards, backwards, destroyed;
  int half_filled;      /* 1: fail after filling what there is */
  int wrong_shape;      /* 1: the gradient of input 1 has another shape */
  int wrong_dtype;      /* 1: it has another dtype */
  int null_output;      /* 1: forward fills nothing */
  int borrowed_output;  /* 1: forward gives its input's handle away */
  int nested_passes;    /* backward differentiates another graph this often, nested */
  nxd_tensor_t* own;    /* backward differentiates this, an output of its own graph */
  nxd_function_t* self; /* for nested passes */
  int32_t needs[2];
  int32_t recorded_inside;
  pthread_t thread;
} square_t;

/* Exports a tensor that the callbacks read: 1 element or more of F64. */
static const double* data_of(nxd_tensor_t* t) {
  void* data = NULL;
  return nxd_tensor_get_data(t, &data) == NXD_OK ? data : NULL;
}

static nxd_tensor_t* like(nxd_tensor_t* t, double** data) {
  int64_t shape[4];
  size_t ndim = 0;
  nxd_tensor_t* out = NULL;
  void* memory = NULL;
  if (nxd_tensor_get_shape(t, shape, 4, &ndim) ||
      nxd_tensor_create(shape, (int32_t)ndim, NXD_DTYPE_F64, NXD_DEVICE_CPU, &out) ||
      nxd_tensor_get_data(out, &memory)) {
    return NULL;
  }
  *data = memory;
  return out;
}

static size_t count_of(nxd_tensor_t* t) {
  int64_t n = 0;
  return nxd_tensor_get_element_count(t, &n) == NXD_OK ? (size_t)n : 0;
}

static nxd_status_t forward(nxd_function_call_t* call, nxd_tensor_t* const* inputs, size_t n_inputs,
                            nxd_tensor_t** outputs, size_t n_outputs, void* user_data) {
  square_t* s = user_data;
  ++s->forwards;
  if (n_inputs != 2 || n_outputs != 1) return NXD_ERROR_INTERNAL;
  if (s->forward_status && !s->half_filled) return s->forward_status;
  if (s->null_output) return NXD_OK;
  if (s->borrowed_output) {
    outputs[0] = inputs[0];
    return NXD_OK;
  }
  for (size_t i = 0; i < 2; ++i) {
    if (nxd_function_call_save(call, inputs[i]) ||
        nxd_function_call_needs_grad(call, i, &s->needs[i])) {
      return NXD_ERROR_INTERNAL;
    }
  }
  double* y = NULL;
  outputs[0] = like(inputs[0], &y);
  const double *a = data_of(inputs[0]), *b = data_of(inputs[1]);
  for (size_t i = 0; i < count_of(inputs[0]); ++i) y[i] = a[i] * a[i] * b[i];
  return s->forward_status;
}

static nxd_status_t nested_pass(square_t* s, nxd_tensor_t* value) {
  nxd_tensor_t *x = NULL, *y = NULL, *in[2];
  int32_t previous = 0;
  nxd_status_t status = nxd_tensor_detach(value, &x);
  if (!status) status = nxd_tensor_set_requires_grad(x, 1);
  in[0] = in[1] = x;
  nxd_set_grad_enabled(1, &previous);
  if (!status) status = nxd_function_apply(s->self, in, 2, &y, 1);
  nxd_set_grad_enabled(previous, NULL);
  if (!status) status = nxd_backward(&y, &x, 1, 0);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(x);
  return status;
}

static nxd_status_t backward(nxd_function_call_t* call, nxd_tensor_t* const* grad_outputs,
                             size_t n_outputs, nxd_tensor_t** grad_inputs, size_t n_inputs,
                             void* user_data) {
  square_t* s = user_data;
  ++s->backwards;
  s->thread = pthread_self();
  if (n_inputs != 2 || n_outputs != 1 || !grad_outputs[0]) return NXD_ERROR_INTERNAL;
  if (s->backward_status && !s->half_filled) return s->backward_status;
  nxd_tensor_t* x[2];
  for (size_t i = 0; i < 2; ++i) {
    if (nxd_function_call_get_saved(call, i, &x[i]) ||
        nxd_function_call_needs_grad(call, i, &s->needs[i])) {
      return NXD_ERROR_INTERNAL;
    }
  }
  if (nxd_set_grad_enabled(0, &s->recorded_inside)) return NXD_ERROR_INTERNAL;
  if (s->own) return nxd_backward(&s->own, &grad_outputs[0], 1, 1);
  if (s->nested_passes > 0) {
    --s->nested_passes;
    const nxd_status_t status = nested_pass(s, x[0]);
    if (status) return status;
  }
  const double *a = data_of(x[0]), *b = data_of(x[1]), *g = data_of(grad_outputs[0]);
  double *ga = NULL, *gb = NULL;
  grad_inputs[0] = like(x[0], &ga);
  for (size_t i = 0; i < count_of(x[0]); ++i) ga[i] = 2 * a[i] * b[i] * g[i];
  if (s->backward_status) return s->backward_status;
  if (s->wrong_shape || s->wrong_dtype) {
    const int64_t shape[] = {s->wrong_shape ? 7 : (int64_t)count_of(x[0])};
    return nxd_tensor_create(shape, 1, s->wrong_dtype ? NXD_DTYPE_F32 : NXD_DTYPE_F64,
                             NXD_DEVICE_CPU, &grad_inputs[1]);
  }
  grad_inputs[1] = like(x[1], &gb);
  for (size_t i = 0; i < count_of(x[1]); ++i) gb[i] = a[i] * a[i] * g[i];
  return NXD_OK;
}

static nxd_status_t shape_of_first(nxd_tensor_t* const* inputs, size_t n_inputs,
                                   nxd_tensor_t** outputs, size_t n_outputs, void* user_data) {
  (void)user_data;
  (void)n_inputs;
  (void)n_outputs;
  return nxd_tensor_retain(inputs[0], &outputs[0]);
}

static void count_destroyed(void* user_data) { ++((square_t*)user_data)->destroyed; }

static nxd_function_t* function_of(square_t* s) {
  nxd_function_options_t o = NXD_FUNCTION_OPTIONS_INIT;
  o.name = "tests::square";
  o.forward = forward;
  o.backward = backward;
  o.shape = shape_of_first;
  o.user_data = s;
  o.destroy = count_destroyed;
  nxd_function_t* f = NULL;
  OK(nxd_function_create(&o, &f));
  s->self = f;
  return f;
}

static nxd_tensor_t* leaf(int64_t n, const double* values) {
  nxd_tensor_t* t = vector_f64(n, values);
  OK(nxd_tensor_set_requires_grad(t, 1));
  return t;
}

static const double kA[] = {0.5, -1.25, 3}, kB[] = {2, 0.75, -1};

static void gradients_agree_with_finite_differences(void** state) {
  (void)state;
  square_t s = {0};
  nxd_function_t* f = function_of(&s);
  nxd_tensor_t *in[] = {leaf(3, kA), leaf(3, kB)}, *y = NULL, *z = NULL, *total = NULL;
  OK(nxd_function_apply(f, in, 2, &y, 1));
  /* Between two recorded operators, so that its gradients flow on. */
  OK(nxd_op_call("sin", NULL, &y, 1, &z, 1));
  OK(nxd_op_call("sum", NULL, &z, 1, &total, 1));
  assert_true(s.needs[0] && s.needs[1]);
  OK(nxd_backward(&total, NULL, 1, 0));
  assert_int_equal(s.recorded_inside, 0);
  const double h = 1e-6;
  for (int k = 0; k < 2; ++k) {
    nxd_tensor_t* grad = NULL;
    OK(nxd_tensor_share_grad(in[k], &grad));
    for (int i = 0; i < 3; ++i) {
      const double da = k == 0 ? h : 0, db = k == 1 ? h : 0;
      const double up = sin((kA[i] + da) * (kA[i] + da) * (kB[i] + db));
      const double down = sin((kA[i] - da) * (kA[i] - da) * (kB[i] - db));
      assert_true(fabs((up - down) / (2 * h) - data_of(grad)[i]) < 1e-8);
    }
    nxd_tensor_destroy(grad);
  }
  nxd_function_destroy(f);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(z);
  nxd_tensor_destroy(in[0]);
  nxd_tensor_destroy(in[1]);
  assert_int_equal(s.destroyed, 0); /* total still holds the graph */
  nxd_tensor_destroy(total);
  assert_int_equal(s.destroyed, 1);
}

static void unneeded_gradients_are_told_and_dropped(void** state) {
  (void)state;
  square_t s = {0};
  nxd_function_t* f = function_of(&s);
  nxd_tensor_t *in[] = {vector_f64(3, kA), leaf(3, kB)}, *y = NULL, *grad = NULL;
  OK(nxd_function_apply(f, in, 2, &y, 1));
  assert_int_equal(s.needs[0], 0);
  assert_int_equal(s.needs[1], 1);
  nxd_tensor_t* g = vector_f64(3, kA);
  OK(nxd_backward(&y, &g, 1, 0));
  assert_int_equal(s.needs[0], 0);
  assert_int_equal(s.needs[1], 1);
  OK(nxd_tensor_share_grad(in[0], &grad));
  assert_null(grad);
  OK(nxd_tensor_share_grad(in[1], &grad));
  assert_true(data_of(grad)[2] == 27);
  nxd_tensor_destroy(grad);
  nxd_tensor_destroy(g);
  nxd_tensor_destroy(y);

  /* Nothing is recorded without a leaf that asks for it, or while recording is off. */
  OK(nxd_set_grad_enabled(0, NULL));
  OK(nxd_function_apply(f, in, 2, &y, 1));
  OK(nxd_set_grad_enabled(1, NULL));
  int32_t requires = -1;
  OK(nxd_tensor_get_requires_grad(y, &requires));
  assert_int_equal(requires, 0);
  assert_int_equal(s.needs[1], 0);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(in[0]);
  nxd_tensor_destroy(in[1]);
  nxd_function_destroy(f);
  assert_int_equal(s.destroyed, 1);
}

static void graphs_are_differentiated_once_or_retained(void** state) {
  (void)state;
  square_t s = {0};
  nxd_function_t* f = function_of(&s);
  nxd_tensor_t *in[] = {leaf(3, kA), leaf(3, kB)}, *y = NULL;
  nxd_tensor_t* g = vector_f64(3, kA);
  OK(nxd_function_apply(f, in, 2, &y, 1));
  OK(nxd_backward(&y, &g, 1, 1));
  OK(nxd_backward(&y, &g, 1, 0));
  REFUSED(nxd_backward(&y, &g, 1, 0), NXD_ERROR_INVALID_STATE, "tests::square");
  assert_int_equal(s.backwards, 2);
  nxd_tensor_destroy(y);
  OK(nxd_function_apply(f, in, 2, &y, 1));
  OK(nxd_tensor_mark_modified(in[1]));
  REFUSED(nxd_backward(&y, &g, 1, 0), NXD_ERROR_INVALID_STATE, "modified");
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(g);
  nxd_tensor_destroy(in[0]);
  nxd_tensor_destroy(in[1]);
  nxd_function_destroy(f);
  assert_int_equal(s.destroyed, 1);
}

static void failures_of_callbacks_come_out_unchanged(void** state) {
  (void)state;
  square_t s = {0};
  nxd_function_t* f = function_of(&s);
  nxd_tensor_t *in[] = {leaf(3, kA), leaf(3, kB)}, *y = (nxd_tensor_t*)1;
  nxd_tensor_t* g = vector_f64(3, kA);
  static const nxd_status_t statuses[] = {NXD_ERROR_USER, NXD_ERROR_PEER_LOST, NXD_ERROR_TIMEOUT,
                                          NXD_ERROR_IO};
  for (size_t i = 0; i < 4; ++i) {
    for (s.half_filled = 0; s.half_filled < 2; ++s.half_filled) {
      s.forward_status = statuses[i];
      REFUSED(nxd_function_apply(f, in, 2, &y, 1), statuses[i], "tests::square: forward");
      assert_null(y);
      s.forward_status = NXD_OK;
      OK(nxd_function_apply(f, in, 2, &y, 1));
      s.backward_status = statuses[i];
      REFUSED(nxd_backward(&y, &g, 1, 0), statuses[i], "tests::square: backward");
      nxd_tensor_t* grads[] = {(nxd_tensor_t*)1, (nxd_tensor_t*)1};
      REFUSED(nxd_grad(&y, &g, 1, in, 2, 0, grads), statuses[i], "tests::square: backward");
      assert_null(grads[0]);
      assert_null(grads[1]);
      s.backward_status = NXD_OK;
      /* A pass that failed spoils neither the thread nor the graph. */
      OK(nxd_backward(&y, &g, 1, 0));
      nxd_tensor_destroy(y);
    }
  }
  s.half_filled = 0;
  s.null_output = 1;
  REFUSED(nxd_function_apply(f, in, 2, &y, 1), NXD_ERROR_INVALID_ARGUMENT,
          "tests::square: forward: outputs[0]");
  s.null_output = 0;
  s.borrowed_output = 1;
  REFUSED(nxd_function_apply(f, in, 2, &y, 1), NXD_ERROR_INVALID_ARGUMENT, "nxd_tensor_retain");
  s.borrowed_output = 0;
  assert_null(y);
  nxd_tensor_t* two[2] = {(nxd_tensor_t*)1, (nxd_tensor_t*)1};
  REFUSED(nxd_function_apply(f, in, 2, two, 2), NXD_ERROR_INVALID_ARGUMENT, "num_outputs");
  assert_null(two[0]);
  assert_null(two[1]);
  OK(nxd_function_apply(f, in, 2, &y, 1));
  s.wrong_shape = 1;
  REFUSED(nxd_backward(&y, &g, 1, 0), NXD_ERROR_INVALID_ARGUMENT,
          "tests::square: backward: grad_inputs[1]: expected the shape [3] of the input, got [7]");
  s.wrong_shape = 0;
  s.wrong_dtype = 1;
  REFUSED(nxd_backward(&y, &g, 1, 0), NXD_ERROR_INVALID_ARGUMENT,
          "grad_inputs[1]: expected the dtype f64");
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(g);
  nxd_tensor_destroy(in[0]);
  nxd_tensor_destroy(in[1]);
  nxd_function_destroy(f);
  assert_int_equal(s.destroyed, 1);
}

static void a_function_without_backward_says_so(void** state) {
  (void)state;
  square_t s = {0};
  nxd_function_options_t o = NXD_FUNCTION_OPTIONS_INIT;
  o.name = "tests::oneway";
  o.forward = forward;
  o.user_data = &s;
  nxd_function_t* f = NULL;
  OK(nxd_function_create(&o, &f));
  nxd_tensor_t *in[] = {leaf(3, kA), leaf(3, kB)}, *y = NULL, *g = vector_f64(3, kA);
  OK(nxd_function_apply(f, in, 2, &y, 1));
  REFUSED(nxd_backward(&y, &g, 1, 0), NXD_ERROR_UNSUPPORTED,
          "tests::oneway: it has no backward callback");
  nxd_tensor_t* meta = NULL;
  const int64_t shape[] = {3};
  OK(nxd_tensor_create(shape, 1, NXD_DTYPE_F64, NXD_DEVICE_META, &meta));
  nxd_tensor_t *mixed[] = {in[0], meta}, *out = NULL;
  REFUSED(nxd_function_apply(f, mixed, 2, &out, 1), NXD_ERROR_UNSUPPORTED, "no shape callback");
  nxd_tensor_destroy(meta);
  nxd_tensor_destroy(g);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(in[0]);
  nxd_tensor_destroy(in[1]);
  nxd_function_destroy(f);
}

static void meta_inputs_take_the_shape_callback(void** state) {
  (void)state;
  square_t s = {0};
  nxd_function_t* f = function_of(&s);
  const int64_t shape[] = {5, 6};
  nxd_tensor_t *in[2], *y = NULL, *total = NULL, *grad = NULL;
  for (int i = 0; i < 2; ++i) {
    OK(nxd_tensor_create(shape, 2, NXD_DTYPE_F64, NXD_DEVICE_META, &in[i]));
    OK(nxd_tensor_set_requires_grad(in[i], 1));
  }
  OK(nxd_function_apply(f, in, 2, &y, 1));
  assert_int_equal(s.forwards, 0);
  OK(nxd_op_call("sum", NULL, &y, 1, &total, 1));
  OK(nxd_backward(&total, NULL, 1, 0));
  assert_int_equal(s.backwards, 0);
  OK(nxd_tensor_share_grad(in[1], &grad));
  int64_t got[2];
  size_t ndim = 0;
  OK(nxd_tensor_get_shape(grad, got, 2, &ndim));
  assert_memory_equal(got, shape, sizeof shape);
  nxd_tensor_destroy(grad);
  nxd_tensor_destroy(total);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(in[0]);
  nxd_tensor_destroy(in[1]);
  nxd_function_destroy(f);
}

static void backward_runs_on_the_calling_thread_also_nested(void** state) {
  (void)state;
  square_t s = {0};
  nxd_function_t* f = function_of(&s);
  nxd_tensor_t *in[] = {leaf(3, kA), leaf(3, kB)}, *y = NULL, *g = vector_f64(3, kA);
  static const int depths[] = {0, 1, 40};
  for (int i = 0; i < 3; ++i) {
    OK(nxd_function_apply(f, in, 2, &y, 1));
    s.backwards = 0;
    s.nested_passes = depths[i];
    memset(&s.thread, 0, sizeof s.thread);
    OK(nxd_backward(&y, &g, 1, 0));
    assert_int_equal(s.backwards, depths[i] + 1);
    assert_true(pthread_equal(s.thread, pthread_self()));
    nxd_tensor_destroy(y);
  }
  OK(nxd_function_apply(f, in, 2, &y, 1));
  s.nested_passes = 100;
  REFUSED(nxd_backward(&y, &g, 1, 0), NXD_ERROR_UNSUPPORTED, "48 passes");
  s.nested_passes = 0;
  s.own = y;
  REFUSED(nxd_backward(&y, &g, 1, 1), NXD_ERROR_INVALID_STATE, "its own graph");
  s.own = NULL;
  OK(nxd_backward(&y, &g, 1, 0));
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(g);
  nxd_tensor_destroy(in[0]);
  nxd_tensor_destroy(in[1]);
  nxd_function_destroy(f);
}

/* Each thread differentiates a graph of its own, as ranks on threads do. */
static void* differentiate(void* arg) {
  int* failures = arg;
  for (int i = 0; i < 50; ++i) {
    square_t s = {0};
    nxd_function_options_t o = NXD_FUNCTION_OPTIONS_INIT;
    o.name = "tests::square";
    o.forward = forward;
    o.backward = backward;
    o.user_data = &s;
    o.destroy = count_destroyed;
    const int64_t n = 3;
    nxd_tensor_t *in[2] = {NULL, NULL}, *y = NULL;
    nxd_function_t* f = NULL;
    if (i % 5 == 4) s.backward_status = NXD_ERROR_USER;
    const nxd_status_t expected = s.backward_status;
    if (nxd_function_create(&o, &f) ||
        nxd_tensor_from_data(kA, sizeof kA, &n, 1, NXD_DTYPE_F64, &in[0]) ||
        nxd_tensor_from_data(kB, sizeof kB, &n, 1, NXD_DTYPE_F64, &in[1]) ||
        nxd_tensor_set_requires_grad(in[0], 1) || nxd_function_apply(f, in, 2, &y, 1) ||
        nxd_backward(&y, &in[1], 1, 0) != expected || !pthread_equal(s.thread, pthread_self())) {
      ++*failures;
    }
    nxd_function_destroy(f);
    nxd_tensor_destroy(in[0]);
    nxd_tensor_destroy(in[1]);
    nxd_tensor_destroy(y);
    if (s.destroyed != 1) ++*failures;
  }
  return NULL;
}

static void every_thread_runs_its_own_backward(void** state) {
  (void)state;
  pthread_t threads[4];
  int failures[4] = {0};
  for (int i = 0; i < 4; ++i) {
    assert_int_equal(pthread_create(&threads[i], NULL, differentiate, &failures[i]), 0);
  }
  for (int i = 0; i < 4; ++i) {
    pthread_join(threads[i], NULL);
    assert_int_equal(failures[i], 0);
  }
}

/* Two outputs: x and a constant that the function keeps; backward sees NULL for the unused one. */
typedef struct {
  nxd_tensor_t* constant;
  int unused_is_null;
} pair_t;

static nxd_status_t pair_forward(nxd_function_call_t* call, nxd_tensor_t* const* inputs,
                                 size_t n_inputs, nxd_tensor_t** outputs, size_t n_outputs,
                                 void* user_data) {
  (void)n_inputs;
  (void)n_outputs;
  pair_t* p = user_data;
  nxd_status_t status = nxd_tensor_retain(inputs[0], &outputs[0]);
  if (!status) status = nxd_tensor_retain(p->constant, &outputs[1]);
  if (!status) status = nxd_function_call_save(call, outputs[0]);
  return status;
}

static nxd_status_t pair_backward(nxd_function_call_t* call, nxd_tensor_t* const* grad_outputs,
                                  size_t n_outputs, nxd_tensor_t** grad_inputs, size_t n_inputs,
                                  void* user_data) {
  (void)n_inputs;
  (void)n_outputs;
  pair_t* p = user_data;
  nxd_tensor_t* saved = NULL;
  nxd_status_t status = nxd_function_call_get_saved(call, 0, &saved);
  if (!status && nxd_function_call_get_saved(call, 1, &saved) != NXD_ERROR_INVALID_ARGUMENT) {
    return NXD_ERROR_INTERNAL;
  }
  if (!status && nxd_function_call_save(call, saved) == NXD_OK) return NXD_ERROR_INTERNAL;
  p->unused_is_null = grad_outputs[1] == NULL;
  return status ? status : nxd_tensor_retain(grad_outputs[0], &grad_inputs[0]);
}

static void outputs_may_be_inputs_or_constants(void** state) {
  (void)state;
  pair_t p = {vector_f64(3, kB), 0};
  nxd_function_options_t o;
  OK(nxd_function_options_init(&o, sizeof o));
  o.name = "tests::pair";
  o.num_outputs = 2;
  o.forward = pair_forward;
  o.backward = pair_backward;
  o.user_data = &p;
  nxd_function_t* f = NULL;
  OK(nxd_function_create(&o, &f));
  nxd_tensor_t *x = leaf(3, kA), *y[2] = {NULL, NULL}, *g = vector_f64(3, kB), *grad = NULL;
  OK(nxd_function_apply(f, &x, 1, y, 2));
  OK(nxd_backward(y, &g, 1, 0));
  assert_int_equal(p.unused_is_null, 1);
  OK(nxd_tensor_share_grad(x, &grad));
  assert_true(data_of(grad)[2] == kB[2]);
  int32_t requires = -1;
  OK(nxd_tensor_get_requires_grad(p.constant, &requires));
  assert_int_equal(requires, 0); /* the constant was not drawn into the graph */
  nxd_tensor_destroy(grad);
  nxd_tensor_destroy(g);
  nxd_tensor_destroy(y[0]);
  nxd_tensor_destroy(y[1]);
  nxd_tensor_destroy(x);
  nxd_tensor_destroy(p.constant);
  nxd_function_destroy(f);
}

static nxd_status_t alias_forward(nxd_function_call_t* call, nxd_tensor_t* const* inputs,
                                  size_t n_inputs, nxd_tensor_t** outputs, size_t n_outputs,
                                  void* user_data) {
  (void)call;
  (void)n_inputs;
  (void)n_outputs;
  (void)user_data;
  return nxd_tensor_retain(inputs[0], &outputs[0]);
}

static nxd_status_t alias_backward(nxd_function_call_t* call, nxd_tensor_t* const* grad_outputs,
                                   size_t n_outputs, nxd_tensor_t** grad_inputs, size_t n_inputs,
                                   void* user_data) {
  (void)call;
  (void)n_inputs;
  (void)n_outputs;
  (void)user_data;
  return nxd_tensor_retain(grad_outputs[0], &grad_inputs[0]);
}

static void calls_that_saved_nothing_are_differentiated_again(void** state) {
  (void)state;
  nxd_function_options_t o = NXD_FUNCTION_OPTIONS_INIT;
  o.name = "tests::alias";
  o.forward = alias_forward;
  o.backward = alias_backward;
  nxd_function_t* f = NULL;
  OK(nxd_function_create(&o, &f));
  nxd_tensor_t *x = leaf(3, kA), *y = NULL, *g = vector_f64(3, kB), *grad = NULL;
  OK(nxd_function_apply(f, &x, 1, &y, 1));
  OK(nxd_backward(&y, &g, 1, 0));
  OK(nxd_backward(&y, &g, 1, 0));
  OK(nxd_tensor_share_grad(x, &grad));
  assert_true(data_of(grad)[2] == 2 * kB[2]);
  nxd_tensor_destroy(grad);
  nxd_tensor_destroy(g);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(x);
  nxd_function_destroy(f);
}

static void creation_is_checked(void** state) {
  (void)state;
  square_t s = {0};
  nxd_function_options_t o = NXD_FUNCTION_OPTIONS_INIT;
  nxd_function_t* f = (nxd_function_t*)1;
  o.user_data = &s;
  o.destroy = count_destroyed;
  REFUSED(nxd_function_create(&o, &f), NXD_ERROR_INVALID_ARGUMENT, "options.name");
  assert_null(f);
  o.name = "tests::x";
  REFUSED(nxd_function_create(&o, &f), NXD_ERROR_INVALID_ARGUMENT, "options.forward");
  o.forward = forward;
  o.struct_size = 8;
  REFUSED(nxd_function_create(&o, &f), NXD_ERROR_ABI_MISMATCH, "struct_size");
  REFUSED(nxd_function_create(NULL, &f), NXD_ERROR_INVALID_ARGUMENT, "options.name");
  assert_int_equal(s.destroyed, 0);
  nxd_function_options_t filled, macro = NXD_FUNCTION_OPTIONS_INIT;
  OK(nxd_function_options_init(&filled, sizeof filled));
  assert_memory_equal(&filled, &macro, sizeof filled);
  REFUSED(nxd_function_options_init(NULL, sizeof filled), NXD_ERROR_INVALID_ARGUMENT, "options");
  REFUSED(nxd_function_options_init(&filled, 3), NXD_ERROR_ABI_MISMATCH, "size");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_agree_with_finite_differences),
      cmocka_unit_test(unneeded_gradients_are_told_and_dropped),
      cmocka_unit_test(graphs_are_differentiated_once_or_retained),
      cmocka_unit_test(failures_of_callbacks_come_out_unchanged),
      cmocka_unit_test(a_function_without_backward_says_so),
      cmocka_unit_test(meta_inputs_take_the_shape_callback),
      cmocka_unit_test(backward_runs_on_the_calling_thread_also_nested),
      cmocka_unit_test(every_thread_runs_its_own_backward),
      cmocka_unit_test(outputs_may_be_inputs_or_constants),
      cmocka_unit_test(calls_that_saved_nothing_are_differentiated_again),
      cmocka_unit_test(creation_is_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
