# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_checkpoint_t end

@call libnxd_core nxd_checkpoint_create(ctx::Ptr{nxd_context_t}, directory::Cstring, step::Int64,
    out_checkpoint::Ptr{Ptr{nxd_checkpoint_t}})::nxd_status_t
@call libnxd_core nxd_checkpoint_open(ctx::Ptr{nxd_context_t}, directory::Cstring, step::Int64,
    verify::Int32, out_checkpoint::Ptr{Ptr{nxd_checkpoint_t}})::nxd_status_t
@call libnxd_core nxd_checkpoint_open_newest(ctx::Ptr{nxd_context_t}, directory::Cstring,
    verify::Int32, out_checkpoint::Ptr{Ptr{nxd_checkpoint_t}})::nxd_status_t
@call libnxd_core nxd_checkpoint_get_step(checkpoint::Ptr{nxd_checkpoint_t},
    out_step::Ptr{Int64})::nxd_status_t
@call libnxd_core nxd_checkpoint_get_path(checkpoint::Ptr{nxd_checkpoint_t}, name::Cstring,
    buf::Ptr{UInt8}, cap::Csize_t, out_needed::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_checkpoint_set_value(checkpoint::Ptr{nxd_checkpoint_t}, key::Cstring,
    value::Cstring)::nxd_status_t
@call libnxd_core nxd_checkpoint_get_value(checkpoint::Ptr{nxd_checkpoint_t}, key::Cstring,
    buf::Ptr{UInt8}, cap::Csize_t, out_needed::Ptr{Csize_t})::nxd_status_t
@call libnxd_core nxd_checkpoint_publish(checkpoint::Ptr{nxd_checkpoint_t},
    keep_last::Int32)::nxd_status_t
@call libnxd_core nxd_checkpoint_publish_async(checkpoint::Ptr{nxd_checkpoint_t},
    keep_last::Int32)::nxd_status_t
@call libnxd_core nxd_checkpoint_wait(checkpoint::Ptr{nxd_checkpoint_t},
    timeout_ms::Int64)::nxd_status_t
@call libnxd_core nxd_checkpoint_test(checkpoint::Ptr{nxd_checkpoint_t},
    out_done::Ptr{Int32})::nxd_status_t
@call libnxd_core nxd_checkpoint_restore_random_state(checkpoint::Ptr{nxd_checkpoint_t})::nxd_status_t
@call libnxd_core nxd_checkpoint_destroy(checkpoint::Ptr{nxd_checkpoint_t})::Cvoid
