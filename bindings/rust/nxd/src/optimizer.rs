use crate::arrays::{told_reading, with_arrays, Arrays};
use crate::callback::{guard, release};
use crate::checkpoint::Checkpoint;
use crate::data_parallel::{finishing, recovering, Ddp, DdpHandle, FinishOptions};
use crate::element::{DType, Element};
use crate::error::{
    c_path, c_string, check, check_abi, invalid, string, ParameterState, Result, Status,
};
use crate::object::{create, get, object, Owned};
use nxd_sys as sys;
use std::os::raw::c_void;
use std::path::Path;
use std::ptr::null_mut;
use std::rc::Rc;
use sys::Versioned;

pub use sys::nxd_adamw_formula_t as AdamwFormula;
pub use sys::nxd_adamw_options_t as AdamwOptions;
pub use sys::nxd_bf16_update_t as Bf16Update;
pub use sys::nxd_hyperparameter_t as Hyperparameter;
pub use sys::nxd_lr_schedule_options_t as LrScheduleOptions;
pub use sys::nxd_lr_schedule_t as LrScheduleKind;
pub use sys::nxd_sgd_options_t as SgdOptions;
pub use sys::nxd_step_report_t as StepReport;

object! {
    /// The library's part of an [`Optimizer`].
    OptimizerHandle, nxd_optimizer_t, nxd_optimizer_destroy
}

/// Updates parameters from their gradients.
pub struct Optimizer {
    // Released before the memory that it uses.
    handle: Owned<OptimizerHandle>,
    kept: Kept,
}

/// An object that an optimizer may be made over: a [`Ddp`], or a module.
///
/// # Safety
/// The pointer is a handle of the kind that `of` says.
pub unsafe trait Trainable {
    #[doc(hidden)]
    fn of(&self) -> Over;
}

#[doc(hidden)]
pub enum Over {
    Ddp(*mut sys::nxd_ddp_t, Kept),
    #[cfg(feature = "engine")]
    Module(*mut sys::nxd_module_t),
}

/// The memory that an optimizer keeps, if its parameters are in the program's own, and the ddp over it.
#[doc(hidden)]
#[derive(Default)]
pub struct Kept {
    // Released before the memory that it uses.
    ddp: Option<Rc<Owned<DdpHandle>>>,
    arrays: Option<Rc<Arrays>>,
}

unsafe impl Trainable for Ddp {
    fn of(&self) -> Over {
        let ddp = self.arrays.as_ref().map(|_| self.handle.clone());
        let kept = Kept { ddp, arrays: self.arrays.clone() };
        Over::Ddp(self.as_raw(), kept)
    }
}

/// An update rule of one's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct CustomOptions {
    /// 0: 1e-3.
    pub learning_rate: f64,
    pub weight_decay: f64,
    /// 0 to 8 arrays of state for each parameter.
    pub num_states: i32,
    /// Not `STOCHASTIC`.
    pub bf16_update: Bf16Update,
}

/// Calls the function of a pair that fits what an optimizer is made over.
macro_rules! create_over {
    ($over:expr, $options:expr, $ddp:ident, $module:ident) => {{
        let over = $over.of();
        let handle = match &over {
            Over::Ddp(ddp, _) => create(|out| unsafe { sys::$ddp(*ddp, $options, out) }),
            #[cfg(feature = "engine")]
            Over::Module(module) => create(|out| unsafe { sys::$module(*module, $options, out) }),
        };
        let kept = match over {
            Over::Ddp(_, kept) => kept,
            #[cfg(feature = "engine")]
            Over::Module(_) => Kept::default(),
        };
        handle.map(|handle| Optimizer { handle, kept })
    }};
}

impl Optimizer {
    /// AdamW (Loshchilov and Hutter 2019).
    pub fn adamw<P: Trainable + ?Sized>(over: &P, options: &AdamwOptions) -> Result<Optimizer> {
        let options = options.with_size();
        create_over!(over, &options, nxd_optimizer_create_adamw_ddp, nxd_optimizer_create_adamw)
    }

    pub fn sgd<P: Trainable + ?Sized>(over: &P, options: &SgdOptions) -> Result<Optimizer> {
        let options = options.with_size();
        create_over!(over, &options, nxd_optimizer_create_sgd_ddp, nxd_optimizer_create_sgd)
    }

