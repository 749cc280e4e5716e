# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/op.h."""

from __future__ import annotations

NAMES = """
typedef struct nxd_op nxd_op_t;
"""

FUNCTIONS = """
nxd_status_t nxd_op_create(const char* name, const char* overload, nxd_op_t** out_op);
void nxd_op_destroy(nxd_op_t* op);
nxd_status_t nxd_op_get_schema(nxd_op_t* op, const char** out_schema);
nxd_status_t nxd_op_set_tensor(nxd_op_t* op, const char* name, nxd_tensor_t* tensor);
nxd_status_t nxd_op_set_tensors(nxd_op_t* op, const char* name, nxd_tensor_t* const* tensors, size_t num_tensors);
nxd_status_t nxd_op_set_int(nxd_op_t* op, const char* name, int64_t value);
nxd_status_t nxd_op_set_double(nxd_op_t* op, const char* name, double value);
nxd_status_t nxd_op_set_bool(nxd_op_t* op, const char* name, int32_t value);
nxd_status_t nxd_op_set_string(nxd_op_t* op, const char* name, const char* value);
nxd_status_t nxd_op_set_dtype(nxd_op_t* op, const char* name, nxd_dtype_t value);
nxd_status_t nxd_op_set_ints(nxd_op_t* op, const char* name, const int64_t* values, size_t num_values);
nxd_status_t nxd_op_set_doubles(nxd_op_t* op, const char* name, const double* values, size_t num_values);
nxd_status_t nxd_op_run(nxd_op_t* op);
nxd_status_t nxd_op_get_result_count(nxd_op_t* op, size_t* out_count);
nxd_status_t nxd_op_share_tensor(nxd_op_t* op, size_t index, nxd_tensor_t** out_tensor);
nxd_status_t nxd_op_get_double(nxd_op_t* op, size_t index, double* out_value);
nxd_status_t nxd_op_call(const char* name, const char* overload, nxd_tensor_t* const* inputs, size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs);
"""
