# Generated from include/nxd.h by scripts/bindings: do not edit.

const NXD_ABI_VERSION = 0
const NXD_VERSION_MAJOR = 0
const NXD_VERSION_MINOR = 1
const NXD_VERSION_PATCH = 0

mutable struct nxd_store_t end
mutable struct nxd_context_t end
mutable struct nxd_group_t end
mutable struct nxd_work_t end
mutable struct nxd_job_t end
mutable struct nxd_ddp_t end
mutable struct nxd_optimizer_t end
mutable struct nxd_pp_schedule_t end
mutable struct nxd_pp_t end
mutable struct nxd_tensor_t end
mutable struct nxd_op_t end
mutable struct nxd_function_t end
mutable struct nxd_function_call_t end
mutable struct nxd_module_t end
mutable struct nxd_parameter_t end
mutable struct nxd_tape_t end
mutable struct nxd_load_report_t end

@code nxd_status_t begin
    NXD_OK = 0 => "ok"
    NXD_ERROR_INVALID_ARGUMENT = -1 => "error_invalid_argument"
    NXD_ERROR_INVALID_STATE = -2 => "error_invalid_state"
    NXD_ERROR_UNSUPPORTED = -3 => "error_unsupported"
    NXD_ERROR_OUT_OF_MEMORY = -4 => "error_out_of_memory"
    NXD_ERROR_TIMEOUT = -5 => "error_timeout"
    NXD_ERROR_PEER_LOST = -6 => "error_peer_lost"
    NXD_ERROR_ABORTED = -7 => "error_aborted"
    NXD_ERROR_IO = -8 => "error_io"
    NXD_ERROR_CORRUPT = -9 => "error_corrupt"
    NXD_ERROR_INTERNAL = -10 => "error_internal"
    NXD_ERROR_ABI_MISMATCH = -11 => "error_abi_mismatch"
    NXD_ERROR_USER = -12 => "error_user"
end

@code nxd_dtype_t begin
    NXD_DTYPE_INVALID = -1 => "invalid"
    NXD_DTYPE_F32 = 0 => "f32"
    NXD_DTYPE_F64 = 1 => "f64"
    NXD_DTYPE_BF16 = 2 => "bf16"
    NXD_DTYPE_F16 = 3 => "f16"
    NXD_DTYPE_I32 = 4 => "i32"
    NXD_DTYPE_I64 = 5 => "i64"
    NXD_DTYPE_U8 = 6 => "u8"
    NXD_DTYPE_I8 = 7 => "i8"
    NXD_DTYPE_I16 = 8 => "i16"
    NXD_DTYPE_BOOL = 9 => "bool"
end

@code nxd_parameter_state_t begin
    NXD_PARAMETERS_INVALID = -1 => "invalid"
    NXD_PARAMETERS_NONE = 0 => "none"
    NXD_PARAMETERS_OLD = 1 => "old"
    NXD_PARAMETERS_NEW = 2 => "new"
    NXD_PARAMETERS_TORN = 3 => "torn"
end

@code nxd_log_level_t begin
    NXD_LOG_INVALID = -1 => "invalid"
    NXD_LOG_DEBUG = 0 => "debug"
    NXD_LOG_INFO = 1 => "info"
    NXD_LOG_WARN = 2 => "warn"
    NXD_LOG_ERROR = 3 => "error"
    NXD_LOG_OFF = 4 => "off"
end

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

@code nxd_device_t begin
    NXD_DEVICE_INVALID = -1 => "invalid"
    NXD_DEVICE_CPU = 0 => "cpu"
    NXD_DEVICE_NEURON = 1 => "neuron"
    NXD_DEVICE_META = 2 => "meta"
end

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

@code nxd_reduce_t begin
    NXD_REDUCE_INVALID = -1 => "invalid"
    NXD_REDUCE_SUM = 0 => "sum"
    NXD_REDUCE_AVG = 1 => "avg"
    NXD_REDUCE_MAX = 2 => "max"
    NXD_REDUCE_MIN = 3 => "min"
    NXD_REDUCE_PROD = 4 => "prod"
end

@code nxd_phase_t begin
    NXD_PHASE_INVALID = -1 => "invalid"
    NXD_PHASE_GEMM_FORWARD = 0 => "gemm_forward"
    NXD_PHASE_GEMM_INPUT_GRADIENT = 1 => "gemm_input_gradient"
    NXD_PHASE_GEMM_WEIGHT_GRADIENT = 2 => "gemm_weight_gradient"
    NXD_PHASE_ATTENTION = 3 => "attention"
    NXD_PHASE_CROSS_ENTROPY = 4 => "cross_entropy"
    NXD_PHASE_ELEMENTWISE = 5 => "elementwise"
    NXD_PHASE_OPTIMIZER = 6 => "optimizer"
    NXD_PHASE_COMMUNICATION = 7 => "communication"
end

@code nxd_schedule_t begin
    NXD_SCHEDULE_INVALID = -1 => "invalid"
    NXD_SCHEDULE_CONSTANT = 0 => "constant"
    NXD_SCHEDULE_LINEAR = 1 => "linear"
    NXD_SCHEDULE_COSINE = 2 => "cosine"
end

@code nxd_bf16_update_t begin
    NXD_BF16_UPDATE_INVALID = -1 => "invalid"
    NXD_BF16_UPDATE_MASTER = 0 => "master"
    NXD_BF16_UPDATE_STOCHASTIC = 1 => "stochastic"
    NXD_BF16_UPDATE_NEAREST = 2 => "nearest"
end

@code nxd_adamw_formula_t begin
    NXD_ADAMW_FORMULA_INVALID = -1 => "invalid"
    NXD_ADAMW_FORMULA_TORCH = 0 => "torch"
    NXD_ADAMW_FORMULA_NXD = 1 => "nxd"
end

@code nxd_hyperparameter_t begin
    NXD_HYPERPARAMETER_INVALID = -1 => "invalid"
    NXD_HYPERPARAMETER_LEARNING_RATE = 0 => "learning_rate"
    NXD_HYPERPARAMETER_WEIGHT_DECAY = 1 => "weight_decay"
    NXD_HYPERPARAMETER_BETA1 = 2 => "beta1"
    NXD_HYPERPARAMETER_BETA2 = 3 => "beta2"
    NXD_HYPERPARAMETER_EPS = 4 => "eps"
    NXD_HYPERPARAMETER_MOMENTUM = 5 => "momentum"
    NXD_HYPERPARAMETER_DAMPENING = 6 => "dampening"
end

@code nxd_pp_schedule_kind_t begin
    NXD_PP_SCHEDULE_INVALID = -1 => "invalid"
    NXD_PP_SCHEDULE_DEFAULT = 0 => "default"
    NXD_PP_SCHEDULE_1F1B = 1 => "1f1b"
    NXD_PP_SCHEDULE_INTERLEAVED = 2 => "interleaved"
    NXD_PP_SCHEDULE_GPIPE = 3 => "gpipe"
    NXD_PP_SCHEDULE_ZERO_BUBBLE = 4 => "zero_bubble"
    NXD_PP_SCHEDULE_INFERENCE = 5 => "inference"
end

@code nxd_pp_task_kind_t begin
    NXD_PP_TASK_INVALID = -1 => "invalid"
    NXD_PP_TASK_FORWARD = 0 => "forward"
    NXD_PP_TASK_BACKWARD = 1 => "backward"
    NXD_PP_TASK_INPUT_GRADIENT = 2 => "input_gradient"
    NXD_PP_TASK_WEIGHT_GRADIENT = 3 => "weight_gradient"
end

