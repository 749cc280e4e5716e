# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_work_t end

@call libnxd_core nxd_all_reduce_async(group::Ptr{nxd_group_t}, send::Ptr{Cvoid},
    receive::Ptr{Cvoid}, count::Csize_t, dtype::nxd_dtype_t, reduce::nxd_reduce_t,
    out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_all_gather_async(group::Ptr{nxd_group_t}, send::Ptr{Cvoid},
    receive::Ptr{Cvoid}, count::Csize_t, dtype::nxd_dtype_t,
    out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_reduce_scatter_async(group::Ptr{nxd_group_t}, send::Ptr{Cvoid},
    receive::Ptr{Cvoid}, count::Csize_t, dtype::nxd_dtype_t, reduce::nxd_reduce_t,
    out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_broadcast_async(group::Ptr{nxd_group_t}, buffer::Ptr{Cvoid}, count::Csize_t,
    dtype::nxd_dtype_t, root::Int32, out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_all_to_all_async(group::Ptr{nxd_group_t}, send::Ptr{Cvoid},
    receive::Ptr{Cvoid}, count::Csize_t, dtype::nxd_dtype_t,
    out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_send_async(group::Ptr{nxd_group_t}, buffer::Ptr{Cvoid}, count::Csize_t,
    dtype::nxd_dtype_t, to::Int32, tag::Int32, out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_receive_async(group::Ptr{nxd_group_t}, buffer::Ptr{Cvoid}, count::Csize_t,
    dtype::nxd_dtype_t, from::Int32, tag::Int32, out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_barrier_async(group::Ptr{nxd_group_t},
    out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_group_reject(group::Ptr{nxd_group_t}, operation::Cstring, peer::Int32,
    tag::Int32, reason::Cstring)::nxd_status_t
@call libnxd_core nxd_group_reject_async(group::Ptr{nxd_group_t}, operation::Cstring, peer::Int32,
    tag::Int32, reason::Cstring, out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_work_test(work::Ptr{nxd_work_t}, out_done::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_work_wait(work::Ptr{nxd_work_t}, timeout_ms::Int64)::nxd_status_t
@call libnxd_core nxd_work_set_callback(work::Ptr{nxd_work_t}, callback::Ptr{Cvoid},
    user_data::Ptr{Cvoid})::nxd_status_t
@call libnxd_core nxd_work_get_descriptor(work::Ptr{nxd_work_t},
    out_descriptor::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_work_cancel(work::Ptr{nxd_work_t})::nxd_status_t
@call libnxd_core nxd_work_get_error_info(work::Ptr{nxd_work_t},
    out_info::Ptr{nxd_error_info_t})::nxd_status_t
@call libnxd_core nxd_work_destroy(work::Ptr{nxd_work_t})::Cvoid
