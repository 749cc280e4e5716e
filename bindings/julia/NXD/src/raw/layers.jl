# Generated from include/nxd.h by scripts/bindings: do not edit.

@code nxd_rope_t begin
    NXD_ROPE_INVALID = -1 => "invalid"
    NXD_ROPE_DEFAULT = 0 => "default"
    NXD_ROPE_LINEAR = 1 => "linear"
    NXD_ROPE_DYNAMIC = 2 => "dynamic"
    NXD_ROPE_YARN = 3 => "yarn"
    NXD_ROPE_LLAMA3 = 4 => "llama3"
end

@code nxd_qkv_fusion_t begin
    NXD_QKV_INVALID = -1 => "invalid"
    NXD_QKV_SEPARATE = 0 => "separate"
    NXD_QKV_BY_PART = 1 => "by_part"
    NXD_QKV_BY_HEAD = 2 => "by_head"
end

@code nxd_activation_t begin
    NXD_ACTIVATION_INVALID = -1 => "invalid"
    NXD_ACTIVATION_SILU = 0 => "silu"
    NXD_ACTIVATION_GELU = 1 => "gelu"
    NXD_ACTIVATION_GELU_TANH = 2 => "gelu_tanh"
    NXD_ACTIVATION_RELU = 3 => "relu"
end

struct nxd_embedding_options_t
    struct_size::Csize_t
    name::Cstring
    dtype::nxd_dtype_t
    device::nxd_device_t
    init::nxd_init_t
    has_padding_idx::Int32
    init_a::Cdouble
    init_b::Cdouble
    padding_idx::Int64
    shard_across_embedding::Int32
    sequence_parallel::Int32
    sequence_dim::Int32
    reserved::Int32
end

struct nxd_linear_options_t
    struct_size::Csize_t
    name::Cstring
    dtype::nxd_dtype_t
    device::nxd_device_t
    bias::nxd_toggle_t
    gather_output::nxd_toggle_t
    reduce_output::nxd_toggle_t
    input_is_parallel::Int32
    sequence_parallel::Int32
    sequence_dim::Int32
    skip_bias_add::Int32
    keep_master_weight::Int32
    stride::Int32
    init::nxd_init_t
    init_a::Cdouble
    init_b::Cdouble
    pad::Int32
    reserved::Int32
end

struct nxd_norm_options_t
    struct_size::Csize_t
    name::Cstring
    dtype::nxd_dtype_t
    device::nxd_device_t
    eps::Cdouble
    affine::nxd_toggle_t
    bias::nxd_toggle_t
    sequence_parallel::Int32
    reserved::Int32
end

struct nxd_rope_options_t
    struct_size::Csize_t
    type::nxd_rope_t
    rotary_dim::Int32
    theta::Cdouble
    factor::Cdouble
    low_freq_factor::Cdouble
    high_freq_factor::Cdouble
    beta_fast::Cdouble
    beta_slow::Cdouble
    attention_factor::Cdouble
    original_max_position_embeddings::Int64
end

struct nxd_attention_options_t
    struct_size::Csize_t
    name::Cstring
    dtype::nxd_dtype_t
    device::nxd_device_t
    num_kv_heads::Int64
    head_dim::Int64
    rope::Ptr{nxd_rope_options_t}
    causal::nxd_toggle_t
    qkv_bias::nxd_toggle_t
    output_bias::nxd_toggle_t
    sequence_parallel::Int32
    init::nxd_init_t
    reserved::Int32
    init_a::Cdouble
    init_b::Cdouble
end

struct nxd_qkv_options_t
    struct_size::Csize_t
    name::Cstring
    dtype::nxd_dtype_t
    device::nxd_device_t
    num_kv_heads::Int64
    head_dim::Int64
    fusion::nxd_qkv_fusion_t
    bias::nxd_toggle_t
    sequence_parallel::Int32
    init::nxd_init_t
    init_a::Cdouble
    init_b::Cdouble
end

struct nxd_mlp_options_t
    struct_size::Csize_t
    name::Cstring
    dtype::nxd_dtype_t
    device::nxd_device_t
    activation::nxd_activation_t
    bias::nxd_toggle_t
    sequence_parallel::Int32
    init::nxd_init_t
    init_a::Cdouble
    init_b::Cdouble
