# Generated from include/nxd.h by scripts/bindings: do not edit.

@code nxd_reduction_t begin
    NXD_REDUCTION_INVALID = -1 => "invalid"
    NXD_REDUCTION_MEAN = 0 => "mean"
    NXD_REDUCTION_SUM = 1 => "sum"
    NXD_REDUCTION_NONE = 2 => "none"
end

@code nxd_smoothing_t begin
    NXD_SMOOTHING_INVALID = -1 => "invalid"
    NXD_SMOOTHING_TORCH = 0 => "torch"
    NXD_SMOOTHING_MEGATRON = 1 => "megatron"
end

@code nxd_region_mapping_t begin
    NXD_REGION_MAPPING_INVALID = -1 => "invalid"
    NXD_REGION_MAPPING_COPY_TO = 0 => "copy_to"
    NXD_REGION_MAPPING_REDUCE_FROM = 1 => "reduce_from"
    NXD_REGION_MAPPING_SCATTER_TO = 2 => "scatter_to"
    NXD_REGION_MAPPING_GATHER_FROM = 3 => "gather_from"
    NXD_REGION_MAPPING_GATHER_FOR_SHARDS = 4 => "gather_for_shards"
    NXD_REGION_MAPPING_REDUCE_SCATTER_TO = 5 => "reduce_scatter_to"
end

struct nxd_column_linear_options_t
    struct_size::Csize_t
    gather_output::Int32
    sequence_parallel::Int32
    sequence_dim::Int32
    transposed_weight::Int32
    accumulate_grads::Int32
    reserved::Int32
    workspace::Ptr{Cvoid}
    workspace_bytes::Csize_t
end

struct nxd_row_linear_options_t
    struct_size::Csize_t
    input_is_parallel::nxd_toggle_t
    sequence_parallel::Int32
    sequence_dim::Int32
    transposed_weight::Int32
    accumulate_grads::Int32
    reserved::Int32
    workspace::Ptr{Cvoid}
    workspace_bytes::Csize_t
end

struct nxd_vocab_parallel_embedding_options_t
    struct_size::Csize_t
    num_embeddings::Int64
    padding_idx::Int64
    has_padding_idx::Int32
    sequence_parallel::Int32
    sequence_dim::Int32
    accumulate_grads::Int32
    workspace::Ptr{Cvoid}
    workspace_bytes::Csize_t
end

struct nxd_parallel_cross_entropy_options_t
    struct_size::Csize_t
    label_smoothing::Cdouble
    smoothing::nxd_smoothing_t
    reduction::nxd_reduction_t
    vocab_size::Int64
    ignore_index::Int64
    has_ignore_index::Int32
    reserved::Int32
    workspace::Ptr{Cvoid}
    workspace_bytes::Csize_t
end