    /// Updates by a closure, which treats each element by itself: with ZeRO a parameter may be cut
    /// anywhere.
    pub fn custom<P, F>(over: &P, options: &CustomOptions, rule: F) -> Result<Optimizer>
    where
        P: Trainable + ?Sized,
        F: FnMut(&mut Update<'_>) -> Result<()> + 'static,
    {
        let data = Box::into_raw(Box::new(Rule { rule, num_states: options.num_states }));
        let raw = sys::nxd_custom_optimizer_options_t {
            update: Some(update::<F>),
            user_data: data.cast(),
            destroy: Some(release::<Rule<F>>),
            learning_rate: options.learning_rate,
            weight_decay: options.weight_decay,
            num_states: options.num_states,
            bf16_update: options.bf16_update,
            ..Default::default()
        };
        let made =
            create_over!(over, &raw, nxd_optimizer_create_custom_ddp, nxd_optimizer_create_custom);
        if made.is_err() {
            // Not taken over.
            drop(unsafe { Box::from_raw(data) });
        }
        made
    }

    /// A training step's end: completes the gradients, clips, updates, and advances the step.
    /// Collective: tensor-, pipeline- and data-parallel groups.
    ///
    /// While values or gradients are borrowed on one rank it fails on all, there with
    /// `INVALID_STATE`. Where gradients were, all ranks make theirs anew before they call again.
    pub fn step(&mut self, options: &FinishOptions) -> Result<StepReport> {
        let mut report = StepReport::default();
        self.end_step(options, &mut report)?;
        Ok(report)
    }

    fn end_step(&self, options: &FinishOptions, report: *mut StepReport) -> Result<()> {
        let step = |options: &FinishOptions| {
            check(unsafe { sys::nxd_optimizer_step(self.as_raw(), options, report) })
        };
        match &self.kept.ddp {
            Some(ddp) => finishing(ddp, &self.kept.arrays, options, step),
            None => step(&options.with_size()),
        }
    }

    /// The same without a report: the recorded device is not asked for the norm, so that the update
    /// runs, and fails, in `mark_step`.
    pub fn step_without_report(&mut self, options: &FinishOptions) -> Result<()> {
        self.end_step(options, null_mut())
    }

    /// Updates from gradients that are finished, and advances the step.
    pub fn update(&mut self) -> Result<()> {
        let update = || check(unsafe { sys::nxd_optimizer_update(self.as_raw()) });
        match &self.kept.ddp {
            Some(ddp) => {
                let outcome = with_arrays(&self.kept.arrays, |_| (), update);
                recovering(ddp, &self.kept.arrays, outcome)
            }
            None => update(),
        }
    }

    /// Puts parameters, by names or patterns such as "*.bias", into a group of their own.
    pub fn add_group(&mut self, patterns: &[&str]) -> Result<i32> {
        let texts = patterns.iter().map(|p| c_string(p)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        get(|out| unsafe {
            sys::nxd_optimizer_add_group(self.as_raw(), pointers.as_ptr(), pointers.len(), out)
        })
    }

    /// Sets a hyperparameter from the next step on; `group` `None`: of all groups.
    pub fn set(&mut self, group: Option<i32>, which: Hyperparameter, value: f64) -> Result<()> {
        let group = group.unwrap_or(-1);
        check(unsafe { sys::nxd_optimizer_set_hyperparameter(self.as_raw(), group, which, value) })
    }

    /// A hyperparameter of a group.
    pub fn hyperparameter(&self, group: i32, which: Hyperparameter) -> Result<f64> {
        get(|out| unsafe {
            sys::nxd_optimizer_get_hyperparameter(self.as_raw(), group, which, out)
        })
    }

    /// Makes the learning rate of all groups follow a schedule over the updates.
    pub fn set_lr_schedule(&mut self, options: &LrScheduleOptions) -> Result<()> {
        let options = options.with_size();
        check(unsafe { sys::nxd_optimizer_set_lr_schedule(self.as_raw(), &options) })
    }

    pub fn set_learning_rate(&mut self, rate: f64) -> Result<()> {
        check(unsafe { sys::nxd_optimizer_set_learning_rate(self.as_raw(), rate) })
    }

    /// That of group 0 at the next step, with the schedule's factor.
    pub fn learning_rate(&self) -> Result<f64> {
        get(|out| unsafe { sys::nxd_optimizer_get_learning_rate(self.as_raw(), out) })
    }

    /// State in which the last step left this rank's parameters, and the number of that step.
    pub fn parameter_state(&self) -> Result<(ParameterState, Option<i64>)> {
        let (mut state, mut step) = (ParameterState::NONE, -1);
        check(unsafe {
            sys::nxd_optimizer_get_parameter_state(self.as_raw(), &mut state, &mut step)
        })?;
        Ok((state, (step >= 0).then_some(step)))
    }

    /// Bytes of state that this rank holds.
    pub fn state_bytes(&self) -> Result<u64> {
        get(|out| unsafe { sys::nxd_optimizer_get_state_bytes(self.as_raw(), out) })
    }

    /// Writes the whole state as one safetensors file. Collective: tensor, data, pipeline groups.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        told_reading(&self.kept.arrays, c_path(path), |path| {
            check(unsafe { sys::nxd_optimizer_save(self.as_raw(), path) })
        })
    }

    /// The state as it is now becomes a file of a checkpoint. Collective: world.
    pub fn snapshot(&self, checkpoint: &Checkpoint, name: &str) -> Result<()> {
        told_reading(&self.kept.arrays, c_string(name), |name| {
            check(unsafe { sys::nxd_optimizer_snapshot(self.as_raw(), checkpoint.as_raw(), name) })
        })
    }

    /// Reads this rank's part of a state that any layout wrote.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = c_path(path)?;
        check(unsafe { sys::nxd_optimizer_load(self.as_raw(), path.as_ptr()) })
    }

    pub(crate) fn arrays(&self) -> Option<Rc<Arrays>> {
        self.kept.arrays.clone()
    }

    /// The handle, for functions of the raw layer.
    pub fn as_raw(&self) -> *mut sys::nxd_optimizer_t {
        self.handle.as_raw()
    }
}

