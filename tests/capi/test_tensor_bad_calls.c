/* Bad calls of tensors, operators and gradients: a NULL for each pointer, wrong shapes, sizes and
 * dtypes. Every output is cleared, and nothing is leaked: see also the loop at the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/tensor_check.h"

#define BAD(call, part) REFUSED(call, NXD_ERROR_INVALID_ARGUMENT, part)
#define SENTINEL(type) ((type*)(uintptr_t)16)

/* Under AddressSanitizer too, more memory than there is gives NULL, as malloc does. */
const char* __asan_default_options(void);
const char* __asan_default_options(void) { return "allocator_may_return_null=1"; }

static nxd_tensor_t* tensor;
static nxd_op_t* op;
static const int64_t kTwo[] = {2};
static const float kData[] = {1, 2};

static int set_up(void** state) {
  (void)state;
  tensor = vector_f32(2, kData);
  OK(nxd_op_create("softmax", "int", &op));
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  nxd_op_destroy(op);
  nxd_tensor_destroy(tensor);
  return 0;
}

/* No elements, but strides beyond int64, wherever the 0 stands. */
static void no_elements(void** state) {
  (void)state;
  nxd_tensor_t* out = NULL;
  for (int zero = 0; zero < 3; ++zero) {
    int64_t none[] = {INT64_C(1) << 58, INT64_C(1) << 58, INT64_C(1) << 58};
    none[zero] = 0;
    BAD(nxd_tensor_create(none, 3, NXD_DTYPE_F32, NXD_DEVICE_CPU, &out), "exceeds int64");
    BAD(nxd_tensor_create(none, 3, NXD_DTYPE_F32, NXD_DEVICE_META, &out), "exceeds int64");
    BAD(nxd_tensor_from_data(NULL, 0, none, 3, NXD_DTYPE_F32, &out), "exceeds int64");
    DLTensor view = {.device = {kDLCPU, 0}, .ndim = 3, .dtype = {kDLFloat, 32, 1}, .shape = none};
    BAD(nxd_tensor_from_dltensor(&view, &out), "exceeds int64");
    none[zero == 0] = 3;
    OK(nxd_tensor_create(none, 3, NXD_DTYPE_F32, NXD_DEVICE_CPU, &out));
    nxd_tensor_destroy(out);
  }
}

static void creation(void** state) {
  (void)state;
  nxd_tensor_t* out = SENTINEL(nxd_tensor_t);
  const int64_t negative[] = {2, -1}, huge[] = {INT64_MAX, 2}, large[] = {(int64_t)1 << 55};
  const nxd_device_t cpu = NXD_DEVICE_CPU;
  BAD(nxd_tensor_create(NULL, 1, NXD_DTYPE_F32, cpu, &out), "shape: expected 1 sizes, got NULL");
  assert_null(out);
  BAD(nxd_tensor_create(kTwo, 1, NXD_DTYPE_F32, cpu, NULL), "out_tensor");
  BAD(nxd_tensor_create(kTwo, -1, NXD_DTYPE_F32, cpu, &out), "ndim: expected 0 to 64, got -1");
  BAD(nxd_tensor_create(kTwo, 65, NXD_DTYPE_F32, cpu, &out), "ndim");
  BAD(nxd_tensor_create(negative, 2, NXD_DTYPE_F32, cpu, &out), "shape[1]");
  BAD(nxd_tensor_create(huge, 2, NXD_DTYPE_F32, cpu, &out), "exceeds int64");
  BAD(nxd_tensor_create(kTwo, 1, NXD_DTYPE_INVALID, cpu, &out), "dtype");
  BAD(nxd_tensor_create(kTwo, 1, 10, cpu, &out), "dtype");
  BAD(nxd_tensor_create(kTwo, 1, NXD_DTYPE_F32, NXD_DEVICE_INVALID, &out), "device");
  BAD(nxd_tensor_create(kTwo, 1, NXD_DTYPE_F32, 4, &out), "device");
  REFUSED(nxd_tensor_create(kTwo, 1, NXD_DTYPE_F32, NXD_DEVICE_NEURON, &out), NXD_ERROR_UNSUPPORTED,
          "NEURON");
  REFUSED(nxd_tensor_create(large, 1, NXD_DTYPE_F64, cpu, &out), NXD_ERROR_OUT_OF_MEMORY, "memory");
  assert_null(out);

  out = SENTINEL(nxd_tensor_t);
  BAD(nxd_tensor_from_data(NULL, 8, kTwo, 1, NXD_DTYPE_F32, &out), "data");
  assert_null(out);
  BAD(nxd_tensor_from_data(kData, 7, kTwo, 1, NXD_DTYPE_F32, &out), "expected 8 bytes");
  BAD(nxd_tensor_from_data(kData, 9, kTwo, 1, NXD_DTYPE_F32, &out), "expected 8 bytes");
  // Sizes that no memory has are compared before any is taken.
  const int64_t most[] = {INT64_MAX}, terabytes[] = {(int64_t)1 << 40};
  BAD(nxd_tensor_from_data(kData, 1, most, 1, NXD_DTYPE_U8, &out),
      "expected 9223372036854775807 bytes");
  BAD(nxd_tensor_from_data(kData, 4, terabytes, 1, NXD_DTYPE_F32, &out),
      "expected 4398046511104 bytes");
  BAD(nxd_tensor_from_data(kData, 8, NULL, 1, NXD_DTYPE_F32, &out), "shape");
  BAD(nxd_tensor_from_data(kData, 8, kTwo, 1, -7, &out), "dtype");
  BAD(nxd_tensor_from_data(kData, 8, kTwo, 1, NXD_DTYPE_F32, NULL), "out_tensor");
  assert_null(out);
}

