# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_function_t end
mutable struct nxd_function_call_t end

struct nxd_function_options_t
    struct_size::Csize_t
    name::Cstring
    num_outputs::Csize_t
    forward::Ptr{Cvoid}
    backward::Ptr{Cvoid}
    shape::Ptr{Cvoid}
    user_data::Ptr{Cvoid}
    destroy::Ptr{Cvoid}
end

@call libnxd nxd_tensor_get_requires_grad(tensor::Ptr{nxd_tensor_t},
    out_requires::Ptr{Int32})::nxd_status_t
@call libnxd nxd_tensor_set_requires_grad(tensor::Ptr{nxd_tensor_t},
    requires_grad::Int32)::nxd_status_t
@call libnxd nxd_tensor_share_grad(tensor::Ptr{nxd_tensor_t},
    out_grad::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_tensor_set_grad(tensor::Ptr{nxd_tensor_t}, grad::Ptr{nxd_tensor_t})::nxd_status_t
@call libnxd nxd_tensor_detach(tensor::Ptr{nxd_tensor_t},
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_set_grad_enabled(enabled::Int32, out_previous::Ptr{Int32})::nxd_status_t
@call libnxd nxd_set_autocast(dtype::nxd_dtype_t, out_previous::Ptr{nxd_dtype_t})::nxd_status_t
@call libnxd nxd_backward(outputs::Ptr{Ptr{nxd_tensor_t}}, grads::Ptr{Ptr{nxd_tensor_t}},
    num_outputs::Csize_t, retain_graph::Int32)::nxd_status_t
@call libnxd nxd_grad(outputs::Ptr{Ptr{nxd_tensor_t}}, grads::Ptr{Ptr{nxd_tensor_t}},
    num_outputs::Csize_t, inputs::Ptr{Ptr{nxd_tensor_t}}, num_inputs::Csize_t, retain_graph::Int32,
    out_grads::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_function_options_init(options::Ptr{nxd_function_options_t},
    size::Csize_t)::nxd_status_t
@call libnxd nxd_function_create(options::Ptr{nxd_function_options_t},
    out_function::Ptr{Ptr{nxd_function_t}})::nxd_status_t
@call libnxd nxd_function_apply(var"function"::Ptr{nxd_function_t}, inputs::Ptr{Ptr{nxd_tensor_t}},
    num_inputs::Csize_t, outputs::Ptr{Ptr{nxd_tensor_t}}, num_outputs::Csize_t)::nxd_status_t
@call libnxd nxd_function_destroy(var"function"::Ptr{nxd_function_t})::Cvoid
@call libnxd nxd_function_call_save(call::Ptr{nxd_function_call_t},
    tensor::Ptr{nxd_tensor_t})::nxd_status_t
@call libnxd nxd_function_call_get_saved(call::Ptr{nxd_function_call_t}, index::Csize_t,
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_function_call_needs_grad(call::Ptr{nxd_function_call_t}, input_index::Csize_t,
    out_needs::Ptr{Int32})::nxd_status_t

fill_defaults(r::Ref{nxd_function_options_t}) = nxd_function_options_init(r, sizeof(nxd_function_options_t))
