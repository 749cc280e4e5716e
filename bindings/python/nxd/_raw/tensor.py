# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/tensor.h."""

from __future__ import annotations

NAMES = """
typedef struct nxd_tensor nxd_tensor_t;
"""

FUNCTIONS = """
nxd_status_t nxd_memory_set_aten_pool(int32_t on);
nxd_status_t nxd_memory_get_aten_pool(int32_t* out_on);
nxd_status_t nxd_tensor_create(const int64_t* shape, int32_t ndim, nxd_dtype_t dtype, nxd_device_t device, nxd_tensor_t** out_tensor);
nxd_status_t nxd_tensor_from_data(const void* data, size_t bytes, const int64_t* shape, int32_t ndim, nxd_dtype_t dtype, nxd_tensor_t** out_tensor);
nxd_status_t nxd_tensor_from_dltensor(const DLTensor* source, nxd_tensor_t** out_tensor);
nxd_status_t nxd_tensor_from_dlpack(DLManagedTensor* managed, nxd_tensor_t** out_tensor);
nxd_status_t nxd_tensor_from_dlpack_versioned(struct DLManagedTensorVersioned* managed, nxd_tensor_t** out_tensor);
nxd_status_t nxd_tensor_to_dlpack(nxd_tensor_t* tensor, DLManagedTensor** out_managed);
nxd_status_t nxd_tensor_to_dlpack_versioned(nxd_tensor_t* tensor, struct DLManagedTensorVersioned** out_managed);
nxd_status_t nxd_tensor_retain(nxd_tensor_t* tensor, nxd_tensor_t** out_tensor);
void nxd_tensor_destroy(nxd_tensor_t* tensor);
nxd_status_t nxd_tensor_get_ndim(nxd_tensor_t* tensor, int32_t* out_ndim);
nxd_status_t nxd_tensor_get_shape(nxd_tensor_t* tensor, int64_t* shape, size_t cap, size_t* out_ndim);
nxd_status_t nxd_tensor_get_strides(nxd_tensor_t* tensor, int64_t* strides, size_t cap, size_t* out_ndim);
nxd_status_t nxd_tensor_get_dtype(nxd_tensor_t* tensor, nxd_dtype_t* out_dtype);
nxd_status_t nxd_tensor_get_device(nxd_tensor_t* tensor, nxd_device_t* out_device);
nxd_status_t nxd_tensor_get_element_count(nxd_tensor_t* tensor, int64_t* out_count);
nxd_status_t nxd_tensor_get_data(nxd_tensor_t* tensor, void** out_data);
nxd_status_t nxd_tensor_mark_modified(nxd_tensor_t* tensor);
nxd_status_t nxd_tensor_copy_to_host(nxd_tensor_t* tensor, void* buf, size_t bytes);
nxd_status_t nxd_tensor_copy_from_host(nxd_tensor_t* tensor, const void* buf, size_t bytes);
nxd_status_t nxd_tensor_get_item(nxd_tensor_t* tensor, double* out_value);
"""
