/* Operators by name. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/tensor_check.h"

static nxd_op_t* op_of(const char* name, const char* overload) {
  nxd_op_t* op = NULL;
  OK(nxd_op_create(name, overload, &op));
  return op;
}

static nxd_tensor_t* result_of(nxd_op_t* op) {
  nxd_tensor_t* out = NULL;
  OK(nxd_op_run(op));
  OK(nxd_op_share_tensor(op, 0, &out));
  return out;
}

/* First of all tests here: the device is ready for the first operator that names it. */
static void a_device_by_its_name(void** state) {
  (void)state;
  const int64_t size[] = {2, 3};
  nxd_op_t* op = op_of("ones", NULL);
  OK(nxd_op_set_ints(op, "size", size, 2));
  OK(nxd_op_set_string(op, "device", "xla"));
  nxd_tensor_t* ones = result_of(op);
  nxd_tensor_t* read = NULL;
  OK(nxd_tensor_to_device(ones, NXD_DEVICE_CPU, &read));
  assert_true(element(read, 0) == 1 && element(read, 5) == 1);
  nxd_tensor_destroy(read);
  nxd_tensor_destroy(ones);
  nxd_op_destroy(op);
}

static void softmax_with_a_dimension_and_a_dtype(void** state) {
  (void)state;
  const float in[] = {0, 1, 2, 5, 5, 5};
  nxd_tensor_t* x = matrix_f32(2, 3, in);
  nxd_op_t* op = op_of("softmax", "int");
  OK(nxd_op_set_tensor(op, "self", x));
  OK(nxd_op_set_int(op, "dim", 1));
  nxd_tensor_t* y = result_of(op);
  const double sum = exp(0) + exp(1) + exp(2);
  for (size_t i = 0; i < 3; ++i) {
    assert_true(fabs(element(y, i) - exp((double)i) / sum) < 1e-6);
    assert_true(fabs(element(y, 3 + i) - 1.0 / 3) < 1e-6);
  }
  nxd_tensor_destroy(y);
  OK(nxd_op_set_dtype(op, "dtype", NXD_DTYPE_F64));
  y = result_of(op);
  nxd_dtype_t dtype = NXD_DTYPE_INVALID;
  OK(nxd_tensor_get_dtype(y, &dtype));
  assert_int_equal(dtype, NXD_DTYPE_F64);
  nxd_tensor_destroy(y);
  OK(nxd_op_set_tensor(op, "dtype", NULL));
  y = result_of(op);
  OK(nxd_tensor_get_dtype(y, &dtype));
  assert_int_equal(dtype, NXD_DTYPE_F32);
  nxd_tensor_destroy(y);
  nxd_op_destroy(op);
  nxd_tensor_destroy(x);
}

