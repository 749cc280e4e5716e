# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_module_t end
mutable struct nxd_parameter_t end
mutable struct nxd_tape_t end
mutable struct nxd_load_report_t end

@code nxd_mismatch_t begin
    NXD_MISMATCH_INVALID = -1 => "invalid"
    NXD_MISMATCH_MISSING = 0 => "missing"
    NXD_MISMATCH_UNEXPECTED = 1 => "unexpected"
    NXD_MISMATCH_SHAPE = 2 => "shape"
end

struct nxd_parameter_options_t
    struct_size::Csize_t
    dtype::nxd_dtype_t
    has_shard_dim::Int32
    sequence_parallel::Int32
    init::nxd_init_t
    init_a::Cdouble
    init_b::Cdouble
    device::nxd_device_t
    shard_dim::Int32
end

@call libnxd nxd_module_create(ctx::Ptr{nxd_context_t}, class_name::Cstring, forward::Ptr{Cvoid},
    user_data::Ptr{Cvoid}, destroy::Ptr{Cvoid}, out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_module_create_sequential(ctx::Ptr{nxd_context_t}, children::Ptr{Ptr{nxd_module_t}},
    num_children::Csize_t, out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_module_destroy(var"module"::Ptr{nxd_module_t})::Cvoid
@call libnxd nxd_module_add_child(parent::Ptr{nxd_module_t}, name::Cstring,
    child::Ptr{nxd_module_t})::nxd_status_t
@call libnxd nxd_parameter_options_init(options::Ptr{nxd_parameter_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd nxd_module_add_parameter(var"module"::Ptr{nxd_module_t}, name::Cstring,
    global_shape::Ptr{Int64}, ndim::Int32, options::Ptr{nxd_parameter_options_t},
    out_parameter::Ptr{Ptr{nxd_parameter_t}})::nxd_status_t
@call libnxd nxd_module_add_buffer(var"module"::Ptr{nxd_module_t}, name::Cstring,
    tensor::Ptr{nxd_tensor_t}, is_saved::Int32)::nxd_status_t
@call libnxd nxd_module_get_buffer_count(root::Ptr{nxd_module_t},
    out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_module_get_buffer_name(root::Ptr{nxd_module_t}, index::Csize_t, buf::Ptr{UInt8},
    cap::Csize_t, out_needed::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_module_share_buffer(root::Ptr{nxd_module_t}, name::Cstring,
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_module_tie(root::Ptr{nxd_module_t}, owner_path::Cstring,
    alias_path::Cstring)::nxd_status_t
@call libnxd nxd_module_forward(var"module"::Ptr{nxd_module_t}, inputs::Ptr{Ptr{nxd_tensor_t}},
    num_inputs::Csize_t, outputs::Ptr{Ptr{nxd_tensor_t}}, num_outputs::Csize_t)::nxd_status_t
@call libnxd nxd_module_forward_tape(var"module"::Ptr{nxd_module_t}, inputs::Ptr{Ptr{nxd_tensor_t}},
    num_inputs::Csize_t, outputs::Ptr{Ptr{nxd_tensor_t}}, num_outputs::Csize_t,
    out_tape::Ptr{Ptr{nxd_tape_t}})::nxd_status_t
@call libnxd nxd_tape_backward(tape::Ptr{nxd_tape_t}, grad_outputs::Ptr{Ptr{nxd_tensor_t}},
    num_outputs::Csize_t, out_grad_inputs::Ptr{Ptr{nxd_tensor_t}},
    num_inputs::Csize_t)::nxd_status_t
@call libnxd nxd_tape_destroy(tape::Ptr{nxd_tape_t})::Cvoid
@call libnxd nxd_module_get_class_name(var"module"::Ptr{nxd_module_t},
    out_name::Ptr{Cstring})::nxd_status_t
@call libnxd nxd_module_find_module(root::Ptr{nxd_module_t}, path::Cstring,
    out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_module_get_child_count(var"module"::Ptr{nxd_module_t},
    out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_module_get_child(var"module"::Ptr{nxd_module_t}, index::Csize_t,
    out_child::Ptr{Ptr{nxd_module_t}}, out_name::Ptr{Cstring})::nxd_status_t
@call libnxd nxd_module_set_training(var"module"::Ptr{nxd_module_t}, training::Int32)::nxd_status_t
@call libnxd nxd_module_initialize(root::Ptr{nxd_module_t}, seed::UInt64)::nxd_status_t
@call libnxd nxd_parameter_set_initializer(parameter::Ptr{nxd_parameter_t}, initializer::Ptr{Cvoid},
    user_data::Ptr{Cvoid}, destroy::Ptr{Cvoid})::nxd_status_t
@call libnxd nxd_module_set_initializer(root::Ptr{nxd_module_t}, initializer::Ptr{Cvoid},
    user_data::Ptr{Cvoid}, destroy::Ptr{Cvoid})::nxd_status_t
@call libnxd nxd_set_deferred_init(deferred::Int32, out_previous::Ptr{Int32})::nxd_status_t
@call libnxd nxd_move_model_to_device(root::Ptr{nxd_module_t}, device::nxd_device_t)::nxd_status_t
@call libnxd nxd_module_cast(root::Ptr{nxd_module_t}, dtype::nxd_dtype_t)::nxd_status_t
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
@call libnxd nxd_parameter_set_full(parameter::Ptr{nxd_parameter_t},
    full::Ptr{nxd_tensor_t})::nxd_status_t
@call libnxd nxd_parameter_gather_full(parameter::Ptr{nxd_parameter_t},
    out_full::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_parameter_gather_full_grad(parameter::Ptr{nxd_parameter_t},
    out_full::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
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
@call libnxd nxd_module_snapshot(root::Ptr{nxd_module_t}, checkpoint::Ptr{nxd_checkpoint_t},
    name::Cstring)::nxd_status_t

fill_defaults(r::Ref{nxd_parameter_options_t}) = nxd_parameter_options_init(r, sizeof(nxd_parameter_options_t))