static void dlpack(void** state) {
  (void)state;
  nxd_tensor_t* out = SENTINEL(nxd_tensor_t);
  DLManagedTensor* managed = SENTINEL(DLManagedTensor);
  DLManagedTensorVersioned* versioned = SENTINEL(DLManagedTensorVersioned);
  BAD(nxd_tensor_from_dltensor(NULL, &out), "source");
  assert_null(out);
  out = SENTINEL(nxd_tensor_t);
  BAD(nxd_tensor_from_dlpack(NULL, &out), "managed");
  assert_null(out);
  out = SENTINEL(nxd_tensor_t);
  BAD(nxd_tensor_from_dlpack_versioned(NULL, &out), "managed");
  assert_null(out);
  BAD(nxd_tensor_to_dlpack(NULL, &managed), "tensor");
  assert_null(managed);
  BAD(nxd_tensor_to_dlpack_versioned(NULL, &versioned), "tensor");
  assert_null(versioned);
  BAD(nxd_tensor_to_dlpack(tensor, NULL), "out_managed");
  BAD(nxd_tensor_to_dlpack_versioned(tensor, NULL), "out_managed");
  int64_t shape[] = {2};
  float data[] = {1, 2};
  DLManagedTensor m = {{data, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, NULL, 0}, NULL, NULL};
  DLManagedTensorVersioned v = {{1, 0}, NULL, NULL, 0, m.dl_tensor};
  BAD(nxd_tensor_from_dltensor(&m.dl_tensor, NULL), "out_tensor");
  BAD(nxd_tensor_from_dlpack(&m, NULL), "out_tensor");
  BAD(nxd_tensor_from_dlpack_versioned(&v, NULL), "out_tensor");
}