static void lists_scalars_booleans_and_defaults(void** state) {
  (void)state;
  const float in[] = {1, 2, 3, 4, 5, 6};
  nxd_tensor_t* x = matrix_f32(2, 3, in);
  nxd_op_t* sum = op_of("sum", "dim_IntList");
  const int64_t dims[] = {1};
  OK(nxd_op_set_tensor(sum, "self", x));
  OK(nxd_op_set_ints(sum, "dim", dims, 1));
  OK(nxd_op_set_bool(sum, "keepdim", 1));
  nxd_tensor_t* y = result_of(sum);
  int64_t shape[2];
  size_t ndim = 0;
  OK(nxd_tensor_get_shape(y, shape, 2, &ndim));
  assert_int_equal(ndim, 2);
  assert_int_equal(shape[1], 1);
  assert_true(element(y, 0) == 6 && element(y, 1) == 15);
  nxd_tensor_destroy(y);
  nxd_op_destroy(sum);

  nxd_op_t* add = op_of("aten::add", "Scalar");
  OK(nxd_op_set_tensor(add, "self", x));
  OK(nxd_op_set_double(add, "other", 0.5));
  y = result_of(add); /* alpha defaults to 1 */
  assert_true(element(y, 5) == 6.5f);
  nxd_tensor_destroy(y);
  OK(nxd_op_set_int(add, "other", 10));
  OK(nxd_op_set_double(add, "alpha", 0.25));
  y = result_of(add);
  assert_true(element(y, 0) == 3.5f);
  nxd_tensor_destroy(y);
  nxd_op_destroy(add);

  nxd_op_t* gelu = op_of("gelu", NULL);
  OK(nxd_op_set_tensor(gelu, "self", x));
  OK(nxd_op_set_string(gelu, "approximate", "tanh"));
  y = result_of(gelu);
  assert_true(fabs(element(y, 0) - 0.5 * (1 + tanh(sqrt(2 / 3.14159265358979) * 1.044715))) < 1e-6);
  nxd_tensor_destroy(y);
  nxd_op_destroy(gelu);

  nxd_op_t* full = op_of("full", NULL);
  const int64_t size[] = {2, 2};
  OK(nxd_op_set_ints(full, "size", size, 2));
  OK(nxd_op_set_int(full, "fill_value", 3));
  OK(nxd_op_set_dtype(full, "dtype", NXD_DTYPE_I64));
  OK(nxd_op_set_string(full, "device", "meta"));
  y = result_of(full);
  nxd_device_t device = NXD_DEVICE_INVALID;
  OK(nxd_tensor_get_device(y, &device));
  assert_int_equal(device, NXD_DEVICE_META);
  nxd_tensor_destroy(y);
  nxd_op_destroy(full);

  nxd_op_t* upsample = op_of("upsample_nearest1d", "vec");
  const double factor[] = {2.0};
  const int64_t image[] = {1, 1, 3};
  nxd_tensor_t* line = tensor_of(in, sizeof(float), image, 3, NXD_DTYPE_F32);
  OK(nxd_op_set_tensor(upsample, "input", line));
  OK(nxd_op_set_tensor(upsample, "output_size", NULL));
  OK(nxd_op_set_doubles(upsample, "scale_factors", factor, 1));
  y = result_of(upsample);
  assert_true(element(y, 1) == 1 && element(y, 5) == 3);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(line);
  nxd_op_destroy(upsample);
  nxd_tensor_destroy(x);
}

static void tensor_lists_and_optional_tensors(void** state) {
  (void)state;
  nxd_tensor_t* parts[] = {vector_f32(2, (const float[]){1, 2}), vector_f32(1, (const float[]){3})};
  nxd_op_t* cat = op_of("cat", NULL);
  OK(nxd_op_set_tensors(cat, "tensors", parts, 2));
  nxd_tensor_t* y = result_of(cat);
  assert_true(element(y, 2) == 3);
  nxd_op_destroy(cat);

  nxd_op_t* split = op_of("split", "Tensor");
  OK(nxd_op_set_tensor(split, "self", y));
  OK(nxd_op_set_int(split, "split_size", 2));
  OK(nxd_op_run(split));
  size_t count = 0;
  OK(nxd_op_get_result_count(split, &count));
  assert_int_equal(count, 2);
  nxd_tensor_t* last = NULL;
  OK(nxd_op_share_tensor(split, 1, &last));
  assert_true(element(last, 0) == 3);
  nxd_tensor_destroy(last);
  nxd_op_destroy(split);

  /* A list of optional tensors: rows of dimension 1 of a matrix. */
  nxd_tensor_t* m = matrix_f32(2, 3, (const float[]){1, 2, 3, 4, 5, 6});
  nxd_tensor_t* which = vector_i64(1, (const int64_t[]){2});
  nxd_tensor_t* indices[] = {NULL, which};
  nxd_op_t* index = op_of("index", "Tensor");
  OK(nxd_op_set_tensor(index, "self", m));
  OK(nxd_op_set_tensors(index, "indices", indices, 2));
  nxd_tensor_t* column = result_of(index);
  assert_true(element(column, 0) == 3 && element(column, 1) == 6);
  nxd_op_destroy(index);

  nxd_op_t* linear = op_of("linear", NULL);
  OK(nxd_op_set_tensor(linear, "input", m));
  OK(nxd_op_set_tensor(linear, "weight", m));
  OK(nxd_op_set_tensor(linear, "bias", NULL));
  nxd_tensor_t* product = result_of(linear);
  assert_true(element(product, 1) == 32);
  nxd_op_destroy(linear);
  nxd_tensor_destroy(product);
  nxd_tensor_destroy(column);
  nxd_tensor_destroy(which);
  nxd_tensor_destroy(m);
  nxd_tensor_destroy(y);
  nxd_tensor_destroy(parts[0]);
  nxd_tensor_destroy(parts[1]);
}

