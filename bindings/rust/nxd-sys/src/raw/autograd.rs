//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// A differentiable function written by the caller.
#[repr(C)]
pub struct nxd_function_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// One application of a custom function; valid inside its callbacks.
#[repr(C)]
pub struct nxd_function_call_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Callbacks of a custom function. Inputs are borrowed, and outside of the recorded graph. Outputs
/// are new handles that the library takes over, also those filled before the callback fails; a
/// borrowed handle goes out by nxd_tensor_retain. Inside the callbacks nothing is recorded. Tensors
/// that backward gives may be those that it was given or that were saved: they are not written to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_function_options_t {
    pub struct_size: usize,
    /// stable and unique, such as "mylib::swish"
    pub name: *const c_char,
    /// 0: 1
    pub num_outputs: usize,
    pub forward: Option<unsafe extern "C" fn(*mut nxd_function_call_t, *const *mut nxd_tensor_t, usize, *mut *mut nxd_tensor_t, usize, *mut c_void) -> nxd_status_t>,
    pub backward: Option<unsafe extern "C" fn(*mut nxd_function_call_t, *const *mut nxd_tensor_t, usize, *mut *mut nxd_tensor_t, usize, *mut c_void) -> nxd_status_t>,
    pub shape: Option<unsafe extern "C" fn(*const *mut nxd_tensor_t, usize, *mut *mut nxd_tensor_t, usize, *mut c_void) -> nxd_status_t>,
    pub user_data: *mut c_void,
    /// called when the function and its last recorded graph are gone
    pub destroy: nxd_destroy_fn,
}

unsafe impl Versioned for nxd_function_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_function_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_function_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

