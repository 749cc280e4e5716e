//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// Options of nxd_parallel_cross_entropy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_cross_entropy_options_t {
    pub struct_size: usize,
    /// 0 to 1
    pub label_smoothing: f64,
    pub smoothing: nxd_smoothing_t,
    pub reduction: nxd_reduction_t,
    /// 1: ignore_index counts; 0: -100
    pub has_ignore_index: i32,
    pub reserved: i32,
    pub ignore_index: i64,
}

unsafe impl Versioned for nxd_cross_entropy_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        if self.ignore_index != 0 {
            self.has_ignore_index = 1;
        }
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_cross_entropy_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_cross_entropy_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

#[cfg(feature = "engine")]
extern "C" {
    /// [collective: tensor-parallel group, in backward] Identity; its backward sums the gradients of
    /// all ranks.
    /// @since 0.1
    pub fn nxd_copy_to_tensor_region(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, out_y: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [collective: tensor-parallel group] Sum over ranks; its backward is the identity.
    /// @since 0.1
    pub fn nxd_reduce_from_tensor_region(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, out_y: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [collective: tensor-parallel group, in backward] This rank's part of the last dimension; its
    /// backward gathers.
    /// @since 0.1
    pub fn nxd_scatter_to_tensor_region(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, out_y: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [collective: tensor-parallel group] All ranks' parts side by side in the last dimension; its
    /// backward takes this rank's part.
    /// @since 0.1
    pub fn nxd_gather_from_tensor_region(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, out_y: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [collective: tensor-parallel group, in backward] This rank's part of a dimension; its backward
    /// gathers.
    /// @since 0.1
    pub fn nxd_scatter_to_sequence_region(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, dim: i32, out_y: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [collective: tensor-parallel group] All ranks' parts along a dimension.
    ///
    /// @param to_model_parallel  1: what follows is split over ranks, so the backward sums and scatters
    /// the gradients; 0: what follows is replicated, so it takes this rank's
    /// part.
    /// @since 0.1
    pub fn nxd_gather_from_sequence_region(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, dim: i32, to_model_parallel: i32, out_y: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [collective: tensor-parallel group] This rank's part, along a dimension, of the sum over ranks;
    /// its backward gathers.
    /// @since 0.1
    pub fn nxd_reduce_scatter_to_sequence_region(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, dim: i32, out_y: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_cross_entropy_options_init(options: *mut nxd_cross_entropy_options_t, size: usize) -> nxd_status_t;

    /// [collective: tensor-parallel group] Cross entropy on logits whose vocabulary is split over
    /// ranks. The logits are never gathered. Logits and labels stay as they are until the backward pass
    /// has read them: it is INVALID_STATE if one was written to.
    ///
    /// @param logits    [..., vocabulary / tp], F32, F64 or BF16; left unchanged.
    /// @param labels    [...], I64, the same on all ranks, on the device of the logits; ignored where
    /// equal to ignore_index.
    /// @param[out] out_loss  scalar, or [...] with REDUCTION_NONE; F32, or F64 for F64 logits. The
    /// caller destroys it.
    /// @return NXD_OK; INVALID_ARGUMENT (shapes, dtypes, devices, a label outside of the vocabulary);
    /// INVALID_STATE (no nxd_init_model_parallel); UNSUPPORTED (context- or expert-parallel
    /// ranks); TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_parallel_cross_entropy(ctx: *mut nxd_context_t, logits: *mut nxd_tensor_t, labels: *mut nxd_tensor_t, options: *const nxd_cross_entropy_options_t, out_loss: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [collective: tensor-parallel group] Cross entropy of the logits x weight^T, whose vocabulary is
    /// split over ranks, in blocks of tokens: the logits of one block exist at a time. Gradients of x
    /// and weight are formed with the loss, where autograd will ask for them, so that backward only
    /// scales them; it cannot be differentiated again. With REDUCTION_NONE, F64 or plain kernels all
    /// logits are made, as by nxd_parallel_cross_entropy.
    ///
    /// @param x       [..., features], F32, F64 or BF16: the same on all ranks, or this rank's part
    /// along sequence_dim. Its gradient is summed over ranks.
    /// @param weight  [vocabulary / tp, features], of the dtype of x: this rank's rows.
    /// @param labels  the whole x's shape without features, I64, the same on all ranks; ignored where
    /// equal to ignore_index. x, weight and labels are on one device.
    /// @param sequence_dim  dimension of x of which ranks hold parts (sequence parallelism), not the
    /// last; -1: none.
    /// @param[out] out_loss  as that of nxd_parallel_cross_entropy.
    /// @return NXD_OK; INVALID_ARGUMENT (shapes, dtypes, devices, a label outside of the vocabulary);
    /// INVALID_STATE (no nxd_init_model_parallel); UNSUPPORTED (context- or expert-parallel
    /// ranks); TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_linear_cross_entropy(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, weight: *mut nxd_tensor_t, labels: *mut nxd_tensor_t, sequence_dim: i32, options: *const nxd_cross_entropy_options_t, out_loss: *mut *mut nxd_tensor_t) -> nxd_status_t;
}