static void several_results_numbers_and_in_place_variants(void** state) {
  (void)state;
  nxd_tensor_t* x = vector_f32(3, (const float[]){3, 9, 4});
  nxd_op_t* max = op_of("max", "dim");
  OK(nxd_op_set_tensor(max, "self", x));
  OK(nxd_op_set_int(max, "dim", 0));
  OK(nxd_op_run(max));
  nxd_tensor_t* at = NULL;
  OK(nxd_op_share_tensor(max, 1, &at));
  double item = 0;
  OK(nxd_tensor_get_item(at, &item));
  assert_true(item == 1);
  nxd_tensor_destroy(at);
  nxd_op_destroy(max);

  nxd_op_t* equal = op_of("equal", NULL);
  OK(nxd_op_set_tensor(equal, "self", x));
  OK(nxd_op_set_tensor(equal, "other", x));
  OK(nxd_op_run(equal));
  double yes = 0;
  OK(nxd_op_get_double(equal, 0, &yes));
  assert_true(yes == 1);
  nxd_op_destroy(equal);

  nxd_tensor_t* same = NULL;
  OK(nxd_op_call("neg_", "", &x, 1, &same, 1));
  assert_true(element(x, 1) == -9 && element(same, 1) == -9);
  nxd_tensor_destroy(same);

  nxd_tensor_t* out = vector_f32(3, (const float[]){0, 0, 0});
  nxd_tensor_t* inputs[] = {x, out};
  OK(nxd_op_call("abs", "out", inputs, 2, NULL, 0));
  assert_true(element(out, 1) == 9);
  nxd_tensor_destroy(out);
  nxd_tensor_destroy(x);
}

static void results_that_are_left_out(void** state) {
  (void)state;
  nxd_tensor_t* x = matrix_f32(2, 2, (const float[]){1, 2, 3, 4});
  nxd_tensor_t* rows = matrix_f32(2, 1, (const float[]){1, 1});
  nxd_op_t* norm = op_of("native_layer_norm_backward", NULL);
  OK(nxd_op_set_tensor(norm, "grad_out", x));
  OK(nxd_op_set_tensor(norm, "input", x));
  OK(nxd_op_set_ints(norm, "normalized_shape", (const int64_t[]){2}, 1));
  OK(nxd_op_set_tensor(norm, "mean", rows));
  OK(nxd_op_set_tensor(norm, "rstd", rows));
  OK(nxd_op_set_tensor(norm, "weight", NULL));
  OK(nxd_op_set_tensor(norm, "bias", NULL));
  OK(nxd_op_set_ints(norm, "output_mask", (const int64_t[]){1, 0, 0}, 3));
  nxd_tensor_t* results[5] = {NULL, x, x};
  OK(nxd_op_run(norm));
  for (size_t i = 0; i < 3; ++i) OK(nxd_op_share_tensor(norm, i, &results[i]));
  /* g - mean(g) - n mean(g n), where g = x and n = x - 1 here */
  assert_true(element(results[0], 0) == -0.5 && element(results[0], 3) == -26.5);
  assert_null(results[1]);
  assert_null(results[2]);
  nxd_tensor_destroy(results[0]);
  nxd_op_destroy(norm);

  /* A cell without biases has no gradients of them. */
  nxd_tensor_t* gates = matrix_f32(2, 3, (const float[]){1, 1, 1, 1, 1, 1});
  nxd_tensor_t* inputs[] = {rows, gates, gates, rows, NULL, NULL};
  OK(nxd_op_call("_thnn_differentiable_gru_cell_backward", NULL, inputs, 6, results, 5));
  assert_null(results[3]);
  assert_null(results[4]);
  for (size_t i = 0; i < 3; ++i) {
    assert_non_null(results[i]);
    nxd_tensor_destroy(results[i]);
  }
  nxd_tensor_destroy(gates);
  nxd_tensor_destroy(rows);
  nxd_tensor_destroy(x);
}

