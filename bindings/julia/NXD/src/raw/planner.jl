# Generated from include/nxd.h by scripts/bindings: do not edit.

struct nxd_plan_model_t
    struct_size::Csize_t
    hidden_size::Int64
    num_layers::Int64
    num_heads::Int64
    num_kv_heads::Int64
    head_dim::Int64
    intermediate_size::Int64
    vocab_size::Int64
    max_positions::Int64
    gated_mlp::Int32
    attention_bias::Int32
    mlp_bias::Int32
    norm_bias::Int32
    tied_embeddings::Int32
    num_token_types::Int32
    sliding_window::Int64
    num_window_layers::Int64
end

struct nxd_plan_machine_t
    struct_size::Csize_t
    ranks_per_host::Int32
    reserved::Int32
    memory_bytes::UInt64
    gemm_rate_f32::Cdouble
    gemm_rate_bf16::Cdouble
    attention_share_f32::Cdouble
    attention_share_bf16::Cdouble
    memory_bandwidth::Cdouble
    host_bandwidth::Cdouble
    host_latency::Cdouble
    link_bandwidth::Cdouble
    link_latency::Cdouble
end

struct nxd_plan_layout_t
    struct_size::Csize_t
    tensor_parallel_size::Int32
    pipeline_parallel_size::Int32
    data_parallel_size::Int32
    virtual_size::Int32
    schedule::nxd_pp_schedule_kind_t
    num_microbatches::Int32
    microbatch_size::Int32
    sequence_length::Int32
    dtype::nxd_dtype_t
    zero_stage::Int32
    sequence_parallel::Int32
    recompute::Int32
    partition::nxd_pp_partition_t
    reserved::Int32
end

struct nxd_plan_prediction_t
    struct_size::Csize_t
    step_seconds::Cdouble
    tokens_per_second::Cdouble
    gemm_share::Cdouble
    bubble_share::Cdouble
    pipeline_seconds::Cdouble
    busiest_rank::Int32
    fits::Int32
    gemm_seconds::Cdouble
    attention_seconds::Cdouble
    elementwise_seconds::Cdouble
    tensor_parallel_seconds::Cdouble
    transfer_seconds::Cdouble
    data_parallel_seconds::Cdouble
    exposed_seconds::Cdouble
    optimizer_seconds::Cdouble
    fullest_rank::Int32
    reserved::Int32
    parameter_bytes::UInt64
    grad_bytes::UInt64
    optimizer_bytes::UInt64
    activation_bytes::UInt64
    buffer_bytes::UInt64
    total_bytes::UInt64
end

struct nxd_plan_search_options_t
    struct_size::Csize_t
    world_size::Int32
    sequence_length::Int32
    batch_size::Int64
    dtype::nxd_dtype_t
    max_virtual_size::Int32
end

@call libnxd_core nxd_plan_model_init(model::Ptr{nxd_plan_model_t}, size::Csize_t)::nxd_status_t
@call libnxd_core nxd_plan_model_from_config(config_json::Cstring,
    out_model::Ptr{nxd_plan_model_t})::nxd_status_t
@call libnxd_core nxd_plan_machine_init(machine::Ptr{nxd_plan_machine_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_plan_layout_init(layout::Ptr{nxd_plan_layout_t}, size::Csize_t)::nxd_status_t
@call libnxd_core nxd_plan_predict(model::Ptr{nxd_plan_model_t}, machine::Ptr{nxd_plan_machine_t},
    layout::Ptr{nxd_plan_layout_t}, out_prediction::Ptr{nxd_plan_prediction_t})::nxd_status_t
@call libnxd_core nxd_plan_search_options_init(options::Ptr{nxd_plan_search_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_plan_search(model::Ptr{nxd_plan_model_t}, machine::Ptr{nxd_plan_machine_t},
    options::Ptr{nxd_plan_search_options_t}, layouts::Ptr{nxd_plan_layout_t},
    predictions::Ptr{nxd_plan_prediction_t}, cap::Csize_t, out_count::Ptr{Csize_t})::nxd_status_t

fill_defaults(r::Ref{nxd_plan_model_t}) = nxd_plan_model_init(r, sizeof(nxd_plan_model_t))
fill_defaults(r::Ref{nxd_plan_machine_t}) = nxd_plan_machine_init(r, sizeof(nxd_plan_machine_t))
fill_defaults(r::Ref{nxd_plan_layout_t}) = nxd_plan_layout_init(r, sizeof(nxd_plan_layout_t))
fill_defaults(r::Ref{nxd_plan_search_options_t}) = nxd_plan_search_options_init(r, sizeof(nxd_plan_search_options_t))
