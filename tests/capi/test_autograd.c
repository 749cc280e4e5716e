/* Differentiation of recorded operators. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/tensor_check.h"

static nxd_tensor_t* leaf_f32(int64_t n, const float* values) {
  nxd_tensor_t* t = vector_f32(n, values);
  OK(nxd_tensor_set_requires_grad(t, 1));
  return t;
}

static nxd_tensor_t* call1(const char* name, nxd_tensor_t* x) {
  nxd_tensor_t* y = NULL;
  OK(nxd_op_call(name, NULL, &x, 1, &y, 1));
  return y;
}

static nxd_tensor_t* product(nxd_tensor_t* a, nxd_tensor_t* b) {
  nxd_tensor_t *in[] = {a, b}, *y = NULL;
  OK(nxd_op_call("mul", "Tensor", in, 2, &y, 1));
  return y;
}

static int requires_grad(nxd_tensor_t* t) {
  int32_t out = -1;
  OK(nxd_tensor_get_requires_grad(t, &out));
  return out;
}

static void backward_accumulates_into_leaves(void** state) {
  (void)state;
  nxd_tensor_t* x = leaf_f32(2, (const float[]){3, -2});
  nxd_tensor_t* grad = (nxd_tensor_t*)1;
  OK(nxd_tensor_share_grad(x, &grad));
  assert_null(grad);
  for (int pass = 1; pass <= 2; ++pass) {
    nxd_tensor_t* y = product(x, x);
    nxd_tensor_t* s = call1("sum", y);
    OK(nxd_backward(&s, NULL, 1, 0));
    OK(nxd_tensor_share_grad(x, &grad));
    assert_true(element(grad, 0) == 6 * (float)pass && element(grad, 1) == -4 * (float)pass);
    assert_int_equal(requires_grad(grad), 0);
    nxd_tensor_destroy(grad);
    nxd_tensor_destroy(s);
    nxd_tensor_destroy(y);
  }
  OK(nxd_tensor_set_grad(x, NULL));
  OK(nxd_tensor_share_grad(x, &grad));
  assert_null(grad);
  nxd_tensor_destroy(x);
}

static void a_given_gradient_replaces_the_one(void** state) {
  (void)state;
  nxd_tensor_t* x = leaf_f32(2, (const float[]){3, -2});
  nxd_tensor_t* y = product(x, x);
  nxd_tensor_t* g = vector_f32(2, (const float[]){10, 100});
  OK(nxd_backward(&y, &g, 1, 0));
  nxd_tensor_t* grad = NULL;
  OK(nxd_tensor_share_grad(x, &grad));
  assert_true(element(grad, 0) == 60 && element(grad, 1) == -400);
  nxd_tensor_destroy(grad);
  /* The tensor that the caller gave stays the caller's. */
  assert_true(element(g, 0) == 10);
  OK(nxd_tensor_set_grad(x, g));
  OK(nxd_tensor_share_grad(x, &grad));
  assert_true(element(grad, 1) == 100);
  nxd_tensor_destroy(grad);
  nxd_tensor_destroy(g);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(x);
}

static void gradients_leave_leaves_alone(void** state) {
  (void)state;
  nxd_tensor_t* x = leaf_f32(1, (const float[]){3});
  nxd_tensor_t* z = leaf_f32(1, (const float[]){5});
  nxd_tensor_t* y = product(x, x);
  nxd_tensor_t *in[] = {x, z}, *grads[] = {(nxd_tensor_t*)1, (nxd_tensor_t*)1};
  OK(nxd_grad(&y, NULL, 1, in, 2, 1, grads));
  assert_true(element(grads[0], 0) == 6);
  assert_null(grads[1]);
  nxd_tensor_destroy(grads[0]);
  nxd_tensor_t* grad = NULL;
  OK(nxd_tensor_share_grad(x, &grad));
  assert_null(grad);
  OK(nxd_grad(&y, NULL, 1, in, 1, 0, grads));
  nxd_tensor_destroy(grads[0]);
  REFUSED(nxd_grad(&y, NULL, 1, in, 1, 0, grads), NXD_ERROR_INVALID_STATE, "second time");
  assert_null(grads[0]);
  REFUSED(nxd_backward(&y, NULL, 1, 0), NXD_ERROR_INVALID_STATE, "second time");
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(x);
  nxd_tensor_destroy(z);
}