#[cfg(feature = "engine")]
extern "C" {
    /// [local] Tells whether operations on the tensor are recorded for differentiation.
    /// @since 0.1
    pub fn nxd_tensor_get_requires_grad(tensor: *mut nxd_tensor_t, out_requires: *mut i32) -> nxd_status_t;

    /// [local] Makes a leaf tensor require a gradient, or not.
    /// @return NXD_OK; INVALID_ARGUMENT (integer dtype); INVALID_STATE (not a leaf).
    /// @since 0.1
    pub fn nxd_tensor_set_requires_grad(tensor: *mut nxd_tensor_t, requires_grad: i32) -> nxd_status_t;

    /// [local] Gradient accumulated in a leaf. A BF16 parameter's is F32 where a ddp keeps it so
    /// (fp32_grads).
    /// @param[out] out_grad  the caller destroys it; NULL with NXD_OK when there is none yet.
    /// @return NXD_OK; INVALID_STATE (not a leaf).
    /// @since 0.1
    pub fn nxd_tensor_share_grad(tensor: *mut nxd_tensor_t, out_grad: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] Replaces the gradient of a leaf, wherever it is kept; NULL clears it.
    /// @param grad  same shape and dtype as the tensor; shared, not copied. It may not require a
    /// gradient itself.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (not a leaf).
    /// @since 0.1
    pub fn nxd_tensor_set_grad(tensor: *mut nxd_tensor_t, grad: *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] A handle on the same memory, outside of the recorded graph.
    /// @since 0.1
    pub fn nxd_tensor_detach(tensor: *mut nxd_tensor_t, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] Turns recording on this thread on or off.
    /// @param[out] out_previous  setting before the call; may be NULL.
    /// @return NXD_OK; INVALID_ARGUMENT (another number than 0 or 1; the setting stays as it is, and
    /// out_previous is 0).
    /// @since 0.1
    pub fn nxd_set_grad_enabled(enabled: i32, out_previous: *mut i32) -> nxd_status_t;

    /// [local] Turns automatic casts on this thread on or off: parameters and optimizers stay in F32,
    /// while products of matrices run in 16 bits.
    ///
    /// While on, arguments of dtype F32, BF16 and F16 are cast before an operator runs that one of
    /// these lists names, those of PyTorch's torch.autocast on accelerators (docs/training.md has all):
    /// - in dtype: products of matrices, convolutions, attention;
    /// - in F32: norms, softmax, exponentials, logarithms, powers, sums, losses;
    /// - in the widest dtype among the arguments: operators that join or mix several, such as cat and
    /// addcmul.
    /// Tensors of NXD_DEVICE_XLA have PyTorch/XLA's lists, which are shorter.
    ///
    /// Other operators take what they are given. F64 and integers are never cast, nor are the arguments
    /// of operators that write to one of them. Casts are recorded: gradients have the dtypes of the
    /// parameters.
    ///
    /// It applies to nxd_op_run, nxd_op_call and to built-in layers, which then take inputs of F32 and
    /// of BF16. Linear layers, attention, gated MLPs and language heads compute in dtype and give it.
    /// Norms, their sums with residuals, and losses are F32. An embedding has the dtype of its table.
    ///
    /// A backward pass runs without it, in the dtypes of its forward; so do other threads.
    ///
    /// @param dtype  NXD_DTYPE_BF16: on; NXD_DTYPE_INVALID: off, as it is at first.
    /// @param[out] out_previous  setting before the call, to be set again at the end of a nested
    /// region; may be NULL.
    /// @return NXD_OK; INVALID_ARGUMENT (another dtype; the setting and out_previous stay as they are).
    /// @since 0.1
    pub fn nxd_set_autocast(dtype: nxd_dtype_t, out_previous: *mut nxd_dtype_t) -> nxd_status_t;

    /// [collective: the groups of the layers in the graph] Accumulates gradients into the leaves of
    /// the graph. Each leaf has its gradient in memory of its own, unless nxd_tensor_set_grad gave it
    /// one to share: it has no part in grads, nor in what a custom function returned. Peers are not
    /// told of outputs and grads that one rank alone has wrong: nxd_group_reject does.
    ///
    /// @param outputs   n tensors; recorded, or leaves that require a gradient.
    /// @param grads     n gradients of their shapes; NULL, or NULL for a scalar: 1.
    /// @param retain_graph  1: the graph may be differentiated again.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (differentiated before without retain_graph, or
    /// a tensor the graph needs was overwritten); UNSUPPORTED (a custom function without
    /// backward); what a custom function or a collective in the graph returned.
    /// @since 0.1
    pub fn nxd_backward(outputs: *const *mut nxd_tensor_t, grads: *const *mut nxd_tensor_t, num_outputs: usize, retain_graph: i32) -> nxd_status_t;

    /// [collective: the groups of the layers in the graph] Gradients of outputs with respect to some
    /// inputs, each in memory of its own; no leaf's gradient is touched. They are constants, through
    /// which nothing is differentiated. NULL stands for an input that the outputs do not depend on.
    ///
    /// @param[out] out_grads  room for num_inputs handles, which the caller destroys.
    /// @since 0.1
    pub fn nxd_grad(outputs: *const *mut nxd_tensor_t, grads: *const *mut nxd_tensor_t, num_outputs: usize, inputs: *const *mut nxd_tensor_t, num_inputs: usize, retain_graph: i32, out_grads: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_function_options_init(options: *mut nxd_function_options_t, size: usize) -> nxd_status_t;

    /// [local] Makes a custom function.
    /// @return NXD_OK; INVALID_ARGUMENT (name or forward missing). On failure destroy is not called.
    /// @since 0.1
    pub fn nxd_function_create(options: *const nxd_function_options_t, out_function: *mut *mut nxd_function_t) -> nxd_status_t;

    /// [local] Applies the function; recorded when an input requires a gradient.
    ///
    /// @param outputs  room for num_outputs handles, which the caller destroys; num_outputs as created.
    /// @return NXD_OK; INVALID_ARGUMENT; what a callback returned.
    /// @since 0.1
    pub fn nxd_function_apply(function: *mut nxd_function_t, inputs: *const *mut nxd_tensor_t, num_inputs: usize, outputs: *mut *mut nxd_tensor_t, num_outputs: usize) -> nxd_status_t;

    /// [local] Releases the function; recorded graphs keep what they need.
    /// @since 0.1
    pub fn nxd_function_destroy(function: *mut nxd_function_t);

    /// [local] Keeps a tensor from forward for backward.
    /// @since 0.1
    pub fn nxd_function_call_save(call: *mut nxd_function_call_t, tensor: *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] A tensor kept by forward, by its order; borrowed for the callback.
    /// @return NXD_OK; INVALID_ARGUMENT (index).
    /// @since 0.1
    pub fn nxd_function_call_get_saved(call: *mut nxd_function_call_t, index: usize, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] Tells whether backward needs the gradient of an input.
    /// @since 0.1
    pub fn nxd_function_call_needs_grad(call: *mut nxd_function_call_t, input_index: usize, out_needs: *mut i32) -> nxd_status_t;
}