/// Run of elements of one parameter that a rule updates. Its memory is the rule's alone
/// during the call; a module's parameter is not to be written by another handle meanwhile.
pub struct Update<'a>(&'a sys::nxd_update_t, i32);

/// The elements of an [`Update`].
pub struct UpdateArrays<'a, P, G, S> {
    pub param: &'a mut [P],
    /// To be multiplied by [`Update::grad_scale`] first.
    pub grad: &'a [G],
    /// Zeros at the first update.
    pub states: Vec<&'a mut [S]>,
}

impl Update<'_> {
    /// Name of the parameter.
    pub fn parameter(&self) -> String {
        unsafe { string(self.0.parameter) }
    }

    /// The first element's index within this rank's parameter.
    pub fn begin(&self) -> usize {
        self.0.begin as usize
    }

    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    pub fn grad_dtype(&self) -> DType {
        self.0.grad_dtype
    }

    pub fn grad_scale(&self) -> f64 {
        self.0.grad_scale
    }

    /// With the schedule's factor.
    pub fn learning_rate(&self) -> f64 {
        self.0.learning_rate
    }

    pub fn weight_decay(&self) -> f64 {
        self.0.weight_decay
    }

    /// Number of this parameter's update, 1 for its first.
    pub fn step(&self) -> i64 {
        self.0.step
    }

    /// The elements, all three borrowed at once. States are `f64` for a parameter of `f64`, else
    /// `f32`.
    pub fn arrays<P: Element, G: Element, S: Element>(
        &mut self,
    ) -> Result<UpdateArrays<'_, P, G, S>> {
        let states = if self.0.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let has = [self.0.dtype, self.0.grad_dtype, states];
        let asked = [P::DTYPE, G::DTYPE, S::DTYPE];
        if has != asked {
            return invalid(format!(
                "{}: parameter, gradient and states are {:?}, asked for {:?}",
                self.parameter(),
                has,
                asked
            ));
        }
        let u = self.0;
        let n = u.count as usize;
        // Arrays of count elements of these dtypes, none of which overlaps another.
        unsafe {
            let states = (0..self.1 as usize)
                .map(|i| std::slice::from_raw_parts_mut((*u.states.add(i)).cast::<S>(), n))
                .collect();
            Ok(UpdateArrays {
                param: std::slice::from_raw_parts_mut(u.param.cast::<P>(), n),
                grad: std::slice::from_raw_parts(u.grad.cast::<G>(), n),
                states,
            })
        }
    }
}

struct Rule<F> {
    rule: F,
    num_states: i32,
}

unsafe extern "C" fn update<F: FnMut(&mut Update<'_>) -> Result<()>>(
    update: *const sys::nxd_update_t,
    data: *mut c_void,
) -> Status {
    guard(|| {
        let rule = &mut *data.cast::<Rule<F>>();
        (rule.rule)(&mut Update(&*update, rule.num_states))
    })
}

/// The factor on the learning rate at a step.
pub fn lr_schedule_factor(options: &LrScheduleOptions, step: i64) -> Result<f64> {
    check_abi()?;
    let options = options.with_size();
    get(|out| unsafe { sys::nxd_lr_schedule_get_factor(&options, step, out) })
}

/// Which samples of a data set a data-parallel rank takes in an epoch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampler {
    pub samples: i64,
    pub ranks: i32,
    pub rank: i32,
    pub seed: u64,
    pub shuffle: bool,
    pub drop_last: bool,
}

impl Sampler {
    /// Indices of this rank's samples.
    pub fn epoch(&self, epoch: i64) -> Result<Vec<i64>> {
        check_abi()?;
        crate::object::list(|indices, cap, count| unsafe {
            let (shuffle, drop_last) = (self.shuffle.into(), self.drop_last.into());
            let (samples, ranks, rank) = (self.samples, self.ranks, self.rank);
            sys::nxd_sample_epoch(
                samples, ranks, rank, epoch, self.seed, shuffle, drop_last, indices, cap, count,
            )
        })
    }
}
