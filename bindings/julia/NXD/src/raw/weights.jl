# Generated from include/nxd.h by scripts/bindings: do not edit.

@code nxd_init_t begin
    NXD_INIT_INVALID = -1 => "invalid"
    NXD_INIT_DEFAULT = 0 => "default"
    NXD_INIT_NORMAL = 1 => "normal"
    NXD_INIT_UNIFORM = 2 => "uniform"
    NXD_INIT_CONSTANT = 3 => "constant"
    NXD_INIT_KAIMING_UNIFORM = 4 => "kaiming_uniform"
end

struct nxd_shard_options_t
    struct_size::Csize_t
    size::Int64
    has_dim::Int32
    dim::Int32
    num_fused::Int32
    num_heads::Int32
end

@call libnxd_core nxd_shard_options_init(options::Ptr{nxd_shard_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_shard_initialize(ctx::Ptr{nxd_context_t}, name::Cstring, init::nxd_init_t,
    a::Cdouble, b::Cdouble, options::Ptr{nxd_shard_options_t}, shard::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_shard_set_full(ctx::Ptr{nxd_context_t}, full::Ptr{DLTensor},
    options::Ptr{nxd_shard_options_t}, shard::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_shard_gather_full(ctx::Ptr{nxd_context_t}, shard::Ptr{DLTensor},
    options::Ptr{nxd_shard_options_t}, full::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_shard_load_safetensors(ctx::Ptr{nxd_context_t}, path::Cstring, name::Cstring,
    options::Ptr{nxd_shard_options_t}, shard::Ptr{DLTensor})::nxd_status_t

fill_defaults(r::Ref{nxd_shard_options_t}) = nxd_shard_options_init(r, sizeof(nxd_shard_options_t))
