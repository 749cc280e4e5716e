//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// Learning rates over time; all rise linearly from rate / warmup_steps over the warm-up.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_lr_schedule_t(pub i32);

impl nxd_lr_schedule_t {
    pub const INVALID: Self = Self(-1);
    pub const CONSTANT: Self = Self(0);
    /// down to final_factor at total_steps
    pub const LINEAR: Self = Self(1);
    /// the same along half a cosine (Loshchilov and Hutter 2017)
    pub const COSINE: Self = Self(2);
}

impl std::fmt::Debug for nxd_lr_schedule_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::CONSTANT => f.write_str("CONSTANT"),
            Self::LINEAR => f.write_str("LINEAR"),
            Self::COSINE => f.write_str("COSINE"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_lr_schedule_t {
    fn default() -> Self {
        Self(0)
    }
}

/// The update of BF16 parameters, whose spacing is wider than most steps.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_bf16_update_t(pub i32);

impl nxd_bf16_update_t {
    pub const INVALID: Self = Self(-1);
    /// an f32 copy is updated, and rounded to nearest
    pub const MASTER: Self = Self(0);
    /// rounded stochastically; no copy
    pub const STOCHASTIC: Self = Self(1);
    /// to nearest, or as the device does; small steps are lost
    pub const NEAREST: Self = Self(2);
}

impl std::fmt::Debug for nxd_bf16_update_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::MASTER => f.write_str("MASTER"),
            Self::STOCHASTIC => f.write_str("STOCHASTIC"),
            Self::NEAREST => f.write_str("NEAREST"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_bf16_update_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Formulas of AdamW.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_adamw_formula_t(pub i32);

impl nxd_adamw_formula_t {
    pub const INVALID: Self = Self(-1);
    /// torch.optim.AdamW
    pub const TORCH: Self = Self(0);
    /// NxD Core's: eps beside the uncorrected root; decay last
    pub const NXD: Self = Self(1);
}

impl std::fmt::Debug for nxd_adamw_formula_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::TORCH => f.write_str("TORCH"),
            Self::NXD => f.write_str("NXD"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_adamw_formula_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Hyperparameters; see the options of each optimizer.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_hyperparameter_t(pub i32);

impl nxd_hyperparameter_t {
    pub const INVALID: Self = Self(-1);
    /// without the schedule's factor
    pub const LEARNING_RATE: Self = Self(0);
    pub const WEIGHT_DECAY: Self = Self(1);
    pub const BETA1: Self = Self(2);
    pub const BETA2: Self = Self(3);
    pub const EPS: Self = Self(4);
    pub const MOMENTUM: Self = Self(5);
    pub const DAMPENING: Self = Self(6);
}

impl std::fmt::Debug for nxd_hyperparameter_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::LEARNING_RATE => f.write_str("LEARNING_RATE"),
            Self::WEIGHT_DECAY => f.write_str("WEIGHT_DECAY"),
            Self::BETA1 => f.write_str("BETA1"),
            Self::BETA2 => f.write_str("BETA2"),
            Self::EPS => f.write_str("EPS"),
            Self::MOMENTUM => f.write_str("MOMENTUM"),
            Self::DAMPENING => f.write_str("DAMPENING"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_hyperparameter_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Updates parameters from their gradients.
#[repr(C)]
pub struct nxd_optimizer_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// An update rule of the caller's own. It calls nothing of its optimizer's. One that fails leaves
/// param and states as they were: parameters are OLD after a step's first call, PARTIAL after a
/// later one, and after any where peers of ZeRO-1 store their parts in this rank's memory.
pub type nxd_update_fn = Option<
    unsafe extern "C" fn(update: *const nxd_update_t, user_data: *mut c_void) -> nxd_status_t,
>;

/// A schedule of learning rates. Steps count from 0; after total_steps the factor stays.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_lr_schedule_options_t {
    pub struct_size: usize,
    pub kind: nxd_lr_schedule_t,
    /// 0
    pub reserved: i32,
    pub warmup_steps: i64,
    /// LINEAR and COSINE: more than warmup_steps
    pub total_steps: i64,
    /// of [0, 1]
    pub final_factor: f64,
}

unsafe impl Versioned for nxd_lr_schedule_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_lr_schedule_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_lr_schedule_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_optimizer_create_adamw.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_adamw_options_t {
    pub struct_size: usize,
    /// 0: 1e-3
    pub learning_rate: f64,
    /// 0: 0.9
    pub beta1: f64,
    /// 0: 0.999
    pub beta2: f64,
    /// 0: 1e-8
    pub eps: f64,
    /// 0: none
    pub weight_decay: f64,
    pub formula: nxd_adamw_formula_t,
    pub bf16_update: nxd_bf16_update_t,
}

unsafe impl Versioned for nxd_adamw_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_adamw_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_adamw_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_optimizer_create_sgd: torch.optim.SGD.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_sgd_options_t {
    pub struct_size: usize,
    /// 0: 1e-3
    pub learning_rate: f64,
    /// of [0, 1)
    pub momentum: f64,
    /// not at a parameter's first update; torch: not at its first with a momentum, which comes later where that was 0
    pub dampening: f64,
    pub weight_decay: f64,
    /// 1: needs a momentum, and no dampening
    pub nesterov: i32,
    pub bf16_update: nxd_bf16_update_t,
}

unsafe impl Versioned for nxd_sgd_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_sgd_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_sgd_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// The span of elements of one parameter that a caller's update works on. With ZeRO a parameter may
/// be split anywhere, so an update treats each element by itself. Valid during the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_update_t {
    pub struct_size: usize,
    /// name
    pub parameter: *const c_char,
    /// the first element's index within this rank's parameter
    pub begin: i64,
    /// elements
    pub count: i64,
    /// of param: F32 or F64; BF16 for bf16_update NEAREST
    pub dtype: nxd_dtype_t,
    pub grad_dtype: nxd_dtype_t,
    pub param: *mut c_void,
    pub grad: *const c_void,
    /// the gradient is to be multiplied by this first
    pub grad_scale: f64,
    /// num_states arrays, F64 for a param of F64, else F32; zeros at the first update
    pub states: *const *mut c_void,
    /// with the schedule's factor
    pub learning_rate: f64,
    pub weight_decay: f64,
    /// of this parameter, 1 for its first update
    pub step: i64,
}

unsafe impl Versioned for nxd_update_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_update_t {
    fn default() -> Self {
        zeroed::<Self>().with_size()
    }
}

/// Options of nxd_optimizer_create_custom.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_custom_optimizer_options_t {
    pub struct_size: usize,
    /// called on the thread of nxd_optimizer_step or _update
    pub update: nxd_update_fn,
    pub user_data: *mut c_void,
    /// called with user_data when the optimizer is gone; may be NULL
    pub destroy: nxd_destroy_fn,
    /// 0: 1e-3
    pub learning_rate: f64,
    pub weight_decay: f64,
    /// 0 to 8
    pub num_states: i32,
    /// not STOCHASTIC
    pub bf16_update: nxd_bf16_update_t,
}

unsafe impl Versioned for nxd_custom_optimizer_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_custom_optimizer_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_custom_optimizer_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Report of a step.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_step_report_t {
    /// set it before the call
    pub struct_size: usize,
    /// of all gradients before clipping; the same bits on all ranks
    pub norm: f64,
    /// of group 0, with the schedule's factor
    pub learning_rate: f64,
    /// made so far, this one included
    pub updates: i64,
    /// 1: the norm was not finite, and nothing was updated
    pub skipped: i32,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_step_report_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_step_report_t {
    fn default() -> Self {
        zeroed::<Self>().with_size()
    }
}

extern "C" {
    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_lr_schedule_options_init(options: *mut nxd_lr_schedule_options_t, size: usize) -> nxd_status_t;

    /// [local] The factor on the learning rate at a step, a pure function.
    /// @return NXD_OK; INVALID_ARGUMENT (a field out of range, a negative step).
    /// @since 0.1
    pub fn nxd_lr_schedule_get_factor(options: *const nxd_lr_schedule_options_t, step: i64, out_factor: *mut f64) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_adamw_options_init(options: *mut nxd_adamw_options_t, size: usize) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_sgd_options_init(options: *mut nxd_sgd_options_t, size: usize) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_custom_optimizer_options_init(options: *mut nxd_custom_optimizer_options_t, size: usize) -> nxd_status_t;

    /// [local] AdamW over the parameters of a ddp; see nxd_optimizer_create_adamw.
    ///
    /// With zero_stage 1 the state is that of this rank's parts only.
    /// @since 0.1
    pub fn nxd_optimizer_create_adamw_ddp(ddp: *mut nxd_ddp_t, options: *const nxd_adamw_options_t, out_optimizer: *mut *mut nxd_optimizer_t) -> nxd_status_t;

    /// [local] SGD over the parameters of a ddp.
    /// @since 0.1
    pub fn nxd_optimizer_create_sgd_ddp(ddp: *mut nxd_ddp_t, options: *const nxd_sgd_options_t, out_optimizer: *mut *mut nxd_optimizer_t) -> nxd_status_t;

    /// [local] A caller's own update rule over the parameters of a ddp.
    /// @return NXD_OK; INVALID_ARGUMENT. After a failure destroy is not called.
    /// @since 0.1
    pub fn nxd_optimizer_create_custom_ddp(ddp: *mut nxd_ddp_t, options: *const nxd_custom_optimizer_options_t, out_optimizer: *mut *mut nxd_optimizer_t) -> nxd_status_t;

    /// [local] Puts parameters into a group with hyperparameters of its own, which start as group 0's.
    ///
    /// @param patterns  names, or patterns in which * stands for any characters and ? for one, such as
    /// "*.bias"; each must match a parameter. A parameter is in the last group that
    /// took it.
    /// @param[out] out_group  index of the group; may be NULL.
    /// @return NXD_OK; INVALID_ARGUMENT (a pattern without a match: near names are given).
    /// @since 0.1
    pub fn nxd_optimizer_add_group(optimizer: *mut nxd_optimizer_t, patterns: *const *const c_char, num_patterns: usize, out_group: *mut i32) -> nxd_status_t;

    /// [local] Sets a hyperparameter from the next step on.
    /// @param group  -1: of all groups.
    /// @return NXD_OK; INVALID_ARGUMENT (out of range, no such group, or another kind of optimizer's).
    /// @since 0.1
    pub fn nxd_optimizer_set_hyperparameter(optimizer: *mut nxd_optimizer_t, group: i32, which: nxd_hyperparameter_t, value: f64) -> nxd_status_t;

    /// [local] A hyperparameter of a group.
    /// @since 0.1
    pub fn nxd_optimizer_get_hyperparameter(optimizer: *mut nxd_optimizer_t, group: i32, which: nxd_hyperparameter_t, out_value: *mut f64) -> nxd_status_t;

    /// [local] Makes the learning rate of all groups follow a schedule over the optimizer's updates.
    /// @since 0.1
    pub fn nxd_optimizer_set_lr_schedule(optimizer: *mut nxd_optimizer_t, options: *const nxd_lr_schedule_options_t) -> nxd_status_t;

    /// [collective: tensor-, pipeline- and data-parallel groups] Ends a training step: completes the
    /// gradients as nxd_finish_grads does, updates every parameter that has one, and advances the
    /// context's step.
    ///
    /// Gradients are left as they are, but for their reduction: the clip factor is applied on the fly.
    /// When their norm is not finite, or after clipping beyond F32, or the factor is below F32's normal
    /// numbers, nothing is updated, the step advances, and the report says so.
    ///
    /// Before any change ranks compare what they were given: the options, the updates made so far, the
    /// context's step, and within a stage the update rule, the hyperparameters of groups, the schedule,
    /// and the seed by which copies round BF16. Where they differ all ranks get INVALID_ARGUMENT. A
    /// rejected step stays open: another call goes on with its gradients as they are then, reduced or
    /// not. A mark, a backward pass or a gradient that is written or moved begins a new one.
    ///
    /// With parameters on device XLA the updates join the recorded graph. A report has to wait for that
    /// graph; without one the call returns at once, and nxd_mark_step has the errors of the updates.
    /// @param options     NULL: defaults.
    /// @param out_report  may be NULL.
    /// @return NXD_OK; INVALID_ARGUMENT and ABI_MISMATCH, on all ranks, also of a report; UNSUPPORTED
    /// (max_norm over a part of a model, see nxd_ddp_create_buffers); INVALID_STATE (parameters
    /// or state are PARTIAL; a module's in a world of several ranks without
    /// nxd_init_model_parallel); TIMEOUT or PEER_LOST: nxd_last_error_info says of which step
    /// this rank's parameters are. Forwards, steps and saves reject PARTIAL parameters until
    /// they are loaded again, and the optimizer's state until nxd_optimizer_load.
    /// @since 0.1
    pub fn nxd_optimizer_step(optimizer: *mut nxd_optimizer_t, options: *const nxd_finish_options_t, out_report: *mut nxd_step_report_t) -> nxd_status_t;

    /// [local] Updates every parameter that has a gradient, from gradients that are finished, and
    /// advances the context's step. Parameters of a ddp that took part on no rank have none.
    /// @return NXD_OK; INVALID_STATE (zero_stage 1, whose updates are collective; gradients of a ddp
    /// that were marked in this step, or whose reduction failed, and that are not finished).
    /// @since 0.1
    pub fn nxd_optimizer_update(optimizer: *mut nxd_optimizer_t) -> nxd_status_t;

    /// [local] State in which the last nxd_optimizer_step or _update left this rank's parameters.
    ///
    /// Ranks that survive a lost peer may differ; the step and the state tell each where to go on.
    /// @param[out] out_state  NONE before the first step, and once PARTIAL ones are loaded again.
    /// @param[out] out_step   the context's step at that call; -1 before the first; may be NULL.
    /// @since 0.1
    pub fn nxd_optimizer_get_parameter_state(optimizer: *mut nxd_optimizer_t, out_state: *mut nxd_parameter_state_t, out_step: *mut i64) -> nxd_status_t;

    /// [local] Sets the learning rate of all groups from the next step on.
    /// @return NXD_OK; INVALID_ARGUMENT (negative, not finite or beyond F32).
    /// @since 0.1
    pub fn nxd_optimizer_set_learning_rate(optimizer: *mut nxd_optimizer_t, rate: f64) -> nxd_status_t;

    /// [local] The learning rate of group 0 at the next step, with the schedule's factor.
    /// @since 0.1
    pub fn nxd_optimizer_get_learning_rate(optimizer: *mut nxd_optimizer_t, out_rate: *mut f64) -> nxd_status_t;

    /// [local] Bytes of state that this rank holds: moments, momentum and f32 copies of parameters.
    /// @since 0.1
    pub fn nxd_optimizer_get_state_bytes(optimizer: *mut nxd_optimizer_t, out_bytes: *mut u64) -> nxd_status_t;

    /// [collective: tensor, data, pipeline groups] Writes the whole state as one safetensors file,
    /// whatever the layout: tensors NAME.STATE in the parameter's whole shape, where STATE is exp_avg,
    /// exp_avg_sq, momentum, state0 and so on, or master, which is the parameter's value where that was
    /// written from outside since the last update. Updates, hyperparameters of groups and the
    /// schedule are in the metadata. Crash-safe.
    /// @return the same on all ranks: NXD_OK; INVALID_ARGUMENT (also of stages whose hyperparameters or
    /// schedules differ, since a file has one); UNSUPPORTED (a ddp over buffers that
    /// are parts of a model, see nxd_ddp_create_buffers); INVALID_STATE (parameters or
    /// state are PARTIAL, or of another layout than the context has now); IO; TIMEOUT;
    /// PEER_LOST.
    /// @since 0.1
    pub fn nxd_optimizer_save(optimizer: *mut nxd_optimizer_t, path: *const c_char) -> nxd_status_t;

    /// [collective: world] Takes a snapshot of the state for a checkpoint. The file that
    /// nxd_optimizer_save would write now is written when the checkpoint is published, and the
    /// optimizer may go on meanwhile.
    ///
    /// The checkpoint shares the state's memory (nxd_optimizer_get_state_bytes) until it is published
    /// or destroyed: a step before that copies it. Without ZeRO-1 data-parallel copy 0 alone does.
    /// @param name  of the file, as for nxd_checkpoint_get_path; the same on all ranks, not that of
    /// another snapshot of the checkpoint, and without .shares.json at its end.
    /// @return NXD_OK; INVALID_ARGUMENT; UNSUPPORTED and INVALID_STATE (as nxd_optimizer_save, and a
    /// checkpoint that is published, or was opened); OUT_OF_MEMORY; TIMEOUT; PEER_LOST. All
    /// ranks fail when one does, but for checkpoint NULL.
    /// @since 0.1
    pub fn nxd_optimizer_snapshot(optimizer: *mut nxd_optimizer_t, checkpoint: *mut nxd_checkpoint_t, name: *const c_char) -> nxd_status_t;

    /// [local] Reads this rank's part of a state that any layout wrote.
    ///
    /// Hyperparameters of all groups and the schedule become those of the file, which has them beside
    /// the state; groups are made before the load, of the same parameters as they were. A step on
    /// device XLA that was recorded and has not run runs before, and its error is this call's.
    /// @return NXD_OK; INVALID_ARGUMENT (another kind of optimizer, other parameters or groups); IO;
    /// CORRUPT. After a failure the state is as before.
    /// @since 0.1
    pub fn nxd_optimizer_load(optimizer: *mut nxd_optimizer_t, path: *const c_char) -> nxd_status_t;

    /// [local] Releases the optimizer and its state.
    /// @since 0.1
    pub fn nxd_optimizer_destroy(optimizer: *mut nxd_optimizer_t);
}
