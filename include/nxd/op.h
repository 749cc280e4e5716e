/** @file
 * Operators by name. */
#ifndef NXD_OP_H
#define NXD_OP_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** One call of an ATen operator: arguments are set by name, then it runs. */
typedef struct nxd_op nxd_op_t;

/** [local] Looks up an operator.
 *
 *  @param name      such as "aten::softmax"; "aten::" may be left out.
 *  @param overload  such as "int" or "Tensor"; NULL or "": the overload without a name, or the only
 *                   one.
 *  @return NXD_OK; INVALID_ARGUMENT (no such operator or overload; the message lists near names
 *          and the overloads there are).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_create(const char* name, const char* overload, nxd_op_t** out_op);

/** [local] Releases the call and what it holds.
 *  @since 0.1 */
NXD_API void nxd_op_destroy(nxd_op_t* op);

/** [local] The operator's schema as text, such as "aten::relu(Tensor self) -> Tensor"; borrowed.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_get_schema(nxd_op_t* op, const char** out_schema);

/** [local] Sets a tensor argument; NULL sets None where the schema allows it.
 *  @return NXD_OK; INVALID_ARGUMENT (no such argument, or one of another type; the schema is in the
 *          message). The same for all nxd_op_set_* functions.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_tensor(nxd_op_t* op, const char* name, nxd_tensor_t* tensor);

/** [local] Sets a tensor-list argument; a NULL in it is None where the schema allows it.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_tensors(nxd_op_t* op, const char* name,
                                        nxd_tensor_t* const* tensors, size_t num_tensors);

/** [local] Sets an integer, or a scalar by an integer.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_int(nxd_op_t* op, const char* name, int64_t value);

/** [local] Sets a float, or a scalar by a float.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_double(nxd_op_t* op, const char* name, double value);

/** [local] Sets a boolean, or a scalar by a boolean.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_bool(nxd_op_t* op, const char* name, int32_t value);

/** [local] Sets a string, or a device by its name, such as "meta" or "xla".
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_string(nxd_op_t* op, const char* name, const char* value);

/** [local] Sets a dtype argument.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_dtype(nxd_op_t* op, const char* name, nxd_dtype_t value);

/** [local] Sets an integer list, also for a list of scalars or booleans.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_ints(nxd_op_t* op, const char* name, const int64_t* values,
                                     size_t num_values);

/** [local] Sets a float list, also for a list of scalars.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_set_doubles(nxd_op_t* op, const char* name, const double* values,
                                        size_t num_values);

/** [local] Runs the operator; arguments not set take the schema's defaults. May be called again.
 *  @return NXD_OK; INVALID_ARGUMENT (an argument without a default is missing, or the operator
 *          rejects its arguments: its own message); UNSUPPORTED (not for this device or dtype);
 *          OUT_OF_MEMORY. After a failure there are no results, not even of an earlier run.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_run(nxd_op_t* op);

/** [local] Number of results of the last run; a tensor list counts its members.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_get_result_count(nxd_op_t* op, size_t* out_count);

/** [local] A tensor result of the last run, NULL where it is left out; the caller destroys it.
 *  @return NXD_OK; INVALID_ARGUMENT (index, or the result is no tensor); INVALID_STATE (not run).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_share_tensor(nxd_op_t* op, size_t index, nxd_tensor_t** out_tensor);

/** [local] A number or boolean result of the last run.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_get_double(nxd_op_t* op, size_t index, double* out_value);

/** [local] Calls an operator whose required arguments are all tensors, in one go.
 *
 *  @param inputs   num_inputs tensors for its leading arguments.
 *  @param outputs  room for num_outputs handles, which the caller destroys; NULL for one left out.
 *  @return NXD_OK; INVALID_ARGUMENT (also when it has fewer results than num_outputs).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_op_call(const char* name, const char* overload,
                                 nxd_tensor_t* const* inputs, size_t num_inputs,
                                 nxd_tensor_t** outputs, size_t num_outputs);

#ifdef __cplusplus
}
#endif

#endif /* NXD_OP_H */
