# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_serialization_t end

struct nxd_save_options_t
    struct_size::Csize_t
    master_only::nxd_toggle_t
    each_host::Int32
    keys::Ptr{Cstring}
    values::Ptr{Cstring}
    num_values::Csize_t
end

@call libnxd nxd_save_options_init(options::Ptr{nxd_save_options_t}, size::Csize_t)::nxd_status_t
@call libnxd nxd_save(ctx::Ptr{nxd_context_t}, path::Cstring, names::Ptr{Cstring},
    tensors::Ptr{Ptr{nxd_tensor_t}}, num_tensors::Csize_t,
    options::Ptr{nxd_save_options_t})::nxd_status_t
@call libnxd nxd_serialization_save(ctx::Ptr{nxd_context_t}, path::Cstring, names::Ptr{Cstring},
    tensors::Ptr{Ptr{nxd_tensor_t}}, num_tensors::Csize_t,
    options::Ptr{nxd_save_options_t})::nxd_status_t
@call libnxd nxd_serialization_load(path::Cstring,
    out_serialization::Ptr{Ptr{nxd_serialization_t}})::nxd_status_t
@call libnxd nxd_serialization_get_count(serialization::Ptr{nxd_serialization_t},
    out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_serialization_get_name(serialization::Ptr{nxd_serialization_t}, index::Csize_t,
    out_name::Ptr{Cstring})::nxd_status_t
@call libnxd nxd_serialization_create_tensor(serialization::Ptr{nxd_serialization_t}, name::Cstring,
    device::nxd_device_t, out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_serialization_get_value_count(serialization::Ptr{nxd_serialization_t},
    out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_serialization_get_value(serialization::Ptr{nxd_serialization_t}, index::Csize_t,
    out_key::Ptr{Cstring}, out_value::Ptr{Cstring})::nxd_status_t
@call libnxd nxd_serialization_destroy(serialization::Ptr{nxd_serialization_t})::Cvoid

fill_defaults(r::Ref{nxd_save_options_t}) = nxd_save_options_init(r, sizeof(nxd_save_options_t))
