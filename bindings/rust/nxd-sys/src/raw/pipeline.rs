//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// Orders in which ranks compute.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_pp_schedule_kind_t(pub i32);

impl nxd_pp_schedule_kind_t {
    pub const INVALID: Self = Self(-1);
    /// 1F1B with one chunk, INTERLEAVED with several
    pub const DEFAULT: Self = Self(0);
    /// one forward, one backward (Narayanan et al. 2019, Megatron's non-interleaved); one chunk
    pub const _1F1B: Self = Self(1);
    /// 1F1B over several chunks (Narayanan et al. 2021); microbatches divide by ranks
    pub const INTERLEAVED: Self = Self(2);
    /// all forwards, then all backwards (Huang et al. 2019), in the order of the microbatches
    pub const GPIPE: Self = Self(3);
    /// ZB-H1: weight gradients fill the bubble (Qi et al. 2023); one chunk. Rank r of P keeps what it keeps in 1F1B, and of up to r microbatches more the inputs and output gradients of linear layers
    pub const ZERO_BUBBLE: Self = Self(4);
    /// forwards only
    pub const INFERENCE: Self = Self(5);
}

impl std::fmt::Debug for nxd_pp_schedule_kind_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::DEFAULT => f.write_str("DEFAULT"),
            Self::_1F1B => f.write_str("_1F1B"),
            Self::INTERLEAVED => f.write_str("INTERLEAVED"),
            Self::GPIPE => f.write_str("GPIPE"),
            Self::ZERO_BUBBLE => f.write_str("ZERO_BUBBLE"),
            Self::INFERENCE => f.write_str("INFERENCE"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_pp_schedule_kind_t {
    fn default() -> Self {
        Self(0)
    }
}

/// The computation of a task.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_pp_task_kind_t(pub i32);

impl nxd_pp_task_kind_t {
    pub const INVALID: Self = Self(-1);
    pub const FORWARD: Self = Self(0);
    /// gradients of inputs and of parameters
    pub const BACKWARD: Self = Self(1);
    /// of inputs alone; a WEIGHT_GRAD follows
    pub const INPUT_GRAD: Self = Self(2);
    pub const WEIGHT_GRAD: Self = Self(3);
}

impl std::fmt::Debug for nxd_pp_task_kind_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::FORWARD => f.write_str("FORWARD"),
            Self::BACKWARD => f.write_str("BACKWARD"),
            Self::INPUT_GRAD => f.write_str("INPUT_GRAD"),
            Self::WEIGHT_GRAD => f.write_str("WEIGHT_GRAD"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_pp_task_kind_t {
    fn default() -> Self {
        Self(0)
    }
}

/// The way in which losses of microbatches add up.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_pp_loss_t(pub i32);

impl nxd_pp_loss_t {
    pub const INVALID: Self = Self(-1);
    pub const DEFAULT: Self = Self(0);
    /// the mean of the microbatches' losses
    pub const MICROBATCHES: Self = Self(1);
    /// the mean over the valid tokens of all microbatches and data-parallel ranks: see nxd_loss_weights
    pub const TOKENS: Self = Self(2);
}

impl std::fmt::Debug for nxd_pp_loss_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::DEFAULT => f.write_str("DEFAULT"),
            Self::MICROBATCHES => f.write_str("MICROBATCHES"),
            Self::TOKENS => f.write_str("TOKENS"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_pp_loss_t {
    fn default() -> Self {
        Self(0)
    }
}

/// The way in which a model is cut into stages.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_pp_partition_t(pub i32);

impl nxd_pp_partition_t {
    pub const INVALID: Self = Self(-1);
    /// at pipeline_cuts if given, else EVEN
    pub const DEFAULT: Self = Self(0);
    /// as many layers everywhere, the remainder in the later stages
    pub const EVEN: Self = Self(1);
    /// the most expensive stage is as cheap as can be: floating-point operations, counted from shapes, of layers, embedding, head and loss
    pub const COST: Self = Self(2);
}

impl std::fmt::Debug for nxd_pp_partition_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::DEFAULT => f.write_str("DEFAULT"),
            Self::EVEN => f.write_str("EVEN"),
            Self::COST => f.write_str("COST"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_pp_partition_t {
    fn default() -> Self {
        Self(0)
    }
}

/// The tasks of all ranks, known to be complete and free of deadlock. Immutable.
#[repr(C)]
pub struct nxd_pp_schedule_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A model's or a caller's stages on this rank, and the schedule they run by.
#[repr(C)]
pub struct nxd_pp_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// One computation of one rank. The layout never changes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_pp_task_t {
    pub kind: nxd_pp_task_kind_t,
    /// 0..microbatches - 1
    pub microbatch: i32,
    /// 0..chunks - 1, of the rank's
    pub chunk: i32,
}

/// Durations to judge a schedule by, in any one unit.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_pp_costs_t {
    pub struct_size: usize,
    /// of one microbatch, of each stage; NULL: 1
    pub forward: *const f64,
    /// NULL: as forward
    pub backward_input: *const f64,
    /// NULL: as forward; a BACKWARD task takes both
    pub backward_weight: *const f64,
    /// of values or gradients between stages on different ranks
    pub transfer: f64,
}

unsafe impl Versioned for nxd_pp_costs_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_pp_costs_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_pp_costs_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Times of a schedule under given costs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_pp_report_t {
    pub struct_size: usize,
    /// until the last rank is done
    pub makespan: f64,
    /// longest chain of tasks and transfers that depend on one another, were there as many processors as tasks
    pub critical_path: f64,
    /// idle time of all ranks over ranks * makespan, 0 to 1
    pub bubble_share: f64,
    /// microbatches of a chunk, forwards done and weight gradients not, that the fullest rank keeps at once; 0 without backward tasks
    pub peak_activations: i32,
    /// the first one, if several are
    pub fullest_rank: i32,
}

unsafe impl Versioned for nxd_pp_report_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_pp_report_t {
    fn default() -> Self {
        zeroed::<Self>().with_size()
    }
}

/// A tensor that goes from one stage to the next, of the same shape in every microbatch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_pp_value_t {
    /// for messages
    pub name: *const c_char,
    /// of one microbatch
    pub shape: *const i64,
    pub ndim: i32,
    pub dtype: nxd_dtype_t,
    /// 1: its gradient, of the same shape and dtype, comes back
    pub needs_grad: i32,
    /// 0
    pub reserved: i32,
}

/// The stage, chunk and microbatch that a callback is called for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_pp_call_t {
    /// 0..P * V - 1
    pub stage: i32,
    /// of this rank's
    pub chunk: i32,
    pub microbatch: i32,
    /// 1: no later task of this run adds to this chunk's parameter gradients
    pub last: i32,
    /// what the loss of this microbatch is multiplied by: scale its gradient so. It is 1 / microbatches
    pub loss_weight: f64,
}

