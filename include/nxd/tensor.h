/** @file
 * Tensors. */
#ifndef NXD_TENSOR_H
#define NXD_TENSOR_H

#include "base.h"
#include "dlpack.h"

/* Copies of dlpack.h before 1.0 do not know it, and a program may have included one first. */
struct DLManagedTensorVersioned;

#ifdef __cplusplus
extern "C" {
#endif

/** Handle on a tensor. Several handles may share one storage. */
typedef struct nxd_tensor nxd_tensor_t;

/** [local] Sets whether ATen, libtorch's tensor library, takes the memory of new CPU tensors from
 *  the pool of nxd_memory_get_stats too. The setting is for the whole process and may change at any
 *  time: memory goes back to where it came from.
 *
 *  It starts on if libnxd brought libtorch into the process. It starts off if the program, or
 *  another of its libraries, uses libtorch itself or has given ATen an allocator. NXD_ATEN_POOL=1
 *  or 0 overrides both. This is decided when libnxd is loaded.
 *
 *  If it starts on, malloc is also told to keep up to 64 MB of free memory (glibc's mallopt), but
 *  not if the environment configures malloc. Switching the pool off later does not undo that.
 *  @param on  1 or 0.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (the program has set an allocator of its own
 *          that ATen ranks higher).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_memory_set_aten_pool(int32_t on);

/** [local] Tells whether ATen takes the memory of new CPU tensors from the pool: 1 or 0.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_memory_get_aten_pool(int32_t* out_on);

/** [local] A tensor of zeros in C order.
 *
 *  @param shape   ndim sizes, at most 64, each 0 or more; may be NULL when ndim is 0 (a scalar).
 *  @param device  NXD_DEVICE_CPU, NXD_DEVICE_XLA or NXD_DEVICE_META (shape and dtype only).
 *  @return NXD_OK; INVALID_ARGUMENT; OUT_OF_MEMORY; UNSUPPORTED (device).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_create(const int64_t* shape, int32_t ndim, nxd_dtype_t dtype,
                                       nxd_device_t device, nxd_tensor_t** out_tensor);

/** [local] A tensor in C order with a copy of the caller's data.
 *
 *  @param data   as many elements of dtype as the shape has; NULL only when it has none.
 *  @param bytes  size of data: elements times the element size, checked.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_from_data(const void* data, size_t bytes, const int64_t* shape,
                                          int32_t ndim, nxd_dtype_t dtype,
                                          nxd_tensor_t** out_tensor);

/** [local] A tensor with a copy of a borrowed DLPack tensor, any strides.
 *
 *  @param source  borrowed for the call; on the CPU.
 *  @return NXD_OK; INVALID_ARGUMENT; UNSUPPORTED (device, dtype, lanes).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_from_dltensor(const DLTensor* source, nxd_tensor_t** out_tensor);

/** [local] A tensor over the memory of a managed DLPack tensor, without a copy.
 *
 *  @param managed  taken over on success: its deleter is called, on any thread, when the last
 *                  tensor over the memory is gone. On failure it stays the caller's.
 *  @return NXD_OK; INVALID_ARGUMENT (also data that is not aligned to the element size, or BOOL
 *          with bytes other than 0 and 1); UNSUPPORTED (device, dtype, lanes; negative strides,
 *          which cannot be shared).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_from_dlpack(DLManagedTensor* managed, nxd_tensor_t** out_tensor);

/** [local] The same for the versioned form; read-only memory is rejected.
 *  @return as nxd_tensor_from_dlpack; INVALID_ARGUMENT too for read-only memory, UNSUPPORTED for a
 *          major version other than 1.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_from_dlpack_versioned(struct DLManagedTensorVersioned* managed,
                                                      nxd_tensor_t** out_tensor);

/** [local] The tensor's memory as a managed DLPack tensor, without a copy.
 *  After writing through it, call nxd_tensor_mark_modified.
 *
 *  @param[out] out_managed  the caller calls its deleter once; the memory lives until then.
 *  @return NXD_OK; INVALID_ARGUMENT (requires grad: detach first); UNSUPPORTED (not on the CPU).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_to_dlpack(nxd_tensor_t* tensor, DLManagedTensor** out_managed);

/** [local] The same in the versioned form.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_to_dlpack_versioned(nxd_tensor_t* tensor,
                                                    struct DLManagedTensorVersioned** out_managed);

/** [local] Another handle on the same tensor.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_retain(nxd_tensor_t* tensor, nxd_tensor_t** out_tensor);

/** [local] Releases a handle.
 *  @since 0.1 */
NXD_API void nxd_tensor_destroy(nxd_tensor_t* tensor);

/** [local] Number of dimensions.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_ndim(nxd_tensor_t* tensor, int32_t* out_ndim);

/** [local] Sizes of the dimensions.
 *
 *  @param shape  room for cap sizes; may be NULL when cap is 0.
 *  @param[out] out_ndim  dimensions. When it exceeds cap nothing is copied, and a cap other than 0
 *                        is INVALID_ARGUMENT.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_shape(nxd_tensor_t* tensor, int64_t* shape, size_t cap,
                                          size_t* out_ndim);

/** [local] Strides in elements; as nxd_tensor_get_shape.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_strides(nxd_tensor_t* tensor, int64_t* strides, size_t cap,
                                            size_t* out_ndim);

/** [local] Element type.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_dtype(nxd_tensor_t* tensor, nxd_dtype_t* out_dtype);

/** [local] Device.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_device(nxd_tensor_t* tensor, nxd_device_t* out_device);

/** [local] Number of elements.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_element_count(nxd_tensor_t* tensor, int64_t* out_count);

/** [local] First element in memory; borrowed. After writing through it, call
 *  nxd_tensor_mark_modified.
 *  @return NXD_OK; UNSUPPORTED (not on the CPU).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_data(nxd_tensor_t* tensor, void** out_data);

/** [local] Says that the tensor's memory was written by other means than this library, so that
 *  what was derived from it is made anew.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_mark_modified(nxd_tensor_t* tensor);

/** [local] Copies all elements out, in C order.
 *  @param bytes  size of buf: elements times the element size, checked.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_copy_to_host(nxd_tensor_t* tensor, void* buf, size_t bytes);

/** [local] Overwrites all elements in place from C order; not recorded by autograd.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_copy_from_host(nxd_tensor_t* tensor, const void* buf, size_t bytes);

/** [local] Value of a tensor of one element, as a double.
 *  @return NXD_OK; INVALID_ARGUMENT (not one element).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_tensor_get_item(nxd_tensor_t* tensor, double* out_value);

#ifdef __cplusplus
}
#endif

#endif /* NXD_TENSOR_H */
