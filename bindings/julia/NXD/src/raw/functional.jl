# Generated from include/nxd.h by scripts/bindings: do not edit.

struct nxd_cross_entropy_options_t
    struct_size::Csize_t
    label_smoothing::Cdouble
    smoothing::nxd_smoothing_t
    reduction::nxd_reduction_t
    has_ignore_index::Int32
    reserved::Int32
    ignore_index::Int64
end

@call libnxd nxd_copy_to_tensor_region(ctx::Ptr{nxd_context_t}, x::Ptr{nxd_tensor_t},
    out_y::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_reduce_from_tensor_region(ctx::Ptr{nxd_context_t}, x::Ptr{nxd_tensor_t},
    out_y::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_scatter_to_tensor_region(ctx::Ptr{nxd_context_t}, x::Ptr{nxd_tensor_t},
    out_y::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_gather_from_tensor_region(ctx::Ptr{nxd_context_t}, x::Ptr{nxd_tensor_t},
    out_y::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_scatter_to_sequence_region(ctx::Ptr{nxd_context_t}, x::Ptr{nxd_tensor_t},
    dim::Int32, out_y::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_gather_from_sequence_region(ctx::Ptr{nxd_context_t}, x::Ptr{nxd_tensor_t},
    dim::Int32, to_model_parallel::Int32, out_y::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_reduce_scatter_to_sequence_region(ctx::Ptr{nxd_context_t}, x::Ptr{nxd_tensor_t},
    dim::Int32, out_y::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_cross_entropy_options_init(options::Ptr{nxd_cross_entropy_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd nxd_parallel_cross_entropy(ctx::Ptr{nxd_context_t}, logits::Ptr{nxd_tensor_t},
    labels::Ptr{nxd_tensor_t}, options::Ptr{nxd_cross_entropy_options_t},
    out_loss::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_linear_cross_entropy(ctx::Ptr{nxd_context_t}, x::Ptr{nxd_tensor_t},
    weight::Ptr{nxd_tensor_t}, labels::Ptr{nxd_tensor_t}, sequence_dim::Int32,
    options::Ptr{nxd_cross_entropy_options_t}, out_loss::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t

fill_defaults(r::Ref{nxd_cross_entropy_options_t}) = nxd_cross_entropy_options_init(r, sizeof(nxd_cross_entropy_options_t))
