//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// Options of the norms; the same on all ranks, but for the workspace.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_normalization_options_t {
    pub struct_size: usize,
    /// added to the mean square; 0: 1e-5
    pub eps: f64,
    /// 1: each rank has rows of its own, such as a part of the sequence, and the gradients of weight and bias are summed over ranks; 0: all ranks have the same rows
    pub sequence_parallel: i32,
    /// 1: grad_weight and grad_bias are added to what is there; 0: they are overwritten
    pub accumulate_grads: i32,
    /// memory for the call; NULL: the library's own
    pub workspace: *mut c_void,
    /// at least what the function's _get_workspace says
    pub workspace_bytes: usize,
}

unsafe impl Versioned for nxd_normalization_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_normalization_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_normalization_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_dropout_forward and _backward; the same on all ranks, but for the workspace.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_dropout_options_t {
    pub struct_size: usize,
    /// the probability of an element to be dropped, from 0 to below 1
    pub p: f64,
    /// see has_position
    pub step: i64,
    /// see has_position
    pub microbatch: i64,
    /// 1: bits are those of step and microbatch; 0: those of the context's (nxd_context_set_step)
    pub has_position: i32,
    /// 1: each rank has a part of x along shard_dim; 0: all ranks have x
    pub has_shard_dim: i32,
    /// of x; from the end when negative
    pub shard_dim: i32,
    /// 1: elements are numbered with the first two dimensions the other way round, as the models of libnxd do for [sequence, batch, features]
    pub transposed: i32,
    /// memory for the call; NULL: the library's own
    pub workspace: *mut c_void,
    /// at least what the function's _get_workspace says
    pub workspace_bytes: usize,
}

unsafe impl Versioned for nxd_dropout_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        if self.step != 0 {
            self.has_position = 1;
        }
        if self.microbatch != 0 {
            self.has_position = 1;
        }
        if self.shard_dim != 0 {
            self.has_shard_dim = 1;
        }
        self
    }
}

impl Default for nxd_dropout_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_dropout_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_linear_cross_entropy_forward and _backward; the same on all ranks, but for the
/// workspace.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_linear_cross_entropy_options_t {
    pub struct_size: usize,
    /// 0 to 1
    pub label_smoothing: f64,
    pub smoothing: nxd_smoothing_t,
    pub reduction: nxd_reduction_t,
    /// classes that there are; 0: the rows of all ranks' weights, of which the last ones may pad a vocabulary that does not divide
    pub vocab_size: i64,
    /// see has_ignore_index
    pub ignore_index: i64,
    /// 1: ignore_index counts; 0: -100
    pub has_ignore_index: i32,
    /// 1: x is this rank's part along sequence_dim
    pub sequence_parallel: i32,
    /// of x, not the last; from the end when negative
    pub sequence_dim: i32,
    /// 1: the weight is [features, n]
    pub transposed_weight: i32,
    /// 1: grad_weight and grad_bias are added to what is there; 0: they are overwritten
    pub accumulate_grads: i32,
    /// whose logits exist at a time; 0: by the library's choice
    pub block_tokens: i32,
    /// memory for the call; NULL: the library's own
    pub workspace: *mut c_void,
    /// at least what the function's _get_workspace says
    pub workspace_bytes: usize,
}

unsafe impl Versioned for nxd_linear_cross_entropy_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        if self.ignore_index != 0 {
            self.has_ignore_index = 1;
        }
        self
    }
}

impl Default for nxd_linear_cross_entropy_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_linear_cross_entropy_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

