use crate::arrays::{with_arrays, Array, Arrays, Float};
use crate::context::Context;
use crate::error::{c_string, check, invalid, string, Error, Result, Status};
use crate::group::Group;
use crate::layers::ShardOptions;
use crate::object::{create, get, object, Owned};
use nxd_sys as sys;
use std::ptr::null_mut;
use std::rc::Rc;
use sys::Versioned;

pub use sys::nxd_ddp_options_t as DdpOptions;
pub use sys::nxd_finish_options_t as FinishOptions;

/// How the ranks of the tensor-parallel group hold a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each rank has an equal part along a dimension.
    Sharded(i32),
    /// The same values on all ranks, and the same gradient.
    Replicated,
    /// The same values; gradients are summed over the group when they are finished.
    PartialGrad,
}

impl Placement {
    fn raw(&self) -> (sys::nxd_placement_t, i32) {
        match *self {
            Placement::Sharded(dim) => (sys::nxd_placement_t::SHARDED, dim),
            Placement::Replicated => (sys::nxd_placement_t::REPLICATED, -1),
            Placement::PartialGrad => (sys::nxd_placement_t::PARTIAL_GRAD, -1),
        }
    }
}

/// How the ranks of the tensor-parallel group hold a parameter, where they may have other parts than
/// equal consecutive ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardedParameter {
    /// The options that its array is filled by; `None`: each rank has the whole parameter.
    pub shard: Option<ShardOptions>,
    /// Gradients are summed over the ranks that hold the same elements.
    pub partial_grad: bool,
    /// Another pipeline stage has the parameter too, and counts it in norms.
    pub tied: bool,
}

object! {
    /// The library's part of a [`Ddp`].
    DdpHandle, nxd_ddp_t, nxd_ddp_destroy
}

/// Data parallelism over a set of parameters: arrays of the program's own, or a module's. With
/// `zero_stage` 1 the optimizer's state is sharded over the group.
pub struct Ddp {
    // Released before the memory that it uses.
    pub(crate) handle: Rc<Owned<DdpHandle>>,
    pub(crate) arrays: Option<Rc<Arrays>>,
}

/// After a call that has failed, gradients that the library does not use are the program's.
pub(crate) fn recovering<R>(
    ddp: &DdpHandle,
    arrays: &Option<Rc<Arrays>>,
    outcome: Result<R>,
) -> Result<R> {
    if let (Err(_), Some(arrays)) = (&outcome, arrays) {
        // A gradient that is being reduced cannot move.
        arrays.bring_back_if(|index| rebind_gradient(ddp, index, null_mut()) == Status::OK);
    }
    outcome
}

fn rebind_gradient(ddp: &DdpHandle, index: usize, gradient: *mut sys::DLTensor) -> Status {
    unsafe { sys::nxd_ddp_rebind(ddp.as_raw(), index, null_mut(), gradient) }
}

/// A call at the end of a step. Options that no rank takes make it fail on all.
pub(crate) fn finishing<R>(
    ddp: &DdpHandle,
    arrays: &Option<Rc<Arrays>>,
    options: &FinishOptions,
    call: impl Fn(&FinishOptions) -> Result<R>,
) -> Result<R> {
    let none = FinishOptions { scale: f64::NAN, ..Default::default() };
    let tell = |arrays: &Arrays| {
        let rebind = |index, gradient: &mut _| rebind_gradient(ddp, index, gradient);
        arrays.beside_borrowed_gradients(rebind, || drop(call(&none.with_size())));
    };
    recovering(ddp, arrays, with_arrays(arrays, tell, || call(&options.with_size())))
}

fn reject(ctx: &Context, group: Option<&Group>, error: Error) -> Error {
    let why = error.message().to_string();
    let told = match group {
        Some(group) => Ok(group.reject("", why)),
        None => ctx.data_group().map(|group| group.reject("", why)),
    };
    told.map_or_else(|failed| failed, |_| error)
}

impl Ddp {
    /// Over arrays, which the ddp takes; `group` `None`: the data-parallel group, or the world where
    /// model parallelism is not initialised. Collective: the group.
    pub fn over_arrays(
        ctx: &Context,
        group: Option<&Group>,
        arrays: Vec<Array>,
        options: &DdpOptions,
    ) -> Result<Ddp> {
        let names = arrays.iter().map(|a| c_string(a.name())).collect::<Result<Vec<_>>>();
        // The peers are in the call already, or about to be.
        let names = match names {
            Ok(names) => names,
            Err(error) => return Err(reject(ctx, group, error)),
        };
        let names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let arrays = Rc::new(Arrays(arrays));
        let (mut params, mut grads) = arrays.describe();
        let params: Vec<*mut sys::DLTensor> = params.iter_mut().map(|p| p as *mut _).collect();
        let grads: Vec<*mut sys::DLTensor> = grads.iter_mut().map(|g| g as *mut _).collect();
        let group = group.map_or(null_mut(), Group::as_raw);
        let options = options.with_size();
        let handle = create(|out| unsafe {
            sys::nxd_ddp_create_buffers(
                ctx.as_raw(),
                group,
                names.as_ptr(),
                params.as_ptr(),
                grads.as_ptr(),
                params.len(),
                &options,
                out,
            )
        })?;
        Ok(Ddp { handle: Rc::new(handle), arrays: Some(arrays) })
    }

    /// Says how the ranks of the tensor-parallel group hold each parameter, so that norms, clipping
    /// and saved states are those of the undivided model. Collective: the world.
    pub fn set_placements(&self, placements: &[Placement]) -> Result<()> {
        self.set_placements_tied(placements, &[])
    }