static void gradients_agree_with_finite_differences(void** state) {
  (void)state;
  double values[] = {0.3, -1.2, 2.0};
  nxd_tensor_t* x = vector_f64(3, values);
  OK(nxd_tensor_set_requires_grad(x, 1));
  nxd_tensor_t *t = call1("tanh", x), *p = product(t, x), *s = call1("sum", p), *grad = NULL;
  OK(nxd_grad(&s, NULL, 1, &x, 1, 0, &grad));
  double got[3];
  OK(nxd_tensor_copy_to_host(grad, got, sizeof got));
  const double h = 1e-6;
  for (int i = 0; i < 3; ++i) {
    const double up = values[i] + h, down = values[i] - h;
    assert_true(fabs((tanh(up) * up - tanh(down) * down) / (2 * h) - got[i]) < 1e-8);
  }
  nxd_tensor_destroy(grad);
  nxd_tensor_destroy(s);
  nxd_tensor_destroy(p);
  nxd_tensor_destroy(t);
  nxd_tensor_destroy(x);
}

static void recording_is_switched_off_and_on(void** state) {
  (void)state;
  nxd_tensor_t* x = leaf_f32(1, (const float[]){3});
  int32_t previous = -1;
  OK(nxd_set_grad_enabled(0, &previous));
  assert_int_equal(previous, 1);
  nxd_tensor_t* y = product(x, x);
  OK(nxd_set_grad_enabled(1, &previous));
  assert_int_equal(previous, 0);
  assert_int_equal(requires_grad(y), 0);
  REFUSED(nxd_backward(&y, NULL, 1, 0), NXD_ERROR_INVALID_ARGUMENT, "outputs[0]");
  nxd_tensor_destroy(y);
  y = product(x, x);
  assert_int_equal(requires_grad(y), 1);
  nxd_tensor_t* apart = NULL;
  OK(nxd_tensor_detach(y, &apart));
  assert_int_equal(requires_grad(apart), 0);
  void *a = NULL, *b = NULL;
  OK(nxd_tensor_get_data(y, &a));
  OK(nxd_tensor_get_data(apart, &b));
  assert_ptr_equal(a, b);
  nxd_tensor_destroy(apart);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(x);
}

/* Such a view says that it requires a gradient, since its base does, and none comes to it. */
static void views_made_without_recording_have_no_gradient(void** state) {
  (void)state;
  nxd_tensor_t *x = leaf_f32(2, (const float[]){3, -2}), *seen = NULL, *grads[2] = {x, x};
  OK(nxd_set_grad_enabled(0, NULL));
  OK(nxd_op_call("t", NULL, &x, 1, &seen, 1));
  OK(nxd_set_grad_enabled(1, NULL));
  assert_int_equal(requires_grad(seen), 1);
  nxd_tensor_t *y = product(x, x), *s = call1("sum", y), *in[] = {seen, x};
  OK(nxd_grad(&s, NULL, 1, in, 1, 1, grads));
  assert_null(grads[0]);
  OK(nxd_grad(&s, NULL, 1, in, 2, 0, grads));
  assert_null(grads[0]);
  assert_true(element(grads[1], 0) == 6 && element(grads[1], 1) == -4);
  nxd_tensor_destroy(grads[1]);
  OK(nxd_tensor_share_grad(x, &grads[1]));
  assert_null(grads[1]);
  REFUSED(nxd_backward(&seen, &x, 1, 0), NXD_ERROR_INVALID_ARGUMENT, "outputs[0]");
  nxd_tensor_destroy(s);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(seen);
  nxd_tensor_destroy(x);
}

/* The node of a tensor that was written by a view reports it by another exception of libtorch's. */
static void a_second_pass_through_a_written_view_is_a_wrong_order(void** state) {
  (void)state;
  nxd_tensor_t *x = leaf_f32(2, (const float[]){3, -2}), *y = product(x, x), *grad = NULL;
  nxd_tensor_t *view = call1("t", y), *written = call1("square_", view);
  OK(nxd_backward(&y, &x, 1, 0));
  REFUSED(nxd_backward(&y, &x, 1, 0), NXD_ERROR_INVALID_STATE, "second time");
  REFUSED(nxd_grad(&y, &x, 1, &x, 1, 0, &grad), NXD_ERROR_INVALID_STATE, "second time");
  nxd_tensor_destroy(written);
  nxd_tensor_destroy(view);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(x);
}

