# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_context_t end
mutable struct nxd_group_t end

@code nxd_rendezvous_t begin
    NXD_RENDEZVOUS_INVALID = -1 => "invalid"
    NXD_RENDEZVOUS_ENVIRONMENT = 0 => "environment"
    NXD_RENDEZVOUS_STORE = 1 => "store"
end

@code nxd_transport_t begin
    NXD_TRANSPORT_INVALID = -1 => "invalid"
    NXD_TRANSPORT_AUTO = 0 => "auto"
    NXD_TRANSPORT_GLOO = 1 => "gloo"
    NXD_TRANSPORT_SHARED_MEMORY = 2 => "shared_memory"
    NXD_TRANSPORT_HIERARCHICAL = 3 => "hierarchical"
end

struct nxd_context_options_t
    struct_size::Csize_t
    rendezvous::nxd_rendezvous_t
    rank::Int32
    size::Int32
    local_rank::Int32
    store::Ptr{nxd_store_t}
    timeout_ms::Int64
    interface_name::Cstring
    seed::UInt64
    plain_kernels::nxd_toggle_t
    transport::nxd_transport_t
    host_id::Cstring
    interrupt::Ptr{Cvoid}
    interrupt_data::Ptr{Cvoid}
end

@call libnxd_core nxd_context_options_init(options::Ptr{nxd_context_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_context_create(options::Ptr{nxd_context_options_t},
    out_ctx::Ptr{Ptr{nxd_context_t}})::nxd_status_t
@call libnxd_core nxd_context_finalize(ctx::Ptr{nxd_context_t})::nxd_status_t
@call libnxd_core nxd_context_destroy(ctx::Ptr{nxd_context_t})::Cvoid
@call libnxd_core nxd_context_abort(ctx::Ptr{nxd_context_t})::nxd_status_t
@call libnxd_core nxd_context_get_flight_record(ctx::Ptr{nxd_context_t}, buf::Ptr{UInt8},
    cap::Csize_t, out_needed::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_context_get_rank(ctx::Ptr{nxd_context_t}, out_rank::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_context_get_size(ctx::Ptr{nxd_context_t}, out_size::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_context_get_local_rank(ctx::Ptr{nxd_context_t},
    out_rank::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_context_get_world_group(ctx::Ptr{nxd_context_t},
    out_group::Ptr{Ptr{nxd_group_t}})::nxd_status_t
@call libnxd_core nxd_context_set_plain_kernels(ctx::Ptr{nxd_context_t}, plain::Int32)::nxd_status_t
@call libnxd_core nxd_context_get_plain_kernels(ctx::Ptr{nxd_context_t},
    out_plain::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_context_set_step(ctx::Ptr{nxd_context_t}, step::Int64,
    microbatch::Int64)::nxd_status_t
@call libnxd_core nxd_context_get_step(ctx::Ptr{nxd_context_t}, out_step::Ptr{Int64},
    out_microbatch::Ptr{Int64})::nxd_status_t
@call libnxd_core nxd_master_print(ctx::Ptr{nxd_context_t}, text::Cstring)::nxd_status_t

fill_defaults(r::Ref{nxd_context_options_t}) = nxd_context_options_init(r, sizeof(nxd_context_options_t))
