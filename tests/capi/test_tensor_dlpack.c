/* DLPack in and out: strides, offsets, dtypes, lifetimes, both managed forms. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/tensor_check.h"

static atomic_int deleted;

static void count_deleted(DLManagedTensor* self) {
  (void)self;
  atomic_fetch_add(&deleted, 1);
}

static void count_deleted_versioned(DLManagedTensorVersioned* self) {
  (void)self;
  atomic_fetch_add(&deleted, 1);
}

static DLTensor dl(void* data, int32_t ndim, int64_t* shape, int64_t* strides, uint8_t code,
                   uint8_t bits) {
  DLTensor t = {data, {kDLCPU, 0}, ndim, {code, bits, 1}, shape, strides, 0};
  return t;
}

static DLManagedTensor managed(DLTensor t) {
  DLManagedTensor m = {t, NULL, count_deleted};
  return m;
}

static void import_shares_memory_until_the_last_user_is_gone(void** state) {
  (void)state;
  float data[] = {0, 1, 2, 3, 4, 5, 6};
  int64_t shape[] = {2, 3}, strides[] = {1, 2};
  DLManagedTensor m = managed(dl(data, 2, shape, strides, kDLFloat, 32));
  m.dl_tensor.byte_offset = 4;
  atomic_store(&deleted, 0);
  nxd_tensor_t *t = NULL, *row = NULL;
  OK(nxd_tensor_from_dlpack(&m, &t));
  void* at = NULL;
  OK(nxd_tensor_get_data(t, &at));
  assert_ptr_equal(at, data + 1);
  float out[6];
  OK(nxd_tensor_copy_to_host(t, out, sizeof out));
  const float expected[] = {1, 3, 5, 2, 4, 6};
  assert_memory_equal(out, expected, sizeof out);
  OK(nxd_op_call("t", NULL, &t, 1, &row, 1));
  nxd_tensor_destroy(t);
  assert_int_equal(atomic_load(&deleted), 0);
  nxd_tensor_destroy(row);
  assert_int_equal(atomic_load(&deleted), 1);
}

static void import_of_no_elements_still_calls_the_deleter(void** state) {
  (void)state;
  int64_t shape[] = {0, 5};
  DLManagedTensor m = managed(dl(NULL, 2, shape, NULL, kDLInt, 64));
  atomic_store(&deleted, 0);
  nxd_tensor_t* t = NULL;
  OK(nxd_tensor_from_dlpack(&m, &t));
  int64_t got[2];
  size_t ndim = 0;
  OK(nxd_tensor_get_shape(t, got, 2, &ndim));
  assert_memory_equal(got, shape, sizeof shape);
  nxd_tensor_destroy(t);
  assert_int_equal(atomic_load(&deleted), 1);
}

static void import_takes_no_deleter(void** state) {
  (void)state;
  double one = 1;
  DLManagedTensor m = managed(dl(&one, 0, NULL, NULL, kDLFloat, 64));
  m.deleter = NULL;
  nxd_tensor_t* t = NULL;
  OK(nxd_tensor_from_dlpack(&m, &t));
  double item = 0;
  OK(nxd_tensor_get_item(t, &item));
  assert_true(item == 1);
  nxd_tensor_destroy(t);
}

static void every_dtype_crosses_both_ways(void** state) {
  (void)state;
  static const struct {
    uint8_t code, bits;
    nxd_dtype_t dtype;
  } pairs[] = {{kDLFloat, 32, NXD_DTYPE_F32},   {kDLFloat, 64, NXD_DTYPE_F64},
               {kDLBfloat, 16, NXD_DTYPE_BF16}, {kDLFloat, 16, NXD_DTYPE_F16},
               {kDLInt, 32, NXD_DTYPE_I32},     {kDLInt, 64, NXD_DTYPE_I64},
               {kDLUInt, 8, NXD_DTYPE_U8},      {kDLInt, 8, NXD_DTYPE_I8},
               {kDLInt, 16, NXD_DTYPE_I16},     {kDLBool, 8, NXD_DTYPE_BOOL}};
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; ++i) {
    _Alignas(8) char data[16] = {0};
    int64_t shape[] = {2};
    DLManagedTensor m = managed(dl(data, 1, shape, NULL, pairs[i].code, pairs[i].bits));
    nxd_tensor_t* t = NULL;
    OK(nxd_tensor_from_dlpack(&m, &t));
    nxd_dtype_t dtype = NXD_DTYPE_INVALID;
    OK(nxd_tensor_get_dtype(t, &dtype));
    assert_int_equal(dtype, pairs[i].dtype);
    DLManagedTensor* out = NULL;
    OK(nxd_tensor_to_dlpack(t, &out));
    assert_int_equal(out->dl_tensor.dtype.code, pairs[i].code);
    assert_int_equal(out->dl_tensor.dtype.bits, pairs[i].bits);
    assert_int_equal(out->dl_tensor.dtype.lanes, 1);
    assert_ptr_equal((char*)out->dl_tensor.data + out->dl_tensor.byte_offset, data);
    out->deleter(out);
    nxd_tensor_destroy(t);
  }
}

static void* delete_exported(void* arg) {
  DLManagedTensor* m = arg;
  m->deleter(m);
  return NULL;
}

static void export_outlives_its_handle_and_dies_on_any_thread(void** state) {
  (void)state;
  float data[] = {1, 2, 3, 4, 5, 6};
  int64_t shape[] = {2, 3};
  DLManagedTensor m = managed(dl(data, 2, shape, NULL, kDLFloat, 32));
  atomic_store(&deleted, 0);
  nxd_tensor_t *t = NULL, *view = NULL;
  OK(nxd_tensor_from_dlpack(&m, &t));
  OK(nxd_op_call("t", NULL, &t, 1, &view, 1));
  DLManagedTensor* out = NULL;
  OK(nxd_tensor_to_dlpack(view, &out));
  nxd_tensor_destroy(t);
  nxd_tensor_destroy(view);
  assert_int_equal(atomic_load(&deleted), 0);
  assert_int_equal(out->dl_tensor.ndim, 2);
  assert_int_equal(out->dl_tensor.shape[0], 3);
  assert_int_equal(out->dl_tensor.strides[0], 1);
  assert_int_equal(out->dl_tensor.strides[1], 3);
  assert_int_equal(out->dl_tensor.device.device_type, kDLCPU);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, delete_exported, out), 0);
  pthread_join(thread, NULL);
  assert_int_equal(atomic_load(&deleted), 1);
}

static void versioned_form_in_and_out(void** state) {
  (void)state;
  double data[] = {1, 2};
  int64_t shape[] = {2};
  DLManagedTensorVersioned m = {
      {1, 0}, NULL, count_deleted_versioned, 0, dl(data, 1, shape, NULL, kDLFloat, 64)};
  atomic_store(&deleted, 0);
  nxd_tensor_t* t = NULL;
  m.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  REFUSED(nxd_tensor_from_dlpack_versioned(&m, &t), NXD_ERROR_INVALID_ARGUMENT, "read-only");
  m.flags = 0;
  m.version.major = 2;
  REFUSED(nxd_tensor_from_dlpack_versioned(&m, &t), NXD_ERROR_UNSUPPORTED, "2.0");
  m.version.major = 0;
  REFUSED(nxd_tensor_from_dlpack_versioned(&m, &t), NXD_ERROR_UNSUPPORTED, "0.0");
  assert_null(t);
  assert_int_equal(atomic_load(&deleted), 0);
  m.version.major = 1;
  m.version.minor = 3;
  m.flags = DLPACK_FLAG_BITMASK_IS_COPIED;
  OK(nxd_tensor_from_dlpack_versioned(&m, &t));
  DLManagedTensorVersioned* out = NULL;
  OK(nxd_tensor_to_dlpack_versioned(t, &out));
  assert_int_equal(out->version.major, 1);
  assert_int_equal(out->flags, 0);
  nxd_tensor_destroy(t);
  assert_true(((double*)out->dl_tensor.data)[1] == 2);
  out->deleter(out);
  assert_int_equal(atomic_load(&deleted), 1);
}

static void copies_take_any_strides_and_alignment(void** state) {
  (void)state;
  float data[] = {1, 2, 3, 4, 5, 6}, out[6];
  int64_t shape[] = {2, 3};
  /* Reversed in both dimensions, from the last element on. */
  int64_t strides[] = {-3, -1};
  DLTensor source = dl(data + 5, 2, shape, strides, kDLFloat, 32);
  nxd_tensor_t* t = NULL;
  OK(nxd_tensor_from_dltensor(&source, &t));
  OK(nxd_tensor_copy_to_host(t, out, sizeof out));
  const float reversed[] = {6, 5, 4, 3, 2, 1};
  assert_memory_equal(out, reversed, sizeof out);
  nxd_tensor_destroy(t);

  int64_t broadcast[] = {0, 2};
  source = dl(data, 2, shape, broadcast, kDLFloat, 32);
  OK(nxd_tensor_from_dltensor(&source, &t));
  OK(nxd_tensor_copy_to_host(t, out, sizeof out));
  const float repeated[] = {1, 3, 5, 1, 3, 5};
  assert_memory_equal(out, repeated, sizeof out);
  nxd_tensor_destroy(t);

  source = dl(data, 2, shape, NULL, kDLFloat, 32);
  source.byte_offset = (uint64_t)1 << 61;
  assert_int_equal(nxd_tensor_from_dltensor(&source, &t), NXD_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(nxd_last_error(), "byte_offset"));
  assert_null(t);

  char raw[1 + sizeof data];
  memcpy(raw + 1, data, sizeof data);
  source = dl(raw, 2, shape, NULL, kDLFloat, 32);
  source.byte_offset = 1;
  OK(nxd_tensor_from_dltensor(&source, &t));
  OK(nxd_tensor_copy_to_host(t, out, sizeof out));
  assert_memory_equal(out, data, sizeof out);
  nxd_tensor_destroy(t);

  source = dl(data + 2, 0, NULL, NULL, kDLFloat, 32);
  OK(nxd_tensor_from_dltensor(&source, &t));
  assert_true(element(t, 0) == 3);
  nxd_tensor_destroy(t);
}

