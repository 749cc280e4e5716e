# Generated from include/nxd.h by scripts/bindings: do not edit.

struct nxd_pp_options_t
    struct_size::Csize_t
    num_microbatches::Int32
    virtual_size::Int32
    schedule::nxd_pp_schedule_kind_t
    partition::nxd_pp_partition_t
    custom_schedule::Ptr{nxd_pp_schedule_t}
    transformer_layer_class::Cstring
    pipeline_cuts::Ptr{Cstring}
    num_cuts::Csize_t
    leaf_modules::Ptr{Cstring}
    num_leaf_modules::Csize_t
    input_names::Ptr{Cstring}
    num_input_names::Csize_t
    num_outputs::Int32
    loss_output::Int32
    loss::nxd_pp_loss_t
    has_labels_input::Int32
    labels_input::Int32
    has_ignore_index::Int32
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
    loss_path::Cstring
end

@call libnxd nxd_pp_options_init(options::Ptr{nxd_pp_options_t}, size::Csize_t)::nxd_status_t
@call libnxd nxd_pp_create(model::Ptr{nxd_module_t}, inputs::Ptr{Ptr{nxd_tensor_t}},
    num_inputs::Csize_t, options::Ptr{nxd_pp_options_t}, out_pp::Ptr{Ptr{nxd_pp_t}})::nxd_status_t
@call libnxd nxd_pp_run_train(pp::Ptr{nxd_pp_t}, inputs::Ptr{Ptr{nxd_tensor_t}},
    num_inputs::Csize_t, out_loss::Ptr{Cdouble})::nxd_status_t
@call libnxd nxd_pp_run_eval(pp::Ptr{nxd_pp_t}, inputs::Ptr{Ptr{nxd_tensor_t}}, num_inputs::Csize_t,
    out_loss::Ptr{Cdouble}, outputs::Ptr{Ptr{nxd_tensor_t}}, num_outputs::Csize_t)::nxd_status_t
@call libnxd nxd_pp_run_train_named(pp::Ptr{nxd_pp_t}, names::Ptr{Cstring},
    inputs::Ptr{Ptr{nxd_tensor_t}}, num_inputs::Csize_t, out_loss::Ptr{Cdouble})::nxd_status_t
@call libnxd nxd_pp_run_eval_named(pp::Ptr{nxd_pp_t}, names::Ptr{Cstring},
    inputs::Ptr{Ptr{nxd_tensor_t}}, num_inputs::Csize_t, out_loss::Ptr{Cdouble},
    outputs::Ptr{Ptr{nxd_tensor_t}}, num_outputs::Csize_t)::nxd_status_t
@call libnxd nxd_pp_get_losses(pp::Ptr{nxd_pp_t}, losses::Ptr{Cdouble}, cap::Csize_t,
    out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_pp_set_ddp(pp::Ptr{nxd_pp_t}, ddp::Ptr{nxd_ddp_t})::nxd_status_t
@call libnxd nxd_pp_get_output_count(pp::Ptr{nxd_pp_t}, out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_pp_get_output_path(pp::Ptr{nxd_pp_t}, index::Csize_t,
    out_path::Ptr{Cstring})::nxd_status_t
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

fill_defaults(r::Ref{nxd_pp_options_t}) = nxd_pp_options_init(r, sizeof(nxd_pp_options_t))
