# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_pp_schedule_t end
mutable struct nxd_pp_t end

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
    NXD_PP_TASK_INPUT_GRAD = 2 => "input_grad"
    NXD_PP_TASK_WEIGHT_GRAD = 3 => "weight_grad"
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
    options::Ptr{nxd_pp_callbacks_options_t}, inputs::Ptr{nxd_pp_value_t}, num_inputs::Ptr{Csize_t},
    outputs::Ptr{nxd_pp_value_t}, num_outputs::Ptr{Csize_t},
    callbacks::Ptr{nxd_pp_stage_callbacks_t}, out_pp::Ptr{Ptr{nxd_pp_t}})::nxd_status_t
@call libnxd_core nxd_pp_run(pp::Ptr{nxd_pp_t}, training::Int32,
    out_loss::Ptr{Cdouble})::nxd_status_t
@call libnxd_core nxd_pp_has_loss(pp::Ptr{nxd_pp_t}, out_has::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_pp_get_schedule(pp::Ptr{nxd_pp_t},
    out_schedule::Ptr{Ptr{nxd_pp_schedule_t}})::nxd_status_t
@call libnxd_core nxd_pp_get_buffer_bytes(pp::Ptr{nxd_pp_t}, out_bytes::Ptr{UInt64})::nxd_status_t
@call libnxd_core nxd_pp_set_timeline(pp::Ptr{nxd_pp_t}, on::Int32)::nxd_status_t
@call libnxd_core nxd_pp_write_timeline(pp::Ptr{nxd_pp_t}, path::Cstring)::nxd_status_t
@call libnxd_core nxd_pp_destroy(pp::Ptr{nxd_pp_t})::Cvoid

fill_defaults(r::Ref{nxd_pp_costs_t}) = nxd_pp_costs_init(r, sizeof(nxd_pp_costs_t))
fill_defaults(r::Ref{nxd_pp_callbacks_options_t}) = nxd_pp_callbacks_options_init(r, sizeof(nxd_pp_callbacks_options_t))