@code nxd_pp_loss_t begin
    NXD_PP_LOSS_INVALID = -1 => "invalid"
    NXD_PP_LOSS_DEFAULT = 0 => "default"
    NXD_PP_LOSS_MICROBATCHES = 1 => "microbatches"
    NXD_PP_LOSS_TOKENS = 2 => "tokens"
end

@code nxd_pp_partition_t begin
    NXD_PP_PARTITION_INVALID = -1 => "invalid"
    NXD_PP_PARTITION_DEFAULT = 0 => "default"
    NXD_PP_PARTITION_EVEN = 1 => "even"
    NXD_PP_PARTITION_COST = 2 => "cost"
end

@code nxd_toggle_t begin
    NXD_TOGGLE_INVALID = -1 => "invalid"
    NXD_TOGGLE_DEFAULT = 0 => "default"
    NXD_TOGGLE_ON = 1 => "on"
    NXD_TOGGLE_OFF = 2 => "off"
end

@code nxd_init_t begin
    NXD_INIT_INVALID = -1 => "invalid"
    NXD_INIT_DEFAULT = 0 => "default"
    NXD_INIT_NORMAL = 1 => "normal"
    NXD_INIT_UNIFORM = 2 => "uniform"
    NXD_INIT_CONSTANT = 3 => "constant"
    NXD_INIT_KAIMING_UNIFORM = 4 => "kaiming_uniform"
end

@code nxd_mismatch_t begin
    NXD_MISMATCH_INVALID = -1 => "invalid"
    NXD_MISMATCH_MISSING = 0 => "missing"
    NXD_MISMATCH_UNEXPECTED = 1 => "unexpected"
    NXD_MISMATCH_SHAPE = 2 => "shape"
end

@code nxd_rope_t begin
    NXD_ROPE_INVALID = -1 => "invalid"
    NXD_ROPE_DEFAULT = 0 => "default"
    NXD_ROPE_LINEAR = 1 => "linear"
    NXD_ROPE_DYNAMIC = 2 => "dynamic"
    NXD_ROPE_YARN = 3 => "yarn"
    NXD_ROPE_LLAMA3 = 4 => "llama3"
end

@code nxd_activation_t begin
    NXD_ACTIVATION_INVALID = -1 => "invalid"
    NXD_ACTIVATION_SILU = 0 => "silu"
    NXD_ACTIVATION_GELU = 1 => "gelu"
    NXD_ACTIVATION_GELU_TANH = 2 => "gelu_tanh"
    NXD_ACTIVATION_RELU = 3 => "relu"
end

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

struct DLPackVersion
    major::UInt32
    minor::UInt32
end

struct DLDevice
    device_type::Int32
    device_id::Int32
end

struct DLDataType
    code::UInt8
    bits::UInt8
    lanes::UInt16
end

struct DLTensor
    data::Ptr{Cvoid}
    device::DLDevice
    ndim::Int32
    dtype::DLDataType
    shape::Ptr{Int64}
    strides::Ptr{Int64}
    byte_offset::UInt64
end

struct DLManagedTensor
    dl_tensor::DLTensor
    manager_ctx::Ptr{Cvoid}
    deleter::Ptr{Cvoid}
end

struct DLManagedTensorVersioned
    version::DLPackVersion
    manager_ctx::Ptr{Cvoid}
    deleter::Ptr{Cvoid}
    flags::UInt64
    dl_tensor::DLTensor
end

struct nxd_error_info_t
    struct_size::Csize_t
    status::nxd_status_t
    root_rank::Int32
    sequence::UInt64
    group::Cstring
    operation::Cstring
    step::Int64
    parameters::nxd_parameter_state_t
    reserved::Int32
end

struct nxd_store_callbacks_t
    struct_size::Csize_t
    user_data::Ptr{Cvoid}
    destroy::Ptr{Cvoid}
    set::Ptr{Cvoid}
    get::Ptr{Cvoid}
    add::Ptr{Cvoid}
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
    plain_kernels::Int32
    transport::nxd_transport_t
    host_id::Cstring
    interrupt::Ptr{Cvoid}
    interrupt_data::Ptr{Cvoid}
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
    reserved::Int32
end

struct nxd_spawn_options_t
    struct_size::Csize_t
    n_processes::Int32
    omp_num_threads::Int32
    argv::Ptr{Cstring}
end

struct nxd_memory_stats_t
    struct_size::Csize_t
    bytes_in_use::UInt64
    bytes_reserved::UInt64
    peak_bytes_in_use::UInt64
    allocations::UInt64
    system_allocations::UInt64
    cap_bytes::UInt64
    arena_bytes_in_use::UInt64
    arena_bytes_reserved::UInt64
end

struct nxd_phase_stats_t
    struct_size::Csize_t
    name::Cstring
    seconds::Cdouble
    operations::Cdouble
    calls::UInt64
end

struct nxd_schedule_options_t
    struct_size::Csize_t
    kind::nxd_schedule_t
    reserved::Int32
    warmup_steps::Int64
    total_steps::Int64
    final_factor::Cdouble
end

struct nxd_ddp_options_t
    struct_size::Csize_t
    bucket_bytes::Int64
    reduce::nxd_reduce_t
    zero_stage::Int32
    fp32_gradients::Int32
    no_overlap::Int32
    no_broadcast::Int32
    reserved::Int32
end

struct nxd_finish_options_t
    struct_size::Csize_t
    scale::Cdouble
    max_norm::Cdouble
    norm_type::Cdouble
    data_parallel_reduce::nxd_reduce_t
    skip_nonfinite_check::Int32
end

struct nxd_adamw_options_t
    struct_size::Csize_t
    learning_rate::Cdouble
    beta1::Cdouble
    beta2::Cdouble
    eps::Cdouble
    weight_decay::Cdouble
    formula::nxd_adamw_formula_t
    bf16_update::nxd_bf16_update_t
end

struct nxd_sgd_options_t
    struct_size::Csize_t
    learning_rate::Cdouble
    momentum::Cdouble
    dampening::Cdouble
    weight_decay::Cdouble
    nesterov::Int32
    bf16_update::nxd_bf16_update_t
end

struct nxd_update_t
    struct_size::Csize_t
    parameter::Cstring
    var"begin"::Int64
    count::Int64
    dtype::nxd_dtype_t
    grad_dtype::nxd_dtype_t
    param::Ptr{Cvoid}
    grad::Ptr{Cvoid}
    grad_scale::Cdouble
    states::Ptr{Ptr{Cvoid}}
    learning_rate::Cdouble
    weight_decay::Cdouble
    step::Int64
end

struct nxd_custom_optimizer_options_t
    struct_size::Csize_t
    update::Ptr{Cvoid}
    user_data::Ptr{Cvoid}
    destroy::Ptr{Cvoid}
    learning_rate::Cdouble
    weight_decay::Cdouble
    state_count::Int32
    bf16_update::nxd_bf16_update_t
end

struct nxd_step_report_t
    struct_size::Csize_t
    norm::Cdouble
    learning_rate::Cdouble
    updates::Int64
    skipped::Int32
    reserved::Int32
end

struct nxd_pp_task_t
    kind::nxd_pp_task_kind_t
    microbatch::Int32
    chunk::Int32
end

struct nxd_pp_costs_t
    struct_size::Csize_t
    forward::Ptr{Cdouble}
    backward_input::Ptr{Cdouble}
    backward_weight::Ptr{Cdouble}
    transfer::Cdouble
end

struct nxd_pp_report_t
    struct_size::Csize_t
    makespan::Cdouble
    critical_path::Cdouble
    bubble_share::Cdouble
    peak_activations::Int32
    fullest_rank::Int32
