# Generated from include/nxd.h by scripts/bindings: do not edit.

@code nxd_axis_t begin
    NXD_AXIS_INVALID = -1 => "invalid"
    NXD_AXIS_WORLD = 0 => "world"
    NXD_AXIS_TENSOR = 1 => "tensor"
    NXD_AXIS_PIPELINE = 2 => "pipeline"
    NXD_AXIS_DATA = 3 => "data"
    NXD_AXIS_CONTEXT = 4 => "context"
    NXD_AXIS_EXPERT_MODEL = 5 => "expert_model"
    NXD_AXIS_EXPERT_DATA = 6 => "expert_data"
end

@code nxd_platform_t begin
    NXD_PLATFORM_INVALID = -1 => "invalid"
    NXD_PLATFORM_NEUTRAL = 0 => "neutral"
    NXD_PLATFORM_TRN1 = 1 => "trn1"
    NXD_PLATFORM_TRN2 = 2 => "trn2"
end

struct nxd_parallel_options_t
    struct_size::Csize_t
    tensor_parallel_size::Int32
    pipeline_parallel_size::Int32
    context_parallel_size::Int32
    expert_parallel_size::Int32
    platform::nxd_platform_t
    lnc_size::Int32
    local_world_size::Int32
    reduce_dtype::nxd_dtype_t
end

@call libnxd_core nxd_parallel_options_init(options::Ptr{nxd_parallel_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_layout_get_group_count(options::Ptr{nxd_parallel_options_t},
    world_size::Int32, axis::nxd_axis_t, out_count::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_layout_get_group(options::Ptr{nxd_parallel_options_t}, world_size::Int32,
    axis::nxd_axis_t, index::Int32, ranks::Ptr{Int32}, cap::Csize_t,
    out_size::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_layout_find_rank(options::Ptr{nxd_parallel_options_t}, world_size::Int32,
    axis::nxd_axis_t, rank::Int32, out_group_index::Ptr{Int32},
    out_rank_in_group::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_init_model_parallel(ctx::Ptr{nxd_context_t},
    options::Ptr{nxd_parallel_options_t})::nxd_status_t
@call libnxd_core nxd_destroy_model_parallel(ctx::Ptr{nxd_context_t})::nxd_status_t
@call libnxd_core nxd_model_parallel_is_initialized(ctx::Ptr{nxd_context_t})::Int32
@call libnxd_core nxd_parallel_get_size(ctx::Ptr{nxd_context_t}, axis::nxd_axis_t,
    out_size::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_parallel_get_rank(ctx::Ptr{nxd_context_t}, axis::nxd_axis_t,
    out_rank::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_parallel_get_source_rank(ctx::Ptr{nxd_context_t}, axis::nxd_axis_t,
    out_rank::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_parallel_get_group(ctx::Ptr{nxd_context_t}, axis::nxd_axis_t,
    out_group::Ptr{Ptr{nxd_group_t}})::nxd_status_t
@call libnxd_core nxd_parallel_get_group_list(ctx::Ptr{nxd_context_t}, axis::nxd_axis_t,
    index::Int32, ranks::Ptr{Int32}, cap::Csize_t, out_size::Ptr{Csize_t},
    out_count::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_parallel_get_pipeline_next_rank(ctx::Ptr{nxd_context_t},
    out_rank::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_parallel_get_pipeline_previous_rank(ctx::Ptr{nxd_context_t},
    out_rank::Ptr{Int32})::nxd_status_t

fill_defaults(r::Ref{nxd_parallel_options_t}) = nxd_parallel_options_init(r, sizeof(nxd_parallel_options_t))
