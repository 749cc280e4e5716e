//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// Result of a loss.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_reduction_t(pub i32);

impl nxd_reduction_t {
    pub const INVALID: Self = Self(-1);
    /// over valid tokens; 0 when there is none
    pub const MEAN: Self = Self(0);
    pub const SUM: Self = Self(1);
    /// one value per token
    pub const NONE: Self = Self(2);
}

impl std::fmt::Debug for nxd_reduction_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::MEAN => f.write_str("MEAN"),
            Self::SUM => f.write_str("SUM"),
            Self::NONE => f.write_str("NONE"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_reduction_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Formula of label smoothing.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_smoothing_t(pub i32);

impl nxd_smoothing_t {
    pub const INVALID: Self = Self(-1);
    /// (1 - s) nll + s mean of -log p, as torch's cross_entropy
    pub const TORCH: Self = Self(0);
    /// the same with s V / (V - 1), over the whole vocabulary V
    pub const MEGATRON: Self = Self(1);
}

impl std::fmt::Debug for nxd_smoothing_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::TORCH => f.write_str("TORCH"),
            Self::MEGATRON => f.write_str("MEGATRON"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_smoothing_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Moves between what the ranks of the group hold alike and what they hold in parts, as in
/// Megatron-LM. The features of a tensor-parallel region are parts along the last dimension (dim
/// -1), a sequence is one along another.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_region_mapping_t(pub i32);

impl nxd_region_mapping_t {
    pub const INVALID: Self = Self(-1);
    /// identity; backward: sum over ranks
    pub const COPY_TO: Self = Self(0);
    /// sum over ranks; backward: identity
    pub const REDUCE_FROM: Self = Self(1);
    /// this rank's part; backward: all parts
    pub const SCATTER_TO: Self = Self(2);
    /// all parts; backward: this rank's part
    pub const GATHER_FROM: Self = Self(3);
    /// all parts, for a layer that is split over ranks; backward: this rank's part of the sum
    pub const GATHER_FOR_SHARDS: Self = Self(4);
    /// this rank's part of the sum; backward: all parts
    pub const REDUCE_SCATTER_TO: Self = Self(5);
}

impl std::fmt::Debug for nxd_region_mapping_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::COPY_TO => f.write_str("COPY_TO"),
            Self::REDUCE_FROM => f.write_str("REDUCE_FROM"),
            Self::SCATTER_TO => f.write_str("SCATTER_TO"),
            Self::GATHER_FROM => f.write_str("GATHER_FROM"),
            Self::GATHER_FOR_SHARDS => f.write_str("GATHER_FOR_SHARDS"),
            Self::REDUCE_SCATTER_TO => f.write_str("REDUCE_SCATTER_TO"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_region_mapping_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Options of nxd_column_linear_forward, nxd_column_linears_forward and their _backward; the same
/// on all ranks, but for the workspace.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_column_linear_options_t {
    pub struct_size: usize,
    /// 1: y has the features of all ranks, else this rank's
    pub gather_output: i32,
    /// 1: x is this rank's part along sequence_dim; not together with gather_output
    pub sequence_parallel: i32,
    /// of x and y, not the last; from the end when negative
    pub sequence_dim: i32,
    /// 1: the weight is [in_features, out_features / tp]
    pub transposed_weight: i32,
    /// 1: grad_weight and grad_bias are added to what is there; 0: they are overwritten
    pub accumulate_grads: i32,
    /// 0
    pub reserved: i32,
    /// memory for the call; NULL: the library's own
    pub workspace: *mut c_void,
    /// at least what the function's _get_workspace says
    pub workspace_bytes: usize,
}

unsafe impl Versioned for nxd_column_linear_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_column_linear_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_column_linear_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_row_linear_forward and _backward; the same on all ranks, but for the
/// workspace.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_row_linear_options_t {
    pub struct_size: usize,
    /// default on: x has this rank's features; off: those of all ranks, of which this rank takes its own
    pub input_is_parallel: nxd_toggle_t,
    /// 1: y is this rank's part of the sum along sequence_dim; needs input_is_parallel
    pub sequence_parallel: i32,
    /// of x and y, not the last; from the end when negative
    pub sequence_dim: i32,
    /// 1: the weight is [in_features / tp, out_features]
    pub transposed_weight: i32,
    /// 1: grad_weight and grad_bias are added to what is there; 0: they are overwritten
    pub accumulate_grads: i32,
    /// 0
    pub reserved: i32,
    /// memory for the call; NULL: the library's own
    pub workspace: *mut c_void,
    /// at least what the function's _get_workspace says
    pub workspace_bytes: usize,
}

unsafe impl Versioned for nxd_row_linear_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_row_linear_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_row_linear_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_vocab_parallel_embedding_forward and _backward; the same on all ranks, but for
/// the workspace.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_vocab_parallel_embedding_options_t {
    pub struct_size: usize,
    /// ids that there are; 0: the rows of all ranks, of which the last ones may pad a vocabulary that does not divide
    pub num_embeddings: i64,
    /// see has_padding_idx
    pub padding_idx: i64,
    /// 1: the row of padding_idx gets no gradient
    pub has_padding_idx: i32,
    /// 1: y is this rank's part along sequence_dim
    pub sequence_parallel: i32,
    /// of y, not the last; from the end when negative
    pub sequence_dim: i32,
    /// 1: grad_weight is added to what is there; 0: it is overwritten
    pub accumulate_grads: i32,
    /// memory for the call; NULL: the library's own
    pub workspace: *mut c_void,
    /// at least what the function's _get_workspace says
    pub workspace_bytes: usize,
}