end

@call libnxd nxd_embedding_options_init(options::Ptr{nxd_embedding_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd nxd_layer_create_parallel_embedding(ctx::Ptr{nxd_context_t}, num_embeddings::Int64,
    embedding_dim::Int64, options::Ptr{nxd_embedding_options_t},
    out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_linear_options_init(options::Ptr{nxd_linear_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd nxd_layer_create_column_parallel_linear(ctx::Ptr{nxd_context_t}, in_features::Int64,
    out_features::Int64, options::Ptr{nxd_linear_options_t},
    out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_layer_create_row_parallel_linear(ctx::Ptr{nxd_context_t}, in_features::Int64,
    out_features::Int64, options::Ptr{nxd_linear_options_t},
    out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_layer_create_linear(ctx::Ptr{nxd_context_t}, in_features::Int64,
    out_features::Int64, options::Ptr{nxd_linear_options_t},
    out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_module_get_master_weight(var"module"::Ptr{nxd_module_t},
    out_weight::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_norm_options_init(options::Ptr{nxd_norm_options_t}, size::Csize_t)::nxd_status_t
@call libnxd nxd_layer_create_layer_norm(ctx::Ptr{nxd_context_t}, size::Int64,
    options::Ptr{nxd_norm_options_t}, out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_layer_create_rms_norm(ctx::Ptr{nxd_context_t}, size::Int64,
    options::Ptr{nxd_norm_options_t}, out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_rope_options_init(options::Ptr{nxd_rope_options_t}, size::Csize_t)::nxd_status_t
@call libnxd nxd_layer_create_rotary_embedding(ctx::Ptr{nxd_context_t}, head_dim::Int64,
    options::Ptr{nxd_rope_options_t}, out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_attention_options_init(options::Ptr{nxd_attention_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd nxd_layer_create_attention(ctx::Ptr{nxd_context_t}, hidden_size::Int64,
    num_heads::Int64, options::Ptr{nxd_attention_options_t},
    out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_qkv_options_init(options::Ptr{nxd_qkv_options_t}, size::Csize_t)::nxd_status_t
@call libnxd nxd_layer_create_qkv_linear(ctx::Ptr{nxd_context_t}, hidden_size::Int64,
    num_heads::Int64, options::Ptr{nxd_qkv_options_t},
    out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_mlp_options_init(options::Ptr{nxd_mlp_options_t}, size::Csize_t)::nxd_status_t
@call libnxd nxd_layer_create_gated_mlp(ctx::Ptr{nxd_context_t}, hidden_size::Int64,
    intermediate_size::Int64, options::Ptr{nxd_mlp_options_t},
    out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_layer_create_dropout(ctx::Ptr{nxd_context_t}, p::Cdouble, name::Cstring,
    shard_dim::Int32, out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_get_number_of_extra_heads(num_heads::Int64, tp_degree::Int32,
    out_extra::Ptr{Int64})::nxd_status_t
@call libnxd nxd_pad_model(root::Ptr{nxd_module_t}, tp_degree::Int32, num_heads::Int64,
    wrapped_classes::Ptr{Cstring}, num_wrapped_classes::Csize_t, hook::Ptr{Cvoid},
    user_data::Ptr{Cvoid})::nxd_status_t

fill_defaults(r::Ref{nxd_embedding_options_t}) = nxd_embedding_options_init(r, sizeof(nxd_embedding_options_t))
fill_defaults(r::Ref{nxd_linear_options_t}) = nxd_linear_options_init(r, sizeof(nxd_linear_options_t))
fill_defaults(r::Ref{nxd_norm_options_t}) = nxd_norm_options_init(r, sizeof(nxd_norm_options_t))
fill_defaults(r::Ref{nxd_rope_options_t}) = nxd_rope_options_init(r, sizeof(nxd_rope_options_t))
fill_defaults(r::Ref{nxd_attention_options_t}) = nxd_attention_options_init(r, sizeof(nxd_attention_options_t))
fill_defaults(r::Ref{nxd_qkv_options_t}) = nxd_qkv_options_init(r, sizeof(nxd_qkv_options_t))
fill_defaults(r::Ref{nxd_mlp_options_t}) = nxd_mlp_options_init(r, sizeof(nxd_mlp_options_t))
