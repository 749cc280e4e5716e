# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_data_loader_t end

@code nxd_token_format_t begin
    NXD_TOKEN_FORMAT_INVALID = -1 => "invalid"
    NXD_TOKEN_FORMAT_DEFAULT = 0 => "default"
    NXD_TOKEN_FORMAT_UINT16 = 1 => "uint16"
    NXD_TOKEN_FORMAT_UINT32 = 2 => "uint32"
    NXD_TOKEN_FORMAT_BYTES = 3 => "bytes"
end

struct nxd_data_loader_options_t
    struct_size::Csize_t
    vocab_size::Int64
    seed::UInt64
    has_seed::Int32
    format::nxd_token_format_t
    shuffle::nxd_toggle_t
    next_labels::Int32
    prefetch::Int32
    reserved::Int32
end

@call libnxd_core nxd_data_loader_options_init(options::Ptr{nxd_data_loader_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_data_loader_create(ctx::Ptr{nxd_context_t}, paths::Ptr{Cstring},
    num_paths::Csize_t, batch_size::Int64, sequence_length::Int64,
    options::Ptr{nxd_data_loader_options_t}, out_loader::Ptr{Ptr{nxd_data_loader_t}})::nxd_status_t
@call libnxd_core nxd_data_loader_next(loader::Ptr{nxd_data_loader_t}, ids::Ptr{Int64},
    labels::Ptr{Int64}, count::Csize_t)::nxd_status_t
@call libnxd_core nxd_data_loader_get_sample_count(loader::Ptr{nxd_data_loader_t},
    out_count::Ptr{Int64})::nxd_status_t
@call libnxd_core nxd_data_loader_get_position(loader::Ptr{nxd_data_loader_t},
    out_position::Ptr{Int64})::nxd_status_t
@call libnxd_core nxd_data_loader_set_position(loader::Ptr{nxd_data_loader_t},
    position::Int64)::nxd_status_t
@call libnxd_core nxd_data_loader_destroy(loader::Ptr{nxd_data_loader_t})::Cvoid

fill_defaults(r::Ref{nxd_data_loader_options_t}) = nxd_data_loader_options_init(r, sizeof(nxd_data_loader_options_t))