/// A rank's stages, computed by the caller. Tensors are CPU tensors in C order of the values'
/// shapes, borrowed for the call, except inputs, which stay as they are until the microbatch's last
/// backward task. Called on the thread that is inside nxd_pp_run.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_pp_stage_callbacks_t {
    pub struct_size: usize,
    pub user_data: *mut c_void,
    /// may be NULL
    pub destroy: nxd_destroy_fn,
    pub forward: Option<unsafe extern "C" fn(*const nxd_pp_call_t, *const *mut DLTensor, *const *mut DLTensor, *mut f64, *mut c_void) -> nxd_status_t>,
    pub backward: Option<unsafe extern "C" fn(*const nxd_pp_call_t, *const *mut DLTensor, *const *mut DLTensor, *const *mut DLTensor, *mut c_void) -> nxd_status_t>,
    pub backward_input: Option<unsafe extern "C" fn(*const nxd_pp_call_t, *const *mut DLTensor, *const *mut DLTensor, *const *mut DLTensor, *mut c_void) -> nxd_status_t>,
    pub backward_weight: Option<unsafe extern "C" fn(*const nxd_pp_call_t, *const *mut DLTensor, *const *mut DLTensor, *mut c_void) -> nxd_status_t>,
}

unsafe impl Versioned for nxd_pp_stage_callbacks_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_pp_stage_callbacks_t {
    fn default() -> Self {
        zeroed::<Self>().with_size()
    }
}