end

struct nxd_pp_value_t
    name::Cstring
    shape::Ptr{Int64}
    ndim::Int32
    dtype::nxd_dtype_t
    needs_grad::Int32
    reserved::Int32
end

struct nxd_pp_call_t
    stage::Int32
    chunk::Int32
    microbatch::Int32
    last::Int32
    loss_weight::Cdouble
end

struct nxd_pp_stage_callbacks_t
    struct_size::Csize_t
    user_data::Ptr{Cvoid}
    destroy::Ptr{Cvoid}
    forward::Ptr{Cvoid}
    backward::Ptr{Cvoid}
    backward_input::Ptr{Cvoid}
    backward_weight::Ptr{Cvoid}
end

struct nxd_pp_callbacks_options_t
    struct_size::Csize_t
    num_microbatches::Int32
    virtual_size::Int32
    schedule::nxd_pp_schedule_kind_t
    broadcast_and_average_loss::Int32
    custom_schedule::Ptr{nxd_pp_schedule_t}
end

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
    reserved::Int32
end

struct nxd_plan_machine_t
    struct_size::Csize_t
    ranks_per_host::Int32
    reserved::Int32
    memory_bytes::UInt64
    gemm_flops_f32::Cdouble
    gemm_flops_bf16::Cdouble
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
    gradient_bytes::UInt64
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

struct nxd_function_options_t
    struct_size::Csize_t
    name::Cstring
    n_outputs::Csize_t
    forward::Ptr{Cvoid}
    backward::Ptr{Cvoid}
    shape::Ptr{Cvoid}
    user_data::Ptr{Cvoid}
    destroy::Ptr{Cvoid}
end

struct nxd_parameter_options_t
    struct_size::Csize_t
    dtype::nxd_dtype_t
    shard_dim_plus_one::Int32
    sequence_parallel::Int32
    init::nxd_init_t
    init_a::Cdouble
    init_b::Cdouble
    device::nxd_device_t
    reserved::Int32
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
    n_kv_heads::Int64
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

struct nxd_cross_entropy_options_t
    struct_size::Csize_t
    label_smoothing::Cdouble
    smoothing::nxd_smoothing_t
    reduction::nxd_reduction_t
    has_ignore_index::Int32
    reserved::Int32
    ignore_index::Int64
end

struct nxd_model_options_t
    struct_size::Csize_t
    dtype::nxd_dtype_t
    device::nxd_device_t
    sequence_parallel::Int32
    reserved::Int32
end

struct nxd_pp_options_t
    struct_size::Csize_t
    num_microbatches::Int32
    virtual_size::Int32
    schedule::nxd_pp_schedule_kind_t
    partition::nxd_pp_partition_t
    custom_schedule::Ptr{nxd_pp_schedule_t}
    transformer_layer_class::Cstring
    pipeline_cuts::Ptr{Cstring}
    n_cuts::Csize_t
    leaf_modules::Ptr{Cstring}
    n_leaf_modules::Csize_t
    input_names::Ptr{Cstring}
    n_input_names::Csize_t
    n_outputs::Int32
    loss_output::Int32
    loss::nxd_pp_loss_t
    labels_input::Int32
    ignore_index::Int64
    labels_shifted::Int32
    broadcast_and_average_loss::Int32
    return_mb_loss::Int32
    keep_outputs::Int32
    param_init::Ptr{Cvoid}
    param_init_data::Ptr{Cvoid}
    trace_file_path::Cstring
    leaf_rule::Ptr{Cvoid}
    leaf_rule_data::Ptr{Cvoid}
end

@call libnxd_core nxd_abi_version()::UInt32
@call libnxd_core nxd_version()::Cstring
@call libnxd_core nxd_status_string(status::nxd_status_t)::Cstring
@call libnxd_core nxd_last_error()::Cstring
@call libnxd_core nxd_last_error_copy(buf::Ptr{UInt8}, cap::Csize_t)::Csize_t
@call libnxd_core nxd_last_error_info(out_info::Ptr{nxd_error_info_t})::nxd_status_t
@call libnxd_core nxd_python_capsule_destroy(capsule::Ptr{Cvoid})::Cvoid
@call libnxd_core nxd_set_log_callback(callback::Ptr{Cvoid}, user_data::Ptr{Cvoid},
    destroy::Ptr{Cvoid})::nxd_status_t
@call libnxd_core nxd_set_log_level(level::nxd_log_level_t)::nxd_status_t
@call libnxd_core nxd_build_info()::Cstring
@call libnxd_core nxd_environment_table()::Cstring
@call libnxd_core nxd_store_create_local(out_store::Ptr{Ptr{nxd_store_t}})::nxd_status_t
@call libnxd_core nxd_store_create_file(path::Cstring,
    out_store::Ptr{Ptr{nxd_store_t}})::nxd_status_t
@call libnxd_core nxd_store_create_tcp(host::Cstring, port::Int32, is_server::Int32,
    timeout_ms::Int64, out_store::Ptr{Ptr{nxd_store_t}})::nxd_status_t
@call libnxd_core nxd_store_create_callbacks(callbacks::Ptr{nxd_store_callbacks_t},
    out_store::Ptr{Ptr{nxd_store_t}})::nxd_status_t
