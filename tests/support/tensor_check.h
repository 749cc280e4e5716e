/* Shorthands of the engine's single-threaded tests. CMocka's own assertions: main thread only. */
#ifndef NXD_TESTS_SUPPORT_TENSOR_CHECK_H
#define NXD_TESTS_SUPPORT_TENSOR_CHECK_H

#include <string.h>

#include "nxd.h"

#define OK(call)                                                                   \
  do {                                                                             \
    const nxd_status_t status_ = (call);                                           \
    if (status_ != NXD_OK) {                                                       \
      fail_msg("%s: %s: %s", #call, nxd_status_string(status_), nxd_last_error()); \
    }                                                                              \
  } while (0)

#define REFUSED(call, expected, part)                                                           \
  do {                                                                                          \
    const nxd_status_t status_ = (call);                                                        \
    if (status_ != (expected)) {                                                                \
      fail_msg("%s: expected %s, got %s: %s", #call, nxd_status_string(expected),               \
               nxd_status_string(status_), nxd_last_error());                                   \
    }                                                                                           \
    if (!strstr(nxd_last_error(), (part))) {                                                    \
      fail_msg("%s: expected \"%s\" in the message, got: %s", #call, (part), nxd_last_error()); \
    }                                                                                           \
  } while (0)

static inline nxd_tensor_t* tensor_of(const void* data, size_t element, const int64_t* shape,
                                      int32_t ndim, nxd_dtype_t dtype) {
  nxd_tensor_t* out = NULL;
  size_t bytes = element;
  for (int32_t i = 0; i < ndim; ++i) bytes *= (size_t)shape[i];
  OK(nxd_tensor_from_data(data, bytes, shape, ndim, dtype, &out));
  return out;
}

static inline nxd_tensor_t* vector_f32(int64_t n, const float* values) {
  return tensor_of(values, sizeof(float), &n, 1, NXD_DTYPE_F32);
}

static inline nxd_tensor_t* vector_f64(int64_t n, const double* values) {
  return tensor_of(values, sizeof(double), &n, 1, NXD_DTYPE_F64);
}

static inline nxd_tensor_t* vector_i64(int64_t n, const int64_t* values) {
  return tensor_of(values, sizeof(int64_t), &n, 1, NXD_DTYPE_I64);
}

static inline nxd_tensor_t* matrix_f32(int64_t rows, int64_t columns, const float* values) {
  const int64_t shape[] = {rows, columns};
  return tensor_of(values, sizeof(float), shape, 2, NXD_DTYPE_F32);
}

/* An element of a contiguous F32 tensor. */
static inline float element(nxd_tensor_t* tensor, size_t index) {
  void* data = NULL;
  OK(nxd_tensor_get_data(tensor, &data));
  return ((const float*)data)[index];
}

#endif