static void getters(void** state) {
  (void)state;
  nxd_tensor_t* out = SENTINEL(nxd_tensor_t);
  int32_t i32 = 7;
  int64_t i64 = 7;
  size_t size = 7;
  double item = 7;
  void* data = SENTINEL(void);
  BAD(nxd_tensor_retain(NULL, &out), "tensor");
  assert_null(out);
  BAD(nxd_tensor_retain(tensor, NULL), "out_tensor");
  BAD(nxd_tensor_get_ndim(NULL, &i32), "tensor");
  assert_int_equal(i32, 0);
  BAD(nxd_tensor_get_ndim(tensor, NULL), "out_ndim");
  BAD(nxd_tensor_get_shape(NULL, &i64, 1, &size), "tensor");
  assert_int_equal(size, 0);
  BAD(nxd_tensor_get_shape(tensor, NULL, 1, &size), "shape");
  BAD(nxd_tensor_get_shape(tensor, &i64, 1, NULL), "out_ndim");
  BAD(nxd_tensor_get_strides(NULL, &i64, 1, &size), "tensor");
  BAD(nxd_tensor_get_strides(tensor, NULL, 1, &size), "strides");
  BAD(nxd_tensor_get_strides(tensor, &i64, 1, NULL), "out_ndim");
  const int64_t square[] = {1, 2};
  nxd_tensor_t* matrix = tensor_of(kData, sizeof(float), square, 2, NXD_DTYPE_F32);
  BAD(nxd_tensor_get_shape(matrix, &i64, 1, &size), "cap: expected at least 2, got 1");
  assert_int_equal(i64, 7); /* nothing is copied, and the size is told */
  assert_int_equal(size, 2);
  nxd_tensor_destroy(matrix);
  i32 = 7;
  BAD(nxd_tensor_get_dtype(NULL, &i32), "tensor");
  assert_int_equal(i32, 0);
  BAD(nxd_tensor_get_dtype(tensor, NULL), "out_dtype");
  BAD(nxd_tensor_get_device(NULL, &i32), "tensor");
  BAD(nxd_tensor_get_device(tensor, NULL), "out_device");
  BAD(nxd_tensor_get_element_count(NULL, &i64), "tensor");
  assert_int_equal(i64, 0);
  BAD(nxd_tensor_get_element_count(tensor, NULL), "out_count");
  BAD(nxd_tensor_get_data(NULL, &data), "tensor");
  assert_null(data);
  BAD(nxd_tensor_get_data(tensor, NULL), "out_data");
  BAD(nxd_tensor_mark_modified(NULL), "tensor");
  float buffer[2] = {7, 7};
  BAD(nxd_tensor_copy_to_host(NULL, buffer, 8), "tensor");
  BAD(nxd_tensor_copy_to_host(tensor, NULL, 8), "buf");
  BAD(nxd_tensor_copy_to_host(tensor, buffer, 4), "expected 8 bytes");
  assert_true(buffer[0] == 7);
  BAD(nxd_tensor_copy_from_host(NULL, buffer, 8), "tensor");
  BAD(nxd_tensor_copy_from_host(tensor, NULL, 8), "data");
  BAD(nxd_tensor_copy_from_host(tensor, buffer, 16), "expected 8 bytes");
  assert_true(element(tensor, 0) == 1);
  BAD(nxd_tensor_get_item(NULL, &item), "tensor");
  assert_true(item == 0);
  BAD(nxd_tensor_get_item(tensor, NULL), "out_value");
}

