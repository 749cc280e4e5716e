# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_store_t end

struct nxd_store_callbacks_t
    struct_size::Csize_t
    user_data::Ptr{Cvoid}
    destroy::Ptr{Cvoid}
    set::Ptr{Cvoid}
    get::Ptr{Cvoid}
    add::Ptr{Cvoid}
end

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
