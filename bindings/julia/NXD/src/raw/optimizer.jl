# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_optimizer_t end

@code nxd_lr_schedule_t begin
    NXD_LR_SCHEDULE_INVALID = -1 => "invalid"
    NXD_LR_SCHEDULE_CONSTANT = 0 => "constant"
    NXD_LR_SCHEDULE_LINEAR = 1 => "linear"
    NXD_LR_SCHEDULE_COSINE = 2 => "cosine"
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

struct nxd_lr_schedule_options_t
    struct_size::Csize_t
    kind::nxd_lr_schedule_t
    reserved::Int32
    warmup_steps::Int64
    total_steps::Int64
    final_factor::Cdouble
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
    num_states::Int32
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

@call libnxd_core nxd_lr_schedule_options_init(options::Ptr{nxd_lr_schedule_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_lr_schedule_get_factor(options::Ptr{nxd_lr_schedule_options_t}, step::Int64,
    out_factor::Ptr{Cdouble})::nxd_status_t
@call libnxd_core nxd_adamw_options_init(options::Ptr{nxd_adamw_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_sgd_options_init(options::Ptr{nxd_sgd_options_t}, size::Csize_t)::nxd_status_t
@call libnxd_core nxd_custom_optimizer_options_init(options::Ptr{nxd_custom_optimizer_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd_core nxd_optimizer_create_adamw_ddp(ddp::Ptr{nxd_ddp_t},
    options::Ptr{nxd_adamw_options_t}, out_optimizer::Ptr{Ptr{nxd_optimizer_t}})::nxd_status_t
@call libnxd_core nxd_optimizer_create_sgd_ddp(ddp::Ptr{nxd_ddp_t}, options::Ptr{nxd_sgd_options_t},
    out_optimizer::Ptr{Ptr{nxd_optimizer_t}})::nxd_status_t
@call libnxd_core nxd_optimizer_create_custom_ddp(ddp::Ptr{nxd_ddp_t},
    options::Ptr{nxd_custom_optimizer_options_t},
    out_optimizer::Ptr{Ptr{nxd_optimizer_t}})::nxd_status_t
@call libnxd_core nxd_optimizer_add_group(optimizer::Ptr{nxd_optimizer_t}, patterns::Ptr{Cstring},
    num_patterns::Csize_t, out_group::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_optimizer_set_hyperparameter(optimizer::Ptr{nxd_optimizer_t}, group::Int32,
    which::nxd_hyperparameter_t, value::Cdouble)::nxd_status_t
@call libnxd_core nxd_optimizer_get_hyperparameter(optimizer::Ptr{nxd_optimizer_t}, group::Int32,
    which::nxd_hyperparameter_t, out_value::Ptr{Cdouble})::nxd_status_t
@call libnxd_core nxd_optimizer_set_lr_schedule(optimizer::Ptr{nxd_optimizer_t},
    options::Ptr{nxd_lr_schedule_options_t})::nxd_status_t
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
@call libnxd_core nxd_optimizer_snapshot(optimizer::Ptr{nxd_optimizer_t},
    checkpoint::Ptr{nxd_checkpoint_t}, name::Cstring)::nxd_status_t
@call libnxd_core nxd_optimizer_load(optimizer::Ptr{nxd_optimizer_t}, path::Cstring)::nxd_status_t
@call libnxd_core nxd_optimizer_destroy(optimizer::Ptr{nxd_optimizer_t})::Cvoid

fill_defaults(r::Ref{nxd_lr_schedule_options_t}) = nxd_lr_schedule_options_init(r, sizeof(nxd_lr_schedule_options_t))
fill_defaults(r::Ref{nxd_adamw_options_t}) = nxd_adamw_options_init(r, sizeof(nxd_adamw_options_t))
fill_defaults(r::Ref{nxd_sgd_options_t}) = nxd_sgd_options_init(r, sizeof(nxd_sgd_options_t))
fill_defaults(r::Ref{nxd_custom_optimizer_options_t}) = nxd_custom_optimizer_options_init(r, sizeof(nxd_custom_optimizer_options_t))