@call libnxd_core nxd_store_get_port(store::Ptr{nxd_store_t}, out_port::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_store_set(store::Ptr{nxd_store_t}, key::Cstring, value::Ptr{Cvoid},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_store_get(store::Ptr{nxd_store_t}, key::Cstring, timeout_ms::Int64,
    buf::Ptr{Cvoid}, cap::Csize_t, out_size::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_store_add(store::Ptr{nxd_store_t}, key::Cstring, amount::Int64,
    out_value::Ptr{Int64})::nxd_status_t
@call libnxd_core nxd_store_destroy(store::Ptr{nxd_store_t})::Cvoid
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
@call libnxd_core nxd_cpu_mode()::Int32
@call libnxd_core nxd_get_device(out_device::Ptr{nxd_device_t})::nxd_status_t
@call libnxd_core nxd_master_print(ctx::Ptr{nxd_context_t}, text::Cstring)::nxd_status_t
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
@call libnxd_core nxd_pipeline_get_next_rank(ctx::Ptr{nxd_context_t},
    out_rank::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_pipeline_get_previous_rank(ctx::Ptr{nxd_context_t},
    out_rank::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_group_create(ctx::Ptr{nxd_context_t}, ranks::Ptr{Int32}, n_ranks::Csize_t,
    name::Cstring, out_group::Ptr{Ptr{nxd_group_t}})::nxd_status_t
@call libnxd_core nxd_group_destroy(group::Ptr{nxd_group_t})::Cvoid
@call libnxd_core nxd_group_abort(group::Ptr{nxd_group_t})::nxd_status_t
@call libnxd_core nxd_group_get_size(group::Ptr{nxd_group_t}, out_size::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_group_get_rank(group::Ptr{nxd_group_t}, out_rank::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_group_get_ranks(group::Ptr{nxd_group_t}, ranks::Ptr{Int32}, cap::Csize_t,
    out_size::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_group_set_timeout(group::Ptr{nxd_group_t}, timeout_ms::Int64)::nxd_status_t
@call libnxd_core nxd_group_get_transport(group::Ptr{nxd_group_t},
    out_transport::Ptr{nxd_transport_t})::nxd_status_t
@call libnxd_core nxd_arena_alloc(ctx::Ptr{nxd_context_t}, size::Csize_t,
    out_data::Ptr{Ptr{Cvoid}})::nxd_status_t
@call libnxd_core nxd_arena_free(ctx::Ptr{nxd_context_t}, data::Ptr{Cvoid})::nxd_status_t
@call libnxd_core nxd_all_reduce(group::Ptr{nxd_group_t}, send::Ptr{Cvoid}, recv::Ptr{Cvoid},
    count::Csize_t, dtype::nxd_dtype_t, reduce::nxd_reduce_t)::nxd_status_t
@call libnxd_core nxd_all_gather(group::Ptr{nxd_group_t}, send::Ptr{Cvoid}, recv::Ptr{Cvoid},
    count::Csize_t, dtype::nxd_dtype_t)::nxd_status_t
@call libnxd_core nxd_reduce_scatter(group::Ptr{nxd_group_t}, send::Ptr{Cvoid}, recv::Ptr{Cvoid},
    count::Csize_t, dtype::nxd_dtype_t, reduce::nxd_reduce_t)::nxd_status_t
@call libnxd_core nxd_broadcast(group::Ptr{nxd_group_t}, buffer::Ptr{Cvoid}, count::Csize_t,
    dtype::nxd_dtype_t, root::Int32)::nxd_status_t
@call libnxd_core nxd_all_to_all(group::Ptr{nxd_group_t}, send::Ptr{Cvoid}, recv::Ptr{Cvoid},
    count::Csize_t, dtype::nxd_dtype_t)::nxd_status_t
@call libnxd_core nxd_send(group::Ptr{nxd_group_t}, buffer::Ptr{Cvoid}, count::Csize_t,
    dtype::nxd_dtype_t, to::Int32, tag::Int32)::nxd_status_t
@call libnxd_core nxd_receive(group::Ptr{nxd_group_t}, buffer::Ptr{Cvoid}, count::Csize_t,
    dtype::nxd_dtype_t, from::Int32, tag::Int32)::nxd_status_t
@call libnxd_core nxd_barrier(group::Ptr{nxd_group_t})::nxd_status_t
@call libnxd_core nxd_all_reduce_async(group::Ptr{nxd_group_t}, send::Ptr{Cvoid}, recv::Ptr{Cvoid},
    count::Csize_t, dtype::nxd_dtype_t, reduce::nxd_reduce_t,
    out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_all_gather_async(group::Ptr{nxd_group_t}, send::Ptr{Cvoid}, recv::Ptr{Cvoid},
    count::Csize_t, dtype::nxd_dtype_t, out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_reduce_scatter_async(group::Ptr{nxd_group_t}, send::Ptr{Cvoid},
    recv::Ptr{Cvoid}, count::Csize_t, dtype::nxd_dtype_t, reduce::nxd_reduce_t,
    out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_broadcast_async(group::Ptr{nxd_group_t}, buffer::Ptr{Cvoid}, count::Csize_t,
    dtype::nxd_dtype_t, root::Int32, out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_all_to_all_async(group::Ptr{nxd_group_t}, send::Ptr{Cvoid}, recv::Ptr{Cvoid},
    count::Csize_t, dtype::nxd_dtype_t, out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_send_async(group::Ptr{nxd_group_t}, buffer::Ptr{Cvoid}, count::Csize_t,
    dtype::nxd_dtype_t, to::Int32, tag::Int32, out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_receive_async(group::Ptr{nxd_group_t}, buffer::Ptr{Cvoid}, count::Csize_t,
    dtype::nxd_dtype_t, from::Int32, tag::Int32, out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_barrier_async(group::Ptr{nxd_group_t},
    out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_group_reject(group::Ptr{nxd_group_t}, operation::Cstring, peer::Int32,
    tag::Int32, reason::Cstring)::nxd_status_t
@call libnxd_core nxd_group_reject_async(group::Ptr{nxd_group_t}, operation::Cstring, peer::Int32,
    tag::Int32, reason::Cstring, out_work::Ptr{Ptr{nxd_work_t}})::nxd_status_t
@call libnxd_core nxd_work_test(work::Ptr{nxd_work_t}, out_done::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_work_wait(work::Ptr{nxd_work_t}, timeout_ms::Int64)::nxd_status_t
@call libnxd_core nxd_work_cancel(work::Ptr{nxd_work_t})::nxd_status_t
@call libnxd_core nxd_work_get_error_info(work::Ptr{nxd_work_t},
    out_info::Ptr{nxd_error_info_t})::nxd_status_t
@call libnxd_core nxd_work_destroy(work::Ptr{nxd_work_t})::Cvoid
@call libnxd_core nxd_spawn_options_init(options::Ptr{nxd_spawn_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_spawn(options::Ptr{nxd_spawn_options_t},
    out_job::Ptr{Ptr{nxd_job_t}})::nxd_status_t
@call libnxd_core nxd_job_wait(job::Ptr{nxd_job_t}, timeout_ms::Int64)::nxd_status_t
@call libnxd_core nxd_job_kill(job::Ptr{nxd_job_t}, signal_number::Int32)::nxd_status_t
@call libnxd_core nxd_job_get_size(job::Ptr{nxd_job_t}, out_size::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_job_get_exit_code(job::Ptr{nxd_job_t}, rank::Int32, out_running::Ptr{Int32},
    out_exit_code::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_job_get_pid(job::Ptr{nxd_job_t}, rank::Int32,
    out_pid::Ptr{Int64})::nxd_status_t
@call libnxd_core nxd_job_destroy(job::Ptr{nxd_job_t})::Cvoid
@call libnxd_core nxd_measure_gemm_peak(dtype::nxd_dtype_t, n::Int32,
    out_flops::Ptr{Cdouble})::nxd_status_t
@call libnxd_core nxd_release_threads()::nxd_status_t
@call libnxd_core nxd_memory_get_stats(out_stats::Ptr{nxd_memory_stats_t})::nxd_status_t
@call libnxd_core nxd_memory_set_cap(bytes::UInt64)::nxd_status_t
@call libnxd_core nxd_memory_trim()::nxd_status_t
@call libnxd_core nxd_profile_start()::nxd_status_t
@call libnxd_core nxd_profile_stop()::nxd_status_t
@call libnxd_core nxd_profile_get_phase(phase::nxd_phase_t,
    out_stats::Ptr{nxd_phase_stats_t})::nxd_status_t
@call libnxd_core nxd_schedule_options_init(options::Ptr{nxd_schedule_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_schedule_get_factor(options::Ptr{nxd_schedule_options_t}, step::Int64,
    out_factor::Ptr{Cdouble})::nxd_status_t
@call libnxd_core nxd_ddp_options_init(options::Ptr{nxd_ddp_options_t}, size::Csize_t)::nxd_status_t
@call libnxd_core nxd_ddp_create_buffers(ctx::Ptr{nxd_context_t}, group::Ptr{nxd_group_t},
    names::Ptr{Cstring}, params::Ptr{Ptr{DLTensor}}, grads::Ptr{Ptr{DLTensor}}, n::Csize_t,
    options::Ptr{nxd_ddp_options_t}, out_ddp::Ptr{Ptr{nxd_ddp_t}})::nxd_status_t
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
@call libnxd_core nxd_adamw_options_init(options::Ptr{nxd_adamw_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_sgd_options_init(options::Ptr{nxd_sgd_options_t}, size::Csize_t)::nxd_status_t
@call libnxd_core nxd_custom_optimizer_options_init(options::Ptr{nxd_custom_optimizer_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_adamw_create_ddp(ddp::Ptr{nxd_ddp_t}, options::Ptr{nxd_adamw_options_t},
    out_optimizer::Ptr{Ptr{nxd_optimizer_t}})::nxd_status_t
@call libnxd_core nxd_sgd_create_ddp(ddp::Ptr{nxd_ddp_t}, options::Ptr{nxd_sgd_options_t},
    out_optimizer::Ptr{Ptr{nxd_optimizer_t}})::nxd_status_t
@call libnxd_core nxd_custom_optimizer_create_ddp(ddp::Ptr{nxd_ddp_t},
    options::Ptr{nxd_custom_optimizer_options_t},
    out_optimizer::Ptr{Ptr{nxd_optimizer_t}})::nxd_status_t
@call libnxd_core nxd_optimizer_add_group(optimizer::Ptr{nxd_optimizer_t}, patterns::Ptr{Cstring},
    n::Csize_t, out_group::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_optimizer_set_hyperparameter(optimizer::Ptr{nxd_optimizer_t}, group::Int32,
    which::nxd_hyperparameter_t, value::Cdouble)::nxd_status_t
@call libnxd_core nxd_optimizer_get_hyperparameter(optimizer::Ptr{nxd_optimizer_t}, group::Int32,
    which::nxd_hyperparameter_t, out_value::Ptr{Cdouble})::nxd_status_t
@call libnxd_core nxd_optimizer_set_schedule(optimizer::Ptr{nxd_optimizer_t},
    options::Ptr{nxd_schedule_options_t})::nxd_status_t
@call libnxd_core nxd_optimizer_step(optimizer::Ptr{nxd_optimizer_t},
    options::Ptr{nxd_finish_options_t}, out_report::Ptr{nxd_step_report_t})::nxd_status_t
@call libnxd_core nxd_optimizer_update(optimizer::Ptr{nxd_optimizer_t})::nxd_status_t
@call libnxd_core nxd_optimizer_get_parameter_state(optimizer::Ptr{nxd_optimizer_t},
    out_state::Ptr{nxd_parameter_state_t}, out_step::Ptr{Int64})::nxd_status_t
@call libnxd_core nxd_optimizer_set_learning_rate(optimizer::Ptr{nxd_optimizer_t},
    rate::Cdouble)::nxd_status_t
@call libnxd_core nxd_optimizer_get_learning_rate(optimizer::Ptr{nxd_optimizer_t},
    out_rate::Ptr{Cdouble})::nxd_status_t
@call libnxd_core nxd_optimizer_get_state_bytes(optimizer::Ptr{nxd_optimizer_t},
    out_bytes::Ptr{UInt64})::nxd_status_t
@call libnxd_core nxd_optimizer_save(optimizer::Ptr{nxd_optimizer_t}, path::Cstring)::nxd_status_t
@call libnxd_core nxd_optimizer_load(optimizer::Ptr{nxd_optimizer_t}, path::Cstring)::nxd_status_t
@call libnxd_core nxd_optimizer_destroy(optimizer::Ptr{nxd_optimizer_t})::Cvoid
@call libnxd_core nxd_sample_epoch(n_samples::Int64, ranks::Int32, rank::Int32, epoch::Int64,
    seed::UInt64, shuffle::Int32, drop_last::Int32, out_indices::Ptr{Int64}, cap::Csize_t,
    out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_pp_schedule_create(kind::nxd_pp_schedule_kind_t, ranks::Int32, chunks::Int32,
    microbatches::Int32, out_schedule::Ptr{Ptr{nxd_pp_schedule_t}})::nxd_status_t
@call libnxd_core nxd_pp_schedule_create_tasks(ranks::Int32, chunks::Int32, microbatches::Int32,
    tasks::Ptr{nxd_pp_task_t}, counts::Ptr{Csize_t},
    out_schedule::Ptr{Ptr{nxd_pp_schedule_t}})::nxd_status_t
@call libnxd_core nxd_pp_schedule_get_tasks(schedule::Ptr{nxd_pp_schedule_t}, rank::Int32,
    tasks::Ptr{nxd_pp_task_t}, cap::Csize_t, out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_pp_schedule_get_name(schedule::Ptr{nxd_pp_schedule_t},
    out_name::Ptr{Cstring})::nxd_status_t
@call libnxd_core nxd_pp_costs_init(costs::Ptr{nxd_pp_costs_t}, size::Csize_t)::nxd_status_t
@call libnxd_core nxd_pp_schedule_get_report(schedule::Ptr{nxd_pp_schedule_t},
    costs::Ptr{nxd_pp_costs_t}, out_report::Ptr{nxd_pp_report_t})::nxd_status_t
@call libnxd_core nxd_pp_schedule_destroy(schedule::Ptr{nxd_pp_schedule_t})::Cvoid
@call libnxd_core nxd_pp_callbacks_options_init(options::Ptr{nxd_pp_callbacks_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_pp_create_callbacks(ctx::Ptr{nxd_context_t},
    options::Ptr{nxd_pp_callbacks_options_t}, inputs::Ptr{nxd_pp_value_t}, n_inputs::Ptr{Csize_t},
    outputs::Ptr{nxd_pp_value_t}, n_outputs::Ptr{Csize_t}, callbacks::Ptr{nxd_pp_stage_callbacks_t},
    out_pp::Ptr{Ptr{nxd_pp_t}})::nxd_status_t
@call libnxd_core nxd_pp_run(pp::Ptr{nxd_pp_t}, training::Int32,
    out_loss::Ptr{Cdouble})::nxd_status_t
@call libnxd_core nxd_pp_has_loss(pp::Ptr{nxd_pp_t}, out_has::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_pp_get_schedule(pp::Ptr{nxd_pp_t},
    out_schedule::Ptr{Ptr{nxd_pp_schedule_t}})::nxd_status_t
@call libnxd_core nxd_pp_get_buffer_bytes(pp::Ptr{nxd_pp_t}, out_bytes::Ptr{UInt64})::nxd_status_t
@call libnxd_core nxd_pp_set_timeline(pp::Ptr{nxd_pp_t}, on::Int32)::nxd_status_t
@call libnxd_core nxd_pp_write_timeline(pp::Ptr{nxd_pp_t}, path::Cstring)::nxd_status_t
@call libnxd_core nxd_pp_destroy(pp::Ptr{nxd_pp_t})::Cvoid
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
@call libnxd nxd_memory_set_aten_pool(on::Int32)::nxd_status_t
@call libnxd nxd_memory_get_aten_pool(out_on::Ptr{Int32})::nxd_status_t
@call libnxd nxd_tensor_create(shape::Ptr{Int64}, ndim::Int32, dtype::nxd_dtype_t,
    device::nxd_device_t, out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_tensor_from_data(data::Ptr{Cvoid}, bytes::Csize_t, shape::Ptr{Int64}, ndim::Int32,
    dtype::nxd_dtype_t, out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_tensor_copy_dltensor(source::Ptr{DLTensor},
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_tensor_from_dlpack(managed::Ptr{DLManagedTensor},
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_tensor_from_dlpack_versioned(managed::Ptr{DLManagedTensorVersioned},
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_tensor_to_dlpack(tensor::Ptr{nxd_tensor_t},
    out_managed::Ptr{Ptr{DLManagedTensor}})::nxd_status_t
@call libnxd nxd_tensor_to_dlpack_versioned(tensor::Ptr{nxd_tensor_t},
    out_managed::Ptr{Ptr{DLManagedTensorVersioned}})::nxd_status_t
@call libnxd nxd_tensor_retain(tensor::Ptr{nxd_tensor_t},
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_tensor_destroy(tensor::Ptr{nxd_tensor_t})::Cvoid
@call libnxd nxd_tensor_get_ndim(tensor::Ptr{nxd_tensor_t}, out_ndim::Ptr{Int32})::nxd_status_t
@call libnxd nxd_tensor_get_shape(tensor::Ptr{nxd_tensor_t}, shape::Ptr{Int64}, cap::Csize_t,
    out_ndim::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_tensor_get_strides(tensor::Ptr{nxd_tensor_t}, strides::Ptr{Int64}, cap::Csize_t,
    out_ndim::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_tensor_get_dtype(tensor::Ptr{nxd_tensor_t},
    out_dtype::Ptr{nxd_dtype_t})::nxd_status_t
@call libnxd nxd_tensor_get_device(tensor::Ptr{nxd_tensor_t},
    out_device::Ptr{nxd_device_t})::nxd_status_t
@call libnxd nxd_tensor_get_element_count(tensor::Ptr{nxd_tensor_t},
    out_count::Ptr{Int64})::nxd_status_t
@call libnxd nxd_tensor_get_data(tensor::Ptr{nxd_tensor_t}, out_data::Ptr{Ptr{Cvoid}})::nxd_status_t
@call libnxd nxd_tensor_mark_modified(tensor::Ptr{nxd_tensor_t})::nxd_status_t
@call libnxd nxd_tensor_copy_to_host(tensor::Ptr{nxd_tensor_t}, buf::Ptr{Cvoid},
    bytes::Csize_t)::nxd_status_t
@call libnxd nxd_tensor_copy_from_host(tensor::Ptr{nxd_tensor_t}, buf::Ptr{Cvoid},
    bytes::Csize_t)::nxd_status_t
@call libnxd nxd_tensor_get_item(tensor::Ptr{nxd_tensor_t}, out_value::Ptr{Cdouble})::nxd_status_t
@call libnxd nxd_op_create(name::Cstring, overload::Cstring,
    out_op::Ptr{Ptr{nxd_op_t}})::nxd_status_t
@call libnxd nxd_op_destroy(op::Ptr{nxd_op_t})::Cvoid
@call libnxd nxd_op_get_schema(op::Ptr{nxd_op_t}, out_schema::Ptr{Cstring})::nxd_status_t
@call libnxd nxd_op_set_tensor(op::Ptr{nxd_op_t}, name::Cstring,
    tensor::Ptr{nxd_tensor_t})::nxd_status_t
@call libnxd nxd_op_set_tensors(op::Ptr{nxd_op_t}, name::Cstring, tensors::Ptr{Ptr{nxd_tensor_t}},
    n_tensors::Csize_t)::nxd_status_t
@call libnxd nxd_op_set_int(op::Ptr{nxd_op_t}, name::Cstring, value::Int64)::nxd_status_t
@call libnxd nxd_op_set_double(op::Ptr{nxd_op_t}, name::Cstring, value::Cdouble)::nxd_status_t
@call libnxd nxd_op_set_bool(op::Ptr{nxd_op_t}, name::Cstring, value::Int32)::nxd_status_t
@call libnxd nxd_op_set_string(op::Ptr{nxd_op_t}, name::Cstring, value::Cstring)::nxd_status_t
@call libnxd nxd_op_set_dtype(op::Ptr{nxd_op_t}, name::Cstring, value::nxd_dtype_t)::nxd_status_t
@call libnxd nxd_op_set_ints(op::Ptr{nxd_op_t}, name::Cstring, values::Ptr{Int64},
    n_values::Csize_t)::nxd_status_t
@call libnxd nxd_op_set_doubles(op::Ptr{nxd_op_t}, name::Cstring, values::Ptr{Cdouble},
    n_values::Csize_t)::nxd_status_t
@call libnxd nxd_op_run(op::Ptr{nxd_op_t})::nxd_status_t
@call libnxd nxd_op_get_result_count(op::Ptr{nxd_op_t}, out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_op_get_tensor(op::Ptr{nxd_op_t}, index::Csize_t,
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_op_get_double(op::Ptr{nxd_op_t}, index::Csize_t,
    out_value::Ptr{Cdouble})::nxd_status_t
@call libnxd nxd_op_call(name::Cstring, overload::Cstring, inputs::Ptr{Ptr{nxd_tensor_t}},
    n_inputs::Csize_t, outputs::Ptr{Ptr{nxd_tensor_t}}, n_outputs::Csize_t)::nxd_status_t
@call libnxd nxd_tensor_get_requires_grad(tensor::Ptr{nxd_tensor_t},
    out_requires::Ptr{Int32})::nxd_status_t
@call libnxd nxd_tensor_set_requires_grad(tensor::Ptr{nxd_tensor_t},
    requires_grad::Int32)::nxd_status_t
@call libnxd nxd_tensor_get_grad(tensor::Ptr{nxd_tensor_t},
    out_grad::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_tensor_set_grad(tensor::Ptr{nxd_tensor_t}, grad::Ptr{nxd_tensor_t})::nxd_status_t
@call libnxd nxd_tensor_detach(tensor::Ptr{nxd_tensor_t},
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_set_grad_enabled(enabled::Int32, out_previous::Ptr{Int32})::nxd_status_t
@call libnxd nxd_set_autocast(dtype::nxd_dtype_t, out_previous::Ptr{nxd_dtype_t})::nxd_status_t
@call libnxd nxd_backward(outputs::Ptr{Ptr{nxd_tensor_t}}, grads::Ptr{Ptr{nxd_tensor_t}},
    n_outputs::Csize_t, retain_graph::Int32)::nxd_status_t
@call libnxd nxd_gradients(outputs::Ptr{Ptr{nxd_tensor_t}}, grads::Ptr{Ptr{nxd_tensor_t}},
    n_outputs::Csize_t, inputs::Ptr{Ptr{nxd_tensor_t}}, n_inputs::Csize_t, retain_graph::Int32,
    out_grads::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_function_options_init(options::Ptr{nxd_function_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd nxd_function_create(options::Ptr{nxd_function_options_t},
    out_function::Ptr{Ptr{nxd_function_t}})::nxd_status_t
@call libnxd nxd_function_apply(var"function"::Ptr{nxd_function_t}, inputs::Ptr{Ptr{nxd_tensor_t}},
    n_inputs::Csize_t, outputs::Ptr{Ptr{nxd_tensor_t}}, n_outputs::Csize_t)::nxd_status_t
@call libnxd nxd_function_destroy(var"function"::Ptr{nxd_function_t})::Cvoid
@call libnxd nxd_function_call_save(call::Ptr{nxd_function_call_t},
    tensor::Ptr{nxd_tensor_t})::nxd_status_t
@call libnxd nxd_function_call_get_saved(call::Ptr{nxd_function_call_t}, index::Csize_t,
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_function_call_needs_grad(call::Ptr{nxd_function_call_t}, input_index::Csize_t,
    out_needs::Ptr{Int32})::nxd_status_t
@call libnxd nxd_module_create(ctx::Ptr{nxd_context_t}, class_name::Cstring, forward::Ptr{Cvoid},
    user_data::Ptr{Cvoid}, destroy::Ptr{Cvoid}, out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_module_destroy(var"module"::Ptr{nxd_module_t})::Cvoid
@call libnxd nxd_module_add_child(parent::Ptr{nxd_module_t}, name::Cstring,
    child::Ptr{nxd_module_t})::nxd_status_t
@call libnxd nxd_parameter_options_init(options::Ptr{nxd_parameter_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd nxd_module_add_parameter(var"module"::Ptr{nxd_module_t}, name::Cstring,
    global_shape::Ptr{Int64}, ndim::Int32, options::Ptr{nxd_parameter_options_t},
    out_parameter::Ptr{Ptr{nxd_parameter_t}})::nxd_status_t
@call libnxd nxd_module_tie(root::Ptr{nxd_module_t}, owner_path::Cstring,
    alias_path::Cstring)::nxd_status_t
@call libnxd nxd_module_forward(var"module"::Ptr{nxd_module_t}, inputs::Ptr{Ptr{nxd_tensor_t}},
    n_inputs::Csize_t, outputs::Ptr{Ptr{nxd_tensor_t}}, n_outputs::Csize_t)::nxd_status_t
@call libnxd nxd_module_forward_tape(var"module"::Ptr{nxd_module_t}, inputs::Ptr{Ptr{nxd_tensor_t}},
    n_inputs::Csize_t, outputs::Ptr{Ptr{nxd_tensor_t}}, n_outputs::Csize_t,
    out_tape::Ptr{Ptr{nxd_tape_t}})::nxd_status_t
@call libnxd nxd_tape_backward(tape::Ptr{nxd_tape_t}, grad_outputs::Ptr{Ptr{nxd_tensor_t}},
    n_outputs::Csize_t, out_grad_inputs::Ptr{Ptr{nxd_tensor_t}}, n_inputs::Csize_t)::nxd_status_t
@call libnxd nxd_tape_destroy(tape::Ptr{nxd_tape_t})::Cvoid
@call libnxd nxd_module_get_class_name(var"module"::Ptr{nxd_module_t},
    out_name::Ptr{Cstring})::nxd_status_t
@call libnxd nxd_module_get_module(root::Ptr{nxd_module_t}, path::Cstring,
    out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_module_get_child_count(var"module"::Ptr{nxd_module_t},
    out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_module_get_child(var"module"::Ptr{nxd_module_t}, index::Csize_t,
    out_child::Ptr{Ptr{nxd_module_t}}, out_name::Ptr{Cstring})::nxd_status_t
@call libnxd nxd_module_set_training(var"module"::Ptr{nxd_module_t}, training::Int32)::nxd_status_t
@call libnxd nxd_module_initialize(root::Ptr{nxd_module_t}, seed::UInt64)::nxd_status_t
@call libnxd nxd_move_model_to_device(root::Ptr{nxd_module_t}, device::nxd_device_t)::nxd_status_t
@call libnxd nxd_module_get_parameter_count(root::Ptr{nxd_module_t},
    out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_module_get_parameter(root::Ptr{nxd_module_t}, index::Csize_t,
    out_parameter::Ptr{Ptr{nxd_parameter_t}}, out_name::Ptr{Cstring})::nxd_status_t
@call libnxd nxd_module_find_parameter(root::Ptr{nxd_module_t}, name::Cstring,
    out_parameter::Ptr{Ptr{nxd_parameter_t}})::nxd_status_t
@call libnxd nxd_parameter_get_tensor(parameter::Ptr{nxd_parameter_t},
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_parameter_get_global_shape(parameter::Ptr{nxd_parameter_t}, shape::Ptr{Int64},
    cap::Csize_t, out_ndim::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_parameter_get_shard(parameter::Ptr{nxd_parameter_t}, out_dim::Ptr{Int32},
    begins::Ptr{Int64}, ends::Ptr{Int64}, cap::Csize_t, out_ranges::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_parameter_set_whole(parameter::Ptr{nxd_parameter_t},
    whole::Ptr{nxd_tensor_t})::nxd_status_t
@call libnxd nxd_parameter_get_whole(parameter::Ptr{nxd_parameter_t},
    out_whole::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_parameter_get_whole_grad(parameter::Ptr{nxd_parameter_t},
    out_whole::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_parameter_set_trainable(parameter::Ptr{nxd_parameter_t},
    trainable::Int32)::nxd_status_t
@call libnxd nxd_parameter_set_grad_hook(parameter::Ptr{nxd_parameter_t}, hook::Ptr{Cvoid},
    user_data::Ptr{Cvoid}, destroy::Ptr{Cvoid})::nxd_status_t
@call libnxd nxd_module_zero_grad(root::Ptr{nxd_module_t})::nxd_status_t
@call libnxd nxd_load_report_get_count(report::Ptr{nxd_load_report_t}, kind::nxd_mismatch_t,
    out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_load_report_get_name(report::Ptr{nxd_load_report_t}, kind::nxd_mismatch_t,
    index::Csize_t, out_name::Ptr{Cstring})::nxd_status_t
@call libnxd nxd_load_report_destroy(report::Ptr{nxd_load_report_t})::Cvoid
@call libnxd nxd_module_load_safetensors(root::Ptr{nxd_module_t}, path::Cstring, strict::Int32,
    out_report::Ptr{Ptr{nxd_load_report_t}})::nxd_status_t
@call libnxd nxd_module_save_safetensors(root::Ptr{nxd_module_t}, path::Cstring)::nxd_status_t
@call libnxd nxd_embedding_options_init(options::Ptr{nxd_embedding_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd nxd_parallel_embedding_create(ctx::Ptr{nxd_context_t}, num_embeddings::Int64,
    embedding_dim::Int64, options::Ptr{nxd_embedding_options_t},
    out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_linear_options_init(options::Ptr{nxd_linear_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd nxd_column_parallel_linear_create(ctx::Ptr{nxd_context_t}, in_features::Int64,
    out_features::Int64, options::Ptr{nxd_linear_options_t},
    out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_row_parallel_linear_create(ctx::Ptr{nxd_context_t}, in_features::Int64,
    out_features::Int64, options::Ptr{nxd_linear_options_t},
    out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_module_get_master_weight(var"module"::Ptr{nxd_module_t},
    out_weight::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_norm_options_init(options::Ptr{nxd_norm_options_t}, size::Csize_t)::nxd_status_t
@call libnxd nxd_layer_norm_create(ctx::Ptr{nxd_context_t}, size::Int64,
    options::Ptr{nxd_norm_options_t}, out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_rms_norm_create(ctx::Ptr{nxd_context_t}, size::Int64,
    options::Ptr{nxd_norm_options_t}, out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_rope_options_init(options::Ptr{nxd_rope_options_t}, size::Csize_t)::nxd_status_t
@call libnxd nxd_rotary_embedding_create(ctx::Ptr{nxd_context_t}, head_dim::Int64,
    options::Ptr{nxd_rope_options_t}, out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_attention_options_init(options::Ptr{nxd_attention_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd nxd_attention_create(ctx::Ptr{nxd_context_t}, hidden::Int64, n_heads::Int64,
    options::Ptr{nxd_attention_options_t}, out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_mlp_options_init(options::Ptr{nxd_mlp_options_t}, size::Csize_t)::nxd_status_t
@call libnxd nxd_gated_mlp_create(ctx::Ptr{nxd_context_t}, hidden::Int64, intermediate::Int64,
    options::Ptr{nxd_mlp_options_t}, out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_dropout_create(ctx::Ptr{nxd_context_t}, p::Cdouble, name::Cstring,
    shard_dim::Int32, out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
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
@call libnxd nxd_model_options_init(options::Ptr{nxd_model_options_t}, size::Csize_t)::nxd_status_t
@call libnxd nxd_model_create(ctx::Ptr{nxd_context_t}, config_json::Cstring,
    options::Ptr{nxd_model_options_t}, out_model::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_model_from_pretrained(ctx::Ptr{nxd_context_t}, directory::Cstring,
    options::Ptr{nxd_model_options_t}, out_model::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_model_get_step_flops(model::Ptr{nxd_module_t}, batch::Int64, sequence::Int64,
    out_flops::Ptr{Cdouble})::nxd_status_t
@call libnxd nxd_finish_gradients(root::Ptr{nxd_module_t}, options::Ptr{nxd_finish_options_t},
    out_norm::Ptr{Cdouble})::nxd_status_t
@call libnxd nxd_ddp_create(root::Ptr{nxd_module_t}, options::Ptr{nxd_ddp_options_t},
    out_ddp::Ptr{Ptr{nxd_ddp_t}})::nxd_status_t
@call libnxd nxd_adamw_create(root::Ptr{nxd_module_t}, options::Ptr{nxd_adamw_options_t},
    out_optimizer::Ptr{Ptr{nxd_optimizer_t}})::nxd_status_t
@call libnxd nxd_sgd_create(root::Ptr{nxd_module_t}, options::Ptr{nxd_sgd_options_t},
    out_optimizer::Ptr{Ptr{nxd_optimizer_t}})::nxd_status_t
@call libnxd nxd_custom_optimizer_create(root::Ptr{nxd_module_t},
    options::Ptr{nxd_custom_optimizer_options_t},
    out_optimizer::Ptr{Ptr{nxd_optimizer_t}})::nxd_status_t
@call libnxd nxd_loss_weights(ctx::Ptr{nxd_context_t}, labels::Ptr{Ptr{nxd_tensor_t}}, n::Csize_t,
    ignore_index::Int64, shifted::Int32, out_weights::Ptr{Cdouble})::nxd_status_t
@call libnxd nxd_pp_options_init(options::Ptr{nxd_pp_options_t}, size::Csize_t)::nxd_status_t
@call libnxd nxd_pp_create(model::Ptr{nxd_module_t}, inputs::Ptr{Ptr{nxd_tensor_t}},
    n_inputs::Csize_t, options::Ptr{nxd_pp_options_t}, out_pp::Ptr{Ptr{nxd_pp_t}})::nxd_status_t
@call libnxd nxd_pp_run_train(pp::Ptr{nxd_pp_t}, inputs::Ptr{Ptr{nxd_tensor_t}}, n_inputs::Csize_t,
    out_loss::Ptr{Cdouble})::nxd_status_t
@call libnxd nxd_pp_run_eval(pp::Ptr{nxd_pp_t}, inputs::Ptr{Ptr{nxd_tensor_t}}, n_inputs::Csize_t,
    out_loss::Ptr{Cdouble}, outputs::Ptr{Ptr{nxd_tensor_t}}, n_outputs::Csize_t)::nxd_status_t
@call libnxd nxd_pp_get_losses(pp::Ptr{nxd_pp_t}, losses::Ptr{Cdouble}, cap::Csize_t,
    out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_pp_set_ddp(pp::Ptr{nxd_pp_t}, ddp::Ptr{nxd_ddp_t})::nxd_status_t
@call libnxd nxd_pp_get_local_module(pp::Ptr{nxd_pp_t},
    out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_pp_get_local_module_count(pp::Ptr{nxd_pp_t}, out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_pp_get_local_module_name(pp::Ptr{nxd_pp_t}, index::Csize_t,
    out_name::Ptr{Cstring})::nxd_status_t
@call libnxd nxd_pp_get_cut_count(pp::Ptr{nxd_pp_t}, out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_pp_get_cut(pp::Ptr{nxd_pp_t}, index::Csize_t, out_name::Ptr{Cstring})::nxd_status_t
@call libnxd nxd_pp_get_graph_text(pp::Ptr{nxd_pp_t}, out_text::Ptr{Cstring})::nxd_status_t
@call libnxd nxd_pp_get_unsplit_count(pp::Ptr{nxd_pp_t}, out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_pp_get_unsplit_name(pp::Ptr{nxd_pp_t}, index::Csize_t,
    out_name::Ptr{Cstring})::nxd_status_t
@call libnxd nxd_apply_checkpoint(root::Ptr{nxd_module_t}, names::Ptr{Cstring}, n_names::Csize_t,
    on::Int32)::nxd_status_t

fill_defaults(r::Ref{nxd_context_options_t}) = nxd_context_options_init(r, sizeof(nxd_context_options_t))
fill_defaults(r::Ref{nxd_parallel_options_t}) = nxd_parallel_options_init(r, sizeof(nxd_parallel_options_t))
fill_defaults(r::Ref{nxd_spawn_options_t}) = nxd_spawn_options_init(r, sizeof(nxd_spawn_options_t))
fill_defaults(r::Ref{nxd_schedule_options_t}) = nxd_schedule_options_init(r, sizeof(nxd_schedule_options_t))
fill_defaults(r::Ref{nxd_ddp_options_t}) = nxd_ddp_options_init(r, sizeof(nxd_ddp_options_t))
fill_defaults(r::Ref{nxd_finish_options_t}) = nxd_finish_options_init(r, sizeof(nxd_finish_options_t))
fill_defaults(r::Ref{nxd_adamw_options_t}) = nxd_adamw_options_init(r, sizeof(nxd_adamw_options_t))
fill_defaults(r::Ref{nxd_sgd_options_t}) = nxd_sgd_options_init(r, sizeof(nxd_sgd_options_t))
fill_defaults(r::Ref{nxd_custom_optimizer_options_t}) = nxd_custom_optimizer_options_init(r, sizeof(nxd_custom_optimizer_options_t))
fill_defaults(r::Ref{nxd_pp_costs_t}) = nxd_pp_costs_init(r, sizeof(nxd_pp_costs_t))
fill_defaults(r::Ref{nxd_pp_callbacks_options_t}) = nxd_pp_callbacks_options_init(r, sizeof(nxd_pp_callbacks_options_t))
fill_defaults(r::Ref{nxd_plan_model_t}) = nxd_plan_model_init(r, sizeof(nxd_plan_model_t))
fill_defaults(r::Ref{nxd_plan_machine_t}) = nxd_plan_machine_init(r, sizeof(nxd_plan_machine_t))
fill_defaults(r::Ref{nxd_plan_layout_t}) = nxd_plan_layout_init(r, sizeof(nxd_plan_layout_t))
fill_defaults(r::Ref{nxd_plan_search_options_t}) = nxd_plan_search_options_init(r, sizeof(nxd_plan_search_options_t))
fill_defaults(r::Ref{nxd_function_options_t}) = nxd_function_options_init(r, sizeof(nxd_function_options_t))
fill_defaults(r::Ref{nxd_parameter_options_t}) = nxd_parameter_options_init(r, sizeof(nxd_parameter_options_t))
fill_defaults(r::Ref{nxd_embedding_options_t}) = nxd_embedding_options_init(r, sizeof(nxd_embedding_options_t))
fill_defaults(r::Ref{nxd_linear_options_t}) = nxd_linear_options_init(r, sizeof(nxd_linear_options_t))
fill_defaults(r::Ref{nxd_norm_options_t}) = nxd_norm_options_init(r, sizeof(nxd_norm_options_t))
fill_defaults(r::Ref{nxd_rope_options_t}) = nxd_rope_options_init(r, sizeof(nxd_rope_options_t))
fill_defaults(r::Ref{nxd_attention_options_t}) = nxd_attention_options_init(r, sizeof(nxd_attention_options_t))
fill_defaults(r::Ref{nxd_mlp_options_t}) = nxd_mlp_options_init(r, sizeof(nxd_mlp_options_t))
fill_defaults(r::Ref{nxd_cross_entropy_options_t}) = nxd_cross_entropy_options_init(r, sizeof(nxd_cross_entropy_options_t))
fill_defaults(r::Ref{nxd_model_options_t}) = nxd_model_options_init(r, sizeof(nxd_model_options_t))
fill_defaults(r::Ref{nxd_pp_options_t}) = nxd_pp_options_init(r, sizeof(nxd_pp_options_t))
