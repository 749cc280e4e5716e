# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_device_loader_t end

@code nxd_graph_format_t begin
    NXD_GRAPH_FORMAT_INVALID = -1 => "invalid"
    NXD_GRAPH_FORMAT_TEXT = 0 => "text"
    NXD_GRAPH_FORMAT_DOT = 1 => "dot"
    NXD_GRAPH_FORMAT_STABLEHLO = 2 => "stablehlo"
end

struct nxd_device_loader_options_t
    struct_size::Csize_t
    batches_per_execution::Int32
    prefetch::Int32
end

struct nxd_device_metrics_t
    struct_size::Csize_t
    recorded::UInt64
    steps::UInt64
    graphs::UInt64
    compiles::UInt64
    cache_hits::UInt64
    executions::UInt64
    implicit_syncs::UInt64
    fallbacks::UInt64
    compile_seconds::Cdouble
    execute_seconds::Cdouble
    loads::UInt64
    load_seconds::Cdouble
    argument_bytes::UInt64
    result_bytes::UInt64
    copied_bytes::UInt64
end

@call libnxd nxd_tensor_to_device(tensor::Ptr{nxd_tensor_t}, device::nxd_device_t,
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_mark_step(wait::Int32)::nxd_status_t
@call libnxd nxd_add_step_closure(closure::Ptr{Cvoid}, user_data::Ptr{Cvoid},
    destroy::Ptr{Cvoid})::nxd_status_t
@call libnxd nxd_add_step_closure_async(closure::Ptr{Cvoid}, user_data::Ptr{Cvoid},
    destroy::Ptr{Cvoid})::nxd_status_t
@call libnxd nxd_wait_step_closures()::nxd_status_t
@call libnxd nxd_device_loader_options_init(options::Ptr{nxd_device_loader_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd nxd_device_loader_create(loader::Ptr{nxd_data_loader_t}, device::nxd_device_t,
    options::Ptr{nxd_device_loader_options_t},
    out_loader::Ptr{Ptr{nxd_device_loader_t}})::nxd_status_t
@call libnxd nxd_device_loader_create_callback(read::Ptr{Cvoid}, user_data::Ptr{Cvoid},
    destroy::Ptr{Cvoid}, num_tensors::Csize_t, device::nxd_device_t,
    options::Ptr{nxd_device_loader_options_t},
    out_loader::Ptr{Ptr{nxd_device_loader_t}})::nxd_status_t
@call libnxd nxd_device_loader_next(loader::Ptr{nxd_device_loader_t},
    outputs::Ptr{Ptr{nxd_tensor_t}}, num_outputs::Csize_t, out_end::Ptr{Int32})::nxd_status_t
@call libnxd nxd_device_loader_get_position(loader::Ptr{nxd_device_loader_t},
    out_position::Ptr{Int64})::nxd_status_t
@call libnxd nxd_device_loader_set_position(loader::Ptr{nxd_device_loader_t},
    position::Int64)::nxd_status_t
@call libnxd nxd_device_loader_destroy(loader::Ptr{nxd_device_loader_t})::Cvoid
@call libnxd nxd_device_get_metrics(out_metrics::Ptr{nxd_device_metrics_t})::nxd_status_t
@call libnxd nxd_device_reset_metrics()::nxd_status_t
@call libnxd nxd_device_get_report(buf::Ptr{UInt8}, cap::Csize_t,
    out_needed::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_device_get_step_graph(format::nxd_graph_format_t, buf::Ptr{UInt8}, cap::Csize_t,
    out_needed::Ptr{Csize_t})::nxd_status_t

fill_defaults(r::Ref{nxd_device_loader_options_t}) = nxd_device_loader_options_init(r, sizeof(nxd_device_loader_options_t))
