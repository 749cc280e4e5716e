/* Tensors without DLPack: creation, copies, shapes, handles. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/tensor_check.h"

static void zeros_have_shape_strides_dtype_and_device(void** state) {
  (void)state;
  const int64_t shape[] = {2, 3, 4};
  nxd_tensor_t* t = NULL;
  OK(nxd_tensor_create(shape, 3, NXD_DTYPE_BF16, NXD_DEVICE_CPU, &t));
  int64_t got[3] = {0};
  size_t ndim = 0;
  OK(nxd_tensor_get_shape(t, got, 3, &ndim));
  assert_int_equal(ndim, 3);
  assert_memory_equal(got, shape, sizeof shape);
  OK(nxd_tensor_get_strides(t, got, 3, &ndim));
  const int64_t strides[] = {12, 4, 1};
  assert_memory_equal(got, strides, sizeof strides);
  nxd_dtype_t dtype = NXD_DTYPE_INVALID;
  OK(nxd_tensor_get_dtype(t, &dtype));
  assert_int_equal(dtype, NXD_DTYPE_BF16);
  nxd_device_t device = NXD_DEVICE_INVALID;
  OK(nxd_tensor_get_device(t, &device));
  assert_int_equal(device, NXD_DEVICE_CPU);
  int64_t count = 0;
  OK(nxd_tensor_get_element_count(t, &count));
  assert_int_equal(count, 24);
  int32_t n = 0;
  OK(nxd_tensor_get_ndim(t, &n));
  assert_int_equal(n, 3);
  uint16_t bits[24];
  memset(bits, 0xff, sizeof bits);
  OK(nxd_tensor_copy_to_host(t, bits, sizeof bits));
  for (int i = 0; i < 24; ++i) assert_int_equal(bits[i], 0);
  OK(nxd_tensor_get_shape(t, NULL, 0, &ndim));
  assert_int_equal(ndim, 3);
  nxd_tensor_destroy(t);
}

static void every_dtype_comes_back_as_it_went_in(void** state) {
  (void)state;
  const size_t sizes[] = {4, 8, 2, 2, 4, 8, 1, 1, 2, 1};
  for (nxd_dtype_t dtype = NXD_DTYPE_F32; dtype <= NXD_DTYPE_BOOL; ++dtype) {
    unsigned char in[6 * 8], out[6 * 8];
    const size_t bytes = 6 * sizes[dtype];
    for (size_t i = 0; i < bytes; ++i) {
      in[i] = dtype == NXD_DTYPE_BOOL ? i % 2 : (unsigned char)(i + 1);
    }
    const int64_t shape[] = {3, 2};
    nxd_tensor_t* t = NULL;
    OK(nxd_tensor_from_data(in, bytes, shape, 2, dtype, &t));
    nxd_dtype_t got = NXD_DTYPE_INVALID;
    OK(nxd_tensor_get_dtype(t, &got));
    assert_int_equal(got, dtype);
    OK(nxd_tensor_copy_to_host(t, out, bytes));
    assert_memory_equal(in, out, bytes);
    nxd_tensor_destroy(t);
  }
}

static void bools_are_made_zero_or_one(void** state) {
  (void)state;
  const unsigned char in[] = {0, 2, 255, 1};
  const unsigned char expected[] = {0, 1, 1, 1};
  unsigned char out[4];
  const int64_t shape[] = {4};
  nxd_tensor_t* t = NULL;
  OK(nxd_tensor_from_data(in, 4, shape, 1, NXD_DTYPE_BOOL, &t));
  OK(nxd_tensor_copy_to_host(t, out, 4));
  assert_memory_equal(out, expected, 4);
  nxd_tensor_destroy(t);
}

static void scalars_and_empty_tensors(void** state) {
  (void)state;
  const double value = -2.5;
  nxd_tensor_t* t = NULL;
  OK(nxd_tensor_from_data(&value, sizeof value, NULL, 0, NXD_DTYPE_F64, &t));
  double item = 0;
  OK(nxd_tensor_get_item(t, &item));
  assert_true(item == value);
  size_t ndim = 7;
  OK(nxd_tensor_get_shape(t, NULL, 0, &ndim));
  assert_int_equal(ndim, 0);
  nxd_tensor_destroy(t);

  const int64_t shape[] = {3, 0};
  OK(nxd_tensor_from_data(NULL, 0, shape, 2, NXD_DTYPE_F32, &t));
  int64_t count = 7;
  OK(nxd_tensor_get_element_count(t, &count));
  assert_int_equal(count, 0);
  OK(nxd_tensor_copy_to_host(t, NULL, 0));
  OK(nxd_tensor_copy_from_host(t, NULL, 0));
  nxd_tensor_destroy(t);
}

static void views_share_memory_and_copy_in_c_order(void** state) {
  (void)state;
  nxd_tensor_t* t = matrix_f32(2, 3, (const float[]){1, 2, 3, 4, 5, 6});
  nxd_tensor_t* view = NULL;
  OK(nxd_op_call("t", NULL, &t, 1, &view, 1));
  float out[6];
  OK(nxd_tensor_copy_to_host(view, out, sizeof out));
  const float transposed[] = {1, 4, 2, 5, 3, 6};
  assert_memory_equal(out, transposed, sizeof out);
  const float fresh[] = {10, 40, 20, 50, 30, 60};
  OK(nxd_tensor_copy_from_host(view, fresh, sizeof fresh));
  OK(nxd_tensor_copy_to_host(t, out, sizeof out));
  const float expected[] = {10, 20, 30, 40, 50, 60};
  assert_memory_equal(out, expected, sizeof out);
  nxd_tensor_destroy(t);
  OK(nxd_tensor_copy_to_host(view, out, sizeof out));
  assert_memory_equal(out, fresh, sizeof out);
  nxd_tensor_destroy(view);
}

static void host_buffers_need_no_alignment(void** state) {
  (void)state;
  char raw[sizeof(double) * 2 + 1], back[sizeof raw];
  const double values[] = {1.5, -7};
  memcpy(raw + 1, values, sizeof values);
  const int64_t shape[] = {2};
  nxd_tensor_t* t = NULL;
  OK(nxd_tensor_from_data(raw + 1, sizeof values, shape, 1, NXD_DTYPE_F64, &t));
  OK(nxd_tensor_copy_to_host(t, back + 1, sizeof values));
  assert_memory_equal(back + 1, values, sizeof values);
  nxd_tensor_destroy(t);
}

static void handles_share_and_outlive_each_other(void** state) {
  (void)state;
  nxd_tensor_t* a = vector_f32(2, (const float[]){1, 2});
  nxd_tensor_t* b = NULL;
  OK(nxd_tensor_retain(a, &b));
  void *pa = NULL, *pb = NULL;
  OK(nxd_tensor_get_data(a, &pa));
  OK(nxd_tensor_get_data(b, &pb));
  assert_non_null(pa);
  assert_ptr_equal(pa, pb);
  nxd_tensor_destroy(a);
  ((float*)pb)[1] = 5;
  OK(nxd_tensor_mark_modified(b));
  assert_true(element(b, 1) == 5);
  nxd_tensor_destroy(b);
  nxd_tensor_destroy(NULL);
}

static void meta_tensors_have_shapes_and_no_data(void** state) {
  (void)state;
  const int64_t shape[] = {1 << 20, 1 << 20};
  nxd_tensor_t* t = NULL;
  OK(nxd_tensor_create(shape, 2, NXD_DTYPE_F32, NXD_DEVICE_META, &t));
  nxd_tensor_t* product = NULL;
  nxd_tensor_t* inputs[] = {t, t};
  OK(nxd_op_call("matmul", NULL, inputs, 2, &product, 1));
  nxd_device_t device = NXD_DEVICE_INVALID;
  OK(nxd_tensor_get_device(product, &device));
  assert_int_equal(device, NXD_DEVICE_META);
  int64_t count = 0;
  OK(nxd_tensor_get_element_count(product, &count));
  assert_true(count == (int64_t)1 << 40);
  void* data = (void*)1;
  REFUSED(nxd_tensor_get_data(t, &data), NXD_ERROR_UNSUPPORTED, "meta");
  assert_null(data);
  float x;
  REFUSED(nxd_tensor_copy_to_host(t, &x, 4), NXD_ERROR_UNSUPPORTED, "meta");
  nxd_tensor_destroy(product);
  nxd_tensor_destroy(t);
}

static void a_forked_child_is_refused_and_may_make_its_own(void** state) {
  (void)state;
  nxd_tensor_t* t = vector_f32(1, (const float[]){1});
  nxd_op_t* op = NULL;
  OK(nxd_op_create("relu", NULL, &op));
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    int wrong = 0;
    int32_t ndim = 7;
    nxd_tensor_t *fresh = NULL, *out = NULL;
    const int64_t one = 1;
    wrong += nxd_tensor_get_ndim(t, &ndim) != NXD_ERROR_INVALID_STATE || ndim != 0;
    wrong += strstr(nxd_last_error(), "forked") == NULL;
    wrong += nxd_op_call("relu", NULL, &t, 1, &out, 1) != NXD_ERROR_INVALID_STATE;
    wrong += nxd_op_run(op) != NXD_ERROR_INVALID_STATE;
    wrong += nxd_tensor_create(&one, 1, NXD_DTYPE_F32, NXD_DEVICE_CPU, &fresh) != NXD_OK;
    wrong += nxd_tensor_get_ndim(fresh, &ndim) != NXD_OK || ndim != 1;
    nxd_tensor_destroy(fresh);
    nxd_tensor_destroy(t);
    _exit(wrong);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  int32_t ndim = 0;
  OK(nxd_tensor_get_ndim(t, &ndim));
  nxd_op_destroy(op);
  nxd_tensor_destroy(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(zeros_have_shape_strides_dtype_and_device),
      cmocka_unit_test(every_dtype_comes_back_as_it_went_in),
      cmocka_unit_test(bools_are_made_zero_or_one),
      cmocka_unit_test(scalars_and_empty_tensors),
      cmocka_unit_test(views_share_memory_and_copy_in_c_order),
      cmocka_unit_test(host_buffers_need_no_alignment),
      cmocka_unit_test(handles_share_and_outlive_each_other),
      cmocka_unit_test(meta_tensors_have_shapes_and_no_data),
      cmocka_unit_test(a_forked_child_is_refused_and_may_make_its_own),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