static void refusals_leave_the_managed_tensor_alone(void** state) {
  (void)state;
  float data[] = {1, 2, 3, 4, 5, 6};
  int64_t shape[] = {2, 3}, negative[] = {2, -3}, strides[] = {-3, 1}, far[] = {INT64_MAX, 1};
  nxd_tensor_t* t = NULL;
  atomic_store(&deleted, 0);
  DLManagedTensor m = managed(dl(data, 2, negative, NULL, kDLFloat, 32));
  REFUSED(nxd_tensor_from_dlpack(&m, &t), NXD_ERROR_INVALID_ARGUMENT, "shape[1]");
  m = managed(dl(data, -1, shape, NULL, kDLFloat, 32));
  REFUSED(nxd_tensor_from_dlpack(&m, &t), NXD_ERROR_INVALID_ARGUMENT, "ndim");
  m = managed(dl(data, 2, NULL, NULL, kDLFloat, 32));
  REFUSED(nxd_tensor_from_dlpack(&m, &t), NXD_ERROR_INVALID_ARGUMENT, "shape");
  m = managed(dl(NULL, 2, shape, NULL, kDLFloat, 32));
  REFUSED(nxd_tensor_from_dlpack(&m, &t), NXD_ERROR_INVALID_ARGUMENT, "data");
  m = managed(dl((char*)data + 1, 2, shape, NULL, kDLFloat, 32));
  REFUSED(nxd_tensor_from_dlpack(&m, &t), NXD_ERROR_INVALID_ARGUMENT, "multiple of");
  m = managed(dl(data + 3, 2, shape, strides, kDLFloat, 32));
  REFUSED(nxd_tensor_from_dlpack(&m, &t), NXD_ERROR_UNSUPPORTED, "negative strides");
  m = managed(dl(data, 2, shape, far, kDLFloat, 32));
  REFUSED(nxd_tensor_from_dlpack(&m, &t), NXD_ERROR_INVALID_ARGUMENT, "strides[0]");
  m = managed(dl(data, 2, shape, NULL, kDLComplex, 64));
  REFUSED(nxd_tensor_from_dlpack(&m, &t), NXD_ERROR_UNSUPPORTED, "dtype");
  m = managed(dl(data, 2, shape, NULL, kDLFloat, 32));
  m.dl_tensor.dtype.lanes = 4;
  REFUSED(nxd_tensor_from_dlpack(&m, &t), NXD_ERROR_UNSUPPORTED, "lanes");
  m = managed(dl(data, 2, shape, NULL, kDLFloat, 32));
  m.dl_tensor.device.device_type = kDLCUDA;
  REFUSED(nxd_tensor_from_dlpack(&m, &t), NXD_ERROR_UNSUPPORTED, "device");
  REFUSED(nxd_tensor_from_dltensor(&m.dl_tensor, &t), NXD_ERROR_UNSUPPORTED, "device");
  uint8_t flags[] = {1, 0, 2, 1, 0, 1};
  m = managed(dl(flags, 2, shape, NULL, kDLBool, 8));
  REFUSED(nxd_tensor_from_dlpack(&m, &t), NXD_ERROR_INVALID_ARGUMENT, "bytes of 0 or 1");
  assert_null(t);
  assert_int_equal(atomic_load(&deleted), 0);

  DLManagedTensor* out = (DLManagedTensor*)1;
  nxd_tensor_t* leaf = vector_f32(2, data);
  OK(nxd_tensor_set_requires_grad(leaf, 1));
  REFUSED(nxd_tensor_to_dlpack(leaf, &out), NXD_ERROR_INVALID_ARGUMENT, "nxd_tensor_detach");
  assert_null(out);
  nxd_tensor_destroy(leaf);
  OK(nxd_tensor_create(shape, 2, NXD_DTYPE_F32, NXD_DEVICE_META, &t));
  REFUSED(nxd_tensor_to_dlpack(t, &out), NXD_ERROR_UNSUPPORTED, "meta");
  nxd_tensor_destroy(t);
}

