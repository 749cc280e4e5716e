//! Differentiable moves between what tensor-parallel ranks hold alike and in parts, and losses.
use crate::context::Context;
use crate::engine::tensor::Tensor;
use crate::error::Result;
use crate::object::{create, Owned};
use nxd_sys as sys;
use sys::Versioned;

pub use sys::nxd_cross_entropy_options_t as CrossEntropyOptions;
pub use sys::nxd_reduction_t as Reduction;
pub use sys::nxd_smoothing_t as Smoothing;

/// Identity; its backward sums the gradients of all ranks.
pub fn copy_to_tensor_region(ctx: &Context, x: &Tensor) -> Result<Owned<Tensor>> {
    create(|out| unsafe { sys::nxd_copy_to_tensor_region(ctx.as_raw(), x.as_raw(), out) })
}

/// Sum over ranks; its backward is the identity.
pub fn reduce_from_tensor_region(ctx: &Context, x: &Tensor) -> Result<Owned<Tensor>> {
    create(|out| unsafe { sys::nxd_reduce_from_tensor_region(ctx.as_raw(), x.as_raw(), out) })
}

/// This rank's part of the last dimension; its backward gathers.
pub fn scatter_to_tensor_region(ctx: &Context, x: &Tensor) -> Result<Owned<Tensor>> {
    create(|out| unsafe { sys::nxd_scatter_to_tensor_region(ctx.as_raw(), x.as_raw(), out) })
}

/// All ranks' parts side by side in the last dimension; its backward takes this rank's.
pub fn gather_from_tensor_region(ctx: &Context, x: &Tensor) -> Result<Owned<Tensor>> {
    create(|out| unsafe { sys::nxd_gather_from_tensor_region(ctx.as_raw(), x.as_raw(), out) })
}

/// This rank's part of a dimension; its backward gathers.
pub fn scatter_to_sequence_region(ctx: &Context, x: &Tensor, dim: i32) -> Result<Owned<Tensor>> {
    create(|out| unsafe { sys::nxd_scatter_to_sequence_region(ctx.as_raw(), x.as_raw(), dim, out) })
}

/// All ranks' parts along a dimension. `to_model_parallel`: what follows is split over ranks, so the
/// backward sums and scatters; else it takes this rank's part.
pub fn gather_from_sequence_region(
    ctx: &Context,
    x: &Tensor,
    dim: i32,
    to_model_parallel: bool,
) -> Result<Owned<Tensor>> {
    create(|out| unsafe {
        let split = to_model_parallel.into();
        sys::nxd_gather_from_sequence_region(ctx.as_raw(), x.as_raw(), dim, split, out)
    })
}

/// This rank's part, along a dimension, of the sum over ranks; its backward gathers.
pub fn reduce_scatter_to_sequence_region(
    ctx: &Context,
    x: &Tensor,
    dim: i32,
) -> Result<Owned<Tensor>> {
    create(|out| unsafe {
        sys::nxd_reduce_scatter_to_sequence_region(ctx.as_raw(), x.as_raw(), dim, out)
    })
}

/// Cross entropy on logits whose vocabulary is split over ranks. Collective: tensor-parallel group.
pub fn parallel_cross_entropy(
    ctx: &Context,
    logits: &Tensor,
    labels: &Tensor,
    options: &CrossEntropyOptions,
) -> Result<Owned<Tensor>> {
    let options = options.with_size();
    create(|out| unsafe {
        let (logits, labels) = (logits.as_raw(), labels.as_raw());
        sys::nxd_parallel_cross_entropy(ctx.as_raw(), logits, labels, &options, out)
    })
}

/// Cross entropy of the logits x weight^T, in blocks of tokens; `sequence_dim`: dimension of x of
/// which ranks hold parts. Collective: tensor-parallel group.
pub fn linear_cross_entropy(
    ctx: &Context,
    x: &Tensor,
    weight: &Tensor,
    labels: &Tensor,
    sequence_dim: Option<i32>,
    options: &CrossEntropyOptions,
) -> Result<Owned<Tensor>> {
    let options = options.with_size();
    let dim = sequence_dim.unwrap_or(-1);
    create(|out| unsafe {
        let (x, weight, labels) = (x.as_raw(), weight.as_raw(), labels.as_raw());
        sys::nxd_linear_cross_entropy(ctx.as_raw(), x, weight, labels, dim, &options, out)
    })
}
