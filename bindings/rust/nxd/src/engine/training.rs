use crate::context::Context;
use crate::data_parallel::{Ddp, DdpOptions, FinishOptions};
use crate::engine::module::Module;
use crate::engine::tensor::{maybe_pointers, Tensor};
use crate::error::{check, Result};
use crate::object::{create, get};
use nxd_sys as sys;
use std::rc::Rc;
use sys::Versioned;

impl Module {
    /// Finishes the gradients of the model after backward and gives their norm. Collective: tensor-,
    /// pipeline- and data-parallel groups.
    pub fn finish_grads(&self, options: &FinishOptions) -> Result<f64> {
        let options = options.with_size();
        get(|out| unsafe { sys::nxd_finish_grads(self.as_raw(), &options, out) })
    }
}

impl Ddp {
    /// Over a tree's trainable parameters and the data-parallel group, which is collective.
    pub fn over_module(root: &Module, options: &DdpOptions) -> Result<Ddp> {
        let options = options.with_size();
        let handle = create(|out| unsafe { sys::nxd_ddp_create(root.as_raw(), &options, out) })?;
        Ok(Ddp { handle: Rc::new(handle), arrays: None })
    }
}

/// Weights that make mean losses of microbatches add up to the mean over all valid tokens of the
/// step; `None`: no tokens. Collective: the data-parallel group.
pub fn loss_weights(
    ctx: &Context,
    labels: &[Option<&Tensor>],
    ignore_index: i64,
    shifted: bool,
) -> Result<Vec<f64>> {
    let mut weights = vec![0.0; labels.len()];
    check(unsafe {
        let (list, n) = (maybe_pointers(labels), labels.len());
        let out = weights.as_mut_ptr();
        sys::nxd_loss_weights(ctx.as_raw(), list, n, ignore_index, shifted.into(), out)
    })?;
    Ok(weights)
}