static void a_schema_is_text(void** state) {
  (void)state;
  nxd_op_t* op = op_of("relu", NULL);
  const char* schema = NULL;
  OK(nxd_op_get_schema(op, &schema));
  assert_string_equal(schema, "aten::relu(Tensor self) -> Tensor");
  nxd_op_destroy(op);
}

static void unknown_names_get_near_ones(void** state) {
  (void)state;
  nxd_op_t* op = (nxd_op_t*)1;
  REFUSED(nxd_op_create("sofmax", "int", &op), NXD_ERROR_INVALID_ARGUMENT, "aten::softmax");
  assert_null(op);
  REFUSED(nxd_op_create("relu", "Tensr", &op), NXD_ERROR_INVALID_ARGUMENT, "overloads: \"\"");
  REFUSED(nxd_op_create("add", "Tensr", &op), NXD_ERROR_INVALID_ARGUMENT, "near names: Tensor");
  REFUSED(nxd_op_create("pow", NULL, &op), NXD_ERROR_INVALID_ARGUMENT, "Scalar, Scalar_out");
  REFUSED(nxd_op_create("nowhere::qqqqqqqqqqq", NULL, &op), NXD_ERROR_INVALID_ARGUMENT,
          "no operator nowhere::qqqqqqqqqqq");
  op = op_of("softmax", "int");
  REFUSED(nxd_op_set_int(op, "dimm", 1), NXD_ERROR_INVALID_ARGUMENT, "near names: dim");
  nxd_op_destroy(op);
}

static void the_only_overload_needs_no_name(void** state) {
  (void)state;
  const char* schema = NULL;
  nxd_op_t* op = op_of("scatter_reduce_", NULL);
  OK(nxd_op_get_schema(op, &schema));
  assert_non_null(strstr(schema, "aten::scatter_reduce_.two("));
  nxd_op_destroy(op);
}

/* A scalar by a boolean decides on the dtype as true does in Python. */
static void a_boolean_is_a_scalar(void** state) {
  (void)state;
  const int64_t size[] = {2};
  nxd_op_t* full = op_of("full", NULL);
  OK(nxd_op_set_ints(full, "size", size, 1));
  OK(nxd_op_set_bool(full, "fill_value", 1));
  nxd_tensor_t* ones = result_of(full);
  nxd_dtype_t dtype = NXD_DTYPE_INVALID;
  OK(nxd_tensor_get_dtype(ones, &dtype));
  assert_int_equal(dtype, NXD_DTYPE_BOOL);
  nxd_op_destroy(full);
  nxd_op_t* flip = op_of("bitwise_xor", "Scalar");
  OK(nxd_op_set_tensor(flip, "self", ones));
  OK(nxd_op_set_bool(flip, "other", 1));
  nxd_tensor_t* zeros = result_of(flip);
  OK(nxd_tensor_get_dtype(zeros, &dtype));
  assert_int_equal(dtype, NXD_DTYPE_BOOL);
  uint8_t values[] = {7, 7};
  OK(nxd_tensor_copy_to_host(zeros, values, sizeof values));
  assert_true(values[0] == 0 && values[1] == 0);
  nxd_op_destroy(flip);
  nxd_tensor_destroy(zeros);
  nxd_tensor_destroy(ones);
}

