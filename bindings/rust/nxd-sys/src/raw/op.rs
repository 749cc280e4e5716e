//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// One call of an ATen operator: arguments are set by name, then it runs.
#[repr(C)]
pub struct nxd_op_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

#[cfg(feature = "engine")]
extern "C" {
    /// [local] Looks up an operator.
    ///
    /// @param name      such as "aten::softmax"; "aten::" may be left out.
    /// @param overload  such as "int" or "Tensor"; NULL or "": the overload without a name, or the only
    /// one.
    /// @return NXD_OK; INVALID_ARGUMENT (no such operator or overload; the message lists near names
    /// and the overloads there are).
    /// @since 0.1
    pub fn nxd_op_create(name: *const c_char, overload: *const c_char, out_op: *mut *mut nxd_op_t) -> nxd_status_t;

    /// [local] Releases the call and what it holds.
    /// @since 0.1
    pub fn nxd_op_destroy(op: *mut nxd_op_t);

    /// [local] The operator's schema as text, such as "aten::relu(Tensor self) -> Tensor"; borrowed.
    /// @since 0.1
    pub fn nxd_op_get_schema(op: *mut nxd_op_t, out_schema: *mut *const c_char) -> nxd_status_t;

    /// [local] Sets a tensor argument; NULL sets None where the schema allows it.
    /// @return NXD_OK; INVALID_ARGUMENT (no such argument, or one of another type; the schema is in the
    /// message). The same for all nxd_op_set_* functions.
    /// @since 0.1
    pub fn nxd_op_set_tensor(op: *mut nxd_op_t, name: *const c_char, tensor: *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] Sets a tensor-list argument; a NULL in it is None where the schema allows it.
    /// @since 0.1
    pub fn nxd_op_set_tensors(op: *mut nxd_op_t, name: *const c_char, tensors: *const *mut nxd_tensor_t, num_tensors: usize) -> nxd_status_t;

    /// [local] Sets an integer, or a scalar by an integer.
    /// @since 0.1
    pub fn nxd_op_set_int(op: *mut nxd_op_t, name: *const c_char, value: i64) -> nxd_status_t;

    /// [local] Sets a float, or a scalar by a float.
    /// @since 0.1
    pub fn nxd_op_set_double(op: *mut nxd_op_t, name: *const c_char, value: f64) -> nxd_status_t;

    /// [local] Sets a boolean, or a scalar by a boolean.
    /// @since 0.1
    pub fn nxd_op_set_bool(op: *mut nxd_op_t, name: *const c_char, value: i32) -> nxd_status_t;

    /// [local] Sets a string, or a device by its name, such as "meta" or "xla".
    /// @since 0.1
    pub fn nxd_op_set_string(op: *mut nxd_op_t, name: *const c_char, value: *const c_char) -> nxd_status_t;

    /// [local] Sets a dtype argument.
    /// @since 0.1
    pub fn nxd_op_set_dtype(op: *mut nxd_op_t, name: *const c_char, value: nxd_dtype_t) -> nxd_status_t;

    /// [local] Sets an integer list, also for a list of scalars or booleans.
    /// @since 0.1
    pub fn nxd_op_set_ints(op: *mut nxd_op_t, name: *const c_char, values: *const i64, num_values: usize) -> nxd_status_t;

    /// [local] Sets a float list, also for a list of scalars.
    /// @since 0.1
    pub fn nxd_op_set_doubles(op: *mut nxd_op_t, name: *const c_char, values: *const f64, num_values: usize) -> nxd_status_t;

    /// [local] Runs the operator; arguments not set take the schema's defaults. May be called again.
    /// @return NXD_OK; INVALID_ARGUMENT (an argument without a default is missing, or the operator
    /// rejects its arguments: its own message); UNSUPPORTED (not for this device or dtype);
    /// OUT_OF_MEMORY. After a failure there are no results, not even of an earlier run.
    /// @since 0.1
    pub fn nxd_op_run(op: *mut nxd_op_t) -> nxd_status_t;

    /// [local] Number of results of the last run; a tensor list counts its members.
    /// @since 0.1
    pub fn nxd_op_get_result_count(op: *mut nxd_op_t, out_count: *mut usize) -> nxd_status_t;

    /// [local] A tensor result of the last run, NULL where it is left out; the caller destroys it.
    /// @return NXD_OK; INVALID_ARGUMENT (index, or the result is no tensor); INVALID_STATE (not run).
    /// @since 0.1
    pub fn nxd_op_share_tensor(op: *mut nxd_op_t, index: usize, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] A number or boolean result of the last run.
    /// @since 0.1
    pub fn nxd_op_get_double(op: *mut nxd_op_t, index: usize, out_value: *mut f64) -> nxd_status_t;

    /// [local] Calls an operator whose required arguments are all tensors, in one go.
    ///
    /// @param inputs   num_inputs tensors for its leading arguments.
    /// @param outputs  room for num_outputs handles, which the caller destroys; NULL for one left out.
    /// @return NXD_OK; INVALID_ARGUMENT (also when it has fewer results than num_outputs).
    /// @since 0.1
    pub fn nxd_op_call(name: *const c_char, overload: *const c_char, inputs: *const *mut nxd_tensor_t, num_inputs: usize, outputs: *mut *mut nxd_tensor_t, num_outputs: usize) -> nxd_status_t;
}
