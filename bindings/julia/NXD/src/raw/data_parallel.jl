# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_ddp_t end

@code nxd_placement_t begin
    NXD_PLACEMENT_INVALID = -1 => "invalid"
    NXD_PLACEMENT_SHARDED = 0 => "sharded"
    NXD_PLACEMENT_REPLICATED = 1 => "replicated"
    NXD_PLACEMENT_PARTIAL_GRAD = 2 => "partial_grad"
end

struct nxd_ddp_options_t
    struct_size::Csize_t
    bucket_bytes::Int64
    reduce::nxd_reduce_t
    zero_stage::Int32
    fp32_grads::Int32
    overlap::nxd_toggle_t
    broadcast::nxd_toggle_t
    reserved::Int32
end

struct nxd_finish_options_t
    struct_size::Csize_t
    scale::Cdouble
    max_norm::Cdouble
    norm_type::Cdouble
    data_parallel_reduce::nxd_reduce_t
    check_finite::nxd_toggle_t
end

@call libnxd_core nxd_ddp_options_init(options::Ptr{nxd_ddp_options_t}, size::Csize_t)::nxd_status_t
@call libnxd_core nxd_ddp_create_buffers(ctx::Ptr{nxd_context_t}, group::Ptr{nxd_group_t},
    names::Ptr{Cstring}, params::Ptr{Ptr{DLTensor}}, grads::Ptr{Ptr{DLTensor}}, num_params::Csize_t,
    options::Ptr{nxd_ddp_options_t}, out_ddp::Ptr{Ptr{nxd_ddp_t}})::nxd_status_t
@call libnxd_core nxd_ddp_set_placements(ddp::Ptr{nxd_ddp_t}, placements::Ptr{nxd_placement_t},
    dims::Ptr{Int32}, tied::Ptr{Int32}, num_params::Csize_t)::nxd_status_t
@call libnxd_core nxd_ddp_set_shards(ddp::Ptr{nxd_ddp_t}, shards::Ptr{Ptr{nxd_shard_options_t}},
    partial_grads::Ptr{Int32}, tied::Ptr{Int32}, num_params::Csize_t)::nxd_status_t
@call libnxd_core nxd_ddp_rebind(ddp::Ptr{nxd_ddp_t}, index::Csize_t, param::Ptr{DLTensor},
    grad::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_ddp_get_count(ddp::Ptr{nxd_ddp_t}, out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_ddp_get_name(ddp::Ptr{nxd_ddp_t}, index::Csize_t,
    out_name::Ptr{Cstring})::nxd_status_t
@call libnxd_core nxd_ddp_mark_ready(ddp::Ptr{nxd_ddp_t}, index::Csize_t)::nxd_status_t
@call libnxd_core nxd_ddp_mark_unused(ddp::Ptr{nxd_ddp_t}, index::Csize_t)::nxd_status_t
@call libnxd_core nxd_ddp_set_sync(ddp::Ptr{nxd_ddp_t}, sync::Int32)::nxd_status_t
@call libnxd_core nxd_ddp_get_buffer_bytes(ddp::Ptr{nxd_ddp_t},
    out_bytes::Ptr{UInt64})::nxd_status_t
@call libnxd_core nxd_ddp_mark_reloaded(ddp::Ptr{nxd_ddp_t})::nxd_status_t
@call libnxd_core nxd_ddp_destroy(ddp::Ptr{nxd_ddp_t})::Cvoid
@call libnxd_core nxd_finish_options_init(options::Ptr{nxd_finish_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_ddp_finish(ddp::Ptr{nxd_ddp_t}, options::Ptr{nxd_finish_options_t},
    out_norm::Ptr{Cdouble})::nxd_status_t
@call libnxd_core nxd_sample_epoch(num_samples::Int64, ranks::Int32, rank::Int32, epoch::Int64,
    seed::UInt64, shuffle::Int32, drop_last::Int32, out_indices::Ptr{Int64}, cap::Csize_t,
    out_count::Ptr{Csize_t})::nxd_status_t

fill_defaults(r::Ref{nxd_ddp_options_t}) = nxd_ddp_options_init(r, sizeof(nxd_ddp_options_t))
fill_defaults(r::Ref{nxd_finish_options_t}) = nxd_finish_options_init(r, sizeof(nxd_finish_options_t))