static void arguments_of_another_type_are_refused(void** state) {
  (void)state;
  nxd_tensor_t* x = vector_f32(1, (const float[]){1});
  nxd_op_t* op = op_of("softmax", "int");
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
  const int64_t one = 1;
  const double half = 0.5;
  REFUSED(nxd_op_set_tensor(op, "dim", x), bad, "argument dim: expected int, got a tensor");
  REFUSED(nxd_op_set_tensor(op, "self", NULL), bad, "got None");
  REFUSED(nxd_op_set_tensors(op, "self", &x, 1), bad, "got a list of tensors");
  REFUSED(nxd_op_set_int(op, "dtype", 1), bad, "got an integer");
  REFUSED(nxd_op_set_double(op, "dim", 1.0), bad, "got a float");
  REFUSED(nxd_op_set_bool(op, "dim", 1), bad, "got a boolean");
  REFUSED(nxd_op_set_string(op, "self", "x"), bad, "got a string");
  REFUSED(nxd_op_set_dtype(op, "dim", NXD_DTYPE_F32), bad, "got a dtype");
  REFUSED(nxd_op_set_dtype(op, "dtype", 99), bad, "dtype: expected an NXD_DTYPE_*");
  REFUSED(nxd_op_set_ints(op, "dim", &one, 1), bad, "got a list of integers");
  REFUSED(nxd_op_set_doubles(op, "dim", &half, 1), bad, "got a list of floats");
  REFUSED(nxd_op_run(op), bad, "argument self: it has no default");
  OK(nxd_op_set_tensor(op, "self", x));
  REFUSED(nxd_op_run(op), bad, "argument dim: it has no default");
  OK(nxd_op_set_int(op, "dim", 5));
  REFUSED(nxd_op_run(op), bad, "Dimension out of range");
  nxd_tensor_t* out = (nxd_tensor_t*)1;
  REFUSED(nxd_op_share_tensor(op, 0, &out), NXD_ERROR_INVALID_STATE, "nxd_op_run");
  assert_null(out);
  OK(nxd_op_set_int(op, "dim", 0));
  OK(nxd_op_run(op));
  REFUSED(nxd_op_share_tensor(op, 1, &out), bad, "expected less than 1");
  double number = 7;
  REFUSED(nxd_op_get_double(op, 0, &number), bad, "no number");
  assert_true(number == 0);
  nxd_op_destroy(op);

  nxd_tensor_t* holed[] = {x, NULL};
  op = op_of("cat", NULL);
  REFUSED(nxd_op_set_tensors(op, "tensors", holed, 2), bad, "tensors[1]");
  nxd_op_destroy(op);
  nxd_tensor_t* outs[2] = {(nxd_tensor_t*)1, (nxd_tensor_t*)1};
  REFUSED(nxd_op_call("neg_", NULL, &x, 1, outs, 2), bad, "num_outputs: expected at most 1");
  assert_null(outs[0]);
  assert_null(outs[1]);
  assert_true(element(x, 0) == 1);
  REFUSED(nxd_op_call("relu", NULL, holed, 2, outs, 1), bad, "num_inputs: expected at most 1");
  nxd_tensor_destroy(x);
}

static void what_a_device_or_dtype_lacks_is_unsupported(void** state) {
  (void)state;
  const uint16_t zero[4] = {0};
  const int64_t shape[] = {2, 2};
  nxd_tensor_t* half = tensor_of(zero, 2, shape, 2, NXD_DTYPE_F16);
  nxd_tensor_t* out = NULL;
  nxd_tensor_t* both[] = {half, half};
  REFUSED(nxd_op_call("linalg_cholesky", NULL, both, 1, &out, 1), NXD_ERROR_UNSUPPORTED, "Half");
  assert_null(out);
  nxd_tensor_destroy(half);
}

static atomic_int wrong;

static void* work(void* arg) {
  const float base = (float)(intptr_t)arg;
  for (int i = 0; i < 200; ++i) {
    const int64_t n = 1;
    nxd_tensor_t *x = NULL, *y = NULL;
    nxd_op_t* op = NULL;
    nxd_op_t* other = NULL;
    double got = 0;
    if (nxd_tensor_from_data(&base, sizeof base, &n, 1, NXD_DTYPE_F32, &x) ||
        nxd_op_create("mul", "Scalar", &op) || nxd_op_set_tensor(op, "self", x) ||
        nxd_op_set_int(op, "other", i) || nxd_op_run(op) || nxd_op_share_tensor(op, 0, &y) ||
        nxd_tensor_get_item(y, &got) || got != (double)base * i ||
        nxd_op_create(i % 50 ? "relu" : "nosuchop", NULL, &other) !=
            (i % 50 ? NXD_OK : NXD_ERROR_INVALID_ARGUMENT)) {
      atomic_fetch_add(&wrong, 1);
    }
    nxd_op_destroy(op);
    nxd_op_destroy(other);
    nxd_tensor_destroy(x);
    nxd_tensor_destroy(y);
  }
  return NULL;
}

