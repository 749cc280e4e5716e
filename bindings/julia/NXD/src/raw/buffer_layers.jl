# Generated from include/nxd.h by scripts/bindings: do not edit.

struct nxd_normalization_options_t
    struct_size::Csize_t
    eps::Cdouble
    sequence_parallel::Int32
    accumulate_grads::Int32
    workspace::Ptr{Cvoid}
    workspace_bytes::Csize_t
end

struct nxd_dropout_options_t
    struct_size::Csize_t
    p::Cdouble
    step::Int64
    microbatch::Int64
    has_position::Int32
    has_shard_dim::Int32
    shard_dim::Int32
    transposed::Int32
    workspace::Ptr{Cvoid}
    workspace_bytes::Csize_t
end

struct nxd_linear_cross_entropy_options_t
    struct_size::Csize_t
    label_smoothing::Cdouble
    smoothing::nxd_smoothing_t
    reduction::nxd_reduction_t
    vocab_size::Int64
    ignore_index::Int64
    has_ignore_index::Int32
    sequence_parallel::Int32
    sequence_dim::Int32
    transposed_weight::Int32
    accumulate_grads::Int32
    block_tokens::Int32
    workspace::Ptr{Cvoid}
    workspace_bytes::Csize_t
end

@call libnxd_core nxd_normalization_options_init(options::Ptr{nxd_normalization_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_rms_norm_forward(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, options::Ptr{nxd_normalization_options_t}, y::Ptr{DLTensor},
    statistics::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_rms_norm_forward_get_workspace(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, options::Ptr{nxd_normalization_options_t}, y::Ptr{DLTensor},
    statistics::Ptr{DLTensor}, out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_rms_norm_backward(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, statistics::Ptr{DLTensor}, grad_y::Ptr{DLTensor},
    options::Ptr{nxd_normalization_options_t}, grad_x::Ptr{DLTensor},
    grad_weight::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_rms_norm_backward_get_workspace(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, statistics::Ptr{DLTensor}, grad_y::Ptr{DLTensor},
    options::Ptr{nxd_normalization_options_t}, grad_x::Ptr{DLTensor}, grad_weight::Ptr{DLTensor},
    out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_layer_norm_forward(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, bias::Ptr{DLTensor}, options::Ptr{nxd_normalization_options_t},
    y::Ptr{DLTensor}, statistics::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_layer_norm_forward_get_workspace(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, bias::Ptr{DLTensor}, options::Ptr{nxd_normalization_options_t},
    y::Ptr{DLTensor}, statistics::Ptr{DLTensor}, out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_layer_norm_backward(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, statistics::Ptr{DLTensor}, grad_y::Ptr{DLTensor},
    options::Ptr{nxd_normalization_options_t}, grad_x::Ptr{DLTensor}, grad_weight::Ptr{DLTensor},
    grad_bias::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_layer_norm_backward_get_workspace(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, statistics::Ptr{DLTensor}, grad_y::Ptr{DLTensor},
    options::Ptr{nxd_normalization_options_t}, grad_x::Ptr{DLTensor}, grad_weight::Ptr{DLTensor},
    grad_bias::Ptr{DLTensor}, out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_dropout_options_init(options::Ptr{nxd_dropout_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_dropout_forward(ctx::Ptr{nxd_context_t}, name::Cstring, x::Ptr{DLTensor},
    options::Ptr{nxd_dropout_options_t}, y::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_dropout_forward_get_workspace(ctx::Ptr{nxd_context_t}, name::Cstring,
    x::Ptr{DLTensor}, options::Ptr{nxd_dropout_options_t}, y::Ptr{DLTensor},
    out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_dropout_backward(ctx::Ptr{nxd_context_t}, name::Cstring,
    grad_y::Ptr{DLTensor}, options::Ptr{nxd_dropout_options_t}, grad_x::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_dropout_backward_get_workspace(ctx::Ptr{nxd_context_t}, name::Cstring,
    grad_y::Ptr{DLTensor}, options::Ptr{nxd_dropout_options_t}, grad_x::Ptr{DLTensor},
    out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_linear_cross_entropy_options_init(options::Ptr{nxd_linear_cross_entropy_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_linear_cross_entropy_forward(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, bias::Ptr{DLTensor}, labels::Ptr{DLTensor},
    options::Ptr{nxd_linear_cross_entropy_options_t}, statistics::Ptr{DLTensor},
    loss::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_linear_cross_entropy_forward_get_workspace(ctx::Ptr{nxd_context_t},
    x::Ptr{DLTensor}, weight::Ptr{DLTensor}, bias::Ptr{DLTensor}, labels::Ptr{DLTensor},
    options::Ptr{nxd_linear_cross_entropy_options_t}, statistics::Ptr{DLTensor},
    loss::Ptr{DLTensor}, out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_linear_cross_entropy_backward(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, bias::Ptr{DLTensor}, labels::Ptr{DLTensor}, statistics::Ptr{DLTensor},
    grad_loss::Ptr{DLTensor}, options::Ptr{nxd_linear_cross_entropy_options_t},
    grad_x::Ptr{DLTensor}, grad_weight::Ptr{DLTensor}, grad_bias::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_linear_cross_entropy_backward_get_workspace(ctx::Ptr{nxd_context_t},
    x::Ptr{DLTensor}, weight::Ptr{DLTensor}, bias::Ptr{DLTensor}, labels::Ptr{DLTensor},
    statistics::Ptr{DLTensor}, grad_loss::Ptr{DLTensor},
    options::Ptr{nxd_linear_cross_entropy_options_t}, grad_x::Ptr{DLTensor},
    grad_weight::Ptr{DLTensor}, grad_bias::Ptr{DLTensor}, out_bytes::Ptr{Csize_t})::nxd_status_t

fill_defaults(r::Ref{nxd_normalization_options_t}) = nxd_normalization_options_init(r, sizeof(nxd_normalization_options_t))
fill_defaults(r::Ref{nxd_dropout_options_t}) = nxd_dropout_options_init(r, sizeof(nxd_dropout_options_t))
fill_defaults(r::Ref{nxd_linear_cross_entropy_options_t}) = nxd_linear_cross_entropy_options_init(r, sizeof(nxd_linear_cross_entropy_options_t))
