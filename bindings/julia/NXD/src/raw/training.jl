# Generated from include/nxd.h by scripts/bindings: do not edit.

@call libnxd nxd_finish_grads(root::Ptr{nxd_module_t}, options::Ptr{nxd_finish_options_t},
    out_norm::Ptr{Cdouble})::nxd_status_t
@call libnxd nxd_ddp_create(root::Ptr{nxd_module_t}, options::Ptr{nxd_ddp_options_t},
    out_ddp::Ptr{Ptr{nxd_ddp_t}})::nxd_status_t
@call libnxd nxd_optimizer_create_adamw(root::Ptr{nxd_module_t}, options::Ptr{nxd_adamw_options_t},
    out_optimizer::Ptr{Ptr{nxd_optimizer_t}})::nxd_status_t
@call libnxd nxd_optimizer_create_sgd(root::Ptr{nxd_module_t}, options::Ptr{nxd_sgd_options_t},
    out_optimizer::Ptr{Ptr{nxd_optimizer_t}})::nxd_status_t
@call libnxd nxd_optimizer_create_custom(root::Ptr{nxd_module_t},
    options::Ptr{nxd_custom_optimizer_options_t},
    out_optimizer::Ptr{Ptr{nxd_optimizer_t}})::nxd_status_t
@call libnxd nxd_training_state_add_module(state::Ptr{nxd_training_state_t}, name::Cstring,
    root::Ptr{nxd_module_t})::nxd_status_t
@call libnxd nxd_loss_weights(ctx::Ptr{nxd_context_t}, labels::Ptr{Ptr{nxd_tensor_t}},
    num_labels::Csize_t, ignore_index::Int64, shifted::Int32,
    out_weights::Ptr{Cdouble})::nxd_status_t
@call libnxd nxd_apply_checkpoint(root::Ptr{nxd_module_t}, names::Ptr{Cstring}, num_names::Csize_t,
    on::Int32)::nxd_status_t