static void operators(void** state) {
  (void)state;
  nxd_op_t* made = SENTINEL(nxd_op_t);
  nxd_tensor_t* out = SENTINEL(nxd_tensor_t);
  const char* schema = "x";
  size_t count = 7;
  double number = 7;
  BAD(nxd_op_create(NULL, NULL, &made), "name");
  assert_null(made);
  BAD(nxd_op_create("relu", NULL, NULL), "out_op");
  BAD(nxd_op_create("", NULL, &made), "no operator aten::");
  nxd_op_destroy(NULL);
  BAD(nxd_op_get_schema(NULL, &schema), "op");
  assert_null(schema);
  BAD(nxd_op_get_schema(op, NULL), "out_schema");
  BAD(nxd_op_set_tensor(NULL, "self", tensor), "op");
  BAD(nxd_op_set_tensor(op, NULL, tensor), "name");
  BAD(nxd_op_set_tensors(NULL, "self", &tensor, 1), "op");
  BAD(nxd_op_set_tensors(op, NULL, &tensor, 1), "name");
  BAD(nxd_op_set_tensors(op, "self", NULL, 1), "tensors: expected an array of 1, got NULL");
  BAD(nxd_op_set_int(NULL, "dim", 1), "op");
  BAD(nxd_op_set_int(op, NULL, 1), "name");
  BAD(nxd_op_set_double(NULL, "dim", 1), "op");
  BAD(nxd_op_set_double(op, NULL, 1), "name");
  BAD(nxd_op_set_bool(NULL, "dim", 1), "op");
  BAD(nxd_op_set_bool(op, NULL, 1), "name");
  BAD(nxd_op_set_string(NULL, "dim", "x"), "op");
  BAD(nxd_op_set_string(op, NULL, "x"), "name");
  BAD(nxd_op_set_string(op, "dim", NULL), "value");
  BAD(nxd_op_set_dtype(NULL, "dtype", NXD_DTYPE_F32), "op");
  BAD(nxd_op_set_dtype(op, NULL, NXD_DTYPE_F32), "name");
  BAD(nxd_op_set_ints(NULL, "dim", kTwo, 1), "op");
  BAD(nxd_op_set_ints(op, NULL, kTwo, 1), "name");
  BAD(nxd_op_set_ints(op, "dim", NULL, 1), "values");
  BAD(nxd_op_set_doubles(NULL, "dim", &number, 1), "op");
  BAD(nxd_op_set_doubles(op, NULL, &number, 1), "name");
  BAD(nxd_op_set_doubles(op, "dim", NULL, 1), "values");
  BAD(nxd_op_run(NULL), "op");
  BAD(nxd_op_get_result_count(NULL, &count), "op");
  assert_int_equal(count, 0);
  BAD(nxd_op_get_result_count(op, NULL), "out_count");
  REFUSED(nxd_op_get_result_count(op, &count), NXD_ERROR_INVALID_STATE, "nxd_op_run");
  BAD(nxd_op_share_tensor(NULL, 0, &out), "op");
  assert_null(out);
  BAD(nxd_op_share_tensor(op, 0, NULL), "out_tensor");
  REFUSED(nxd_op_share_tensor(op, 0, &out), NXD_ERROR_INVALID_STATE, "nxd_op_run");
  BAD(nxd_op_get_double(NULL, 0, &number), "op");
  assert_true(number == 0);
  BAD(nxd_op_get_double(op, 0, NULL), "out_value");
  REFUSED(nxd_op_get_double(op, 0, &number), NXD_ERROR_INVALID_STATE, "nxd_op_run");
  out = SENTINEL(nxd_tensor_t);
  BAD(nxd_op_call(NULL, NULL, &tensor, 1, &out, 1), "name");
  assert_null(out);
  BAD(nxd_op_call("relu", NULL, NULL, 1, &out, 1), "inputs");
  BAD(nxd_op_call("relu", NULL, &tensor, 1, NULL, 1), "outputs");
  BAD(nxd_op_call("relu", NULL, NULL, 0, &out, 1), "argument self");
  nxd_tensor_t* none = NULL;
  BAD(nxd_op_call("relu", NULL, &none, 1, &out, 1), "argument self");
}

static void gradients(void** state) {
  (void)state;
  nxd_tensor_t *out = SENTINEL(nxd_tensor_t), *none = NULL;
  int32_t flag = 7;
  BAD(nxd_tensor_get_requires_grad(NULL, &flag), "tensor");
  assert_int_equal(flag, 0);
  BAD(nxd_tensor_get_requires_grad(tensor, NULL), "out_requires");
  BAD(nxd_tensor_set_requires_grad(NULL, 1), "tensor");
  BAD(nxd_tensor_share_grad(NULL, &out), "tensor");
  assert_null(out);
  BAD(nxd_tensor_share_grad(tensor, NULL), "out_grad");
  BAD(nxd_tensor_set_grad(NULL, tensor), "tensor");
  out = SENTINEL(nxd_tensor_t);
  BAD(nxd_tensor_detach(NULL, &out), "tensor");
  assert_null(out);
  BAD(nxd_tensor_detach(tensor, NULL), "out_tensor");
  OK(nxd_set_grad_enabled(1, NULL));
  nxd_dtype_t previous = NXD_DTYPE_I8;
  BAD(nxd_set_autocast(NXD_DTYPE_F16, &previous), "dtype: expected NXD_DTYPE_BF16");
  assert_int_equal(previous, NXD_DTYPE_I8);
  OK(nxd_set_autocast(NXD_DTYPE_INVALID, NULL));
  BAD(nxd_backward(NULL, NULL, 1, 0), "outputs");
  BAD(nxd_backward(&none, NULL, 1, 0), "outputs[0]: expected a tensor, got NULL");
  out = SENTINEL(nxd_tensor_t);
  BAD(nxd_grad(NULL, NULL, 1, &tensor, 1, 0, &out), "outputs");
  assert_null(out);
  BAD(nxd_grad(&tensor, NULL, 1, NULL, 1, 0, &out), "inputs");
  BAD(nxd_grad(&tensor, NULL, 1, &none, 1, 0, &out), "inputs[0]");
  BAD(nxd_grad(&tensor, NULL, 1, &tensor, 1, 0, NULL), "out_grads");
}