static DLManagedTensor* left_over;

static void delete_after_main(void) { left_over->deleter(left_over); }

static void an_export_may_be_deleted_while_the_process_exits(void** state) {
  (void)state;
  nxd_tensor_t* t = vector_f32(2, (const float[]){1, 2});
  OK(nxd_tensor_to_dlpack(t, &left_over));
  nxd_tensor_destroy(t);
  assert_int_equal(atexit(delete_after_main), 0);
}

static void delete_with_a_cancellation_point(DLManagedTensor* m) {
  pthread_testcancel();
  free(m);
}

static atomic_int cancelled; /* 1: the thread is to be, 2: it is */

static void* destroy_cancelled(void* unused) {
  (void)unused;
  static float data[1];
  static int64_t shape[] = {1};
  DLManagedTensor* m = calloc(1, sizeof(*m));
  m->dl_tensor = (DLTensor){
      .data = data, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  m->deleter = delete_with_a_cancellation_point;
  nxd_tensor_t* t = NULL;
  if (nxd_tensor_from_dlpack(m, &t) != NXD_OK) return NULL;
  atomic_store(&cancelled, 1);
  while (atomic_load(&cancelled) != 2) sched_yield();
  nxd_tensor_destroy(t);
  return &cancelled;
}

static void a_cancelled_thread_destroys_first(void** state) {
  (void)state;
  pthread_t thread;
  void* result = NULL;
  assert_int_equal(pthread_create(&thread, NULL, destroy_cancelled, NULL), 0);
  while (atomic_load(&cancelled) != 1) sched_yield();
  assert_int_equal(pthread_cancel(thread), 0);
  atomic_store(&cancelled, 2);
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_ptr_equal(result, &cancelled);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(import_shares_memory_until_the_last_user_is_gone),
      cmocka_unit_test(import_of_no_elements_still_calls_the_deleter),
      cmocka_unit_test(import_takes_no_deleter),
      cmocka_unit_test(a_cancelled_thread_destroys_first),
      cmocka_unit_test(every_dtype_crosses_both_ways),
      cmocka_unit_test(export_outlives_its_handle_and_dies_on_any_thread),
      cmocka_unit_test(versioned_form_in_and_out),
      cmocka_unit_test(copies_take_any_strides_and_alignment),
      cmocka_unit_test(refusals_leave_the_managed_tensor_alone),
      cmocka_unit_test(an_export_may_be_deleted_while_the_process_exits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
