# Generated from include/nxd.h by scripts/bindings: do not edit.

struct nxd_model_options_t
    struct_size::Csize_t
    dtype::nxd_dtype_t
    device::nxd_device_t
    sequence_parallel::Int32
    reserved::Int32
end

@call libnxd nxd_model_options_init(options::Ptr{nxd_model_options_t}, size::Csize_t)::nxd_status_t
@call libnxd nxd_model_create(ctx::Ptr{nxd_context_t}, config_json::Cstring,
    options::Ptr{nxd_model_options_t}, out_model::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_model_from_pretrained(ctx::Ptr{nxd_context_t}, directory::Cstring,
    options::Ptr{nxd_model_options_t}, out_model::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_model_from_torchscript(ctx::Ptr{nxd_context_t}, path::Cstring,
    out_module::Ptr{Ptr{nxd_module_t}})::nxd_status_t
@call libnxd nxd_model_save_torchscript(root::Ptr{nxd_module_t}, path::Cstring)::nxd_status_t
@call libnxd nxd_module_get_output_count(var"module"::Ptr{nxd_module_t},
    out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_module_get_output_path(var"module"::Ptr{nxd_module_t}, index::Csize_t,
    out_path::Ptr{Cstring})::nxd_status_t
@call libnxd nxd_model_get_step_flops(model::Ptr{nxd_module_t}, batch::Int64, sequence::Int64,
    out_flops::Ptr{Cdouble})::nxd_status_t

fill_defaults(r::Ref{nxd_model_options_t}) = nxd_model_options_init(r, sizeof(nxd_model_options_t))