static nxd_status_t same(nxd_function_call_t* call, nxd_tensor_t* const* inputs, size_t n_inputs,
                         nxd_tensor_t** outputs, size_t n_outputs, void* user_data) {
  (void)n_inputs;
  (void)n_outputs;
  int* failures = user_data;
  nxd_tensor_t* saved = SENTINEL(nxd_tensor_t);
  int32_t needs = 7;
  /* CMocka's assertions jump, which may not happen inside a callback. */
  *failures += nxd_function_call_save(call, NULL) != NXD_ERROR_INVALID_ARGUMENT;
  *failures += nxd_function_call_get_saved(call, 0, &saved) != NXD_ERROR_INVALID_ARGUMENT;
  *failures += saved != NULL;
  *failures += nxd_function_call_get_saved(call, 0, NULL) != NXD_ERROR_INVALID_ARGUMENT;
  *failures += nxd_function_call_needs_grad(call, 1, &needs) != NXD_ERROR_INVALID_ARGUMENT;
  *failures += needs != 0;
  *failures += nxd_function_call_needs_grad(call, 0, NULL) != NXD_ERROR_INVALID_ARGUMENT;
  return nxd_tensor_retain(inputs[0], &outputs[0]);
}

static void functions(void** state) {
  (void)state;
  int failures = 0;
  nxd_function_options_t o = NXD_FUNCTION_OPTIONS_INIT;
  o.name = "tests::same";
  o.forward = same;
  o.user_data = &failures;
  nxd_function_t* f = NULL;
  BAD(nxd_function_create(&o, NULL), "out_function");
  OK(nxd_function_create(&o, &f));
  nxd_tensor_t *out = SENTINEL(nxd_tensor_t), *none = NULL;
  BAD(nxd_function_apply(NULL, &tensor, 1, &out, 1), "function");
  assert_null(out);
  BAD(nxd_function_apply(f, NULL, 1, &out, 1), "inputs");
  BAD(nxd_function_apply(f, &none, 1, &out, 1), "inputs[0]");
  BAD(nxd_function_apply(f, &tensor, 1, NULL, 1), "outputs");
  BAD(nxd_function_apply(f, &tensor, 1, NULL, 0), "num_outputs");
  OK(nxd_function_apply(f, &tensor, 1, &out, 1));
  assert_int_equal(failures, 0);
  nxd_tensor_destroy(out);
  int32_t needs = 7;
  BAD(nxd_function_call_save(NULL, tensor), "call");
  BAD(nxd_function_call_get_saved(NULL, 0, &out), "call");
  assert_null(out);
  BAD(nxd_function_call_needs_grad(NULL, 0, &needs), "call");
  assert_int_equal(needs, 0);
  nxd_function_destroy(f);
  nxd_function_destroy(NULL);
}

/* Runs under the leak checkers: whatever is made here is gone at the end. */
static void making_using_and_destroying_over_and_over(void** state) {
  (void)state;
  for (int i = 0; i < 20; ++i) {
    nxd_tensor_t *x = vector_f32(2, kData), *y = NULL, *s = NULL, *grad = NULL, *bad = NULL;
    OK(nxd_tensor_set_requires_grad(x, 1));
    nxd_tensor_t* in[] = {x, x};
    OK(nxd_op_call("mul", "Tensor", in, 2, &y, 1));
    OK(nxd_op_call("sum", NULL, &y, 1, &s, 1));
    OK(nxd_backward(&s, NULL, 1, 0));
    REFUSED(nxd_backward(&s, NULL, 1, 0), NXD_ERROR_INVALID_STATE, "second time");
    OK(nxd_tensor_share_grad(x, &grad));
    DLManagedTensor* managed = NULL;
    OK(nxd_tensor_to_dlpack(grad, &managed));
    OK(nxd_tensor_from_dlpack(managed, &bad));
    nxd_tensor_destroy(bad);
    BAD(nxd_op_call("matmul", NULL, in, 1, &bad, 1), "argument other");
    nxd_tensor_destroy(grad);
    nxd_tensor_destroy(s);
    nxd_tensor_destroy(y);
    nxd_tensor_destroy(x);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_elements), cmocka_unit_test(creation),
      cmocka_unit_test(dlpack),      cmocka_unit_test(getters),
      cmocka_unit_test(operators),   cmocka_unit_test(gradients),
      cmocka_unit_test(functions),   cmocka_unit_test(making_using_and_destroying_over_and_over),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