extern "C" {
    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_normalization_options_init(options: *mut nxd_normalization_options_t, size: usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] y = x / sqrt(mean(x^2) + eps) weight over the last dimension
    /// (Zhang and Sennrich 2019). 16-bit floats are computed in F32 and rounded once. Ranks exchange
    /// no more than the agreement.
    ///
    /// @param x           [..., features], with at least one feature.
    /// @param weight      [features], of the dtype of x. NULL: ones.
    /// @param y           of the shape and dtype of x.
    /// @param statistics  [...], F32, or F64 for F64 x: 1 / sqrt(mean(x^2) + eps) of each row, which
    /// the backward pass needs. NULL: not wanted.
    /// @return as nxd_column_linear_forward; INVALID_ARGUMENT, on all ranks, also for an eps that is
    /// negative or not finite.
    /// @since 0.1
    pub fn nxd_rms_norm_forward(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, options: *const nxd_normalization_options_t, y: *mut DLTensor, statistics: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_rms_norm_forward, as nxd_column_linear_forward_get_workspace
    /// gives them.
    /// @since 0.1
    pub fn nxd_rms_norm_forward_get_workspace(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, options: *const nxd_normalization_options_t, y: *const DLTensor, statistics: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] Gradients of nxd_rms_norm_forward.
    ///
    /// @param x            as given to the forward.
    /// @param weight       as given to the forward.
    /// @param statistics   as the forward gave them.
    /// @param grad_y       of the shape and dtype of x.
    /// @param grad_x       of the shape and dtype of x. NULL: not wanted.
    /// @param grad_weight  [features], of the dtype of x, or F32 for 16-bit floats; complete, and the
    /// same on all ranks. NULL: not wanted.
    /// @return as nxd_rms_norm_forward. Ranks must want the same gradients.
    /// @since 0.1
    pub fn nxd_rms_norm_backward(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, statistics: *const DLTensor, grad_y: *const DLTensor, options: *const nxd_normalization_options_t, grad_x: *mut DLTensor, grad_weight: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_rms_norm_backward, as nxd_column_linear_forward_get_workspace
    /// gives them.
    /// @since 0.1
    pub fn nxd_rms_norm_backward_get_workspace(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, statistics: *const DLTensor, grad_y: *const DLTensor, options: *const nxd_normalization_options_t, grad_x: *const DLTensor, grad_weight: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] y = (x - mean) / sqrt(variance + eps) weight + bias over the
    /// last dimension, with the biased variance (Ba et al. 2016). 16-bit floats are computed in F32
    /// and rounded once. Ranks exchange no more than the agreement.
    ///
    /// @param x           [..., features], with at least one feature.
    /// @param weight      [features], of the dtype of x. NULL: ones.
    /// @param bias        [features], of the dtype of x. NULL: none.
    /// @param y           of the shape and dtype of x.
    /// @param statistics  [2, ...], F32, or F64 for F64 x: of each row the mean, and 1 / sqrt(variance
    /// + eps), which the backward pass needs. NULL: not wanted.
    /// @return as nxd_rms_norm_forward.
    /// @since 0.1
    pub fn nxd_layer_norm_forward(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, bias: *const DLTensor, options: *const nxd_normalization_options_t, y: *mut DLTensor, statistics: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_layer_norm_forward, as nxd_column_linear_forward_get_workspace
    /// gives them.
    /// @since 0.1
    pub fn nxd_layer_norm_forward_get_workspace(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, bias: *const DLTensor, options: *const nxd_normalization_options_t, y: *const DLTensor, statistics: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] Gradients of nxd_layer_norm_forward.
    ///
    /// @param x            as given to the forward.
    /// @param weight       as given to the forward.
    /// @param statistics   as the forward gave them.
    /// @param grad_y       of the shape and dtype of x.
    /// @param grad_x       of the shape and dtype of x. NULL: not wanted.
    /// @param grad_weight  [features], of the dtype of x, or F32 for 16-bit floats; complete, and the
    /// same on all ranks. NULL: not wanted.
    /// @param grad_bias    as grad_weight.
    /// @return as nxd_rms_norm_forward. Ranks must want the same gradients.
    /// @since 0.1
    pub fn nxd_layer_norm_backward(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, statistics: *const DLTensor, grad_y: *const DLTensor, options: *const nxd_normalization_options_t, grad_x: *mut DLTensor, grad_weight: *mut DLTensor, grad_bias: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_layer_norm_backward, as
    /// nxd_column_linear_forward_get_workspace gives them.
    /// @since 0.1
    pub fn nxd_layer_norm_backward_get_workspace(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, statistics: *const DLTensor, grad_y: *const DLTensor, options: *const nxd_normalization_options_t, grad_x: *const DLTensor, grad_weight: *const DLTensor, grad_bias: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_dropout_options_init(options: *mut nxd_dropout_options_t, size: usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] y = x / (1 - p) for elements that are kept, else x 0.
    /// The context's seed, the name, the step, the microbatch and the element's index in the undivided
    /// array decide whether it is kept (Philox4x32-10, Salmon et al. 2011): no number of ranks changes
    /// it, and nothing is kept for the backward pass. Ranks exchange no more than the
    /// agreement.
    ///
    /// @param name  of the layer, the same on all ranks; each layer needs one of its own.
    /// @param x     F32, F64, BF16 or F16, of equal sizes on all ranks.
    /// @param y     of the shape and dtype of x. It may be the very array of x.
    /// @return as nxd_column_linear_forward; INVALID_ARGUMENT, on all ranks, also for a p out of range.
    /// @since 0.1
    pub fn nxd_dropout_forward(ctx: *mut nxd_context_t, name: *const c_char, x: *const DLTensor, options: *const nxd_dropout_options_t, y: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_dropout_forward, as nxd_column_linear_forward_get_workspace
    /// gives them.
    /// @since 0.1
    pub fn nxd_dropout_forward_get_workspace(ctx: *mut nxd_context_t, name: *const c_char, x: *const DLTensor, options: *const nxd_dropout_options_t, y: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] Gradient of nxd_dropout_forward, by the same bits: name and
    /// options, step and microbatch are those of the forward.
    ///
    /// @param grad_y  of the shape and dtype of y.
    /// @param grad_x  of the shape and dtype of x. It may be the very array of grad_y.
    /// @return as nxd_dropout_forward.
    /// @since 0.1
    pub fn nxd_dropout_backward(ctx: *mut nxd_context_t, name: *const c_char, grad_y: *const DLTensor, options: *const nxd_dropout_options_t, grad_x: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_dropout_backward, as nxd_column_linear_forward_get_workspace
    /// gives them.
    /// @since 0.1
    pub fn nxd_dropout_backward_get_workspace(ctx: *mut nxd_context_t, name: *const c_char, grad_y: *const DLTensor, options: *const nxd_dropout_options_t, grad_x: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_linear_cross_entropy_options_init(options: *mut nxd_linear_cross_entropy_options_t, size: usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] nxd_parallel_cross_entropy_forward of the logits
    /// x weight^T + bias, in blocks of tokens: the logits of one block exist at a time. They are F32,
    /// or F64 for F64 x.
    ///
    /// @param x           [..., features], the same on all ranks; with sequence_parallel this rank's
    /// part, and the loss is that of all ranks' parts.
    /// @param weight      [n, features], of the dtype of x: rank r of the group has the classes r n to
    /// (r + 1) n - 1, with the same n on all ranks.
    /// @param bias        [n], of the dtype of x. NULL: none.
    /// @param labels      the whole x's shape without the features, I32 or I64, the same on all ranks;
    /// ignored where equal to ignore_index.
    /// @param statistics  [2, ...] with the shape of labels, F32, or F64 for F64 x, as those of
    /// nxd_parallel_cross_entropy_forward. NULL: not wanted.
    /// @param loss        as that of nxd_parallel_cross_entropy_forward.
    /// @return as nxd_parallel_cross_entropy_forward.
    /// @since 0.1
    pub fn nxd_linear_cross_entropy_forward(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, bias: *const DLTensor, labels: *const DLTensor, options: *const nxd_linear_cross_entropy_options_t, statistics: *mut DLTensor, loss: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_linear_cross_entropy_forward, as
    /// nxd_column_linear_forward_get_workspace gives them.
    /// @since 0.1
    pub fn nxd_linear_cross_entropy_forward_get_workspace(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, bias: *const DLTensor, labels: *const DLTensor, options: *const nxd_linear_cross_entropy_options_t, statistics: *const DLTensor, loss: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] Gradients of nxd_linear_cross_entropy_forward. The logits of
    /// each block are computed again. The gradient of x is summed over ranks.
    ///
    /// @param x            as given to the forward.
    /// @param weight       as given to the forward.
    /// @param bias         as given to the forward.
    /// @param labels       as given to the forward.
    /// @param statistics   as the forward gave them.
    /// @param grad_loss    of the shape and dtype of loss; NULL: 1.
    /// @param grad_x       of the shape and dtype of x, complete. NULL: not wanted.
    /// @param grad_weight  of the shape of weight, of its dtype, or F32 for 16-bit floats; complete.
    /// NULL: not wanted.
    /// @param grad_bias    [n], of a dtype as grad_weight's; complete. NULL: not wanted.
    /// @return as nxd_linear_cross_entropy_forward. Ranks must want the same gradients.
    /// @since 0.1
    pub fn nxd_linear_cross_entropy_backward(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, bias: *const DLTensor, labels: *const DLTensor, statistics: *const DLTensor, grad_loss: *const DLTensor, options: *const nxd_linear_cross_entropy_options_t, grad_x: *mut DLTensor, grad_weight: *mut DLTensor, grad_bias: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_linear_cross_entropy_backward, as
    /// nxd_column_linear_forward_get_workspace gives them.
    /// @since 0.1
    pub fn nxd_linear_cross_entropy_backward_get_workspace(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, bias: *const DLTensor, labels: *const DLTensor, statistics: *const DLTensor, grad_loss: *const DLTensor, options: *const nxd_linear_cross_entropy_options_t, grad_x: *const DLTensor, grad_weight: *const DLTensor, grad_bias: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;
}
