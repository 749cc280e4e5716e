# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_payloads_t end

@code nxd_reduce_t begin
    NXD_REDUCE_INVALID = -1 => "invalid"
    NXD_REDUCE_SUM = 0 => "sum"
    NXD_REDUCE_AVG = 1 => "avg"
    NXD_REDUCE_MAX = 2 => "max"
    NXD_REDUCE_MIN = 3 => "min"
    NXD_REDUCE_PROD = 4 => "prod"
end

@call libnxd_core nxd_group_create(ctx::Ptr{nxd_context_t}, ranks::Ptr{Int32}, num_ranks::Csize_t,
    name::Cstring, out_group::Ptr{Ptr{nxd_group_t}})::nxd_status_t
@call libnxd_core nxd_group_destroy(group::Ptr{nxd_group_t})::Cvoid
@call libnxd_core nxd_group_abort(group::Ptr{nxd_group_t})::nxd_status_t
@call libnxd_core nxd_group_get_size(group::Ptr{nxd_group_t}, out_size::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_group_get_rank(group::Ptr{nxd_group_t}, out_rank::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_group_get_ranks(group::Ptr{nxd_group_t}, ranks::Ptr{Int32}, cap::Csize_t,
    out_size::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_group_set_timeout(group::Ptr{nxd_group_t}, timeout_ms::Int64)::nxd_status_t
@call libnxd_core nxd_group_get_transport(group::Ptr{nxd_group_t},
    out_transport::Ptr{nxd_transport_t})::nxd_status_t
@call libnxd_core nxd_group_set_next_key(group::Ptr{nxd_group_t}, key::UInt64)::nxd_status_t
@call libnxd_core nxd_all_reduce(group::Ptr{nxd_group_t}, send::Ptr{Cvoid}, receive::Ptr{Cvoid},
    count::Csize_t, dtype::nxd_dtype_t, reduce::nxd_reduce_t)::nxd_status_t
@call libnxd_core nxd_all_gather(group::Ptr{nxd_group_t}, send::Ptr{Cvoid}, receive::Ptr{Cvoid},
    count::Csize_t, dtype::nxd_dtype_t)::nxd_status_t
@call libnxd_core nxd_reduce_scatter(group::Ptr{nxd_group_t}, send::Ptr{Cvoid}, receive::Ptr{Cvoid},
    count::Csize_t, dtype::nxd_dtype_t, reduce::nxd_reduce_t)::nxd_status_t
@call libnxd_core nxd_broadcast(group::Ptr{nxd_group_t}, buffer::Ptr{Cvoid}, count::Csize_t,
    dtype::nxd_dtype_t, root::Int32)::nxd_status_t
@call libnxd_core nxd_all_to_all(group::Ptr{nxd_group_t}, send::Ptr{Cvoid}, receive::Ptr{Cvoid},
    count::Csize_t, dtype::nxd_dtype_t)::nxd_status_t
@call libnxd_core nxd_send(group::Ptr{nxd_group_t}, buffer::Ptr{Cvoid}, count::Csize_t,
    dtype::nxd_dtype_t, to::Int32, tag::Int32)::nxd_status_t
@call libnxd_core nxd_receive(group::Ptr{nxd_group_t}, buffer::Ptr{Cvoid}, count::Csize_t,
    dtype::nxd_dtype_t, from::Int32, tag::Int32)::nxd_status_t
@call libnxd_core nxd_barrier(group::Ptr{nxd_group_t})::nxd_status_t
@call libnxd_core nxd_group_rendezvous(group::Ptr{nxd_group_t}, tag::Cstring, payload::Ptr{Cvoid},
    size::Csize_t, out_payloads::Ptr{Ptr{nxd_payloads_t}})::nxd_status_t
@call libnxd_core nxd_payloads_get(payloads::Ptr{nxd_payloads_t}, rank::Int32,
    out_data::Ptr{Ptr{Cvoid}}, out_size::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_payloads_destroy(payloads::Ptr{nxd_payloads_t})::Cvoid