/* Its base takes part in a gradient by then, by what was added to it. */
static void a_view_is_written_after_its_base(void** state) {
  (void)state;
  nxd_tensor_t *x = vector_f32(2, (const float[]){3, -2}), *y = product(x, x), *written[2];
  nxd_tensor_t *weight = leaf_f32(2, (const float[]){1, 5}), *view = call1("t", y), *grad = NULL;
  OK(nxd_op_call("add_", "Tensor", (nxd_tensor_t*[]){y, weight}, 2, &written[0], 1));
  OK(nxd_op_call("mul_", "Tensor", (nxd_tensor_t*[]){view, x}, 2, &written[1], 1));
  assert_true(element(y, 0) == 30 && element(y, 1) == -18);
  nxd_tensor_t* sum = call1("sum", y);
  OK(nxd_backward(&sum, NULL, 1, 0));
  OK(nxd_tensor_share_grad(weight, &grad));
  assert_true(element(grad, 0) == 3 && element(grad, 1) == -2);
  nxd_tensor_destroy(grad);
  nxd_tensor_destroy(sum);
  nxd_tensor_destroy(written[1]);
  nxd_tensor_destroy(written[0]);
  nxd_tensor_destroy(view);
  nxd_tensor_destroy(weight);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(x);
}

/* The gradient of each of these needs the values that were written. */
static void gradients_of_written_views(void** state) {
  (void)state;
  static const struct {
    const char* name;
    double gradients[4]; /* of 1, 2, 3 and 4, by a view that is transposed */
  } kinds[] = {{"sqrt_", {0.5, 0.35355339, 0.28867513, 0.25}},
               {"reciprocal_", {-1, -0.25, -0.11111111, -0.0625}},
               {"tanh_", {0.41997434, 0.07065082, 0.00986604, 0.00134095}},
               {"sigmoid_", {0.19661193, 0.10499359, 0.04517666, 0.01766271}}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; ++k) {
    nxd_tensor_t *x = matrix_f32(2, 2, (const float[]){1, 2, 3, 4}), *grad = NULL;
    OK(nxd_tensor_set_requires_grad(x, 1));
    nxd_tensor_t *y = call1("neg", x), *base = call1("neg", y), *view = call1("t", base);
    nxd_tensor_t *written = call1(kinds[k].name, view), *sum = call1("sum", base);
    OK(nxd_backward(&sum, NULL, 1, 0));
    OK(nxd_tensor_share_grad(x, &grad));
    for (size_t i = 0; i < 4; ++i) {
      if (!(fabs(element(grad, i) - kinds[k].gradients[i]) <= 1e-6)) {
        fail_msg("%s: gradient %zu: expected %g, got %g", kinds[k].name, i, kinds[k].gradients[i],
                 (double)element(grad, i));
      }
    }
    nxd_tensor_t* all[] = {grad, sum, written, view, base, y, x};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) nxd_tensor_destroy(all[i]);
  }
}

/* No index, and so no row of the source. */
static void gradients_of_no_rows(void** state) {
  (void)state;
  nxd_tensor_t *x = matrix_f32(2, 2, (const float[]){1, 2, 3, 4}), *rows = NULL, *grad = NULL;
  OK(nxd_tensor_set_requires_grad(x, 1));
  nxd_tensor_t* none = vector_i64(0, (const int64_t[]){0});
  nxd_op_t* call = NULL;
  OK(nxd_op_create("index_select", NULL, &call));
  OK(nxd_op_set_tensor(call, "self", x));
  OK(nxd_op_set_int(call, "dim", 0));
  OK(nxd_op_set_tensor(call, "index", none));
  OK(nxd_op_run(call));
  OK(nxd_op_share_tensor(call, 0, &rows));
  nxd_op_destroy(call);
  nxd_tensor_t* sum = call1("sum", rows);
  OK(nxd_backward(&sum, NULL, 1, 0));
  OK(nxd_tensor_share_grad(x, &grad));
  for (size_t i = 0; i < 4; ++i) assert_true(element(grad, i) == 0);
  nxd_tensor_t* all[] = {grad, sum, rows, none, x};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) nxd_tensor_destroy(all[i]);
}

static void overwritten_tensors_are_noticed(void** state) {
  (void)state;
  nxd_tensor_t* x = leaf_f32(1, (const float[]){3});
  nxd_tensor_t* y = product(x, x);
  const float four = 4;
  OK(nxd_tensor_copy_from_host(x, &four, sizeof four));
  REFUSED(nxd_backward(&y, NULL, 1, 0), NXD_ERROR_INVALID_STATE, "modified");
  nxd_tensor_destroy(y);
  y = product(x, x);
  nxd_tensor_t* alias = NULL;
  OK(nxd_tensor_detach(x, &alias));
  OK(nxd_tensor_mark_modified(alias));
  REFUSED(nxd_backward(&y, NULL, 1, 0), NXD_ERROR_INVALID_STATE, "modified");
  nxd_tensor_destroy(alias);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(x);
}

