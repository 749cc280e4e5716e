# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_training_state_t end

@call libnxd_core nxd_training_state_create(ctx::Ptr{nxd_context_t},
    out_state::Ptr{Ptr{nxd_training_state_t}})::nxd_status_t
@call libnxd_core nxd_training_state_add_optimizer(state::Ptr{nxd_training_state_t}, name::Cstring,
    optimizer::Ptr{nxd_optimizer_t})::nxd_status_t
@call libnxd_core nxd_training_state_add_data_loader(state::Ptr{nxd_training_state_t},
    name::Cstring, loader::Ptr{nxd_data_loader_t})::nxd_status_t
@call libnxd_core nxd_training_state_set_value(state::Ptr{nxd_training_state_t}, key::Cstring,
    value::Cstring)::nxd_status_t
@call libnxd_core nxd_training_state_get_value(state::Ptr{nxd_training_state_t}, key::Cstring,
    buf::Ptr{UInt8}, cap::Csize_t, out_needed::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_training_state_save(state::Ptr{nxd_training_state_t}, directory::Cstring,
    step::Int64, keep_last::Int32)::nxd_status_t
@call libnxd_core nxd_training_state_save_async(state::Ptr{nxd_training_state_t},
    directory::Cstring, step::Int64, keep_last::Int32)::nxd_status_t
@call libnxd_core nxd_training_state_wait(state::Ptr{nxd_training_state_t},
    timeout_ms::Int64)::nxd_status_t
@call libnxd_core nxd_training_state_load_newest(state::Ptr{nxd_training_state_t},
    directory::Cstring, verify::Int32, out_step::Ptr{Int64})::nxd_status_t
@call libnxd_core nxd_training_state_snapshot(state::Ptr{nxd_training_state_t},
    checkpoint::Ptr{nxd_checkpoint_t})::nxd_status_t
@call libnxd_core nxd_training_state_restore(state::Ptr{nxd_training_state_t},
    checkpoint::Ptr{nxd_checkpoint_t})::nxd_status_t
@call libnxd_core nxd_training_state_destroy(state::Ptr{nxd_training_state_t})::Cvoid