/// Options of nxd_pp_create_callbacks; the same on all ranks of the pipeline.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_pp_callbacks_options_t {
    pub struct_size: usize,
    /// 0: 1
    pub num_microbatches: i32,
    /// chunks of each rank; 0: 1
    pub virtual_size: i32,
    /// of training
    pub schedule: nxd_pp_schedule_kind_t,
    /// 1: every rank gets the mean over data-parallel ranks; 0: the last stage's rank gets its own, others 0
    pub broadcast_and_average_loss: i32,
    /// instead of schedule; NULL: none
    pub custom_schedule: *mut nxd_pp_schedule_t,
}

unsafe impl Versioned for nxd_pp_callbacks_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_pp_callbacks_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_pp_callbacks_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

extern "C" {
    /// [local] Makes one of the library's schedules.
    ///
    /// @param ranks   of the pipeline, at least 1.
    /// @param chunks  of each rank, at least 1.
    /// @return NXD_OK; INVALID_ARGUMENT (a shape that the schedule does not admit: the message names
    /// its needs).
    /// @since 0.1
    pub fn nxd_pp_schedule_create(kind: nxd_pp_schedule_kind_t, ranks: i32, chunks: i32, microbatches: i32, out_schedule: *mut *mut nxd_pp_schedule_t) -> nxd_status_t;

    /// [local] Makes a schedule of the caller's tasks, and verifies it.
    ///
    /// Every stage computes every microbatch once forwards; and, if there are backward tasks at all,
    /// once backwards: in one task, or in an INPUT_GRAD and a later WEIGHT_GRAD. Tasks that
    /// make the input gradients of a chunk come in the order of the microbatches, and so do those that
    /// make its weight gradients: sums over microbatches then have the same bits in every schedule.
    /// Ranks make their tasks in order, send without waiting, and wait for what they receive.
    /// @param tasks   those of rank 0 in the order it makes them, then those of rank 1 and so on.
    /// @param counts  how many each rank has; of length ranks.
    /// @return NXD_OK; INVALID_ARGUMENT names the first task that is missing, doubled or out of range,
    /// or the tasks that would wait for one another for ever.
    /// @since 0.1
    pub fn nxd_pp_schedule_create_tasks(ranks: i32, chunks: i32, microbatches: i32, tasks: *const nxd_pp_task_t, counts: *const usize, out_schedule: *mut *mut nxd_pp_schedule_t) -> nxd_status_t;

    /// [local] The tasks of a rank, in order, by the rule of nxd_layout_get_group.
    /// @since 0.1
    pub fn nxd_pp_schedule_get_tasks(schedule: *mut nxd_pp_schedule_t, rank: i32, tasks: *mut nxd_pp_task_t, cap: usize, out_count: *mut usize) -> nxd_status_t;

    /// [local] Name of a schedule, such as "1F1B"; borrowed from it.
    /// @since 0.1
    pub fn nxd_pp_schedule_get_name(schedule: *mut nxd_pp_schedule_t, out_name: *mut *const c_char) -> nxd_status_t;

    /// [local] Fills costs with defaults.
    /// @since 0.1
    pub fn nxd_pp_costs_init(costs: *mut nxd_pp_costs_t, size: usize) -> nxd_status_t;

    /// [local] Simulates a schedule.
    /// @param costs         NULL: all 1, free transfers.
    /// @param[in,out] out_report  struct_size set by the caller; the rest is filled.
    /// @since 0.1
    pub fn nxd_pp_schedule_get_report(schedule: *mut nxd_pp_schedule_t, costs: *const nxd_pp_costs_t, out_report: *mut nxd_pp_report_t) -> nxd_status_t;

    /// [local] Releases a schedule; pipelines made with it keep what they need.
    /// @since 0.1
    pub fn nxd_pp_schedule_destroy(schedule: *mut nxd_pp_schedule_t);

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_pp_callbacks_options_init(options: *mut nxd_pp_callbacks_options_t, size: usize) -> nxd_status_t;

    /// [collective: the pipeline-parallel group] A pipeline whose stages the caller computes.
    ///
    /// @param inputs   of this rank's chunks one after the other: what comes from the stage before.
    /// Stage 0 has none: its callback reads its data itself. NULL when there are none.
    /// @param outputs  likewise for the stage after, whose inputs they equal in all but names.
    /// @param num_inputs  how many each chunk has; of length virtual_size.
    /// @param num_outputs  likewise; the last stage has none.
    /// @param callbacks  copied; on failure destroy is not called.
    /// @return NXD_OK; INVALID_ARGUMENT (also when neighbours or options do not agree, on all ranks);
    /// INVALID_STATE (model parallel not initialised); UNSUPPORTED (context- or expert-parallel
    /// ranks); TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_pp_create_callbacks(ctx: *mut nxd_context_t, options: *const nxd_pp_callbacks_options_t, inputs: *const nxd_pp_value_t, num_inputs: *const usize, outputs: *const nxd_pp_value_t, num_outputs: *const usize, callbacks: *const nxd_pp_stage_callbacks_t, out_pp: *mut *mut nxd_pp_t) -> nxd_status_t;

    /// [collective: pipeline- and data-parallel groups] One step of a pipeline over callbacks:
    /// forwards and backwards of all microbatches, or, without training, forwards alone.
    ///
    /// The data-parallel group takes part with broadcast_and_average_loss alone.
    ///
    /// Before a message goes, the ranks of the pipeline compare training: where it differs, or one of
    /// them has a bad one, all get INVALID_ARGUMENT, and the next run may begin.
    ///
    /// Gradients of parameters are the caller's, added up over microbatches. Messages go over the
    /// pipeline-parallel group, with tags from 65533 on.
    ///
    /// When a callback fails, all ranks that still have to do with the run fail with its status, and
    /// their messages name its rank, stage and microbatch; with broadcast_and_average_loss the others
    /// get INVALID_ARGUMENT, without it they may have been done. The next run may begin.
    /// @param training  1 or 0, the same on all ranks of the pipeline.
    /// @param[out] out_loss  mean of the microbatches' losses: see broadcast_and_average_loss. NaN
    /// where a callback set none. May be NULL.
    /// @return NXD_OK; a callback's error; INVALID_ARGUMENT (training, on all ranks); INVALID_STATE
    /// (the schedule has no backward tasks, or the stages are modules); TIMEOUT or PEER_LOST:
    /// within the run the message names the task that waited, its stage and microbatch, and
    /// the peer; the group is poisoned, as it is when the interrupt callback ends a wait.
    /// @since 0.1
    pub fn nxd_pp_run(pp: *mut nxd_pp_t, training: i32, out_loss: *mut f64) -> nxd_status_t;

    /// [local] Tells whether this rank has the last stage, and so the losses.
    /// @since 0.1
    pub fn nxd_pp_has_loss(pp: *mut nxd_pp_t, out_has: *mut i32) -> nxd_status_t;

    /// [local] The schedule of training runs; borrowed.
    /// @since 0.1
    pub fn nxd_pp_get_schedule(pp: *mut nxd_pp_t, out_schedule: *mut *mut nxd_pp_schedule_t) -> nxd_status_t;

    /// [local] Bytes of the buffers that the pipeline receives into on this rank: kept from run to
    /// run, and as many as the schedule needs at once.
    /// @since 0.1
    pub fn nxd_pp_get_buffer_bytes(pp: *mut nxd_pp_t, out_bytes: *mut u64) -> nxd_status_t;

    /// [local] Records when tasks, messages and waits begin and end, in all runs from now on (1), or
    /// no longer (0). Starting forgets what was recorded.
    /// @since 0.1
    pub fn nxd_pp_set_timeline(pp: *mut nxd_pp_t, on: i32) -> nxd_status_t;

    /// [collective: world] Writes what all ranks recorded, on rank 0 of the world: as a trace that
    /// chrome://tracing and Perfetto read, and scripts/draw_timeline draws. The path ends in ".json".
    /// Ranks not the first of their tensor- and data-parallel groups have recorded alike and are left
    /// out.
    /// @return NXD_OK; INVALID_ARGUMENT (path); INVALID_STATE (nothing recorded); IO, on all ranks;
    /// TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_pp_write_timeline(pp: *mut nxd_pp_t, path: *const c_char) -> nxd_status_t;

    /// [local] Releases the pipeline. The model, if it has one, stays in parts: its parameters outside
    /// of this rank's stages have no values.
    /// @since 0.1
    pub fn nxd_pp_destroy(pp: *mut nxd_pp_t);
}