static void operators_run_on_many_threads(void** state) {
  (void)state;
  pthread_t threads[8];
  for (intptr_t i = 0; i < 8; ++i) {
    assert_int_equal(pthread_create(&threads[i], NULL, work, (void*)(i + 1)), 0);
  }
  for (int i = 0; i < 8; ++i) pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&wrong), 0);
}

/* libtorch throws no error of its own there. */
static void numbers_that_do_not_fit(void** state) {
  (void)state;
  nxd_tensor_t* integers = vector_i64(2, (const int64_t[]){1, 2});
  nxd_op_t* op = NULL;
  OK(nxd_op_create("fill_", "Scalar", &op));
  OK(nxd_op_set_tensor(op, "self", integers));
  OK(nxd_op_set_double(op, "value", NAN));
  REFUSED(nxd_op_run(op), NXD_ERROR_INVALID_ARGUMENT, "overflow");
  nxd_op_destroy(op);
  nxd_tensor_destroy(integers);
}

/* Nor does libtorch 1.13 here. */
static void sizes_that_do_not_fit(void** state) {
  (void)state;
  nxd_tensor_t* two = vector_i64(2, (const int64_t[]){1, 2});
  nxd_op_t* op = NULL;
  OK(nxd_op_create("reshape", "", &op));
  OK(nxd_op_set_tensor(op, "self", two));
  OK(nxd_op_set_ints(op, "shape", (const int64_t[]){3}, 1));
  REFUSED(nxd_op_run(op), NXD_ERROR_INVALID_ARGUMENT, "is invalid for input of size 2");
  OK(nxd_op_set_ints(op, "shape", (const int64_t[]){-1, -1}, 2));
  REFUSED(nxd_op_run(op), NXD_ERROR_INVALID_ARGUMENT, "only one dimension");
  nxd_op_destroy(op);
  nxd_tensor_destroy(two);
}

/* It asserts these, as if nobody could give others. */
static void values_that_are_asserted(void** state) {
  (void)state;
  nxd_tensor_t* x = vector_i64(2, (const int64_t[]){1, 2});
  nxd_op_t* op = NULL;
  static const char* const losses[] = {"mse_loss", "l1_loss", "smooth_l1_loss"};
  for (size_t i = 0; i < 3; ++i) {
    OK(nxd_op_create(losses[i], "", &op));
    OK(nxd_op_set_tensor(op, "self", x));
    OK(nxd_op_set_tensor(op, "target", x));
    for (int64_t wrong = -1; wrong <= 3; wrong += 4) {
      OK(nxd_op_set_int(op, "reduction", wrong));
      REFUSED(nxd_op_run(op), NXD_ERROR_INVALID_ARGUMENT, "argument reduction: expected 0 (none)");
    }
    nxd_op_destroy(op);
  }
  OK(nxd_op_create("sort", "stable", &op));
  OK(nxd_op_set_tensor(op, "self", x));
  OK(nxd_op_set_tensor(op, "stable", NULL));
  REFUSED(nxd_op_run(op), NXD_ERROR_INVALID_ARGUMENT, "argument stable: expected a boolean");
  OK(nxd_op_set_bool(op, "stable", 1));
  OK(nxd_op_run(op));
  nxd_op_destroy(op);
  nxd_tensor_destroy(x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_device_by_its_name),
      cmocka_unit_test(softmax_with_a_dimension_and_a_dtype),
      cmocka_unit_test(lists_scalars_booleans_and_defaults),
      cmocka_unit_test(tensor_lists_and_optional_tensors),
      cmocka_unit_test(several_results_numbers_and_in_place_variants),
      cmocka_unit_test(results_that_are_left_out),
      cmocka_unit_test(a_schema_is_text),
      cmocka_unit_test(unknown_names_get_near_ones),
      cmocka_unit_test(the_only_overload_needs_no_name),
      cmocka_unit_test(a_boolean_is_a_scalar),
      cmocka_unit_test(arguments_of_another_type_are_refused),
      cmocka_unit_test(what_a_device_or_dtype_lacks_is_unsupported),
      cmocka_unit_test(operators_run_on_many_threads),
      cmocka_unit_test(numbers_that_do_not_fit),
      cmocka_unit_test(sizes_that_do_not_fit),
      cmocka_unit_test(values_that_are_asserted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