@call libnxd_core nxd_column_linear_options_init(options::Ptr{nxd_column_linear_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_column_linear_forward(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, bias::Ptr{DLTensor}, options::Ptr{nxd_column_linear_options_t},
    y::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_column_linear_forward_get_workspace(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, bias::Ptr{DLTensor}, options::Ptr{nxd_column_linear_options_t},
    y::Ptr{DLTensor}, out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_column_linear_backward(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, grad_y::Ptr{DLTensor}, options::Ptr{nxd_column_linear_options_t},
    grad_x::Ptr{DLTensor}, grad_weight::Ptr{DLTensor}, grad_bias::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_column_linear_backward_get_workspace(ctx::Ptr{nxd_context_t},
    x::Ptr{DLTensor}, weight::Ptr{DLTensor}, grad_y::Ptr{DLTensor},
    options::Ptr{nxd_column_linear_options_t}, grad_x::Ptr{DLTensor}, grad_weight::Ptr{DLTensor},
    grad_bias::Ptr{DLTensor}, out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_column_linears_forward(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weights::Ptr{Ptr{DLTensor}}, biases::Ptr{Ptr{DLTensor}}, num_weights::Csize_t,
    options::Ptr{nxd_column_linear_options_t}, ys::Ptr{Ptr{DLTensor}})::nxd_status_t
@call libnxd_core nxd_column_linears_forward_get_workspace(ctx::Ptr{nxd_context_t},
    x::Ptr{DLTensor}, weights::Ptr{Ptr{DLTensor}}, biases::Ptr{Ptr{DLTensor}}, num_weights::Csize_t,
    options::Ptr{nxd_column_linear_options_t}, ys::Ptr{Ptr{DLTensor}},
    out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_column_linears_backward(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weights::Ptr{Ptr{DLTensor}}, grad_ys::Ptr{Ptr{DLTensor}}, num_weights::Csize_t,
    options::Ptr{nxd_column_linear_options_t}, grad_x::Ptr{DLTensor},
    grad_weights::Ptr{Ptr{DLTensor}}, grad_biases::Ptr{Ptr{DLTensor}})::nxd_status_t
@call libnxd_core nxd_column_linears_backward_get_workspace(ctx::Ptr{nxd_context_t},
    x::Ptr{DLTensor}, weights::Ptr{Ptr{DLTensor}}, grad_ys::Ptr{Ptr{DLTensor}},
    num_weights::Csize_t, options::Ptr{nxd_column_linear_options_t}, grad_x::Ptr{DLTensor},
    grad_weights::Ptr{Ptr{DLTensor}}, grad_biases::Ptr{Ptr{DLTensor}},
    out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_row_linear_options_init(options::Ptr{nxd_row_linear_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_row_linear_forward(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, bias::Ptr{DLTensor}, options::Ptr{nxd_row_linear_options_t},
    y::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_row_linear_forward_get_workspace(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, bias::Ptr{DLTensor}, options::Ptr{nxd_row_linear_options_t},
    y::Ptr{DLTensor}, out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_row_linear_backward(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, grad_y::Ptr{DLTensor}, options::Ptr{nxd_row_linear_options_t},
    grad_x::Ptr{DLTensor}, grad_weight::Ptr{DLTensor}, grad_bias::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_row_linear_backward_get_workspace(ctx::Ptr{nxd_context_t}, x::Ptr{DLTensor},
    weight::Ptr{DLTensor}, grad_y::Ptr{DLTensor}, options::Ptr{nxd_row_linear_options_t},
    grad_x::Ptr{DLTensor}, grad_weight::Ptr{DLTensor}, grad_bias::Ptr{DLTensor},
    out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_vocab_parallel_embedding_options_init(options::Ptr{nxd_vocab_parallel_embedding_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_vocab_parallel_embedding_forward(ctx::Ptr{nxd_context_t}, ids::Ptr{DLTensor},
    weight::Ptr{DLTensor}, options::Ptr{nxd_vocab_parallel_embedding_options_t},
    y::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_vocab_parallel_embedding_forward_get_workspace(ctx::Ptr{nxd_context_t},
    ids::Ptr{DLTensor}, weight::Ptr{DLTensor}, options::Ptr{nxd_vocab_parallel_embedding_options_t},
    y::Ptr{DLTensor}, out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_vocab_parallel_embedding_backward(ctx::Ptr{nxd_context_t}, ids::Ptr{DLTensor},
    grad_y::Ptr{DLTensor}, options::Ptr{nxd_vocab_parallel_embedding_options_t},
    grad_weight::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_vocab_parallel_embedding_backward_get_workspace(ctx::Ptr{nxd_context_t},
    ids::Ptr{DLTensor}, grad_y::Ptr{DLTensor}, options::Ptr{nxd_vocab_parallel_embedding_options_t},
    grad_weight::Ptr{DLTensor}, out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_parallel_cross_entropy_options_init(options::Ptr{nxd_parallel_cross_entropy_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_parallel_cross_entropy_forward(ctx::Ptr{nxd_context_t}, logits::Ptr{DLTensor},
    labels::Ptr{DLTensor}, options::Ptr{nxd_parallel_cross_entropy_options_t},
    statistics::Ptr{DLTensor}, loss::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_parallel_cross_entropy_forward_get_workspace(ctx::Ptr{nxd_context_t},
    logits::Ptr{DLTensor}, labels::Ptr{DLTensor},
    options::Ptr{nxd_parallel_cross_entropy_options_t}, statistics::Ptr{DLTensor},
    loss::Ptr{DLTensor}, out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_parallel_cross_entropy_backward(ctx::Ptr{nxd_context_t},
    logits::Ptr{DLTensor}, labels::Ptr{DLTensor}, statistics::Ptr{DLTensor},
    grad_loss::Ptr{DLTensor}, options::Ptr{nxd_parallel_cross_entropy_options_t},
    grad_logits::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_parallel_cross_entropy_backward_get_workspace(ctx::Ptr{nxd_context_t},
    logits::Ptr{DLTensor}, labels::Ptr{DLTensor}, statistics::Ptr{DLTensor},
    grad_loss::Ptr{DLTensor}, options::Ptr{nxd_parallel_cross_entropy_options_t},
    grad_logits::Ptr{DLTensor}, out_bytes::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_region_mapping_forward(ctx::Ptr{nxd_context_t}, mapping::nxd_region_mapping_t,
    dim::Int32, x::Ptr{DLTensor}, y::Ptr{DLTensor})::nxd_status_t
@call libnxd_core nxd_region_mapping_backward(ctx::Ptr{nxd_context_t},
    mapping::nxd_region_mapping_t, dim::Int32, grad_y::Ptr{DLTensor},
    grad_x::Ptr{DLTensor})::nxd_status_t

fill_defaults(r::Ref{nxd_column_linear_options_t}) = nxd_column_linear_options_init(r, sizeof(nxd_column_linear_options_t))
fill_defaults(r::Ref{nxd_row_linear_options_t}) = nxd_row_linear_options_init(r, sizeof(nxd_row_linear_options_t))
fill_defaults(r::Ref{nxd_vocab_parallel_embedding_options_t}) = nxd_vocab_parallel_embedding_options_init(r, sizeof(nxd_vocab_parallel_embedding_options_t))
fill_defaults(r::Ref{nxd_parallel_cross_entropy_options_t}) = nxd_parallel_cross_entropy_options_init(r, sizeof(nxd_parallel_cross_entropy_options_t))