    /// The same where other pipeline stages have some of the parameters too, and count them in
    /// norms: `tied` has their indices.
    pub fn set_placements_tied(&self, placements: &[Placement], tied: &[usize]) -> Result<()> {
        let (kinds, dims): (Vec<_>, Vec<_>) = placements.iter().map(Placement::raw).unzip();
        let mut shared = vec![0; placements.len()];
        for &index in tied {
            match shared.get_mut(index) {
                Some(is_tied) => *is_tied = 1,
                None => {
                    // All ranks are in the call: one of no parameter makes it fail on them.
                    let (raw, none, n) = (self.as_raw(), std::ptr::null(), placements.len());
                    unsafe { sys::nxd_ddp_set_placements(raw, std::ptr::null(), none, none, 0) };
                    return invalid(format!("tied: expected less than {}, got {}", n, index));
                }
            }
        }
        check(unsafe {
            sys::nxd_ddp_set_placements(
                self.as_raw(),
                kinds.as_ptr(),
                dims.as_ptr(),
                shared.as_ptr(),
                placements.len(),
            )
        })
    }

    /// [`Ddp::set_placements`] for padded vocabularies, fused weights and heads that several ranks
    /// share. Collective: the world.
    pub fn set_shards(&self, parameters: &[ShardedParameter]) -> Result<()> {
        let options: Vec<_> = parameters.iter().map(|p| p.shard.map(|s| s.with_size())).collect();
        let shards: Vec<_> =
            options.iter().map(|o| o.as_ref().map_or(std::ptr::null(), |o| o as *const _)).collect();
        let partial: Vec<_> = parameters.iter().map(|p| i32::from(p.partial_grad)).collect();
        let tied: Vec<_> = parameters.iter().map(|p| i32::from(p.tied)).collect();
        check(unsafe {
            sys::nxd_ddp_set_shards(
                self.as_raw(),
                shards.as_ptr(),
                partial.as_ptr(),
                tied.as_ptr(),
                parameters.len(),
            )
        })
    }

    /// The arrays it was made of; none over a module.
    pub fn arrays(&self) -> &[Array] {
        self.arrays.as_ref().map_or(&[], |arrays| &arrays.0)
    }

    /// Number of parameters.
    pub fn count(&self) -> Result<usize> {
        get(|out| unsafe { sys::nxd_ddp_get_count(self.as_raw(), out) })
    }

    /// Name of a parameter.
    pub fn name(&self, index: usize) -> Result<String> {
        let mut name = std::ptr::null();
        check(unsafe { sys::nxd_ddp_get_name(self.as_raw(), index, &mut name) })?;
        Ok(unsafe { string(name) })
    }

    /// Says that a gradient is complete for this step, so that its reduction may overlap what
    /// follows. Its memory is out of reach until the step has ended. Collective: the group.
    pub fn mark_ready(&self, index: usize) -> Result<()> {
        self.mark(index, || unsafe { sys::nxd_ddp_mark_ready(self.as_raw(), index) })
    }

    fn mark(&self, index: usize, call: impl FnOnce() -> Status) -> Result<()> {
        if let Some(arrays) = &self.arrays {
            arrays.give_away(index)?;
        }
        recovering(&self.handle, &self.arrays, check(call()))
    }

    /// Says that memory of an [`Array::over_memory`] has moved, as where a framework makes new
    /// gradients in each step; `None`: as before.
    ///
    /// # Safety
    /// As for [`Array::over_memory`].
    pub unsafe fn rebind<T: Float, G: Float>(
        &self,
        index: usize,
        values: Option<*mut T>,
        gradient: Option<*mut G>,
    ) -> Result<()> {
        let arrays = match &self.arrays {
            Some(arrays) if arrays.is_foreign(index) => arrays,
            _ => return invalid("rebind: expected an array over memory of another owner"),
        };
        let values = values.map(|data| (data.cast(), T::DTYPE));
        let gradient = gradient.map(|data| (data.cast(), G::DTYPE));
        arrays.rebind(index, values, gradient, |values, gradient| {
            check(sys::nxd_ddp_rebind(self.as_raw(), index, values, gradient))
        })
    }

    /// Says that a parameter took no part in this step on this rank. Collective: the group.
    pub fn mark_unused(&self, index: usize) -> Result<()> {
        self.mark(index, || unsafe { sys::nxd_ddp_mark_unused(self.as_raw(), index) })
    }

    /// Reduces during the next backward passes, or lets gradients add up.
    pub fn set_sync(&self, sync: bool) -> Result<()> {
        check(unsafe { sys::nxd_ddp_set_sync(self.as_raw(), sync.into()) })
    }

    /// Bytes held on this rank beside parameters and gradients.
    pub fn buffer_bytes(&self) -> Result<u64> {
        get(|out| unsafe { sys::nxd_ddp_get_buffer_bytes(self.as_raw(), out) })
    }

    /// Says that the arrays hold the values of one step again, after a step that updated them partially.
    pub fn mark_reloaded(&self) -> Result<()> {
        check(unsafe { sys::nxd_ddp_mark_reloaded(self.as_raw()) })
    }

    /// Finishes the gradients with `zero_stage` 0 and gives their norm. Collective: tensor-,
    /// pipeline- and data-parallel groups.
    ///
    /// While values or gradients are borrowed on one rank it fails on all, there with
    /// `INVALID_STATE`. Where gradients were, all ranks make theirs anew before they call again.
    pub fn finish(&self, options: &FinishOptions) -> Result<f64> {
        finishing(&self.handle, &self.arrays, options, |options| {
            get(|out| unsafe { sys::nxd_ddp_finish(self.as_raw(), options, out) })
        })
    }

    /// The handle, for functions of the raw layer.
    pub fn as_raw(&self) -> *mut sys::nxd_ddp_t {
        self.handle.as_raw()
    }
}
