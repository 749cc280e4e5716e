# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_tensor_t end

@call libnxd nxd_memory_set_aten_pool(on::Int32)::nxd_status_t
@call libnxd nxd_memory_get_aten_pool(out_on::Ptr{Int32})::nxd_status_t
@call libnxd nxd_tensor_create(shape::Ptr{Int64}, ndim::Int32, dtype::nxd_dtype_t,
    device::nxd_device_t, out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_tensor_from_data(data::Ptr{Cvoid}, bytes::Csize_t, shape::Ptr{Int64}, ndim::Int32,
    dtype::nxd_dtype_t, out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_tensor_from_dltensor(source::Ptr{DLTensor},
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_tensor_from_dlpack(managed::Ptr{DLManagedTensor},
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_tensor_from_dlpack_versioned(managed::Ptr{DLManagedTensorVersioned},
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_tensor_to_dlpack(tensor::Ptr{nxd_tensor_t},
    out_managed::Ptr{Ptr{DLManagedTensor}})::nxd_status_t
@call libnxd nxd_tensor_to_dlpack_versioned(tensor::Ptr{nxd_tensor_t},
    out_managed::Ptr{Ptr{DLManagedTensorVersioned}})::nxd_status_t
@call libnxd nxd_tensor_retain(tensor::Ptr{nxd_tensor_t},
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_tensor_destroy(tensor::Ptr{nxd_tensor_t})::Cvoid
@call libnxd nxd_tensor_get_ndim(tensor::Ptr{nxd_tensor_t}, out_ndim::Ptr{Int32})::nxd_status_t
@call libnxd nxd_tensor_get_shape(tensor::Ptr{nxd_tensor_t}, shape::Ptr{Int64}, cap::Csize_t,
    out_ndim::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_tensor_get_strides(tensor::Ptr{nxd_tensor_t}, strides::Ptr{Int64}, cap::Csize_t,
    out_ndim::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_tensor_get_dtype(tensor::Ptr{nxd_tensor_t},
    out_dtype::Ptr{nxd_dtype_t})::nxd_status_t
@call libnxd nxd_tensor_get_device(tensor::Ptr{nxd_tensor_t},
    out_device::Ptr{nxd_device_t})::nxd_status_t
@call libnxd nxd_tensor_get_element_count(tensor::Ptr{nxd_tensor_t},
    out_count::Ptr{Int64})::nxd_status_t
@call libnxd nxd_tensor_get_data(tensor::Ptr{nxd_tensor_t}, out_data::Ptr{Ptr{Cvoid}})::nxd_status_t
@call libnxd nxd_tensor_mark_modified(tensor::Ptr{nxd_tensor_t})::nxd_status_t
@call libnxd nxd_tensor_copy_to_host(tensor::Ptr{nxd_tensor_t}, buf::Ptr{Cvoid},
    bytes::Csize_t)::nxd_status_t
@call libnxd nxd_tensor_copy_from_host(tensor::Ptr{nxd_tensor_t}, buf::Ptr{Cvoid},
    bytes::Csize_t)::nxd_status_t
@call libnxd nxd_tensor_get_item(tensor::Ptr{nxd_tensor_t}, out_value::Ptr{Cdouble})::nxd_status_t
