# Generated from include/nxd.h by scripts/bindings: do not edit.

mutable struct nxd_op_t end

@call libnxd nxd_op_create(name::Cstring, overload::Cstring,
    out_op::Ptr{Ptr{nxd_op_t}})::nxd_status_t
@call libnxd nxd_op_destroy(op::Ptr{nxd_op_t})::Cvoid
@call libnxd nxd_op_get_schema(op::Ptr{nxd_op_t}, out_schema::Ptr{Cstring})::nxd_status_t
@call libnxd nxd_op_set_tensor(op::Ptr{nxd_op_t}, name::Cstring,
    tensor::Ptr{nxd_tensor_t})::nxd_status_t
@call libnxd nxd_op_set_tensors(op::Ptr{nxd_op_t}, name::Cstring, tensors::Ptr{Ptr{nxd_tensor_t}},
    num_tensors::Csize_t)::nxd_status_t
@call libnxd nxd_op_set_int(op::Ptr{nxd_op_t}, name::Cstring, value::Int64)::nxd_status_t
@call libnxd nxd_op_set_double(op::Ptr{nxd_op_t}, name::Cstring, value::Cdouble)::nxd_status_t
@call libnxd nxd_op_set_bool(op::Ptr{nxd_op_t}, name::Cstring, value::Int32)::nxd_status_t
@call libnxd nxd_op_set_string(op::Ptr{nxd_op_t}, name::Cstring, value::Cstring)::nxd_status_t
@call libnxd nxd_op_set_dtype(op::Ptr{nxd_op_t}, name::Cstring, value::nxd_dtype_t)::nxd_status_t
@call libnxd nxd_op_set_ints(op::Ptr{nxd_op_t}, name::Cstring, values::Ptr{Int64},
    num_values::Csize_t)::nxd_status_t
@call libnxd nxd_op_set_doubles(op::Ptr{nxd_op_t}, name::Cstring, values::Ptr{Cdouble},
    num_values::Csize_t)::nxd_status_t
@call libnxd nxd_op_run(op::Ptr{nxd_op_t})::nxd_status_t
@call libnxd nxd_op_get_result_count(op::Ptr{nxd_op_t}, out_count::Ptr{Csize_t})::nxd_status_t
@call libnxd nxd_op_share_tensor(op::Ptr{nxd_op_t}, index::Csize_t,
    out_tensor::Ptr{Ptr{nxd_tensor_t}})::nxd_status_t
@call libnxd nxd_op_get_double(op::Ptr{nxd_op_t}, index::Csize_t,
    out_value::Ptr{Cdouble})::nxd_status_t
@call libnxd nxd_op_call(name::Cstring, overload::Cstring, inputs::Ptr{Ptr{nxd_tensor_t}},
    num_inputs::Csize_t, outputs::Ptr{Ptr{nxd_tensor_t}}, num_outputs::Csize_t)::nxd_status_t