unsafe impl Versioned for nxd_vocab_parallel_embedding_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        if self.padding_idx != 0 {
            self.has_padding_idx = 1;
        }
        self
    }
}

impl Default for nxd_vocab_parallel_embedding_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_vocab_parallel_embedding_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_parallel_cross_entropy_forward and _backward; the same on all ranks, but for the
/// workspace.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_parallel_cross_entropy_options_t {
    pub struct_size: usize,
    /// 0 to 1
    pub label_smoothing: f64,
    pub smoothing: nxd_smoothing_t,
    pub reduction: nxd_reduction_t,
    /// classes that there are; 0: the columns of all ranks, of which the last ones may pad a vocabulary that does not divide
    pub vocab_size: i64,
    /// see has_ignore_index
    pub ignore_index: i64,
    /// 1: ignore_index counts; 0: -100
    pub has_ignore_index: i32,
    /// 0
    pub reserved: i32,
    /// memory for the call; NULL: the library's own
    pub workspace: *mut c_void,
    /// at least what the function's _get_workspace says
    pub workspace_bytes: usize,
}

unsafe impl Versioned for nxd_parallel_cross_entropy_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        if self.ignore_index != 0 {
            self.has_ignore_index = 1;
        }
        self
    }
}

impl Default for nxd_parallel_cross_entropy_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_parallel_cross_entropy_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