static void wrong_leaves_and_gradients_are_refused(void** state) {
  (void)state;
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT, order = NXD_ERROR_INVALID_STATE;
  nxd_tensor_t* x = leaf_f32(2, (const float[]){3, 4});
  nxd_tensor_t* y = product(x, x);
  nxd_tensor_t* integers = vector_i64(2, (const int64_t[]){1, 2});
  nxd_tensor_t* longer = vector_f32(3, (const float[]){1, 2, 3});
  nxd_tensor_t* doubles = vector_f64(2, (const double[]){1, 2});
  nxd_tensor_t* out = (nxd_tensor_t*)1;
  REFUSED(nxd_tensor_set_requires_grad(integers, 1), bad, "floating-point");
  OK(nxd_tensor_set_requires_grad(integers, 0));
  REFUSED(nxd_tensor_set_requires_grad(y, 0), order, "leaf");
  REFUSED(nxd_tensor_share_grad(y, &out), order, "leaf");
  assert_null(out);
  REFUSED(nxd_tensor_set_grad(y, x), order, "leaf");
  REFUSED(nxd_tensor_set_grad(x, longer), bad, "shape [2]");
  REFUSED(nxd_tensor_set_grad(x, doubles), bad, "dtype f32");
  REFUSED(nxd_tensor_set_grad(x, x), bad, "itself");
  REFUSED(nxd_tensor_set_grad(x, y), bad, "nxd_tensor_detach");
  REFUSED(nxd_backward(&y, NULL, 1, 0), bad, "one element");
  REFUSED(nxd_backward(&y, &longer, 1, 0), bad, "grads[0]: expected the shape [2]");
  REFUSED(nxd_backward(&y, &doubles, 1, 0), bad, "grads[0]: expected the dtype f32");
  REFUSED(nxd_backward(&longer, NULL, 1, 0), bad, "outputs[0]");
  REFUSED(nxd_backward(&y, NULL, 0, 0), bad, "num_outputs");
  REFUSED(nxd_grad(&y, &longer, 1, &x, 1, 0, &out), bad, "grads[0]");
  nxd_tensor_t* g = vector_f32(2, (const float[]){1, 1});
  REFUSED(nxd_grad(&y, &g, 1, &longer, 1, 0, &out), bad, "inputs[0]");
  REFUSED(nxd_grad(&y, &g, 1, &x, 0, 0, &out), bad, "num_inputs");
  double item = 3;
  REFUSED(nxd_tensor_get_item(x, &item), bad, "one element, got 2");
  assert_true(item == 0);
  /* Nothing above has used the graph up. */
  OK(nxd_backward(&y, &g, 1, 0));
  nxd_tensor_destroy(g);
  nxd_tensor_destroy(doubles);
  nxd_tensor_destroy(longer);
  nxd_tensor_destroy(integers);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(x);
}

static void an_operator_without_a_derivative_is_unsupported(void** state) {
  (void)state;
  nxd_tensor_t* x = leaf_f32(2, (const float[]){3, -2});
  nxd_tensor_t *in[] = {x, x}, *y = NULL;
  OK(nxd_op_call("floor_divide", NULL, in, 2, &y, 1));
  nxd_tensor_t* ones = vector_f32(2, (const float[]){1, 1});
  REFUSED(nxd_backward(&y, &ones, 1, 0), NXD_ERROR_UNSUPPORTED,
          "derivative for aten::floor_divide");
  nxd_tensor_destroy(ones);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(backward_accumulates_into_leaves),
      cmocka_unit_test(a_given_gradient_replaces_the_one),
      cmocka_unit_test(gradients_leave_leaves_alone),
      cmocka_unit_test(gradients_agree_with_finite_differences),
      cmocka_unit_test(recording_is_switched_off_and_on),
      cmocka_unit_test(views_made_without_recording_have_no_gradient),
      cmocka_unit_test(a_second_pass_through_a_written_view_is_a_wrong_order),
      cmocka_unit_test(a_view_is_written_after_its_base),
      cmocka_unit_test(gradients_of_written_views),
      cmocka_unit_test(gradients_of_no_rows),
      cmocka_unit_test(overwritten_tensors_are_noticed),
      cmocka_unit_test(an_operator_without_a_derivative_is_unsupported),
      cmocka_unit_test(wrong_leaves_and_gradients_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