extern "C" {
    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_column_linear_options_init(options: *mut nxd_column_linear_options_t, size: usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] y = x weight^T + bias, where each rank holds the weight's
    /// rows of its own output features.
    ///
    /// @param x       [..., in_features], the same on all ranks; with sequence_parallel this rank's
    /// part, and the product is of all ranks' parts.
    /// @param weight  [out_features / tp, in_features], of the dtype of x.
    /// @param bias    [the features of y], of the dtype of x; with gather_output the same on all ranks.
    /// NULL: none.
    /// @param y       [..., out_features / tp], or [..., out_features] with gather_output; of the dtype
    /// of x. With sequence_parallel its sequence_dim is tp times that of x.
    /// @return NXD_OK; INVALID_ARGUMENT, on all ranks (shapes, dtypes, memory that overlaps, a
    /// workspace that is too small, ranks that disagree); INVALID_STATE (no
    /// nxd_init_model_parallel); UNSUPPORTED (context- or expert-parallel ranks);
    /// OUT_OF_MEMORY; TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_column_linear_forward(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, bias: *const DLTensor, options: *const nxd_column_linear_options_t, y: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace that nxd_column_linear_forward needs for arrays of these shapes,
    /// strides and dtypes; their data are not looked at. Threads keep some scratch memory of their own
    /// beside it.
    /// @param[out] out_bytes  the workspace may lie at any address.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE; UNSUPPORTED.
    /// @since 0.1
    pub fn nxd_column_linear_forward_get_workspace(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, bias: *const DLTensor, options: *const nxd_column_linear_options_t, y: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] Gradients of nxd_column_linear_forward. The gradient of x is
    /// summed over ranks while that of the weight is computed.
    ///
    /// @param x            as given to the forward.
    /// @param weight       as given to the forward.
    /// @param grad_y       of the shape and dtype of y; with gather_output the same on all ranks.
    /// @param grad_x       of the shape and dtype of x, complete; NULL: not wanted.
    /// @param grad_weight  of the shape of weight, of its dtype, or F32 for 16-bit floats; complete.
    /// NULL: not wanted.
    /// @param grad_bias    [the features of y], of a dtype as grad_weight's; complete. NULL: not
    /// wanted.
    /// @return as nxd_column_linear_forward. Ranks must want the same gradients.
    /// @since 0.1
    pub fn nxd_column_linear_backward(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, grad_y: *const DLTensor, options: *const nxd_column_linear_options_t, grad_x: *mut DLTensor, grad_weight: *mut DLTensor, grad_bias: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_column_linear_backward, as
    /// nxd_column_linear_forward_get_workspace gives them.
    /// @since 0.1
    pub fn nxd_column_linear_backward_get_workspace(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, grad_y: *const DLTensor, options: *const nxd_column_linear_options_t, grad_x: *const DLTensor, grad_weight: *const DLTensor, grad_bias: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] nxd_column_linear_forward of one x by several weights, such
    /// as those of query, key and value: under sequence_parallel x is gathered once.
    ///
    /// @param weights      num_weights arrays, as weight there; all of them read the same features.
    /// @param biases       one per weight, NULL where it has none; NULL: none at all.
    /// @param num_weights  at least 1.
    /// @param ys           one per weight, as y there.
    /// @return as nxd_column_linear_forward.
    /// @since 0.1
    pub fn nxd_column_linears_forward(ctx: *mut nxd_context_t, x: *const DLTensor, weights: *const *const DLTensor, biases: *const *const DLTensor, num_weights: usize, options: *const nxd_column_linear_options_t, ys: *const *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_column_linears_forward, as
    /// nxd_column_linear_forward_get_workspace gives them.
    /// @since 0.1
    pub fn nxd_column_linears_forward_get_workspace(ctx: *mut nxd_context_t, x: *const DLTensor, weights: *const *const DLTensor, biases: *const *const DLTensor, num_weights: usize, options: *const nxd_column_linear_options_t, ys: *const *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] Gradients of nxd_column_linears_forward. That of x is one
    /// sum over weights and ranks.
    ///
    /// @param x             as given to the forward.
    /// @param weights       as given to the forward.
    /// @param grad_ys       one per weight, as grad_y of nxd_column_linear_backward.
    /// @param grad_x        as there; NULL: not wanted.
    /// @param grad_weights  one per weight, as grad_weight there, NULL where it is not wanted; NULL:
    /// none is.
    /// @param grad_biases   the same, as grad_bias there.
    /// @return as nxd_column_linear_backward.
    /// @since 0.1
    pub fn nxd_column_linears_backward(ctx: *mut nxd_context_t, x: *const DLTensor, weights: *const *const DLTensor, grad_ys: *const *const DLTensor, num_weights: usize, options: *const nxd_column_linear_options_t, grad_x: *mut DLTensor, grad_weights: *const *mut DLTensor, grad_biases: *const *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_column_linears_backward, as
    /// nxd_column_linear_forward_get_workspace gives them.
    /// @since 0.1
    pub fn nxd_column_linears_backward_get_workspace(ctx: *mut nxd_context_t, x: *const DLTensor, weights: *const *const DLTensor, grad_ys: *const *const DLTensor, num_weights: usize, options: *const nxd_column_linear_options_t, grad_x: *const DLTensor, grad_weights: *const *const DLTensor, grad_biases: *const *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_row_linear_options_init(options: *mut nxd_row_linear_options_t, size: usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] y = x weight^T + bias, summed over ranks, where each rank
    /// holds the weight's columns of its own input features. The bias is added once, to the sum.
    ///
    /// @param x       [..., in_features / tp]; without input_is_parallel [..., in_features], the same
    /// on all ranks.
    /// @param weight  [out_features, in_features / tp], of the dtype of x.
    /// @param bias    [out_features], of the dtype of x, the same on all ranks. NULL: none.
    /// @param y       [..., out_features], of the dtype of x. With sequence_parallel the sequence_dim
    /// of x is tp times its own.
    /// @return as nxd_column_linear_forward.
    /// @since 0.1
    pub fn nxd_row_linear_forward(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, bias: *const DLTensor, options: *const nxd_row_linear_options_t, y: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_row_linear_forward, as
    /// nxd_column_linear_forward_get_workspace gives them.
    /// @since 0.1
    pub fn nxd_row_linear_forward_get_workspace(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, bias: *const DLTensor, options: *const nxd_row_linear_options_t, y: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] Gradients of nxd_row_linear_forward.
    ///
    /// @param x            as given to the forward.
    /// @param weight       as given to the forward.
    /// @param grad_y       of the shape and dtype of y; without sequence_parallel the same on all
    /// ranks.
    /// @param grad_x       of the shape and dtype of x, complete; NULL: not wanted.
    /// @param grad_weight  of the shape of weight, of its dtype, or F32 for 16-bit floats; complete.
    /// NULL: not wanted.
    /// @param grad_bias    [out_features], of a dtype as grad_weight's; complete, and the same on all
    /// ranks. NULL: not wanted.
    /// @return as nxd_column_linear_forward. Ranks must want the same gradients.
    /// @since 0.1
    pub fn nxd_row_linear_backward(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, grad_y: *const DLTensor, options: *const nxd_row_linear_options_t, grad_x: *mut DLTensor, grad_weight: *mut DLTensor, grad_bias: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_row_linear_backward, as
    /// nxd_column_linear_forward_get_workspace gives them.
    /// @since 0.1
    pub fn nxd_row_linear_backward_get_workspace(ctx: *mut nxd_context_t, x: *const DLTensor, weight: *const DLTensor, grad_y: *const DLTensor, options: *const nxd_row_linear_options_t, grad_x: *const DLTensor, grad_weight: *const DLTensor, grad_bias: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_vocab_parallel_embedding_options_init(options: *mut nxd_vocab_parallel_embedding_options_t, size: usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] Rows of an embedding by their ids, where rank r of the group
    /// has the rows r n to (r + 1) n - 1 of a table, as in Megatron-LM and NxD Core.
    ///
    /// @param ids     [...], I32 or I64, from 0 to num_embeddings - 1; the same on all ranks.
    /// @param weight  [n, hidden], with the same n on all ranks. Rows beyond num_embeddings are never
    /// read.
    /// @param y       [..., hidden], of the dtype of weight. With sequence_parallel its sequence_dim is
    /// a tp-th of that of ids.
    /// @return as nxd_column_linear_forward; INVALID_ARGUMENT, on all ranks, also for an id outside of
    /// the table.
    /// @since 0.1
    pub fn nxd_vocab_parallel_embedding_forward(ctx: *mut nxd_context_t, ids: *const DLTensor, weight: *const DLTensor, options: *const nxd_vocab_parallel_embedding_options_t, y: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_vocab_parallel_embedding_forward, as
    /// nxd_column_linear_forward_get_workspace gives them.
    /// @since 0.1
    pub fn nxd_vocab_parallel_embedding_forward_get_workspace(ctx: *mut nxd_context_t, ids: *const DLTensor, weight: *const DLTensor, options: *const nxd_vocab_parallel_embedding_options_t, y: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] Gradient of nxd_vocab_parallel_embedding_forward. Rows are
    /// summed in the order of the ids, those of 16-bit floats in F32.
    ///
    /// @param ids          as given to the forward.
    /// @param grad_y       of the shape and dtype of y; without sequence_parallel the same on all
    /// ranks.
    /// @param grad_weight  [n, hidden], of the dtype of grad_y, or F32 for 16-bit floats; complete.
    /// @return as nxd_vocab_parallel_embedding_forward.
    /// @since 0.1
    pub fn nxd_vocab_parallel_embedding_backward(ctx: *mut nxd_context_t, ids: *const DLTensor, grad_y: *const DLTensor, options: *const nxd_vocab_parallel_embedding_options_t, grad_weight: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_vocab_parallel_embedding_backward, as
    /// nxd_column_linear_forward_get_workspace gives them.
    /// @since 0.1
    pub fn nxd_vocab_parallel_embedding_backward_get_workspace(ctx: *mut nxd_context_t, ids: *const DLTensor, grad_y: *const DLTensor, options: *const nxd_vocab_parallel_embedding_options_t, grad_weight: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_parallel_cross_entropy_options_init(options: *mut nxd_parallel_cross_entropy_options_t, size: usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] Cross entropy of logits of which rank r of the group has the
    /// columns r n to (r + 1) n - 1. The logits are never gathered. With z for the logits of a token
    /// and s for the smoothing, its loss is log sum exp z - (1 - s) z[label] - s mean z, which is
    /// torch's; NXD_SMOOTHING_MEGATRON takes s V / (V - 1) for s.
    ///
    /// @param logits      [..., n], with the same n on all ranks; columns beyond vocab_size are not
    /// read.
    /// @param labels      [...], I32 or I64, the same on all ranks; ignored where equal to
    /// ignore_index.
    /// @param statistics  [2, ...], F32, or F64 for F64 logits, the same on all ranks: for each token
    /// the largest logit m, and log sum exp(z - m), which the backward pass needs.
    /// NULL: not wanted.
    /// @param loss        the same on all ranks, of the dtype of statistics: [...] with
    /// REDUCTION_NONE, 0 for ignored tokens; else without dimensions.
    /// @return as nxd_column_linear_forward; INVALID_ARGUMENT, on all ranks, also for a label outside
    /// of the vocabulary.
    /// @since 0.1
    pub fn nxd_parallel_cross_entropy_forward(ctx: *mut nxd_context_t, logits: *const DLTensor, labels: *const DLTensor, options: *const nxd_parallel_cross_entropy_options_t, statistics: *mut DLTensor, loss: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_parallel_cross_entropy_forward, as
    /// nxd_column_linear_forward_get_workspace gives them.
    /// @since 0.1
    pub fn nxd_parallel_cross_entropy_forward_get_workspace(ctx: *mut nxd_context_t, logits: *const DLTensor, labels: *const DLTensor, options: *const nxd_parallel_cross_entropy_options_t, statistics: *const DLTensor, loss: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] Gradient of nxd_parallel_cross_entropy_forward. Ranks
    /// exchange no more than the agreement.
    ///
    /// @param logits       as given to the forward.
    /// @param labels       as given to the forward.
    /// @param statistics   as the forward gave them.
    /// @param grad_loss    of the shape and dtype of loss; NULL: 1.
    /// @param grad_logits  of the shape and dtype of logits, 0 for ignored tokens and for columns
    /// beyond vocab_size. It may be the very array of the logits.
    /// @return as nxd_parallel_cross_entropy_forward.
    /// @since 0.1
    pub fn nxd_parallel_cross_entropy_backward(ctx: *mut nxd_context_t, logits: *const DLTensor, labels: *const DLTensor, statistics: *const DLTensor, grad_loss: *const DLTensor, options: *const nxd_parallel_cross_entropy_options_t, grad_logits: *mut DLTensor) -> nxd_status_t;

    /// [local] Bytes of workspace of nxd_parallel_cross_entropy_backward, as
    /// nxd_column_linear_forward_get_workspace gives them.
    /// @since 0.1
    pub fn nxd_parallel_cross_entropy_backward_get_workspace(ctx: *mut nxd_context_t, logits: *const DLTensor, labels: *const DLTensor, statistics: *const DLTensor, grad_loss: *const DLTensor, options: *const nxd_parallel_cross_entropy_options_t, grad_logits: *const DLTensor, out_bytes: *mut usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] Moves x into or out of a region.
    ///
    /// @param dim  of which ranks have parts, from the end when negative; of no concern to COPY_TO and
    /// REDUCE_FROM.
    /// @param x    any shape. F32, F64, BF16 or F16 where it is summed, else any dtype.
    /// @param y    of the dtype and shape of x, but for the size of dim: tp times that of x, a tp-th of
    /// it, or the same, by the mapping.
    /// @return as nxd_column_linear_forward; INVALID_ARGUMENT also for a size that does not divide.
    /// @since 0.1
    pub fn nxd_region_mapping_forward(ctx: *mut nxd_context_t, mapping: nxd_region_mapping_t, dim: i32, x: *const DLTensor, y: *mut DLTensor) -> nxd_status_t;

    /// [collective: tensor-parallel group] Gradient of nxd_region_mapping_forward.
    ///
    /// @param grad_y  of the shape of y.
    /// @param grad_x  of the shape of x, and of the dtype of grad_y.
    /// @return as nxd_region_mapping_forward.
    /// @since 0.1
    pub fn nxd_region_mapping_backward(ctx: *mut nxd_context_t, mapping: nxd_region_mapping_t, dim: i32, grad_y: *const DLTensor, grad_x: *mut DLTensor) -> nxd_status_t;
}
