//! Generated from nxd.h by scripts/bindings.

use std::marker::{PhantomData, PhantomPinned};
use std::os::raw::{c_char, c_void};

/// Structs that begin with their own size.
///
/// # Safety
///
/// All bytes zero is a value of such a struct.
pub unsafe trait Versioned: Copy {
    /// The same with the size that this crate knows.
    fn with_size(self) -> Self;
}

fn zeroed<T: Versioned>() -> T {
    // By the contract of Versioned.
    unsafe { std::mem::zeroed() }
}

pub const NXD_ABI_VERSION: u32 = 0;
pub const NXD_VERSION_MAJOR: i32 = 0;
pub const NXD_VERSION_MINOR: i32 = 1;
pub const NXD_VERSION_PATCH: i32 = 0;

/// Outcome of a call. Values never change their meaning.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_status_t(pub i32);

impl nxd_status_t {
    pub const OK: Self = Self(0);
    /// NULL, shape, dtype, size, range, or ranks that disagree
    pub const INVALID_ARGUMENT: Self = Self(-1);
    /// wrong order of calls, after fork, after finalize
    pub const INVALID_STATE: Self = Self(-2);
    /// valid, but not on this device, build or layout
    pub const UNSUPPORTED: Self = Self(-3);
    pub const OUT_OF_MEMORY: Self = Self(-4);
    /// a peer did not answer in time; the group is poisoned
    pub const TIMEOUT: Self = Self(-5);
    /// a peer died or left; the context's groups are poisoned
    pub const PEER_LOST: Self = Self(-6);
    /// nxd_group_abort or nxd_context_abort was called
    pub const ABORTED: Self = Self(-7);
    /// file or network, not a peer of the group
    pub const IO: Self = Self(-8);
    /// a file's content contradicts itself or its checksum
    pub const CORRUPT: Self = Self(-9);
    /// a defect of the library: please report it
    pub const INTERNAL: Self = Self(-10);
    /// a struct from a header this library does not know
    pub const ABI_MISMATCH: Self = Self(-11);
    /// a callback's own failure; passed through unchanged
    pub const USER: Self = Self(-12);
}

impl std::fmt::Debug for nxd_status_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::OK => f.write_str("OK"),
            Self::INVALID_ARGUMENT => f.write_str("INVALID_ARGUMENT"),
            Self::INVALID_STATE => f.write_str("INVALID_STATE"),
            Self::UNSUPPORTED => f.write_str("UNSUPPORTED"),
            Self::OUT_OF_MEMORY => f.write_str("OUT_OF_MEMORY"),
            Self::TIMEOUT => f.write_str("TIMEOUT"),
            Self::PEER_LOST => f.write_str("PEER_LOST"),
            Self::ABORTED => f.write_str("ABORTED"),
            Self::IO => f.write_str("IO"),
            Self::CORRUPT => f.write_str("CORRUPT"),
            Self::INTERNAL => f.write_str("INTERNAL"),
            Self::ABI_MISMATCH => f.write_str("ABI_MISMATCH"),
            Self::USER => f.write_str("USER"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_status_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Element types.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_dtype_t(pub i32);

impl nxd_dtype_t {
    pub const INVALID: Self = Self(-1);
    pub const F32: Self = Self(0);
    pub const F64: Self = Self(1);
    pub const BF16: Self = Self(2);
    pub const F16: Self = Self(3);
    pub const I32: Self = Self(4);
    pub const I64: Self = Self(5);
    pub const U8: Self = Self(6);
    pub const I8: Self = Self(7);
    pub const I16: Self = Self(8);
    pub const BOOL: Self = Self(9);
}

impl std::fmt::Debug for nxd_dtype_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::F32 => f.write_str("F32"),
            Self::F64 => f.write_str("F64"),
            Self::BF16 => f.write_str("BF16"),
            Self::F16 => f.write_str("F16"),
            Self::I32 => f.write_str("I32"),
            Self::I64 => f.write_str("I64"),
            Self::U8 => f.write_str("U8"),
            Self::I8 => f.write_str("I8"),
            Self::I16 => f.write_str("I16"),
            Self::BOOL => f.write_str("BOOL"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_dtype_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Which step this rank's parameters belong to after an optimizer's step.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_parameter_state_t(pub i32);

impl nxd_parameter_state_t {
    pub const INVALID: Self = Self(-1);
    /// no step was concerned
    pub const NONE: Self = Self(0);
    /// all are as before the step
    pub const OLD: Self = Self(1);
    /// all are as after it
    pub const NEW: Self = Self(2);
    /// some of each: of no use until they are loaded again
    pub const TORN: Self = Self(3);
}

impl std::fmt::Debug for nxd_parameter_state_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::NONE => f.write_str("NONE"),
            Self::OLD => f.write_str("OLD"),
            Self::NEW => f.write_str("NEW"),
            Self::TORN => f.write_str("TORN"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_parameter_state_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Severity of log lines; lines below the process-wide level are dropped.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_log_level_t(pub i32);

impl nxd_log_level_t {
    pub const INVALID: Self = Self(-1);
    pub const DEBUG: Self = Self(0);
    pub const INFO: Self = Self(1);
    pub const WARN: Self = Self(2);
    pub const ERROR: Self = Self(3);
    pub const OFF: Self = Self(4);
}

impl std::fmt::Debug for nxd_log_level_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::DEBUG => f.write_str("DEBUG"),
            Self::INFO => f.write_str("INFO"),
            Self::WARN => f.write_str("WARN"),
            Self::ERROR => f.write_str("ERROR"),
            Self::OFF => f.write_str("OFF"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_log_level_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Where a context learns its rank and meets its peers.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_rendezvous_t(pub i32);

impl nxd_rendezvous_t {
    pub const INVALID: Self = Self(-1);
    pub const ENVIRONMENT: Self = Self(0);
    pub const STORE: Self = Self(1);
}

impl std::fmt::Debug for nxd_rendezvous_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::ENVIRONMENT => f.write_str("ENVIRONMENT"),
            Self::STORE => f.write_str("STORE"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_rendezvous_t {
    fn default() -> Self {
        Self(0)
    }
}

/// What carries the data of a group.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_transport_t(pub i32);

impl nxd_transport_t {
    pub const INVALID: Self = Self(-1);
    pub const AUTO: Self = Self(0);
    /// TCP between all ranks
    pub const GLOO: Self = Self(1);
    /// groups that span hosts are refused
    pub const SHARED_MEMORY: Self = Self(2);
    /// shared memory within hosts, Gloo between them
    pub const HIERARCHICAL: Self = Self(3);
}

impl std::fmt::Debug for nxd_transport_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::AUTO => f.write_str("AUTO"),
            Self::GLOO => f.write_str("GLOO"),
            Self::SHARED_MEMORY => f.write_str("SHARED_MEMORY"),
            Self::HIERARCHICAL => f.write_str("HIERARCHICAL"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_transport_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Kind of a device.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_device_t(pub i32);

impl nxd_device_t {
    pub const INVALID: Self = Self(-1);
    pub const CPU: Self = Self(0);
    pub const NEURON: Self = Self(1);
    pub const META: Self = Self(2);
}

impl std::fmt::Debug for nxd_device_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::CPU => f.write_str("CPU"),
            Self::NEURON => f.write_str("NEURON"),
            Self::META => f.write_str("META"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_device_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Axes of the rank layout.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_axis_t(pub i32);

impl nxd_axis_t {
    pub const INVALID: Self = Self(-1);
    pub const WORLD: Self = Self(0);
    pub const TENSOR: Self = Self(1);
    pub const PIPELINE: Self = Self(2);
    pub const DATA: Self = Self(3);
    pub const CONTEXT: Self = Self(4);
    pub const EXPERT_MODEL: Self = Self(5);
    pub const EXPERT_DATA: Self = Self(6);
}

impl std::fmt::Debug for nxd_axis_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::WORLD => f.write_str("WORLD"),
            Self::TENSOR => f.write_str("TENSOR"),
            Self::PIPELINE => f.write_str("PIPELINE"),
            Self::DATA => f.write_str("DATA"),
            Self::CONTEXT => f.write_str("CONTEXT"),
            Self::EXPERT_MODEL => f.write_str("EXPERT_MODEL"),
            Self::EXPERT_DATA => f.write_str("EXPERT_DATA"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_axis_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Hardware whose rank order to follow.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_platform_t(pub i32);

impl nxd_platform_t {
    pub const INVALID: Self = Self(-1);
    /// tensor-parallel ranks adjacent, then context, data, pipeline
    pub const NEUTRAL: Self = Self(0);
    /// as neutral, but tensor groups of 4 are strided within a host
    pub const TRN1: Self = Self(1);
    /// as neutral, but tensor groups of 64 (32 with lnc_size 2) are rings
    pub const TRN2: Self = Self(2);
}

impl std::fmt::Debug for nxd_platform_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::NEUTRAL => f.write_str("NEUTRAL"),
            Self::TRN1 => f.write_str("TRN1"),
            Self::TRN2 => f.write_str("TRN2"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_platform_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Reductions.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_reduce_t(pub i32);

impl nxd_reduce_t {
    pub const INVALID: Self = Self(-1);
    pub const SUM: Self = Self(0);
    /// sum divided by the group's size; floats only
    pub const AVG: Self = Self(1);
    /// NaN wins
    pub const MAX: Self = Self(2);
    /// NaN wins
    pub const MIN: Self = Self(3);
    pub const PROD: Self = Self(4);
}

impl std::fmt::Debug for nxd_reduce_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::SUM => f.write_str("SUM"),
            Self::AVG => f.write_str("AVG"),
            Self::MAX => f.write_str("MAX"),
            Self::MIN => f.write_str("MIN"),
            Self::PROD => f.write_str("PROD"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_reduce_t {
    fn default() -> Self {
        Self(0)
    }
}

/// What the library spends time on while it trains.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_phase_t(pub i32);

impl nxd_phase_t {
    pub const INVALID: Self = Self(-1);
    /// y = x W^T of linear layers
    pub const GEMM_FORWARD: Self = Self(0);
    /// dx = dy W
    pub const GEMM_INPUT_GRADIENT: Self = Self(1);
    /// dW = dy^T x
    pub const GEMM_WEIGHT_GRADIENT: Self = Self(2);
    /// with its products
    pub const ATTENTION: Self = Self(3);
    pub const CROSS_ENTROPY: Self = Self(4);
    /// norms, activations, rotary and other embeddings, casts
    pub const ELEMENTWISE: Self = Self(5);
    /// updates, and norms and scaling of gradients
    pub const OPTIMIZER: Self = Self(6);
    /// collectives and messages, with the wait for other ranks
    pub const COMMUNICATION: Self = Self(7);
}

impl std::fmt::Debug for nxd_phase_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::GEMM_FORWARD => f.write_str("GEMM_FORWARD"),
            Self::GEMM_INPUT_GRADIENT => f.write_str("GEMM_INPUT_GRADIENT"),
            Self::GEMM_WEIGHT_GRADIENT => f.write_str("GEMM_WEIGHT_GRADIENT"),
            Self::ATTENTION => f.write_str("ATTENTION"),
            Self::CROSS_ENTROPY => f.write_str("CROSS_ENTROPY"),
            Self::ELEMENTWISE => f.write_str("ELEMENTWISE"),
            Self::OPTIMIZER => f.write_str("OPTIMIZER"),
            Self::COMMUNICATION => f.write_str("COMMUNICATION"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_phase_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Learning rates over time; all rise linearly from rate / warmup_steps over the warm-up.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_schedule_t(pub i32);

impl nxd_schedule_t {
    pub const INVALID: Self = Self(-1);
    pub const CONSTANT: Self = Self(0);
    /// down to final_factor at total_steps
    pub const LINEAR: Self = Self(1);
    /// the same along half a cosine (Loshchilov and Hutter 2017)
    pub const COSINE: Self = Self(2);
}

impl std::fmt::Debug for nxd_schedule_t {
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

impl Default for nxd_schedule_t {
    fn default() -> Self {
        Self(0)
    }
}

/// How parameters of BF16 are updated, whose spacing is wider than most steps.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_bf16_update_t(pub i32);

impl nxd_bf16_update_t {
    pub const INVALID: Self = Self(-1);
    /// an f32 copy is updated, and rounded to nearest
    pub const MASTER: Self = Self(0);
    /// rounded stochastically; no copy
    pub const STOCHASTIC: Self = Self(1);
    /// rounded to nearest; no copy: small steps are lost
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
    /// ZB-H1: weight gradients fill the bubble, at 1F1B's memory (Qi et al. 2023); one chunk
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

/// What a task computes.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_pp_task_kind_t(pub i32);

impl nxd_pp_task_kind_t {
    pub const INVALID: Self = Self(-1);
    pub const FORWARD: Self = Self(0);
    /// gradients of inputs and of parameters
    pub const BACKWARD: Self = Self(1);
    /// of inputs alone; a WEIGHT_GRADIENT follows
    pub const INPUT_GRADIENT: Self = Self(2);
    pub const WEIGHT_GRADIENT: Self = Self(3);
}

impl std::fmt::Debug for nxd_pp_task_kind_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::FORWARD => f.write_str("FORWARD"),
            Self::BACKWARD => f.write_str("BACKWARD"),
            Self::INPUT_GRADIENT => f.write_str("INPUT_GRADIENT"),
            Self::WEIGHT_GRADIENT => f.write_str("WEIGHT_GRADIENT"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_pp_task_kind_t {
    fn default() -> Self {
        Self(0)
    }
}

/// What the losses of microbatches add up to.
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

/// How a model is cut into stages.
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

/// On, off, or the default that the field's comment names.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_toggle_t(pub i32);

impl nxd_toggle_t {
    pub const INVALID: Self = Self(-1);
    pub const DEFAULT: Self = Self(0);
    pub const ON: Self = Self(1);
    pub const OFF: Self = Self(2);
}

impl std::fmt::Debug for nxd_toggle_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::DEFAULT => f.write_str("DEFAULT"),
            Self::ON => f.write_str("ON"),
            Self::OFF => f.write_str("OFF"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_toggle_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Distribution of initial weights.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_init_t(pub i32);

impl nxd_init_t {
    pub const INVALID: Self = Self(-1);
    /// of the layer: see its comment
    pub const DEFAULT: Self = Self(0);
    /// mean a, standard deviation b
    pub const NORMAL: Self = Self(1);
    /// from a to b
    pub const UNIFORM: Self = Self(2);
    /// a
    pub const CONSTANT: Self = Self(3);
    /// He et al. 2015: bound sqrt(6 / ((1 + a^2) fan_in))
    pub const KAIMING_UNIFORM: Self = Self(4);
}

impl std::fmt::Debug for nxd_init_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::DEFAULT => f.write_str("DEFAULT"),
            Self::NORMAL => f.write_str("NORMAL"),
            Self::UNIFORM => f.write_str("UNIFORM"),
            Self::CONSTANT => f.write_str("CONSTANT"),
            Self::KAIMING_UNIFORM => f.write_str("KAIMING_UNIFORM"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_init_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Ways not to match.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_mismatch_t(pub i32);

impl nxd_mismatch_t {
    pub const INVALID: Self = Self(-1);
    /// a parameter that the file lacks
    pub const MISSING: Self = Self(0);
    /// a tensor that the model lacks
    pub const UNEXPECTED: Self = Self(1);
    /// a tensor of another shape than the parameter's
    pub const SHAPE: Self = Self(2);
}

impl std::fmt::Debug for nxd_mismatch_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::MISSING => f.write_str("MISSING"),
            Self::UNEXPECTED => f.write_str("UNEXPECTED"),
            Self::SHAPE => f.write_str("SHAPE"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_mismatch_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Scaling of rotary frequencies, as in Hugging Face configurations.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_rope_t(pub i32);

impl nxd_rope_t {
    pub const INVALID: Self = Self(-1);
    pub const DEFAULT: Self = Self(0);
    pub const LINEAR: Self = Self(1);
    /// NTK-aware, by the length of the input
    pub const DYNAMIC: Self = Self(2);
    /// Peng et al. 2023
    pub const YARN: Self = Self(3);
    pub const LLAMA3: Self = Self(4);
}

impl std::fmt::Debug for nxd_rope_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::DEFAULT => f.write_str("DEFAULT"),
            Self::LINEAR => f.write_str("LINEAR"),
            Self::DYNAMIC => f.write_str("DYNAMIC"),
            Self::YARN => f.write_str("YARN"),
            Self::LLAMA3 => f.write_str("LLAMA3"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_rope_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Activation of a gated MLP.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_activation_t(pub i32);

impl nxd_activation_t {
    pub const INVALID: Self = Self(-1);
    pub const SILU: Self = Self(0);
    pub const GELU: Self = Self(1);
    pub const GELU_TANH: Self = Self(2);
    pub const RELU: Self = Self(3);
}

impl std::fmt::Debug for nxd_activation_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::SILU => f.write_str("SILU"),
            Self::GELU => f.write_str("GELU"),
            Self::GELU_TANH => f.write_str("GELU_TANH"),
            Self::RELU => f.write_str("RELU"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_activation_t {
    fn default() -> Self {
        Self(0)
    }
}

/// What a loss gives back.
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

/// Key-value store through which ranks find one another.
#[repr(C)]
pub struct nxd_store_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// One rank: its identity, its groups and its failure state. Normally one per process; several on
/// several threads of one process work too.
#[repr(C)]
pub struct nxd_context_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// An ordered set of ranks that communicate.
#[repr(C)]
pub struct nxd_group_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A call that goes on while its caller does other things.
#[repr(C)]
pub struct nxd_work_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Processes started together on this host.
#[repr(C)]
pub struct nxd_job_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Data parallelism over a set of parameters.
#[repr(C)]
pub struct nxd_ddp_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Updates parameters from their gradients.
#[repr(C)]
pub struct nxd_optimizer_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
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

/// Handle on a tensor. Several handles may share one storage.
#[repr(C)]
pub struct nxd_tensor_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// One call of an ATen operator: arguments are set by name, then it runs.
#[repr(C)]
pub struct nxd_op_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

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

/// Node of a model.
#[repr(C)]
pub struct nxd_module_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Parameter of a module, or rather this rank's shard of it.
#[repr(C)]
pub struct nxd_parameter_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// One run of a module that a framework with its own differentiation can go back through.
#[repr(C)]
pub struct nxd_tape_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// What a load did not match.
#[repr(C)]
pub struct nxd_load_report_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Receives log lines, without a newline. Called only on a thread that is inside an nxd call.
pub type nxd_log_fn = Option<
    unsafe extern "C" fn(level: nxd_log_level_t, message: *const c_char, user_data: *mut c_void),
>;

/// Releases a callback's user_data; called exactly once.
pub type nxd_destroy_fn = Option<
    unsafe extern "C" fn(user_data: *mut c_void),
>;

/// Asked every few tens of milliseconds while a call blocks, on the calling thread. Anything but
/// NXD_OK ends the call, which returns that status unchanged. A collective or a message so ended
/// poisons its group, and peers that wait for this rank get PEER_LOST, as they do when
/// nxd_context_create is ended; nxd_work_wait leaves the work as it is.
pub type nxd_interrupt_fn = Option<
    unsafe extern "C" fn(user_data: *mut c_void) -> nxd_status_t,
>;

/// An update rule of the caller's own. A call that fails leaves param and states as they were, so
/// that parameters are OLD after the first of a step, and TORN after a later one.
pub type nxd_update_fn = Option<
    unsafe extern "C" fn(update: *const nxd_update_t, user_data: *mut c_void) -> nxd_status_t,
>;

/// Forward function of a module written by the caller.
///
/// @param inputs   n_inputs borrowed tensors; a NULL stands for an input that was left out.
/// @param outputs  to be filled with n_outputs new handles, which the library takes over, also
/// those filled before the function fails.
pub type nxd_forward_fn = Option<
    unsafe extern "C" fn(this: *mut nxd_module_t, inputs: *const *mut nxd_tensor_t, n_inputs: usize, outputs: *mut *mut nxd_tensor_t, n_outputs: usize, user_data: *mut c_void) -> nxd_status_t,
>;

/// Called when a backward pass has added to the parameter's gradient.
pub type nxd_grad_hook_fn = Option<
    unsafe extern "C" fn(parameter: *mut nxd_parameter_t, user_data: *mut c_void) -> nxd_status_t,
>;

/// A caller's own rule of tracing: whether a module that could be entered is called as a whole.
/// Built-in layers, and modules without children, always are. The same answers on all ranks.
///
/// @param path             from the root; of a module that is in no place of the tree its class.
/// @param[in,out] is_leaf  comes with what leaf_modules and transformer_layer_class say, 0 or 1.
pub type nxd_leaf_fn = Option<
    unsafe extern "C" fn(module: *mut nxd_module_t, path: *const c_char, is_leaf: *mut i32, user_data: *mut c_void) -> nxd_status_t,
>;

/// Gives a parameter on the meta device its first values; name is its path from the root, and
/// tensor this rank's shard, to be filled.
pub type nxd_param_init_fn = Option<
    unsafe extern "C" fn(parameter: *mut nxd_parameter_t, name: *const c_char, tensor: *mut nxd_tensor_t, user_data: *mut c_void) -> nxd_status_t,
>;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLPackVersion {
    pub major: u32,
    pub minor: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLDevice {
    pub device_type: i32,
    pub device_id: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLDataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    pub data: *mut c_void,
    pub device: DLDevice,
    pub ndim: i32,
    pub dtype: DLDataType,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLManagedTensor {
    pub dl_tensor: DLTensor,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLManagedTensorVersioned {
    pub version: DLPackVersion,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    pub flags: u64,
    pub dl_tensor: DLTensor,
}

/// What a failed distributed call was doing. Strings are borrowed like nxd_last_error.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_error_info_t {
    pub struct_size: usize,
    pub status: nxd_status_t,
    /// world rank that was lost or disagreed; -1 when none is to blame
    pub root_rank: i32,
    /// number of the collective in its group, from 0
    pub sequence: u64,
    /// name of the group; "" when no group was involved
    pub group: *const c_char,
    /// such as "all_reduce"; "" when no collective was involved
    pub operation: *const c_char,
    /// of the training step whose end failed; -1 when none did
    pub step: i64,
    /// what that failure has left of this rank's parameters
    pub parameters: nxd_parameter_state_t,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_error_info_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_error_info_t {
    fn default() -> Self {
        zeroed::<Self>().with_size()
    }
}

/// A store of the caller's own. Each callback returns NXD_OK or an error, which passes through.
/// They are called from the thread that is inside the nxd call. What asynchronous work asks of the
/// store is asked by threads that are inside nxd_work_wait, nxd_work_test or another call that
/// waits or uses the store.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_store_callbacks_t {
    pub struct_size: usize,
    pub user_data: *mut c_void,
    /// may be NULL
    pub destroy: nxd_destroy_fn,
    pub set: Option<unsafe extern "C" fn(*const c_char, *const u8, usize, *mut c_void) -> nxd_status_t>,
    pub get: Option<unsafe extern "C" fn(*const c_char, *mut u8, usize, *mut usize, *mut i32, *mut c_void) -> nxd_status_t>,
    pub add: Option<unsafe extern "C" fn(*const c_char, i64, *mut i64, *mut c_void) -> nxd_status_t>,
}

unsafe impl Versioned for nxd_store_callbacks_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_store_callbacks_t {
    fn default() -> Self {
        zeroed::<Self>().with_size()
    }
}

/// Options of nxd_context_create.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_context_options_t {
    pub struct_size: usize,
    pub rendezvous: nxd_rendezvous_t,
    /// with RENDEZVOUS_STORE: 0..size-1
    pub rank: i32,
    /// with RENDEZVOUS_STORE: ranks in the world, at least 1
    pub size: i32,
    /// rank on this host; with RENDEZVOUS_STORE; else the launcher's
    pub local_rank: i32,
    /// with RENDEZVOUS_STORE: required when size > 1; kept alive
    pub store: *mut nxd_store_t,
    /// bound of every collective; 0: NXD_TIMEOUT_MS or 1800000
    pub timeout_ms: i64,
    /// network interface or address; NULL: NXD_SOCKET_IFNAME, or loopback when all ranks share one host
    pub interface_name: *const c_char,
    /// of initial weights and random bits; 0: NXD_SEED or 0
    pub seed: u64,
    /// 1: every layer through plain ATen operators; 0: NXD_PLAIN_KERNELS or off
    pub plain_kernels: i32,
    /// of all groups; AUTO: NXD_TRANSPORT or by topology
    pub transport: nxd_transport_t,
    /// ranks that give the same name share memory; NULL: NXD_HOST_ID, or found out
    pub host_id: *const c_char,
    /// NULL: a blocked call ends by itself or by the timeout
    pub interrupt: nxd_interrupt_fn,
    /// must outlive the context
    pub interrupt_data: *mut c_void,
}

unsafe impl Versioned for nxd_context_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_context_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_context_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// A layout of ranks. Sizes are refused, never clamped: tensor x pipeline x context, and tensor x
/// pipeline x expert, must divide the world. Context- and expert-parallel groups are for a caller's
/// own use: nothing is reduced over them, so with a size above 1 layers, models, their training,
/// pipelines, and ddps over buffers without a group of their own are UNSUPPORTED.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_parallel_options_t {
    pub struct_size: usize,
    /// 0: 1
    pub tensor_parallel_size: i32,
    /// 0: 1
    pub pipeline_parallel_size: i32,
    /// 0: 1
    pub context_parallel_size: i32,
    /// 0: 1
    pub expert_parallel_size: i32,
    pub platform: nxd_platform_t,
    /// logical core configuration, 1 or 2; 0: 1
    pub lnc_size: i32,
    /// ranks per host, for TRN1 and TRN2; 0: the whole world
    pub local_world_size: i32,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_parallel_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_parallel_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_parallel_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_spawn.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_spawn_options_t {
    pub struct_size: usize,
    /// 0: NEURON_NUM_DEVICES, or 1
    pub n_processes: i32,
    /// OMP_NUM_THREADS of each; 0: as inherited, or 1 with more than one process
    pub omp_num_threads: i32,
    /// NULL-terminated program and arguments; NULL: this program, re-executed with its own arguments
    pub argv: *const *const c_char,
}

unsafe impl Versioned for nxd_spawn_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_spawn_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_spawn_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Figures of the pool that tensors are drawn from, and of the contexts' arenas.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_memory_stats_t {
    pub struct_size: usize,
    /// in live tensors
    pub bytes_in_use: u64,
    /// held from the system, live or ready for reuse
    pub bytes_reserved: u64,
    pub peak_bytes_in_use: u64,
    /// since the process started
    pub allocations: u64,
    /// of these, the ones that had to ask the system
    pub system_allocations: u64,
    /// of nxd_memory_set_cap; 0: none
    pub cap_bytes: u64,
    /// of all contexts' arenas: of nxd_arena_alloc, and in tensors that ranks of a host exchange in place
    pub arena_bytes_in_use: u64,
    /// address space of the arenas; pages never used take no memory
    pub arena_bytes_reserved: u64,
}

unsafe impl Versioned for nxd_memory_stats_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_memory_stats_t {
    fn default() -> Self {
        zeroed::<Self>().with_size()
    }
}

/// What nxd_profile_get_phase gives.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_phase_stats_t {
    pub struct_size: usize,
    /// static storage, such as "GEMM forward"
    pub name: *const c_char,
    /// wall time of the threads that called kernels, added up
    pub seconds: f64,
    /// floating-point operations: of GEMMs 2 m n k, of attention those that the mask leaves, without the scores computed again; 0 elsewhere
    pub operations: f64,
    pub calls: u64,
}

unsafe impl Versioned for nxd_phase_stats_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_phase_stats_t {
    fn default() -> Self {
        zeroed::<Self>().with_size()
    }
}

/// A schedule of learning rates. Steps count from 0; after total_steps the factor stays.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_schedule_options_t {
    pub struct_size: usize,
    pub kind: nxd_schedule_t,
    pub reserved: i32,
    pub warmup_steps: i64,
    /// LINEAR and COSINE: more than warmup_steps
    pub total_steps: i64,
    /// of [0, 1]
    pub final_factor: f64,
}

unsafe impl Versioned for nxd_schedule_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_schedule_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_schedule_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_ddp_create and nxd_ddp_create_buffers; the same on all ranks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_ddp_options_t {
    pub struct_size: usize,
    /// 0: 25 MiB; a parameter that is larger has a bucket of its own
    pub bucket_bytes: i64,
    /// SUM or AVG over the group
    pub reduce: nxd_reduce_t,
    /// 0, or 1: state is sharded over the group
    pub zero_stage: i32,
    /// 1: gradients of BF16 parameters of a module are accumulated and reduced in f32
    pub fp32_gradients: i32,
    /// 1: buckets are reduced when gradients are finished, not before
    pub no_overlap: i32,
    /// 1: parameters are alike already; else the first rank's are sent
    pub no_broadcast: i32,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_ddp_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_ddp_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_ddp_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// How gradients are completed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_finish_options_t {
    pub struct_size: usize,
    /// factor on all gradients before the norm, within F32; 0: 1
    pub scale: f64,
    /// gradients are scaled to this norm when theirs exceeds it; 0: no clipping
    pub max_norm: f64,
    /// 0: 2; 1 and infinity too
    pub norm_type: f64,
    /// SUM or AVG over data-parallel ranks; a ddp's own option counts where there is one
    pub data_parallel_reduce: nxd_reduce_t,
    /// 1: a norm that is not finite is no reason to stop
    pub skip_nonfinite_check: i32,
}

unsafe impl Versioned for nxd_finish_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_finish_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_finish_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_adamw_create.
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

/// Options of nxd_sgd_create: torch.optim.SGD.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_sgd_options_t {
    pub struct_size: usize,
    /// 0: 1e-3
    pub learning_rate: f64,
    /// of [0, 1)
    pub momentum: f64,
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

/// What a caller's update works on: a run of elements of one parameter. With ZeRO a parameter may
/// be cut anywhere, so an update treats each element by itself. Valid during the call.
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
    /// of param and states: F32 or F64; BF16 for bf16_update NEAREST
    pub dtype: nxd_dtype_t,
    pub grad_dtype: nxd_dtype_t,
    pub param: *mut c_void,
    pub grad: *const c_void,
    /// the gradient is to be multiplied by this first
    pub grad_scale: f64,
    /// state_count arrays, F32 or F64, zeros at the first update
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

/// Options of nxd_custom_optimizer_create.
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
    pub state_count: i32,
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

/// What a step did.
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

/// What becomes of a schedule under given costs.
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
    pub reserved: i32,
}

/// Where a stage's callback is called for.
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
    /// what the loss of this microbatch is multiplied by: scale its gradient so
    pub loss_weight: f64,
}

/// A rank's stages, computed by the caller. Tensors are CPU tensors in C order of the values'
/// shapes, borrowed for the call, except inputs, which stay as they are until the microbatch's last
/// backward task. Called on the thread that is inside nxd_pp_run_train or nxd_pp_run_eval.
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
    /// at least 1
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

/// Sizes of a decoder that predicts the next token. nxd_plan_model_from_config fills it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_plan_model_t {
    pub struct_size: usize,
    pub hidden_size: i64,
    /// at most 1024
    pub num_layers: i64,
    pub num_heads: i64,
    /// 0: num_heads
    pub num_kv_heads: i64,
    /// 0: hidden_size / num_heads
    pub head_dim: i64,
    pub intermediate_size: i64,
    pub vocab_size: i64,
    /// rows of a table of positions that is learned; 0: there is none
    pub max_positions: i64,
    /// 1: three matrices, as Llama's; 0: two, as GPT-2's
    pub gated_mlp: i32,
    pub attention_bias: i32,
    pub mlp_bias: i32,
    /// 1: layers of that sort have biases
    pub norm_bias: i32,
    /// 1: the head's weight is the embedding's
    pub tied_embeddings: i32,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_plan_model_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_plan_model_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_plan_model_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Figures of a machine, for each rank while all ranks are at it. Floating-point operations and
/// bytes are per second, latencies in seconds. The defaults are round figures of one core of a
/// small host: good to compare layouts, not to foretell a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_plan_machine_t {
    pub struct_size: usize,
    /// 0: all ranks are on one host
    pub ranks_per_host: i32,
    pub reserved: i32,
    /// of a rank, for what is predicted; 0: no bound
    pub memory_bytes: u64,
    /// of nxd_measure_gemm_peak; 0: 100e9
    pub gemm_flops_f32: f64,
    /// 0: 200e9
    pub gemm_flops_bf16: f64,
    /// of these, what attention's products reach; 0: 0.59
    pub attention_share_f32: f64,
    /// 0: 0.5
    pub attention_share_bf16: f64,
    /// read and written, of arrays that fit no cache; 0: 20e9
    pub memory_bandwidth: f64,
    /// received from ranks of the same host; 0: 20e9
    pub host_bandwidth: f64,
    /// 0: 1e-6
    pub host_latency: f64,
    /// of a host to all others, in one direction; 0: 1.25e9
    pub link_bandwidth: f64,
    /// 0: 50e-6
    pub link_latency: f64,
}

unsafe impl Versioned for nxd_plan_machine_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_plan_machine_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_plan_machine_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// How a model would be trained with AdamW.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_plan_layout_t {
    pub struct_size: usize,
    /// 0: 1
    pub tensor_parallel_size: i32,
    /// 0: 1
    pub pipeline_parallel_size: i32,
    /// 0: 1
    pub data_parallel_size: i32,
    /// chunks of each rank; 0: 1
    pub virtual_size: i32,
    /// not INFERENCE
    pub schedule: nxd_pp_schedule_kind_t,
    /// of each data-parallel rank; 0: 1
    pub num_microbatches: i32,
    /// sequences; 0: 1
    pub microbatch_size: i32,
    /// tokens; at least 1
    pub sequence_length: i32,
    /// of parameters: F32, or BF16 with F32 masters
    pub dtype: nxd_dtype_t,
    /// 0 or 1
    pub zero_stage: i32,
    /// 1: sequence_length divides by tensor_parallel_size
    pub sequence_parallel: i32,
    /// 1: every layer keeps its input alone
    pub recompute: i32,
    /// DEFAULT: EVEN
    pub partition: nxd_pp_partition_t,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_plan_layout_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_plan_layout_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_plan_layout_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// What a layout would cost. Times are seconds of one step.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_plan_prediction_t {
    pub struct_size: usize,
    pub step_seconds: f64,
    /// of all ranks
    pub tokens_per_second: f64,
    /// of the ranks' GEMM peaks, by the operations of nxd_model_get_step_flops
    pub gemm_share: f64,
    /// of the pipeline, by nxd_pp_schedule_get_report
    pub bubble_share: f64,
    /// until the last rank has made its last task
    pub pipeline_seconds: f64,
    /// of the world; the first of those that are alike
    pub busiest_rank: i32,
    /// 1: total_bytes is at most the machine's memory_bytes
    pub fits: i32,
    pub gemm_seconds: f64,
    pub attention_seconds: f64,
    pub elementwise_seconds: f64,
    /// collectives of layers
    pub tensor_parallel_seconds: f64,
    /// one value or gradient to the next stage, the slowest
    pub transfer_seconds: f64,
    /// reduction of gradients and gathering of parameters
    pub data_parallel_seconds: f64,
    /// of these, those in which nothing else is done
    pub exposed_seconds: f64,
    pub optimizer_seconds: f64,
    pub fullest_rank: i32,
    pub reserved: i32,
    pub parameter_bytes: u64,
    pub gradient_bytes: u64,
    pub optimizer_bytes: u64,
    pub activation_bytes: u64,
    /// received values, sums under way, gradients of activations
    pub buffer_bytes: u64,
    pub total_bytes: u64,
}

unsafe impl Versioned for nxd_plan_prediction_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_plan_prediction_t {
    fn default() -> Self {
        zeroed::<Self>().with_size()
    }
}

/// What nxd_plan_search looks for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_plan_search_options_t {
    pub struct_size: usize,
    /// 1 to 65536 ranks
    pub world_size: i32,
    /// tokens
    pub sequence_length: i32,
    /// sequences of a step, of all ranks together
    pub batch_size: i64,
    /// F32 or BF16
    pub dtype: nxd_dtype_t,
    /// 0: 4
    pub max_virtual_size: i32,
}

unsafe impl Versioned for nxd_plan_search_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_plan_search_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_plan_search_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Callbacks of a custom function. Inputs are borrowed, and outside of the recorded graph. Outputs
/// are new handles that the library takes over, also those filled before the callback fails; a
/// borrowed handle goes out by nxd_tensor_retain. Inside the callbacks nothing is recorded.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_function_options_t {
    pub struct_size: usize,
    /// stable and unique, such as "mylib::swish"
    pub name: *const c_char,
    /// 0: 1
    pub n_outputs: usize,
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

/// How a parameter of the caller's is sharded and initialised.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_parameter_options_t {
    pub struct_size: usize,
    /// F32 (0), F64 or BF16
    pub dtype: nxd_dtype_t,
    /// 0: replicated; d + 1: dimension d is split over tensor-parallel ranks
    pub shard_dim_plus_one: i32,
    /// 1: its gradient is partial per tensor-parallel rank and summed
    pub sequence_parallel: i32,
    /// DEFAULT: zeros
    pub init: nxd_init_t,
    pub init_a: f64,
    pub init_b: f64,
    /// META: without values until nxd_move_model_to_device or nxd_pp_create
    pub device: nxd_device_t,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_parameter_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_parameter_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_parameter_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_parallel_embedding_create.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_embedding_options_t {
    pub struct_size: usize,
    /// canonical name of the layer for its initial weights; NULL: ""
    pub name: *const c_char,
    /// of the weight: F32 (0), F64, BF16
    pub dtype: nxd_dtype_t,
    pub device: nxd_device_t,
    /// DEFAULT: normal(0, 1)
    pub init: nxd_init_t,
    /// 1: padding_idx gets no gradient, and starts as zeros
    pub has_padding_idx: i32,
    pub init_a: f64,
    pub init_b: f64,
    pub padding_idx: i64,
    /// 1: embedding_dim is split instead of the vocabulary
    pub shard_across_embedding: i32,
    /// 1: the output is scattered along sequence_dim
    pub sequence_parallel: i32,
    /// of the output
    pub sequence_dim: i32,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_embedding_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_embedding_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_embedding_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of the two parallel linear layers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_linear_options_t {
    pub struct_size: usize,
    /// canonical name of the layer for its initial weights; NULL: ""
    pub name: *const c_char,
    /// of weight and bias: F32 (0), F64, BF16
    pub dtype: nxd_dtype_t,
    pub device: nxd_device_t,
    /// default on
    pub bias: nxd_toggle_t,
    /// column only; default on, off with sequence_parallel
    pub gather_output: nxd_toggle_t,
    /// row only; default on; off: the partial sums are the output
    pub reduce_output: nxd_toggle_t,
    /// row only; 1: the input is split along its last dimension already
    pub input_is_parallel: i32,
    pub sequence_parallel: i32,
    pub sequence_dim: i32,
    /// 1: a second output gives the bias, which is not added
    pub skip_bias_add: i32,
    /// 1: nxd_module_get_master_weight gives the whole initial weight
    pub keep_master_weight: i32,
    /// 0: 1; blocks per rank of the split dimension, for fused weights
    pub stride: i32,
    /// DEFAULT: uniform(-1/sqrt(in), 1/sqrt(in)), the bias too
    pub init: nxd_init_t,
    pub init_a: f64,
    pub init_b: f64,
}

unsafe impl Versioned for nxd_linear_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_linear_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_linear_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of the norms.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_norm_options_t {
    pub struct_size: usize,
    pub name: *const c_char,
    pub dtype: nxd_dtype_t,
    pub device: nxd_device_t,
    /// 0: 1e-5
    pub eps: f64,
    /// default on: a weight (and a bias, LayerNorm)
    pub affine: nxd_toggle_t,
    /// LayerNorm only; default on
    pub bias: nxd_toggle_t,
    /// 1: inputs are slices, and the gradients of its parameters partial
    pub sequence_parallel: i32,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_norm_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_norm_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_norm_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Rotary position embedding (Su et al. 2021): pairs are the two halves of a head.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_rope_options_t {
    pub struct_size: usize,
    pub r#type: nxd_rope_t,
    /// leading features that turn; 0: the whole head
    pub rotary_dim: i32,
    /// 0: 10000
    pub theta: f64,
    /// of LINEAR, DYNAMIC, YARN and LLAMA3; 0: 1
    pub factor: f64,
    /// LLAMA3; 0: 1
    pub low_freq_factor: f64,
    /// LLAMA3; 0: 4
    pub high_freq_factor: f64,
    /// YARN; 0: 32
    pub beta_fast: f64,
    /// YARN; 0: 1
    pub beta_slow: f64,
    /// YARN; 0: 0.1 ln(factor) + 1
    pub attention_factor: f64,
    /// DYNAMIC, YARN, LLAMA3
    pub original_max_position_embeddings: i64,
}

unsafe impl Versioned for nxd_rope_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_rope_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_rope_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_attention_create.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_attention_options_t {
    pub struct_size: usize,
    pub name: *const c_char,
    pub dtype: nxd_dtype_t,
    pub device: nxd_device_t,
    /// 0: n_heads
    pub n_kv_heads: i64,
    /// 0: hidden / n_heads
    pub head_dim: i64,
    /// NULL: no rotary embedding; copied
    pub rope: *const nxd_rope_options_t,
    /// default on
    pub causal: nxd_toggle_t,
    /// default off
    pub qkv_bias: nxd_toggle_t,
    /// default off
    pub output_bias: nxd_toggle_t,
    pub sequence_parallel: i32,
    /// DEFAULT: as the linear layers
    pub init: nxd_init_t,
    pub reserved: i32,
    pub init_a: f64,
    pub init_b: f64,
}

unsafe impl Versioned for nxd_attention_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_attention_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_attention_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_gated_mlp_create.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_mlp_options_t {
    pub struct_size: usize,
    pub name: *const c_char,
    pub dtype: nxd_dtype_t,
    pub device: nxd_device_t,
    pub activation: nxd_activation_t,
    /// default off
    pub bias: nxd_toggle_t,
    /// 1: x is a slice of dimension 0
    pub sequence_parallel: i32,
    /// DEFAULT: as the linear layers
    pub init: nxd_init_t,
    pub init_a: f64,
    pub init_b: f64,
}

unsafe impl Versioned for nxd_mlp_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_mlp_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_mlp_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

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

/// Options of nxd_model_create.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_model_options_t {
    pub struct_size: usize,
    /// of the parameters: F32 (0), F64, BF16
    pub dtype: nxd_dtype_t,
    pub device: nxd_device_t,
    /// 1: norms and residuals on slices of the sequence
    pub sequence_parallel: i32,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_model_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_model_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_model_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_pp_create; the same on all ranks. Strings and lists are copied.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_pp_options_t {
    pub struct_size: usize,
    /// 0: 1; divides the batch, dimension 0 of every input
    pub num_microbatches: i32,
    /// virtual_pipeline_size, chunks of each rank; 0: 1
    pub virtual_size: i32,
    /// of training
    pub schedule: nxd_pp_schedule_kind_t,
    pub partition: nxd_pp_partition_t,
    /// instead of schedule; NULL: none
    pub custom_schedule: *mut nxd_pp_schedule_t,
    /// a leaf, and what EVEN and COST count in; NULL: that of a built-in model
    pub transformer_layer_class: *const c_char,
    /// paths of modules, each the last of its stage
    pub pipeline_cuts: *const *const c_char,
    pub n_cuts: usize,
    /// more leaves, by class name or by path
    pub leaf_modules: *const *const c_char,
    pub n_leaf_modules: usize,
    /// of the model's inputs; NULL: a built-in model's own, else "input_0" and so on
    pub input_names: *const *const c_char,
    pub n_input_names: usize,
    /// of the model's forward; 0: 1
    pub n_outputs: i32,
    /// which of them is the loss: a scalar
    pub loss_output: i32,
    pub loss: nxd_pp_loss_t,
    /// with TOKENS: which input has the labels; 0: the one named "labels"
    pub labels_input: i32,
    /// with TOKENS: of labels that do not count; 0: -100
    pub ignore_index: i64,
    /// with TOKENS: 1: labels are used as they are; 0: the first label of a row predicts nothing
    pub labels_shifted: i32,
    /// 1: every rank gets the loss of all data-parallel ranks; not with return_mb_loss
    pub broadcast_and_average_loss: i32,
    /// 1: losses of microbatches: nxd_pp_get_losses
    pub return_mb_loss: i32,
    /// 1: a stage's outputs are kept until their backward; 0: let go once sent (deallocate_pipeline_outputs)
    pub keep_outputs: i32,
    /// for parameters on the meta device; NULL: the built-in initialisers, by seed and name
    pub param_init: nxd_param_init_fn,
    pub param_init_data: *mut c_void,
    /// the graph as text, or as DOT if it ends in ".dot"; written on rank 0; NULL: not
    pub trace_file_path: *const c_char,
    /// NULL: leaves are those named above
    pub leaf_rule: nxd_leaf_fn,
    /// used as long as the pipeline lives
    pub leaf_rule_data: *mut c_void,
}

unsafe impl Versioned for nxd_pp_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_pp_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_pp_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

extern "C" {
    /// ABI number of the loaded library: bindings compare it with NXD_ABI_VERSION first.  [local]
    /// @since 0.1
    pub fn nxd_abi_version() -> u32;

    /// Release of the loaded library, such as "0.1.0"; static storage.  [local]
    /// @since 0.1
    pub fn nxd_version() -> *const c_char;

    /// Name of a status code, such as "INVALID_ARGUMENT"; "UNKNOWN" for other values.  [local]
    /// @since 0.1
    pub fn nxd_status_string(status: nxd_status_t) -> *const c_char;

    /// Message of this thread's last failed call; "" when none failed yet, never NULL.  [local]
    ///
    /// Borrowed: valid until the next nxd call on this thread. A successful call leaves it as it is.
    /// @since 0.1
    pub fn nxd_last_error() -> *const c_char;

    /// Copies this thread's last error message into buf, cut to cap - 1 bytes and terminated.  [local]
    ///
    /// @param buf  may be NULL when cap is 0.
    /// @return bytes needed for the whole message and its terminator.
    /// @since 0.1
    pub fn nxd_last_error_copy(buf: *mut c_char, cap: usize) -> usize;

    /// Structured form of this thread's last error.  [local]
    ///
    /// @param[in,out] out_info  struct_size set by the caller; the rest is filled.
    /// @return NXD_OK; INVALID_ARGUMENT (NULL); ABI_MISMATCH (struct_size).
    /// @since 0.1
    pub fn nxd_last_error_info(out_info: *mut nxd_error_info_t) -> nxd_status_t;

    /// Destroys what a Python capsule of a DLPack tensor holds, unless a consumer took it over: give
    /// this function's address to PyCapsule_New.  [local]
    ///
    /// A destructor in C, since one that runs Python would disturb the error that a consumer has just
    /// raised when it refused the tensor. Does nothing in a process without a Python interpreter.
    /// @param capsule  a PyObject, named "dltensor" or "dltensor_versioned" until it is consumed.
    /// @since 0.1
    pub fn nxd_python_capsule_destroy(capsule: *mut c_void);

    /// Replaces the process-wide log callback; NULL restores the default, lines on stderr.  [local]
    ///
    /// @param user_data  kept until the callback is replaced; then destroy(user_data) is called if
    /// destroy is not NULL.
    /// @since 0.1
    pub fn nxd_set_log_callback(callback: nxd_log_fn, user_data: *mut c_void, destroy: nxd_destroy_fn) -> nxd_status_t;

    /// Sets the process-wide log level; the default is NXD_LOG_LEVEL or WARN.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (level).
    /// @since 0.1
    pub fn nxd_set_log_level(level: nxd_log_level_t) -> nxd_status_t;

    /// Versions of the library, its compiler, libtorch, Gloo and oneDNN as a JSON object.  [local]
    ///
    /// Static storage.
    /// @since 0.1
    pub fn nxd_build_info() -> *const c_char;

    /// Every environment variable the library reads, one per line: name, default, meaning.  [local]
    ///
    /// Static storage.
    /// @since 0.1
    pub fn nxd_environment_table() -> *const c_char;

    /// Store of the ranks that live on threads of this process.  [local]
    ///
    /// @param[out] out_store  shared by the threads; the caller destroys it.
    /// @since 0.1
    pub fn nxd_store_create_local(out_store: *mut *mut nxd_store_t) -> nxd_status_t;

    /// Store in a file that all ranks of this host or shared file system can write.  [local]
    ///
    /// @param path  created when absent, and left in place by destroy. The path must be fresh for each
    /// job: keys of an earlier job are refused by nxd_context_create.
    /// @return NXD_OK; INVALID_ARGUMENT; IO (cannot create or lock the file).
    /// @since 0.1
    pub fn nxd_store_create_file(path: *const c_char, out_store: *mut *mut nxd_store_t) -> nxd_status_t;

    /// Store served over TCP by one rank; speaks the protocol of torch's TCPStore.  [local, blocking:
    /// until the server answers or timeout_ms has passed]
    ///
    /// @param host        name or address of the server.
    /// @param port        1..65535; for the server 0 picks a free port, see nxd_store_get_port.
    /// @param is_server   1: serve in this process and connect to it; 0: connect.
    /// @param timeout_ms  0: 300000. Also bounds each later get and wait.
    /// @return NXD_OK; INVALID_ARGUMENT; IO (port in use, name not found); TIMEOUT (no server).
    /// @since 0.1
    pub fn nxd_store_create_tcp(host: *const c_char, port: i32, is_server: i32, timeout_ms: i64, out_store: *mut *mut nxd_store_t) -> nxd_status_t;

    /// Store over the caller's callbacks, which are copied; set, get and add are required.  [local]
    ///
    /// On failure destroy is not called: user_data stays the caller's.
    /// @return NXD_OK; INVALID_ARGUMENT (a callback is NULL); ABI_MISMATCH.
    /// @since 0.1
    pub fn nxd_store_create_callbacks(callbacks: *const nxd_store_callbacks_t, out_store: *mut *mut nxd_store_t) -> nxd_status_t;

    /// Port the store's server listens on, for stores made by nxd_store_create_tcp.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (not a TCP store).
    /// @since 0.1
    pub fn nxd_store_get_port(store: *mut nxd_store_t, out_port: *mut i32) -> nxd_status_t;

    /// Stores a copy of the value under the key.  [local]
    /// @param value  size bytes; may be NULL when size is 0.
    /// @since 0.1
    pub fn nxd_store_set(store: *mut nxd_store_t, key: *const c_char, value: *const c_void, size: usize) -> nxd_status_t;

    /// Waits for the key and copies its value.  [local, blocking: until the key is set]
    ///
    /// @param timeout_ms   0 asks once and does not wait.
    /// @param[out] out_size  bytes of the value, also when cap is too small.
    /// @return NXD_OK; INVALID_ARGUMENT (cap too small: nothing is copied); TIMEOUT (key absent).
    /// @since 0.1
    pub fn nxd_store_get(store: *mut nxd_store_t, key: *const c_char, timeout_ms: i64, buf: *mut c_void, cap: usize, out_size: *mut usize) -> nxd_status_t;

    /// Adds to an integer key that starts at 0, atomically.  [local]
    /// @since 0.1
    pub fn nxd_store_add(store: *mut nxd_store_t, key: *const c_char, amount: i64, out_value: *mut i64) -> nxd_status_t;

    /// Releases the store; contexts made from it keep what they need.  [local]
    /// @since 0.1
    pub fn nxd_store_destroy(store: *mut nxd_store_t);

    /// Fills options with defaults.  [local]
    /// @param size  sizeof(nxd_context_options_t) as the caller's header has it.
    /// @return NXD_OK; INVALID_ARGUMENT (NULL); ABI_MISMATCH (size).
    /// @since 0.1
    pub fn nxd_context_options_init(options: *mut nxd_context_options_t, size: usize) -> nxd_status_t;

    /// Joins the world: every rank meets every other.  [collective: world]
    ///
    /// @param options      NULL: from the environment.
    /// @param[out] out_ctx the caller destroys it.
    /// @return NXD_OK; INVALID_ARGUMENT (rank, size, address); TIMEOUT (a rank did not come, its number
    /// is in the message); IO.
    /// @since 0.1
    pub fn nxd_context_create(options: *const nxd_context_options_t, out_ctx: *mut *mut nxd_context_t) -> nxd_status_t;

    /// Leaves in agreement: waits for this rank's works and for all ranks, then disconnects.
    /// [collective: world]
    ///
    /// Afterwards only getters and destroy work on the context.
    /// @return NXD_OK; TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_context_finalize(ctx: *mut nxd_context_t) -> nxd_status_t;

    /// Leaves now; peers that wait for this rank get PEER_LOST.  [local]
    ///
    /// Works still pending on its groups end with ABORTED first; their buffers are then the caller's.
    /// @since 0.1
    pub fn nxd_context_destroy(ctx: *mut nxd_context_t);

    /// Makes every pending and later collective of this context return ABORTED; idempotent, from any
    /// thread.  [local]
    /// @since 0.1
    pub fn nxd_context_abort(ctx: *mut nxd_context_t) -> nxd_status_t;

    /// The last 64 collectives and 64 messages of each living group as one line of JSON: what each was
    /// called with, when it started, how long it took or has been waiting, and for whom.  [local]
    ///
    /// For the question what every rank was doing when nothing moves any more. May be asked from any
    /// thread, also while calls block on others. With NXD_FLIGHT_RECORD set, a group that fails adds
    /// its part to a file by itself.
    ///
    /// @param buf  room for cap bytes; may be NULL when cap is 0.
    /// @param[out] out_needed  bytes with the terminator. When they exceed cap nothing is copied, and a
    /// cap other than 0 is INVALID_ARGUMENT. The record may have grown by the
    /// next call: leave some room.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (after fork).
    /// @since 0.1
    pub fn nxd_context_get_flight_record(ctx: *mut nxd_context_t, buf: *mut c_char, cap: usize, out_needed: *mut usize) -> nxd_status_t;

    /// Rank of this context in the world.  [local]
    /// @since 0.1
    pub fn nxd_context_get_rank(ctx: *mut nxd_context_t, out_rank: *mut i32) -> nxd_status_t;

    /// Number of ranks in the world.  [local]
    /// @since 0.1
    pub fn nxd_context_get_size(ctx: *mut nxd_context_t, out_size: *mut i32) -> nxd_status_t;

    /// Rank among the ranks of this host.  [local]
    /// @since 0.1
    pub fn nxd_context_get_local_rank(ctx: *mut nxd_context_t, out_rank: *mut i32) -> nxd_status_t;

    /// Group of all ranks; borrowed from the context.  [local]
    /// @since 0.1
    pub fn nxd_context_get_world_group(ctx: *mut nxd_context_t, out_group: *mut *mut nxd_group_t) -> nxd_status_t;

    /// Switches every layer made from this context between fused kernels (0) and plain ATen operators
    /// (1).  [local]
    ///
    /// All ranks should agree. f64 always takes the plain path.
    /// @since 0.1
    pub fn nxd_context_set_plain_kernels(ctx: *mut nxd_context_t, plain: i32) -> nxd_status_t;

    /// Whether layers run through plain ATen operators.  [local]
    /// @since 0.1
    pub fn nxd_context_get_plain_kernels(ctx: *mut nxd_context_t, out_plain: *mut i32) -> nxd_status_t;

    /// Sets the training step and microbatch that random bits are drawn for; both start at 0.  [local]
    ///
    /// All ranks of a model set the same values. nxd_optimizer_step advances the step by one and sets
    /// the microbatch to 0.
    /// @return NXD_OK; INVALID_ARGUMENT (negative).
    /// @since 0.1
    pub fn nxd_context_set_step(ctx: *mut nxd_context_t, step: i64, microbatch: i64) -> nxd_status_t;

    /// 1 when NXD_CPU_MODE asks for eager execution on the CPU.  [local]
    /// @since 0.1
    pub fn nxd_cpu_mode() -> i32;

    /// Device this process trains on: the CPU with NXD_CPU_MODE=1, else a Neuron device.  [local]
    ///
    /// @return NXD_OK; UNSUPPORTED when NXD_CPU_MODE is not 1 and no Neuron plug-in is found; the
    /// message lists what was looked for.
    /// @since 0.1
    pub fn nxd_get_device(out_device: *mut nxd_device_t) -> nxd_status_t;

    /// Writes text and a newline to stdout on world rank 0; does nothing elsewhere.  [local]
    /// @since 0.1
    pub fn nxd_master_print(ctx: *mut nxd_context_t, text: *const c_char) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_parallel_options_init(options: *mut nxd_parallel_options_t, size: usize) -> nxd_status_t;

    /// Number of groups along an axis of a layout; no context needed.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (sizes that do not divide); UNSUPPORTED (platform and layout).
    /// @since 0.1
    pub fn nxd_layout_get_group_count(options: *const nxd_parallel_options_t, world_size: i32, axis: nxd_axis_t, out_count: *mut i32) -> nxd_status_t;

    /// Ranks of one group of a layout, in group order; no context needed.  [local]
    ///
    /// @param index   0..count-1, in the order of the lists NxD Core prints.
    /// @param ranks   room for cap ranks; may be NULL when cap is 0.
    /// @param[out] out_size  ranks in the group. When it exceeds cap nothing is copied, and a cap
    /// other than 0 is INVALID_ARGUMENT.
    /// @since 0.1
    pub fn nxd_layout_get_group(options: *const nxd_parallel_options_t, world_size: i32, axis: nxd_axis_t, index: i32, ranks: *mut i32, cap: usize, out_size: *mut usize) -> nxd_status_t;

    /// Group that a rank belongs to, and its place in it; no context needed.  [local]
    /// @since 0.1
    pub fn nxd_layout_find_rank(options: *const nxd_parallel_options_t, world_size: i32, axis: nxd_axis_t, rank: i32, out_group_index: *mut i32, out_rank_in_group: *mut i32) -> nxd_status_t;

    /// Lays out the context's world and makes its groups.  [collective: world]
    ///
    /// @param options  NULL: one tensor- and pipeline-parallel rank, all others data parallel.
    /// @return NXD_OK; INVALID_ARGUMENT (sizes, or ranks that disagree about them); INVALID_STATE
    /// (initialised already); TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_init_model_parallel(ctx: *mut nxd_context_t, options: *const nxd_parallel_options_t) -> nxd_status_t;

    /// Forgets the layout, so that nxd_init_model_parallel may be called again.  [local]
    ///
    /// Modules made under the old layout keep their groups.
    /// @return NXD_OK; INVALID_STATE (not initialised).
    /// @since 0.1
    pub fn nxd_destroy_model_parallel(ctx: *mut nxd_context_t) -> nxd_status_t;

    /// 1 between nxd_init_model_parallel and nxd_destroy_model_parallel; 0 for NULL.  [local]
    /// @since 0.1
    pub fn nxd_model_parallel_is_initialized(ctx: *mut nxd_context_t) -> i32;

    /// Ranks in this rank's group along an axis.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (axis); INVALID_STATE (not initialised).
    /// @since 0.1
    pub fn nxd_parallel_get_size(ctx: *mut nxd_context_t, axis: nxd_axis_t, out_size: *mut i32) -> nxd_status_t;

    /// This rank's place in its group along an axis.  [local]
    /// @since 0.1
    pub fn nxd_parallel_get_rank(ctx: *mut nxd_context_t, axis: nxd_axis_t, out_rank: *mut i32) -> nxd_status_t;

    /// World rank of the first member of this rank's group along an axis.  [local]
    /// @since 0.1
    pub fn nxd_parallel_get_source_rank(ctx: *mut nxd_context_t, axis: nxd_axis_t, out_rank: *mut i32) -> nxd_status_t;

    /// This rank's group along an axis; borrowed from the context until the layout is destroyed.
    /// [local]
    /// @since 0.1
    pub fn nxd_parallel_get_group(ctx: *mut nxd_context_t, axis: nxd_axis_t, out_group: *mut *mut nxd_group_t) -> nxd_status_t;

    /// All groups along an axis: their number, and the ranks of one by index.  [local]
    ///
    /// @param index  0..count-1; the ranks come as from nxd_layout_get_group.
    /// @since 0.1
    pub fn nxd_parallel_get_group_list(ctx: *mut nxd_context_t, axis: nxd_axis_t, index: i32, ranks: *mut i32, cap: usize, out_size: *mut usize, out_count: *mut i32) -> nxd_status_t;

    /// World rank of the next pipeline stage; the last stage's next is the first.  [local]
    /// @since 0.1
    pub fn nxd_pipeline_get_next_rank(ctx: *mut nxd_context_t, out_rank: *mut i32) -> nxd_status_t;

    /// World rank of the previous pipeline stage; the first stage's previous is the last.  [local]
    /// @since 0.1
    pub fn nxd_pipeline_get_previous_rank(ctx: *mut nxd_context_t, out_rank: *mut i32) -> nxd_status_t;

    /// Makes a group of some of the world's ranks.  [collective: the listed ranks]
    ///
    /// @param ranks  world ranks in group order, each once, this rank among them; the same list in the
    /// same order on every member. Members make groups in the same order.
    /// @param name   part of messages; NULL: "group".
    /// @param[out] out_group  the caller destroys it.
    /// @since 0.1
    pub fn nxd_group_create(ctx: *mut nxd_context_t, ranks: *const i32, n_ranks: usize, name: *const c_char, out_group: *mut *mut nxd_group_t) -> nxd_status_t;

    /// Releases a group made by nxd_group_create; borrowed groups are left alone.  [local]
    ///
    /// Works still pending on it end with ABORTED first, and so do later calls of modules that use the
    /// group; the works' buffers are then the caller's.
    /// @since 0.1
    pub fn nxd_group_destroy(group: *mut nxd_group_t);

    /// Makes every pending and later call on the group return ABORTED; idempotent, from any thread.
    /// [local]
    ///
    /// Peers that wait for this rank get PEER_LOST or TIMEOUT.
    /// @since 0.1
    pub fn nxd_group_abort(group: *mut nxd_group_t) -> nxd_status_t;

    /// Ranks in the group.  [local]
    /// @since 0.1
    pub fn nxd_group_get_size(group: *mut nxd_group_t, out_size: *mut i32) -> nxd_status_t;

    /// This rank's place in the group.  [local]
    /// @since 0.1
    pub fn nxd_group_get_rank(group: *mut nxd_group_t, out_rank: *mut i32) -> nxd_status_t;

    /// World ranks of the group, as from nxd_layout_get_group.  [local]
    /// @since 0.1
    pub fn nxd_group_get_ranks(group: *mut nxd_group_t, ranks: *mut i32, cap: usize, out_size: *mut usize) -> nxd_status_t;

    /// Bound of every later call on the group, in milliseconds; all ranks should agree.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (not positive).
    /// @since 0.1
    pub fn nxd_group_set_timeout(group: *mut nxd_group_t, timeout_ms: i64) -> nxd_status_t;

    /// What carries the group's data; for a group of one, SHARED_MEMORY.  [local]
    /// @since 0.1
    pub fn nxd_group_get_transport(group: *mut nxd_group_t, out_transport: *mut nxd_transport_t) -> nxd_status_t;

    /// Memory that the other ranks of this host can read and write too.  [local]
    ///
    /// Collectives over shared memory work on such buffers in place, which takes a third of the time or
    /// less; any other buffer works as well. Contents are undefined at first.
    /// @param size       bytes; 0 is allowed.
    /// @param[out] out_data  aligned to 64 bytes. Valid until nxd_arena_free, or until the context and
    /// all that was made from it are destroyed.
    /// @return NXD_OK; INVALID_ARGUMENT; OUT_OF_MEMORY; IO (the system has no shared memory).
    /// @since 0.1
    pub fn nxd_arena_alloc(ctx: *mut nxd_context_t, size: usize, out_data: *mut *mut c_void) -> nxd_status_t;

    /// Takes back memory of nxd_arena_alloc for later calls of it; no call may be using it.  [local]
    /// @param data  NULL does nothing.
    /// @return NXD_OK; INVALID_ARGUMENT (not from this context's nxd_arena_alloc).
    /// @since 0.1
    pub fn nxd_arena_free(ctx: *mut nxd_context_t, data: *mut c_void) -> nxd_status_t;

    /// Reduces count elements of every rank and leaves the result on every rank.  [collective: group]
    ///
    /// @param send   count elements; may equal recv, must not overlap it otherwise.
    /// @param recv   count elements.
    /// @param count  0 is allowed; then buffers may be NULL.
    /// @param dtype  F32, F64, BF16, F16, I32 or I64.
    /// @return NXD_OK; INVALID_ARGUMENT (also when ranks disagree); TIMEOUT; PEER_LOST; ABORTED.
    /// @since 0.1
    pub fn nxd_all_reduce(group: *mut nxd_group_t, send: *const c_void, recv: *mut c_void, count: usize, dtype: nxd_dtype_t, reduce: nxd_reduce_t) -> nxd_status_t;

    /// Concatenates count elements of every rank, in rank order, on every rank.  [collective: group]
    ///
    /// @param send   count elements; may be recv + rank * count elements.
    /// @param recv   size * count elements.
    /// @param dtype  any.
    /// @since 0.1
    pub fn nxd_all_gather(group: *mut nxd_group_t, send: *const c_void, recv: *mut c_void, count: usize, dtype: nxd_dtype_t) -> nxd_status_t;

    /// Reduces size * count elements and leaves the rank-th part of the result.  [collective: group]
    ///
    /// @param send   size * count elements.
    /// @param recv   count elements; may be send + rank * count elements.
    /// @param dtype  F32, F64, BF16, F16, I32 or I64.
    /// @since 0.1
    pub fn nxd_reduce_scatter(group: *mut nxd_group_t, send: *const c_void, recv: *mut c_void, count: usize, dtype: nxd_dtype_t, reduce: nxd_reduce_t) -> nxd_status_t;

    /// Copies count elements of one rank to all others.  [collective: group]
    ///
    /// @param buffer  count elements; read on root, written elsewhere.
    /// @param root    rank in the group.
    /// @since 0.1
    pub fn nxd_broadcast(group: *mut nxd_group_t, buffer: *mut c_void, count: usize, dtype: nxd_dtype_t, root: i32) -> nxd_status_t;

    /// Sends the i-th part of send to rank i and receives its part for this rank.  [collective: group]
    ///
    /// Every rank exchanges with every other, so between hosts each connects to all ranks of the group.
    ///
    /// @param send  size * count elements; must not overlap recv.
    /// @param recv  size * count elements, the i-th part from rank i.
    /// @since 0.1
    pub fn nxd_all_to_all(group: *mut nxd_group_t, send: *const c_void, recv: *mut c_void, count: usize, dtype: nxd_dtype_t) -> nxd_status_t;

    /// Sends count elements to one rank, which calls nxd_receive with the same tag.  [collective: the
    /// two ranks]
    ///
    /// Several sends from one rank to another arrive in order per tag. Returns when the buffer may be
    /// reused.
    /// @param to   rank in the group, not this one.
    /// @param tag  0..65535.
    /// @since 0.1
    pub fn nxd_send(group: *mut nxd_group_t, buffer: *const c_void, count: usize, dtype: nxd_dtype_t, to: i32, tag: i32) -> nxd_status_t;

    /// Receives count elements from one rank, which calls nxd_send with the same tag.  [collective: the
    /// two ranks]
    ///
    /// @return NXD_OK; INVALID_ARGUMENT when the sender's count or dtype differ, on both sides.
    /// @since 0.1
    pub fn nxd_receive(group: *mut nxd_group_t, buffer: *mut c_void, count: usize, dtype: nxd_dtype_t, from: i32, tag: i32) -> nxd_status_t;

    /// Returns when every rank of the group has called.  [collective: group]
    /// @since 0.1
    pub fn nxd_barrier(group: *mut nxd_group_t) -> nxd_status_t;

    /// nxd_all_reduce without waiting.  [collective: group]
    ///
    /// @param send, recv     as for nxd_all_reduce; borrowed until the work is done.
    /// @param[out] out_work  the caller destroys it.
    /// @return NXD_OK; INVALID_ARGUMENT (NULL; the peers are told); OUT_OF_MEMORY; INVALID_STATE (after
    /// fork). All other failures are the work's. The same for all *_async functions.
    /// @since 0.1
    pub fn nxd_all_reduce_async(group: *mut nxd_group_t, send: *const c_void, recv: *mut c_void, count: usize, dtype: nxd_dtype_t, reduce: nxd_reduce_t, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// nxd_all_gather without waiting.  [collective: group]
    /// @since 0.1
    pub fn nxd_all_gather_async(group: *mut nxd_group_t, send: *const c_void, recv: *mut c_void, count: usize, dtype: nxd_dtype_t, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// nxd_reduce_scatter without waiting.  [collective: group]
    /// @since 0.1
    pub fn nxd_reduce_scatter_async(group: *mut nxd_group_t, send: *const c_void, recv: *mut c_void, count: usize, dtype: nxd_dtype_t, reduce: nxd_reduce_t, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// nxd_broadcast without waiting.  [collective: group]
    /// @since 0.1
    pub fn nxd_broadcast_async(group: *mut nxd_group_t, buffer: *mut c_void, count: usize, dtype: nxd_dtype_t, root: i32, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// nxd_all_to_all without waiting.  [collective: group]
    /// @since 0.1
    pub fn nxd_all_to_all_async(group: *mut nxd_group_t, send: *const c_void, recv: *mut c_void, count: usize, dtype: nxd_dtype_t, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// nxd_send without waiting; the other rank may call nxd_receive or nxd_receive_async.
    /// [collective: the two ranks]
    ///
    /// Each peer and tag with a work pending takes a thread.
    /// @since 0.1
    pub fn nxd_send_async(group: *mut nxd_group_t, buffer: *const c_void, count: usize, dtype: nxd_dtype_t, to: i32, tag: i32, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// nxd_receive without waiting; the other rank may call nxd_send or nxd_send_async.
    /// [collective: the two ranks]
    /// @since 0.1
    pub fn nxd_receive_async(group: *mut nxd_group_t, buffer: *mut c_void, count: usize, dtype: nxd_dtype_t, from: i32, tag: i32, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// nxd_barrier without waiting: the work is done when every rank of the group has called.
    /// [collective: group]
    /// @since 0.1
    pub fn nxd_barrier_async(group: *mut nxd_group_t, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// Whether the work is done, well or not; from any thread.  [local]
    ///
    /// @param[out] out_done  1 when it is; nxd_work_wait then returns at once.
    /// @return NXD_OK, also for a work that failed; INVALID_ARGUMENT; INVALID_STATE (after fork).
    /// @since 0.1
    pub fn nxd_work_test(work: *mut nxd_work_t, out_done: *mut i32) -> nxd_status_t;

    /// Waits until the work is done, and returns how it ended.  [local, blocking: until the work is
    /// done]
    ///
    /// May be called again; the outcome stays.
    ///
    /// @param timeout_ms  0 asks once; negative waits until the work is done, which the group's timeout
    /// bounds.
    /// @return what the call without _async would have returned; ABORTED for a cancelled work, or when
    /// the group was aborted or destroyed; TIMEOUT when timeout_ms has passed, or the interrupt
    /// callback's status: then the work goes on, and the group is unharmed. nxd_work_test tells
    /// this TIMEOUT from that of a work that failed.
    /// @since 0.1
    pub fn nxd_work_wait(work: *mut nxd_work_t, timeout_ms: i64) -> nxd_status_t;

    /// Takes back a work that has not begun on this rank: it is done, with ABORTED.  [local]
    ///
    /// Its place in the order is kept: when its turn comes the peers get INVALID_ARGUMENT, naming this
    /// rank, and the group goes on. To end a work that has begun there is nxd_group_abort.
    /// @return NXD_OK; INVALID_STATE (it has begun or ended).
    /// @since 0.1
    pub fn nxd_work_cancel(work: *mut nxd_work_t) -> nxd_status_t;

    /// How the work ended, as nxd_last_error_info.  [local]
    ///
    /// @param[in,out] out_info  struct_size set by the caller; the rest is filled. Strings are borrowed
    /// from the work. A work that went well has status NXD_OK, its group and
    /// its operation, and no more.
    /// @return NXD_OK; INVALID_ARGUMENT (NULL); INVALID_STATE (not done yet); ABI_MISMATCH
    /// (struct_size).
    /// @since 0.1
    pub fn nxd_work_get_error_info(work: *mut nxd_work_t, out_info: *mut nxd_error_info_t) -> nxd_status_t;

    /// Releases the work: one that has not begun is cancelled, one that runs is waited for, which the
    /// group's timeout bounds. Afterwards its buffers are the caller's.  [local]
    /// @since 0.1
    pub fn nxd_work_destroy(work: *mut nxd_work_t);

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_spawn_options_init(options: *mut nxd_spawn_options_t, size: usize) -> nxd_status_t;

    /// Starts n processes with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set, so that
    /// nxd_context_create(NULL, ...) joins them.  [local]
    ///
    /// The processes are ended when this process ends. A process so started must not spawn again.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (this process was itself started by a launcher);
    /// IO (the program cannot be executed; none is left running).
    /// @since 0.1
    pub fn nxd_spawn(options: *const nxd_spawn_options_t, out_job: *mut *mut nxd_job_t) -> nxd_status_t;

    /// Waits until all processes have ended, or one has failed.  [local, blocking: until then]
    ///
    /// When one fails, the others are given a grace period to report and are then ended.
    /// @param timeout_ms  0 asks once; negative waits without bound.
    /// @return NXD_OK (all ended with 0); PEER_LOST (one failed: rank and exit code in the message);
    /// TIMEOUT (still running: nothing was changed).
    /// @since 0.1
    pub fn nxd_job_wait(job: *mut nxd_job_t, timeout_ms: i64) -> nxd_status_t;

    /// Sends a signal to every process still running.  [local]
    /// @since 0.1
    pub fn nxd_job_kill(job: *mut nxd_job_t, signal_number: i32) -> nxd_status_t;

    /// Number of processes of the job.  [local]
    /// @since 0.1
    pub fn nxd_job_get_size(job: *mut nxd_job_t, out_size: *mut i32) -> nxd_status_t;

    /// How a process ended.  [local]
    ///
    /// @param[out] out_running    1 while it runs; the code is then 0.
    /// @param[out] out_exit_code  exit status, or 128 + signal number.
    /// @since 0.1
    pub fn nxd_job_get_exit_code(job: *mut nxd_job_t, rank: i32, out_running: *mut i32, out_exit_code: *mut i32) -> nxd_status_t;

    /// Process id of a rank.  [local]
    /// @since 0.1
    pub fn nxd_job_get_pid(job: *mut nxd_job_t, rank: i32, out_pid: *mut i64) -> nxd_status_t;

    /// Ends what still runs, and releases the job.  [local]
    /// @since 0.1
    pub fn nxd_job_destroy(job: *mut nxd_job_t);

    /// Measures the machine's matrix-product peak: square products of size n, the median of a few runs
    /// on this thread's OpenMP team.  [local]
    ///
    /// @param dtype  F32 or BF16.
    /// @param n      edge; 0: 2048.
    /// @param[out] out_flops  floating-point operations per second, 2 n^3 per product.
    /// @since 0.1
    pub fn nxd_measure_gemm_peak(dtype: nxd_dtype_t, n: i32, out_flops: *mut f64) -> nxd_status_t;

    /// Ends the threads that the library and OpenMP keep for the calling thread between calls; the next
    /// call that needs some makes them anew. Without it the library's look for work for 50 us after each
    /// call, OpenMP's for some milliseconds, and then sleep.  [local]
    ///
    /// @return NXD_OK; INVALID_STATE (inside a parallel region of OpenMP).
    /// @since 0.1
    pub fn nxd_release_threads() -> nxd_status_t;

    /// Reads the pool's figures.  [local]
    /// @param[in,out] out_stats  struct_size set by the caller: of its own header, which may be older.
    /// @return NXD_OK; INVALID_ARGUMENT; ABI_MISMATCH (struct_size of no version).
    /// @since 0.1
    pub fn nxd_memory_get_stats(out_stats: *mut nxd_memory_stats_t) -> nxd_status_t;

    /// Bounds what the pool hands out: beyond it, calls that need memory fail with OUT_OF_MEMORY naming
    /// what was asked for and the cap. Blocks in use stay, also when they are more than that.  [local]
    ///
    /// The cap is on bytes_in_use. Memory kept for reuse is given back before the pool holds more than
    /// the cap, as far as no block in use lies on it. Arenas are not counted.
    /// @param bytes  0: no cap, as at first.
    /// @since 0.1
    pub fn nxd_memory_set_cap(bytes: u64) -> nxd_status_t;

    /// Gives the pool's unused memory back to the system.  [local]
    /// @since 0.1
    pub fn nxd_memory_trim() -> nxd_status_t;

    /// Clears the phases of the process and counts from now on. Fused kernels and collectives count,
    /// plain ATen operators do not. What a kernel calls inside of it is part of it. Two reads of a
    /// clock per kernel while on, nothing that could be measured while off.  [local]
    /// @since 0.1
    pub fn nxd_profile_start() -> nxd_status_t;

    /// Ends counting; the phases keep what they have. Kernels in progress are counted still.  [local]
    /// @since 0.1
    pub fn nxd_profile_stop() -> nxd_status_t;

    /// Reads one phase, while counting or later.  [local]
    ///
    /// @param phase  an NXD_PHASE_*; INVALID_ARGUMENT for others, so that a loop from 0 ends there.
    /// @param[in,out] out_stats  struct_size set by the caller.
    /// @since 0.1
    pub fn nxd_profile_get_phase(phase: nxd_phase_t, out_stats: *mut nxd_phase_stats_t) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_schedule_options_init(options: *mut nxd_schedule_options_t, size: usize) -> nxd_status_t;

    /// The factor on the learning rate at a step, a pure function.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (a field out of range, a negative step).
    /// @since 0.1
    pub fn nxd_schedule_get_factor(options: *const nxd_schedule_options_t, step: i64, out_factor: *mut f64) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_ddp_options_init(options: *mut nxd_ddp_options_t, size: usize) -> nxd_status_t;

    /// Data parallelism over buffers that the caller owns, such as another framework's.
    /// [collective: the group]
    ///
    /// Norms and saved states are those of the group's ranks alone: whoever splits tensors over other
    /// ranks as well sums norms, and saves one file for each part. So max_norm is UNSUPPORTED in a
    /// layout with tensor- or pipeline-parallel ranks, unless the group is the whole world: clip
    /// between nxd_ddp_finish and nxd_optimizer_update there.
    /// @param group   NULL: the data-parallel group, or the world where model parallelism is not
    /// initialised.
    /// @param names   of the parameters, each once: what nxd_optimizer_add_group, saved states and
    /// random bits key on; NULL: "0", "1" and so on.
    /// @param params  CPU tensors in C order, F32, F64 or BF16, the same shapes in the same order on
    /// all ranks, in the order of use. The structs are borrowed for the call; the memory
    /// until the ddp and its optimizers are destroyed, or nxd_ddp_rebind.
    /// @param grads   of the parameters' shapes, of their dtype, or F32 for BF16. Gradients are summed
    /// over backward passes by the caller, and reduced in place: with zero_stage 1 only
    /// this rank's part of them is meaningful afterwards.
    /// @return NXD_OK; INVALID_ARGUMENT, also when ranks differ (on all of them); OUT_OF_MEMORY;
    /// TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_ddp_create_buffers(ctx: *mut nxd_context_t, group: *mut nxd_group_t, names: *const *const c_char, params: *const *mut DLTensor, grads: *const *mut DLTensor, n: usize, options: *const nxd_ddp_options_t, out_ddp: *mut *mut nxd_ddp_t) -> nxd_status_t;

    /// Says that a buffer has moved: for frameworks that allocate gradients anew.  [local]
    /// Between nxd_optimizer_step and the next nxd_ddp_mark_ready.
    /// @param param  NULL: as before.
    /// @param grad   NULL: as before.
    /// @return NXD_OK; INVALID_ARGUMENT (another shape or dtype); INVALID_STATE (a ddp of a module, or
    /// a reduction under way).
    /// @since 0.1
    pub fn nxd_ddp_rebind(ddp: *mut nxd_ddp_t, index: usize, param: *mut DLTensor, grad: *mut DLTensor) -> nxd_status_t;

    /// Number of parameters.  [local]
    /// @since 0.1
    pub fn nxd_ddp_get_count(ddp: *mut nxd_ddp_t, out_count: *mut usize) -> nxd_status_t;

    /// Name of a parameter; borrowed from the ddp.  [local]
    /// @since 0.1
    pub fn nxd_ddp_get_name(ddp: *mut nxd_ddp_t, index: usize, out_name: *mut *const c_char) -> nxd_status_t;

    /// Says that a gradient is complete for this step; when all of a bucket's are, and the buckets
    /// before it have started, its reduction starts.  [collective: the group]
    ///
    /// For buffers; a module's ddp sees its gradients itself. Ranks may mark in different orders.
    /// Parameters that are not marked when gradients are finished are taken then, as they are: so
    /// marking is never needed, it only overlaps reduction with the backward pass.
    /// @return NXD_OK; INVALID_ARGUMENT (index); INVALID_STATE (marked twice, nxd_ddp_set_sync off, or
    /// a module's ddp); an error of an earlier bucket's reduction.
    /// @since 0.1
    pub fn nxd_ddp_mark_ready(ddp: *mut nxd_ddp_t, index: usize) -> nxd_status_t;

    /// Says that a parameter took no part in this step on this rank: its gradient counts as zeros. One
    /// that took part on no rank is left alone by the update.  [local]
    /// @since 0.1
    pub fn nxd_ddp_mark_unused(ddp: *mut nxd_ddp_t, index: usize) -> nxd_status_t;

    /// Reduces during the next backward passes (1, the default), or lets gradients add up (0): off for
    /// all microbatches of a step but the last.  [local]
    /// @since 0.1
    pub fn nxd_ddp_set_sync(ddp: *mut nxd_ddp_t, sync: i32) -> nxd_status_t;

    /// Bytes of buffers that the ddp holds on this rank beside parameters and gradients.  [local]
    /// @since 0.1
    pub fn nxd_ddp_get_buffer_bytes(ddp: *mut nxd_ddp_t, out_bytes: *mut u64) -> nxd_status_t;

    /// Says that the caller's buffers hold the values of one step again, after a step that left them
    /// TORN. A module's parameters know: nxd_parameter_set_whole, nxd_module_load_safetensors and
    /// nxd_module_initialize make them whole.  [local]
    /// @return NXD_OK; INVALID_STATE (a module's ddp).
    /// @since 0.1
    pub fn nxd_ddp_mark_reloaded(ddp: *mut nxd_ddp_t) -> nxd_status_t;

    /// Waits for reductions under way and releases the ddp; optimizers over it keep what they need.
    /// [local]
    /// @since 0.1
    pub fn nxd_ddp_destroy(ddp: *mut nxd_ddp_t);

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_finish_options_init(options: *mut nxd_finish_options_t, size: usize) -> nxd_status_t;

    /// Finishes the gradients of a ddp of zero_stage 0: waits for the reductions, then does what
    /// nxd_finish_gradients does.  [collective: tensor-, pipeline- and data-parallel groups]
    /// @param[out] out_norm  as nxd_finish_gradients; may be NULL.
    /// @since 0.1
    pub fn nxd_ddp_finish(ddp: *mut nxd_ddp_t, options: *const nxd_finish_options_t, out_norm: *mut f64) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_adamw_options_init(options: *mut nxd_adamw_options_t, size: usize) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_sgd_options_init(options: *mut nxd_sgd_options_t, size: usize) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_custom_optimizer_options_init(options: *mut nxd_custom_optimizer_options_t, size: usize) -> nxd_status_t;

    /// AdamW over the parameters of a ddp; see nxd_adamw_create.  [local]
    /// With zero_stage 1 the state is that of this rank's parts only.
    /// @since 0.1
    pub fn nxd_adamw_create_ddp(ddp: *mut nxd_ddp_t, options: *const nxd_adamw_options_t, out_optimizer: *mut *mut nxd_optimizer_t) -> nxd_status_t;

    /// SGD over the parameters of a ddp.  [local]
    /// @since 0.1
    pub fn nxd_sgd_create_ddp(ddp: *mut nxd_ddp_t, options: *const nxd_sgd_options_t, out_optimizer: *mut *mut nxd_optimizer_t) -> nxd_status_t;

    /// A caller's own update rule over the parameters of a ddp.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT. After a failure destroy is not called.
    /// @since 0.1
    pub fn nxd_custom_optimizer_create_ddp(ddp: *mut nxd_ddp_t, options: *const nxd_custom_optimizer_options_t, out_optimizer: *mut *mut nxd_optimizer_t) -> nxd_status_t;

    /// Puts parameters into a group with hyperparameters of its own, which start as group 0's.  [local]
    ///
    /// @param patterns  names, or patterns in which * stands for any characters and ? for one, such as
    /// "*.bias"; each must match a parameter. A parameter is in the last group that
    /// took it.
    /// @param[out] out_group  index of the group; may be NULL.
    /// @return NXD_OK; INVALID_ARGUMENT (a pattern without a match: near names are given).
    /// @since 0.1
    pub fn nxd_optimizer_add_group(optimizer: *mut nxd_optimizer_t, patterns: *const *const c_char, n: usize, out_group: *mut i32) -> nxd_status_t;

    /// Sets a hyperparameter from the next step on.  [local]
    /// @param group  -1: of all groups.
    /// @return NXD_OK; INVALID_ARGUMENT (out of range, no such group, or another kind of optimizer's).
    /// @since 0.1
    pub fn nxd_optimizer_set_hyperparameter(optimizer: *mut nxd_optimizer_t, group: i32, which: nxd_hyperparameter_t, value: f64) -> nxd_status_t;

    /// A hyperparameter of a group.  [local]
    /// @since 0.1
    pub fn nxd_optimizer_get_hyperparameter(optimizer: *mut nxd_optimizer_t, group: i32, which: nxd_hyperparameter_t, out_value: *mut f64) -> nxd_status_t;

    /// Makes the learning rate of all groups follow a schedule over the optimizer's updates.  [local]
    /// @since 0.1
    pub fn nxd_optimizer_set_schedule(optimizer: *mut nxd_optimizer_t, options: *const nxd_schedule_options_t) -> nxd_status_t;

    /// A training step's end: completes the gradients as nxd_finish_gradients does, updates every
    /// parameter that has one, and advances the context's step.
    /// [collective: tensor-, pipeline- and data-parallel groups]
    ///
    /// Gradients are left as they are, but for their reduction: the clip factor is applied on the fly.
    /// When their norm is not finite, or after clipping beyond F32, nothing is updated, the step
    /// advances, and the report says so.
    /// @param options     NULL: defaults.
    /// @param out_report  may be NULL.
    /// @return NXD_OK; INVALID_ARGUMENT; UNSUPPORTED (max_norm over a part of a model, see
    /// nxd_ddp_create_buffers); INVALID_STATE (parameters or state are TORN); TIMEOUT or
    /// PEER_LOST: nxd_last_error_info says of which step this rank's parameters are. TORN ones
    /// are refused by forwards, steps and saves until they are loaded again, and so is the
    /// optimizer's state until nxd_optimizer_load.
    /// @since 0.1
    pub fn nxd_optimizer_step(optimizer: *mut nxd_optimizer_t, options: *const nxd_finish_options_t, out_report: *mut nxd_step_report_t) -> nxd_status_t;

    /// Updates every parameter that has a gradient, from gradients that are finished, and advances the
    /// context's step.  [local]
    /// @return NXD_OK; INVALID_STATE (zero_stage 1, whose updates are collective).
    /// @since 0.1
    pub fn nxd_optimizer_update(optimizer: *mut nxd_optimizer_t) -> nxd_status_t;

    /// What the last nxd_optimizer_step or _update left of this rank's parameters.  [local]
    /// Ranks that survive a lost peer may differ: by the step and the state they know where to go on.
    /// @param[out] out_state  NONE before the first step, and once TORN ones are loaded again.
    /// @param[out] out_step   the context's step at that call; -1 before the first; may be NULL.
    /// @since 0.1
    pub fn nxd_optimizer_get_parameter_state(optimizer: *mut nxd_optimizer_t, out_state: *mut nxd_parameter_state_t, out_step: *mut i64) -> nxd_status_t;

    /// Sets the learning rate of all groups from the next step on.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (negative or not finite).
    /// @since 0.1
    pub fn nxd_optimizer_set_learning_rate(optimizer: *mut nxd_optimizer_t, rate: f64) -> nxd_status_t;

    /// The learning rate of group 0 at the next step, with the schedule's factor.  [local]
    /// @since 0.1
    pub fn nxd_optimizer_get_learning_rate(optimizer: *mut nxd_optimizer_t, out_rate: *mut f64) -> nxd_status_t;

    /// Bytes of state that this rank holds: moments, momentum and f32 copies of parameters.  [local]
    /// @since 0.1
    pub fn nxd_optimizer_get_state_bytes(optimizer: *mut nxd_optimizer_t, out_bytes: *mut u64) -> nxd_status_t;

    /// Writes the whole state as one safetensors file, whatever the layout: tensors NAME.STATE in the
    /// parameter's whole shape, where STATE is exp_avg, exp_avg_sq, momentum, state0 and so on, or
    /// master; updates are in the metadata. Crash-safe.  [collective: tensor, data, pipeline groups]
    /// @return the same on all ranks: NXD_OK; INVALID_ARGUMENT; IO; TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_optimizer_save(optimizer: *mut nxd_optimizer_t, path: *const c_char) -> nxd_status_t;

    /// Reads this rank's part of a state that any layout wrote.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (another kind of optimizer, or other parameters); IO; CORRUPT.
    /// After a failure the state is as before.
    /// @since 0.1
    pub fn nxd_optimizer_load(optimizer: *mut nxd_optimizer_t, path: *const c_char) -> nxd_status_t;

    /// Releases the optimizer and its state.  [local]
    /// @since 0.1
    pub fn nxd_optimizer_destroy(optimizer: *mut nxd_optimizer_t);

    /// Which samples of a data set a data-parallel rank takes in an epoch: as
    /// torch.utils.data.DistributedSampler, with a permutation of this library's own.  [local]
    ///
    /// Every epoch is one permutation of all samples, the same on all ranks; rank r takes places r,
    /// r + ranks and so on. Without drop_last the permutation is continued from its start until the
    /// ranks have equally many; with it the tail is dropped.
    /// @param shuffle  0: the samples in order.
    /// @param[out] out_indices  room for cap indices; cap 0: only the count is wanted.
    /// @param[out] out_count    indices of this rank.
    /// @since 0.1
    pub fn nxd_sample_epoch(n_samples: i64, ranks: i32, rank: i32, epoch: i64, seed: u64, shuffle: i32, drop_last: i32, out_indices: *mut i64, cap: usize, out_count: *mut usize) -> nxd_status_t;

    /// Makes one of the library's schedules.  [local]
    ///
    /// @param ranks   of the pipeline, at least 1.
    /// @param chunks  of each rank, at least 1.
    /// @return NXD_OK; INVALID_ARGUMENT (a shape that the schedule does not admit: the message says
    /// what it needs).
    /// @since 0.1
    pub fn nxd_pp_schedule_create(kind: nxd_pp_schedule_kind_t, ranks: i32, chunks: i32, microbatches: i32, out_schedule: *mut *mut nxd_pp_schedule_t) -> nxd_status_t;

    /// Makes a schedule of the caller's tasks, and proves it.  [local]
    ///
    /// Every stage computes every microbatch once forwards; and, if there are backward tasks at all,
    /// once backwards: in one task, or in an INPUT_GRADIENT and a later WEIGHT_GRADIENT. Those that
    /// make the input gradients of a chunk come in the order of the microbatches, and so do those that
    /// make its weight gradients: sums over microbatches then have the same bits in every schedule.
    /// Ranks make their tasks in order, send without waiting, and wait for what they receive.
    /// @param tasks   those of rank 0 in the order it makes them, then those of rank 1 and so on.
    /// @param counts  how many each rank has; of length ranks.
    /// @return NXD_OK; INVALID_ARGUMENT names the first task that is missing, doubled or out of range,
    /// or the tasks that would wait for one another for ever.
    /// @since 0.1
    pub fn nxd_pp_schedule_create_tasks(ranks: i32, chunks: i32, microbatches: i32, tasks: *const nxd_pp_task_t, counts: *const usize, out_schedule: *mut *mut nxd_pp_schedule_t) -> nxd_status_t;

    /// The tasks of a rank, in order, by the rule of nxd_layout_get_group.  [local]
    /// @since 0.1
    pub fn nxd_pp_schedule_get_tasks(schedule: *mut nxd_pp_schedule_t, rank: i32, tasks: *mut nxd_pp_task_t, cap: usize, out_count: *mut usize) -> nxd_status_t;

    /// Name of a schedule, such as "1F1B"; borrowed from it.  [local]
    /// @since 0.1
    pub fn nxd_pp_schedule_get_name(schedule: *mut nxd_pp_schedule_t, out_name: *mut *const c_char) -> nxd_status_t;

    /// Fills costs with defaults.  [local]
    /// @since 0.1
    pub fn nxd_pp_costs_init(costs: *mut nxd_pp_costs_t, size: usize) -> nxd_status_t;

    /// Plays a schedule through.  [local]
    /// @param costs         NULL: all 1, free transfers.
    /// @param[in,out] out_report  struct_size set by the caller; the rest is filled.
    /// @since 0.1
    pub fn nxd_pp_schedule_get_report(schedule: *mut nxd_pp_schedule_t, costs: *const nxd_pp_costs_t, out_report: *mut nxd_pp_report_t) -> nxd_status_t;

    /// Releases a schedule; pipelines made with it keep what they need.  [local]
    /// @since 0.1
    pub fn nxd_pp_schedule_destroy(schedule: *mut nxd_pp_schedule_t);

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_pp_callbacks_options_init(options: *mut nxd_pp_callbacks_options_t, size: usize) -> nxd_status_t;

    /// A pipeline whose stages the caller computes.  [collective: the pipeline-parallel group]
    ///
    /// @param inputs   of this rank's chunks one after the other: what comes from the stage before.
    /// Stage 0 has none: its callback reads its data itself. NULL when there are none.
    /// @param outputs  likewise: what goes to the stage after; the last stage has none. They must equal
    /// the next stage's inputs in all but names.
    /// @param n_inputs, n_outputs  how many each chunk has; of length virtual_size.
    /// @param callbacks  copied; on failure destroy is not called.
    /// @return NXD_OK; INVALID_ARGUMENT (also when neighbours do not agree, on all ranks);
    /// INVALID_STATE (model parallel not initialised); TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_pp_create_callbacks(ctx: *mut nxd_context_t, options: *const nxd_pp_callbacks_options_t, inputs: *const nxd_pp_value_t, n_inputs: *const usize, outputs: *const nxd_pp_value_t, n_outputs: *const usize, callbacks: *const nxd_pp_stage_callbacks_t, out_pp: *mut *mut nxd_pp_t) -> nxd_status_t;

    /// One step of a pipeline over callbacks: forwards and backwards of all microbatches, or, without
    /// training, forwards alone.  [collective: the pipeline-parallel group; with
    /// broadcast_and_average_loss also the data-parallel group]
    ///
    /// Gradients of parameters are the caller's, added up over microbatches. Messages go over the
    /// pipeline-parallel group, with tags from 65533 on.
    ///
    /// When a callback fails, all ranks that still have to do with the run fail with its status, and
    /// their messages name its rank, stage and microbatch; with broadcast_and_average_loss the others
    /// get INVALID_ARGUMENT, without it they may have been done. The next run may begin.
    /// @param[out] out_loss  mean of the microbatches' losses: see broadcast_and_average_loss. NaN
    /// where a callback set none. May be NULL.
    /// @return NXD_OK; a callback's error; INVALID_STATE (the schedule has no backward tasks, or the
    /// stages are modules); TIMEOUT or PEER_LOST: the message names the task that waited, its
    /// stage and microbatch, and the peer; the group is poisoned, as it is when the interrupt
    /// callback ends a wait.
    /// @since 0.1
    pub fn nxd_pp_run(pp: *mut nxd_pp_t, training: i32, out_loss: *mut f64) -> nxd_status_t;

    /// Whether this rank has the last stage, and so the losses.  [local]
    /// @since 0.1
    pub fn nxd_pp_has_loss(pp: *mut nxd_pp_t, out_has: *mut i32) -> nxd_status_t;

    /// The schedule of training runs; borrowed.  [local]
    /// @since 0.1
    pub fn nxd_pp_get_schedule(pp: *mut nxd_pp_t, out_schedule: *mut *mut nxd_pp_schedule_t) -> nxd_status_t;

    /// Bytes of the buffers that the pipeline receives into on this rank: kept from run to run, and as
    /// many as the schedule needs at once.  [local]
    /// @since 0.1
    pub fn nxd_pp_get_buffer_bytes(pp: *mut nxd_pp_t, out_bytes: *mut u64) -> nxd_status_t;

    /// Records when tasks, messages and waits begin and end, in all runs from now on (1), or no longer
    /// (0). Starting forgets what was recorded.  [local]
    /// @since 0.1
    pub fn nxd_pp_set_timeline(pp: *mut nxd_pp_t, on: i32) -> nxd_status_t;

    /// Writes what all ranks recorded, on rank 0 of the world: as a trace that chrome://tracing and
    /// Perfetto read (path ends in ".json"), or as a picture (".svg"). Ranks that are not the first of
    /// their tensor- and data-parallel groups have recorded alike and are left out.  [collective:
    /// world]
    /// @return NXD_OK; INVALID_ARGUMENT (path); INVALID_STATE (nothing recorded); IO, on all ranks;
    /// TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_pp_write_timeline(pp: *mut nxd_pp_t, path: *const c_char) -> nxd_status_t;

    /// Releases the pipeline. The model, if it has one, stays in parts: its parameters outside of this
    /// rank's stages have no values.  [local]
    /// @since 0.1
    pub fn nxd_pp_destroy(pp: *mut nxd_pp_t);

    /// Fills model with zeros: sizes have no defaults but those that say so.  [local]
    /// @since 0.1
    pub fn nxd_plan_model_init(model: *mut nxd_plan_model_t, size: usize) -> nxd_status_t;

    /// Reads the sizes of a Hugging Face configuration of a family that nxd_model_create knows: "llama"
    /// or "gpt2".  [local]
    ///
    /// @param config_json  text of config.json.
    /// @param[in,out] out_model  struct_size set by the caller; the rest is filled.
    /// @return NXD_OK; INVALID_ARGUMENT (not JSON, a field missing or out of range); UNSUPPORTED
    /// (model_type).
    /// @since 0.1
    pub fn nxd_plan_model_from_config(config_json: *const c_char, out_model: *mut nxd_plan_model_t) -> nxd_status_t;

    /// Fills machine with defaults.  [local]
    /// @since 0.1
    pub fn nxd_plan_machine_init(machine: *mut nxd_plan_machine_t, size: usize) -> nxd_status_t;

    /// Fills layout with defaults.  [local]
    /// @since 0.1
    pub fn nxd_plan_layout_init(layout: *mut nxd_plan_layout_t, size: usize) -> nxd_status_t;

    /// Predicts a layout, with the schedules that pipelines run and the rules by which they are cut.
    /// docs/planner.md says how, and how far off it is.  [local]
    ///
    /// @param machine  NULL: all defaults.
    /// @param[in,out] out_prediction  struct_size set by the caller; the rest is filled.
    /// @return NXD_OK; INVALID_ARGUMENT (a size that is missing, out of range, or does not divide).
    /// @since 0.1
    pub fn nxd_plan_predict(model: *const nxd_plan_model_t, machine: *const nxd_plan_machine_t, layout: *const nxd_plan_layout_t, out_prediction: *mut nxd_plan_prediction_t) -> nxd_status_t;

    /// Fills options with defaults; sizes have none.  [local]
    /// @since 0.1
    pub fn nxd_plan_search_options_init(options: *mut nxd_plan_search_options_t, size: usize) -> nxd_status_t;

    /// Finds the layouts of all ranks that take least time and fit, best first; of equal ones those
    /// that keep less. All schedules are tried, cuts of both sorts, with and without ZeRO, sequence
    /// parallelism and recomputation.  [local]
    ///
    /// @param layouts, predictions  of length cap, struct_size of each first set by the caller; either
    /// may be NULL.
    /// @param[out] out_count  how many were filled: at most cap.
    /// @return NXD_OK; INVALID_ARGUMENT (a size out of range; no layout divides the model; or none
    /// fits: the message gives the one that needs least).
    /// @since 0.1
    pub fn nxd_plan_search(model: *const nxd_plan_model_t, machine: *const nxd_plan_machine_t, options: *const nxd_plan_search_options_t, layouts: *mut nxd_plan_layout_t, predictions: *mut nxd_plan_prediction_t, cap: usize, out_count: *mut usize) -> nxd_status_t;
}

#[cfg(feature = "engine")]
extern "C" {
    /// Whether ATen, libtorch's tensor library, takes the memory of new CPU tensors from the pool of
    /// section 6 too. For the whole process, and at any time: memory goes back to where it came from.
    /// [local]
    ///
    /// On at first when libnxd brought libtorch into the process. Off where the program, or another
    /// library of it, uses libtorch itself, or has given ATen an allocator; NXD_ATEN_POOL=1 or 0 beats
    /// both. What counts is the moment at which libnxd is loaded.
    ///
    /// If it is on then, malloc is also told to keep up to 64 MB of free memory (glibc's mallopt),
    /// unless the environment sets malloc up; switching off later leaves that.
    /// @param on  1 or 0.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (the program has set an allocator of its own
    /// that ATen ranks higher).
    /// @since 0.1
    pub fn nxd_memory_set_aten_pool(on: i32) -> nxd_status_t;

    /// Whether ATen takes the memory of new CPU tensors from the pool: 1 or 0.  [local]
    /// @since 0.1
    pub fn nxd_memory_get_aten_pool(out_on: *mut i32) -> nxd_status_t;

    /// A tensor of zeros in C order.  [local]
    ///
    /// @param shape   ndim sizes, each 0 or more; may be NULL when ndim is 0 (a scalar).
    /// @param device  NXD_DEVICE_CPU or NXD_DEVICE_META (shape and dtype only).
    /// @return NXD_OK; INVALID_ARGUMENT; OUT_OF_MEMORY; UNSUPPORTED (device).
    /// @since 0.1
    pub fn nxd_tensor_create(shape: *const i64, ndim: i32, dtype: nxd_dtype_t, device: nxd_device_t, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// A tensor in C order with a copy of the caller's data.  [local]
    ///
    /// @param data   as many elements of dtype as the shape has; NULL only when it has none.
    /// @param bytes  size of data: elements times the element size, checked.
    /// @since 0.1
    pub fn nxd_tensor_from_data(data: *const c_void, bytes: usize, shape: *const i64, ndim: i32, dtype: nxd_dtype_t, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// A tensor with a copy of a borrowed DLPack tensor, any strides.  [local]
    ///
    /// @param source  borrowed for the call; on the CPU.
    /// @return NXD_OK; INVALID_ARGUMENT; UNSUPPORTED (device, dtype, lanes).
    /// @since 0.1
    pub fn nxd_tensor_copy_dltensor(source: *const DLTensor, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// A tensor over the memory of a managed DLPack tensor, without a copy.  [local]
    ///
    /// @param managed  taken over on success: its deleter is called, on any thread, when the last
    /// tensor over the memory is gone. On failure it stays the caller's.
    /// @since 0.1
    pub fn nxd_tensor_from_dlpack(managed: *mut DLManagedTensor, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// The same for the versioned form; read-only memory is refused.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (read-only); UNSUPPORTED (major version other than 1).
    /// @since 0.1
    pub fn nxd_tensor_from_dlpack_versioned(managed: *mut DLManagedTensorVersioned, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// The tensor's memory as a managed DLPack tensor, without a copy.  [local]
    ///
    /// @param[out] out_managed  the caller calls its deleter once; the memory lives until then.
    /// @return NXD_OK; INVALID_ARGUMENT (requires grad: detach first); UNSUPPORTED (meta device).
    /// @since 0.1
    pub fn nxd_tensor_to_dlpack(tensor: *mut nxd_tensor_t, out_managed: *mut *mut DLManagedTensor) -> nxd_status_t;

    /// The same in the versioned form.  [local]
    /// @since 0.1
    pub fn nxd_tensor_to_dlpack_versioned(tensor: *mut nxd_tensor_t, out_managed: *mut *mut DLManagedTensorVersioned) -> nxd_status_t;

    /// Another handle on the same tensor.  [local]
    /// @since 0.1
    pub fn nxd_tensor_retain(tensor: *mut nxd_tensor_t, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// Releases a handle.  [local]
    /// @since 0.1
    pub fn nxd_tensor_destroy(tensor: *mut nxd_tensor_t);

    /// Number of dimensions.  [local]
    /// @since 0.1
    pub fn nxd_tensor_get_ndim(tensor: *mut nxd_tensor_t, out_ndim: *mut i32) -> nxd_status_t;

    /// Sizes of the dimensions.  [local]
    ///
    /// @param shape  room for cap sizes; may be NULL when cap is 0.
    /// @param[out] out_ndim  dimensions. When it exceeds cap nothing is copied, and a cap other than 0
    /// is INVALID_ARGUMENT.
    /// @since 0.1
    pub fn nxd_tensor_get_shape(tensor: *mut nxd_tensor_t, shape: *mut i64, cap: usize, out_ndim: *mut usize) -> nxd_status_t;

    /// Strides in elements; as nxd_tensor_get_shape.  [local]
    /// @since 0.1
    pub fn nxd_tensor_get_strides(tensor: *mut nxd_tensor_t, strides: *mut i64, cap: usize, out_ndim: *mut usize) -> nxd_status_t;

    /// Element type.  [local]
    /// @since 0.1
    pub fn nxd_tensor_get_dtype(tensor: *mut nxd_tensor_t, out_dtype: *mut nxd_dtype_t) -> nxd_status_t;

    /// Device.  [local]
    /// @since 0.1
    pub fn nxd_tensor_get_device(tensor: *mut nxd_tensor_t, out_device: *mut nxd_device_t) -> nxd_status_t;

    /// Number of elements.  [local]
    /// @since 0.1
    pub fn nxd_tensor_get_element_count(tensor: *mut nxd_tensor_t, out_count: *mut i64) -> nxd_status_t;

    /// First element in memory; borrowed. After writing through it, call nxd_tensor_mark_modified.
    /// [local]
    /// @return NXD_OK; UNSUPPORTED (meta device).
    /// @since 0.1
    pub fn nxd_tensor_get_data(tensor: *mut nxd_tensor_t, out_data: *mut *mut c_void) -> nxd_status_t;

    /// Says that the tensor's memory was written by other means than this library, so that what was
    /// derived from it is made anew.  [local]
    /// @since 0.1
    pub fn nxd_tensor_mark_modified(tensor: *mut nxd_tensor_t) -> nxd_status_t;

    /// Copies all elements out, in C order.  [local]
    /// @param bytes  size of buf: elements times the element size, checked.
    /// @since 0.1
    pub fn nxd_tensor_copy_to_host(tensor: *mut nxd_tensor_t, buf: *mut c_void, bytes: usize) -> nxd_status_t;

    /// Overwrites all elements in place from C order; not recorded by autograd.  [local]
    /// @since 0.1
    pub fn nxd_tensor_copy_from_host(tensor: *mut nxd_tensor_t, buf: *const c_void, bytes: usize) -> nxd_status_t;

    /// Value of a tensor of one element, as a double.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (not one element).
    /// @since 0.1
    pub fn nxd_tensor_get_item(tensor: *mut nxd_tensor_t, out_value: *mut f64) -> nxd_status_t;

    /// Looks up an operator.  [local]
    ///
    /// @param name      such as "aten::softmax"; "aten::" may be left out.
    /// @param overload  such as "int" or "Tensor"; NULL or "": the overload without a name, or the only
    /// one.
    /// @return NXD_OK; INVALID_ARGUMENT (no such operator or overload; the message lists near names
    /// and the overloads there are).
    /// @since 0.1
    pub fn nxd_op_create(name: *const c_char, overload: *const c_char, out_op: *mut *mut nxd_op_t) -> nxd_status_t;

    /// Releases the call and what it holds.  [local]
    /// @since 0.1
    pub fn nxd_op_destroy(op: *mut nxd_op_t);

    /// The operator's schema as text, such as "aten::relu(Tensor self) -> Tensor"; borrowed.  [local]
    /// @since 0.1
    pub fn nxd_op_get_schema(op: *mut nxd_op_t, out_schema: *mut *const c_char) -> nxd_status_t;

    /// Sets a tensor argument; NULL sets None where the schema allows it.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (no such argument, or one of another type; the schema is in the
    /// message). The same for all nxd_op_set_* functions.
    /// @since 0.1
    pub fn nxd_op_set_tensor(op: *mut nxd_op_t, name: *const c_char, tensor: *mut nxd_tensor_t) -> nxd_status_t;

    /// Sets a tensor-list argument.  [local]
    /// @since 0.1
    pub fn nxd_op_set_tensors(op: *mut nxd_op_t, name: *const c_char, tensors: *const *mut nxd_tensor_t, n_tensors: usize) -> nxd_status_t;

    /// Sets an integer, or a scalar by an integer.  [local]
    /// @since 0.1
    pub fn nxd_op_set_int(op: *mut nxd_op_t, name: *const c_char, value: i64) -> nxd_status_t;

    /// Sets a float, or a scalar by a float.  [local]
    /// @since 0.1
    pub fn nxd_op_set_double(op: *mut nxd_op_t, name: *const c_char, value: f64) -> nxd_status_t;

    /// Sets a boolean.  [local]
    /// @since 0.1
    pub fn nxd_op_set_bool(op: *mut nxd_op_t, name: *const c_char, value: i32) -> nxd_status_t;

    /// Sets a string, or a device by its name such as "meta".  [local]
    /// @since 0.1
    pub fn nxd_op_set_string(op: *mut nxd_op_t, name: *const c_char, value: *const c_char) -> nxd_status_t;

    /// Sets a dtype argument.  [local]
    /// @since 0.1
    pub fn nxd_op_set_dtype(op: *mut nxd_op_t, name: *const c_char, value: nxd_dtype_t) -> nxd_status_t;

    /// Sets an integer list, also for a list of scalars or booleans.  [local]
    /// @since 0.1
    pub fn nxd_op_set_ints(op: *mut nxd_op_t, name: *const c_char, values: *const i64, n_values: usize) -> nxd_status_t;

    /// Sets a float list, also for a list of scalars.  [local]
    /// @since 0.1
    pub fn nxd_op_set_doubles(op: *mut nxd_op_t, name: *const c_char, values: *const f64, n_values: usize) -> nxd_status_t;

    /// Runs the operator; arguments not set take the schema's defaults. May be called again.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (an argument without a default is missing, or the operator
    /// refuses its arguments: its own message).
    /// @since 0.1
    pub fn nxd_op_run(op: *mut nxd_op_t) -> nxd_status_t;

    /// Number of results of the last run; a tensor list counts its members.  [local]
    /// @since 0.1
    pub fn nxd_op_get_result_count(op: *mut nxd_op_t, out_count: *mut usize) -> nxd_status_t;

    /// A tensor result of the last run; the caller destroys it.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (index, or the result is no tensor); INVALID_STATE (not run).
    /// @since 0.1
    pub fn nxd_op_get_tensor(op: *mut nxd_op_t, index: usize, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// A number or boolean result of the last run.  [local]
    /// @since 0.1
    pub fn nxd_op_get_double(op: *mut nxd_op_t, index: usize, out_value: *mut f64) -> nxd_status_t;

    /// Calls an operator whose required arguments are all tensors, in one go.  [local]
    ///
    /// @param inputs   n_inputs tensors for its leading arguments.
    /// @param outputs  room for n_outputs handles, which the caller destroys.
    /// @return NXD_OK; INVALID_ARGUMENT (also when it has fewer results than n_outputs).
    /// @since 0.1
    pub fn nxd_op_call(name: *const c_char, overload: *const c_char, inputs: *const *mut nxd_tensor_t, n_inputs: usize, outputs: *mut *mut nxd_tensor_t, n_outputs: usize) -> nxd_status_t;

    /// Whether operations on the tensor are recorded for differentiation.  [local]
    /// @since 0.1
    pub fn nxd_tensor_get_requires_grad(tensor: *mut nxd_tensor_t, out_requires: *mut i32) -> nxd_status_t;

    /// Makes a leaf tensor require a gradient, or not.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (integer dtype); INVALID_STATE (not a leaf).
    /// @since 0.1
    pub fn nxd_tensor_set_requires_grad(tensor: *mut nxd_tensor_t, requires_grad: i32) -> nxd_status_t;

    /// Gradient accumulated in a leaf.  [local]
    /// @param[out] out_grad  the caller destroys it; NULL with NXD_OK when there is none yet.
    /// @return NXD_OK; INVALID_STATE (not a leaf).
    /// @since 0.1
    pub fn nxd_tensor_get_grad(tensor: *mut nxd_tensor_t, out_grad: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// Replaces the gradient of a leaf; NULL clears it.  [local]
    /// @param grad  same shape and dtype as the tensor; shared, not copied. It may not require a
    /// gradient itself.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (not a leaf).
    /// @since 0.1
    pub fn nxd_tensor_set_grad(tensor: *mut nxd_tensor_t, grad: *mut nxd_tensor_t) -> nxd_status_t;

    /// A handle on the same memory, outside of the recorded graph.  [local]
    /// @since 0.1
    pub fn nxd_tensor_detach(tensor: *mut nxd_tensor_t, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// Turns recording on this thread on or off.  [local]
    /// @param[out] out_previous  setting before the call; may be NULL.
    /// @since 0.1
    pub fn nxd_set_grad_enabled(enabled: i32, out_previous: *mut i32) -> nxd_status_t;

    /// Turns automatic casts on this thread on or off: parameters and optimizers stay in F32, while
    /// products of matrices run in 16 bits.  [local]
    ///
    /// While on, arguments of dtype F32, BF16 and F16 are cast before an operator runs that one of
    /// these lists names, those of PyTorch's torch.autocast on accelerators (docs/training.md has all):
    /// - in dtype: products of matrices, convolutions, attention;
    /// - in F32: norms, softmax, exponentials, logarithms, powers, sums, losses;
    /// - in the widest dtype among the arguments: what joins or mixes several, such as cat and
    /// addcmul. Other operators take what they are given; F64 and integers are never cast, nor are the
    /// arguments of operators that write to one of them. Casts are recorded: gradients have the dtypes
    /// of the parameters. It applies to nxd_op_run, nxd_op_call and to built-in layers, which then take
    /// inputs of F32 and of BF16: linear layers, attention, gated MLPs and language heads compute in
    /// dtype and give it; norms, their sums with residuals, and losses are F32; an embedding has the
    /// dtype of its table.
    ///
    /// A backward pass runs without it, in the dtypes of its forward; so do other threads.
    ///
    /// @param dtype  NXD_DTYPE_BF16: on; NXD_DTYPE_INVALID: off, as it is at first.
    /// @param[out] out_previous  setting before the call, to be set again at the end of a nested
    /// region; may be NULL.
    /// @return NXD_OK; INVALID_ARGUMENT (another dtype; the setting and out_previous stay as they are).
    /// @since 0.1
    pub fn nxd_set_autocast(dtype: nxd_dtype_t, out_previous: *mut nxd_dtype_t) -> nxd_status_t;

    /// Accumulates gradients into the leaves of the graph.  [collective: the groups of the layers in
    /// the graph]
    ///
    /// @param outputs   n tensors; recorded, or leaves that require a gradient.
    /// @param grads     n gradients of their shapes; NULL, or NULL for a scalar: 1.
    /// @param retain_graph  1: the graph may be differentiated again.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (differentiated before without retain_graph, or
    /// a tensor the graph needs was overwritten); what a custom function or a collective in the
    /// graph returned.
    /// @since 0.1
    pub fn nxd_backward(outputs: *const *mut nxd_tensor_t, grads: *const *mut nxd_tensor_t, n_outputs: usize, retain_graph: i32) -> nxd_status_t;

    /// Gradients of outputs with respect to some inputs, without touching any leaf's gradient.
    /// [collective: the groups of the layers in the graph]
    ///
    /// @param[out] out_grads  room for n_inputs handles, which the caller destroys; NULL where an input
    /// does not influence the outputs.
    /// @since 0.1
    pub fn nxd_gradients(outputs: *const *mut nxd_tensor_t, grads: *const *mut nxd_tensor_t, n_outputs: usize, inputs: *const *mut nxd_tensor_t, n_inputs: usize, retain_graph: i32, out_grads: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_function_options_init(options: *mut nxd_function_options_t, size: usize) -> nxd_status_t;

    /// Makes a custom function.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (name or forward missing). On failure destroy is not called.
    /// @since 0.1
    pub fn nxd_function_create(options: *const nxd_function_options_t, out_function: *mut *mut nxd_function_t) -> nxd_status_t;

    /// Applies the function; recorded when an input requires a gradient.  [local]
    ///
    /// @param outputs  room for n_outputs handles, which the caller destroys; n_outputs as created.
    /// @return NXD_OK; INVALID_ARGUMENT; what a callback returned.
    /// @since 0.1
    pub fn nxd_function_apply(function: *mut nxd_function_t, inputs: *const *mut nxd_tensor_t, n_inputs: usize, outputs: *mut *mut nxd_tensor_t, n_outputs: usize) -> nxd_status_t;

    /// Releases the function; recorded graphs keep what they need.  [local]
    /// @since 0.1
    pub fn nxd_function_destroy(function: *mut nxd_function_t);

    /// Keeps a tensor from forward for backward.  [local]
    /// @since 0.1
    pub fn nxd_function_call_save(call: *mut nxd_function_call_t, tensor: *mut nxd_tensor_t) -> nxd_status_t;

    /// A tensor kept by forward, by its order; borrowed for the callback.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (index).
    /// @since 0.1
    pub fn nxd_function_call_get_saved(call: *mut nxd_function_call_t, index: usize, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// Whether backward needs the gradient of an input.  [local]
    /// @since 0.1
    pub fn nxd_function_call_needs_grad(call: *mut nxd_function_call_t, input_index: usize, out_needs: *mut i32) -> nxd_status_t;

    /// Makes a module with the caller's forward function.  [local]
    ///
    /// @param class_name  such as "MyBlock"; copied.
    /// @param forward     called by nxd_module_forward; NULL for a mere container.
    /// @param destroy     called with user_data when the module is gone; may be NULL. On failure it is
    /// not called.
    /// @since 0.1
    pub fn nxd_module_create(ctx: *mut nxd_context_t, class_name: *const c_char, forward: nxd_forward_fn, user_data: *mut c_void, destroy: nxd_destroy_fn, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// Releases a handle; a module lives as long as a handle or a parent refers to it.  [local]
    /// @since 0.1
    pub fn nxd_module_destroy(module: *mut nxd_module_t);

    /// Adds a child; the parent keeps it alive.  [local]
    ///
    /// @param name   no dots, not empty, not taken by another child or parameter.
    /// @return NXD_OK; INVALID_ARGUMENT (name taken, other context, or a cycle).
    /// @since 0.1
    pub fn nxd_module_add_child(parent: *mut nxd_module_t, name: *const c_char, child: *mut nxd_module_t) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_parameter_options_init(options: *mut nxd_parameter_options_t, size: usize) -> nxd_status_t;

    /// Adds a parameter to a module.  [local]
    ///
    /// @param global_shape  sizes of the whole parameter; a split dimension must divide.
    /// @param[out] out_parameter  borrowed from the module; may be NULL.
    /// @since 0.1
    pub fn nxd_module_add_parameter(module: *mut nxd_module_t, name: *const c_char, global_shape: *const i64, ndim: i32, options: *const nxd_parameter_options_t, out_parameter: *mut *mut nxd_parameter_t) -> nxd_status_t;

    /// Makes a parameter of one module stand for another's as well; the first is the owner, and the
    /// second name leads to it.  [local]
    ///
    /// @param root         module that both paths start at.
    /// @param owner_path   such as "embed.weight".
    /// @param alias_path   such as "head.weight"; same global shape and sharding.
    /// @since 0.1
    pub fn nxd_module_tie(root: *mut nxd_module_t, owner_path: *const c_char, alias_path: *const c_char) -> nxd_status_t;

    /// Runs the module.  [collective: the groups of its layers]
    ///
    /// @param inputs   n_inputs borrowed tensors; NULL where an optional input is left out.
    /// @param outputs  room for n_outputs handles, which the caller destroys.
    /// @return NXD_OK; INVALID_ARGUMENT (number, shape or dtype of the inputs); TIMEOUT; PEER_LOST;
    /// what a callback returned.
    /// @since 0.1
    pub fn nxd_module_forward(module: *mut nxd_module_t, inputs: *const *mut nxd_tensor_t, n_inputs: usize, outputs: *mut *mut nxd_tensor_t, n_outputs: usize) -> nxd_status_t;

    /// Runs the module and keeps what its backward needs.  [collective: the groups of its layers]
    ///
    /// Inputs of a float dtype are differentiated; what was recorded of them before is not.
    /// @param[out] out_tape  the caller destroys it.
    /// @since 0.1
    pub fn nxd_module_forward_tape(module: *mut nxd_module_t, inputs: *const *mut nxd_tensor_t, n_inputs: usize, outputs: *mut *mut nxd_tensor_t, n_outputs: usize, out_tape: *mut *mut nxd_tape_t) -> nxd_status_t;

    /// Vector-Jacobian product: adds to the parameters' gradients and gives those of the inputs.
    /// [collective: the groups of its layers]
    ///
    /// Gradients of replicated outputs are replicated, not partial; so are those given back.
    /// @param grad_outputs  one per output, of its shape; NULL: zero.
    /// @param[out] out_grad_inputs  room for one per input, which the caller destroys; NULL where an
    /// input has no gradient.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (the tape was used already); TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_tape_backward(tape: *mut nxd_tape_t, grad_outputs: *const *mut nxd_tensor_t, n_outputs: usize, out_grad_inputs: *mut *mut nxd_tensor_t, n_inputs: usize) -> nxd_status_t;

    /// Releases the tape and what it kept.  [local]
    /// @since 0.1
    pub fn nxd_tape_destroy(tape: *mut nxd_tape_t);

    /// Class name of the module, such as "ColumnParallelLinear"; borrowed.  [local]
    /// @since 0.1
    pub fn nxd_module_get_class_name(module: *mut nxd_module_t, out_name: *mut *const c_char) -> nxd_status_t;

    /// A module below this one by its dotted path; "" is the module itself. Borrowed.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (no such module; near names are in the message).
    /// @since 0.1
    pub fn nxd_module_get_module(root: *mut nxd_module_t, path: *const c_char, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// Number of direct children.  [local]
    /// @since 0.1
    pub fn nxd_module_get_child_count(module: *mut nxd_module_t, out_count: *mut usize) -> nxd_status_t;

    /// A direct child and its name, in order of addition; both borrowed, either may be NULL.  [local]
    /// @since 0.1
    pub fn nxd_module_get_child(module: *mut nxd_module_t, index: usize, out_child: *mut *mut nxd_module_t, out_name: *mut *const c_char) -> nxd_status_t;

    /// Switches the module and all below it between training (1) and evaluation (0): dropout.  [local]
    /// @since 0.1
    pub fn nxd_module_set_training(module: *mut nxd_module_t, training: i32) -> nxd_status_t;

    /// Draws all parameters of the tree anew, with canonical names that start at this module.  [local]
    ///
    /// Built-in layers are initialised when they are made, under the name their options give; a model
    /// put together from them is initialised by one call on its root.
    /// @param seed  the same on all ranks.
    /// @since 0.1
    pub fn nxd_module_initialize(root: *mut nxd_module_t, seed: u64) -> nxd_status_t;

    /// Moves all parameters to a device, in place; they keep their attributes, hooks and handles.
    /// [local]
    ///
    /// To the CPU: those on the meta device get the initial values of their names and seed, as if they
    /// had been made on the CPU; others keep theirs. To the meta device: values and gradients are
    /// forgotten, and their memory is free.
    /// @return NXD_OK; UNSUPPORTED (NXD_DEVICE_NEURON); INVALID_STATE (to the meta device: a ddp holds
    /// a parameter's values or gradients; none is changed).
    /// @since 0.1
    pub fn nxd_move_model_to_device(root: *mut nxd_module_t, device: nxd_device_t) -> nxd_status_t;

    /// Number of parameters of the tree; tied ones count once.  [local]
    /// @since 0.1
    pub fn nxd_module_get_parameter_count(root: *mut nxd_module_t, out_count: *mut usize) -> nxd_status_t;

    /// A parameter of the tree by index, in a fixed order, and its name from this root.  [local]
    ///
    /// @param[out] out_parameter  borrowed from its module; may be NULL.
    /// @param[out] out_name       borrowed, valid until the tree changes; may be NULL.
    /// @since 0.1
    pub fn nxd_module_get_parameter(root: *mut nxd_module_t, index: usize, out_parameter: *mut *mut nxd_parameter_t, out_name: *mut *const c_char) -> nxd_status_t;

    /// A parameter of the tree by its name from this root, tied names included.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT (no such parameter; near names are in the message).
    /// @since 0.1
    pub fn nxd_module_find_parameter(root: *mut nxd_module_t, name: *const c_char, out_parameter: *mut *mut nxd_parameter_t) -> nxd_status_t;

    /// This rank's shard; borrowed from the parameter.  [local]
    ///
    /// Its gradient is read and set by nxd_tensor_get_grad and nxd_tensor_set_grad.
    /// @since 0.1
    pub fn nxd_parameter_get_tensor(parameter: *mut nxd_parameter_t, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// Shape of the whole parameter; as nxd_tensor_get_shape.  [local]
    /// @since 0.1
    pub fn nxd_parameter_get_global_shape(parameter: *mut nxd_parameter_t, shape: *mut i64, cap: usize, out_ndim: *mut usize) -> nxd_status_t;

    /// Which part of the whole this rank has.  [local]
    ///
    /// @param[out] out_dim      split dimension, or -1 for a replicated parameter.
    /// @param begins, ends      room for cap ranges of indices in that dimension, in local order; may
    /// be NULL when cap is 0.
    /// @param[out] out_ranges   number of ranges.
    /// @since 0.1
    pub fn nxd_parameter_get_shard(parameter: *mut nxd_parameter_t, out_dim: *mut i32, begins: *mut i64, ends: *mut i64, cap: usize, out_ranges: *mut usize) -> nxd_status_t;

    /// Overwrites this rank's shard with its part of the whole parameter's value.  [local]
    /// @param whole  tensor of the global shape, any float dtype.
    /// @since 0.1
    pub fn nxd_parameter_set_whole(parameter: *mut nxd_parameter_t, whole: *mut nxd_tensor_t) -> nxd_status_t;

    /// The whole parameter's value.  [collective: tensor-parallel group]
    /// @param[out] out_whole  the caller destroys it.
    /// @since 0.1
    pub fn nxd_parameter_get_whole(parameter: *mut nxd_parameter_t, out_whole: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// The whole parameter's gradient, as far as it is finished.  [collective: tensor-parallel group]
    /// @param[out] out_whole  the caller destroys it; NULL with NXD_OK when there is no gradient.
    /// @since 0.1
    pub fn nxd_parameter_get_whole_grad(parameter: *mut nxd_parameter_t, out_whole: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// Freezes (0) or frees (1) a parameter.  [local]
    /// @since 0.1
    pub fn nxd_parameter_set_trainable(parameter: *mut nxd_parameter_t, trainable: i32) -> nxd_status_t;

    /// Sets the parameter's gradient hook; NULL removes it.  [local]
    /// @param destroy  called with user_data when the hook is replaced or the parameter is gone; may be
    /// NULL. On failure it is not called.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (a frozen parameter without a hook).
    /// @since 0.1
    pub fn nxd_parameter_set_grad_hook(parameter: *mut nxd_parameter_t, hook: nxd_grad_hook_fn, user_data: *mut c_void, destroy: nxd_destroy_fn) -> nxd_status_t;

    /// Forgets the gradients of all parameters of the tree.  [local]
    /// @since 0.1
    pub fn nxd_module_zero_grad(root: *mut nxd_module_t) -> nxd_status_t;

    /// Number of mismatches of a kind.  [local]
    /// @since 0.1
    pub fn nxd_load_report_get_count(report: *mut nxd_load_report_t, kind: nxd_mismatch_t, out_count: *mut usize) -> nxd_status_t;

    /// Name of a mismatch; borrowed from the report.  [local]
    /// @since 0.1
    pub fn nxd_load_report_get_name(report: *mut nxd_load_report_t, kind: nxd_mismatch_t, index: usize, out_name: *mut *const c_char) -> nxd_status_t;

    /// Releases the report.  [local]
    /// @since 0.1
    pub fn nxd_load_report_destroy(report: *mut nxd_load_report_t);

    /// Reads parameters from safetensors; each rank reads its own shards only.  [local]
    ///
    /// @param path    a .safetensors file, or a directory with model.safetensors or
    /// model.safetensors.index.json; with both the file is read, as in transformers.
    /// @param strict  1: any mismatch is INVALID_ARGUMENT and no parameter is changed.
    /// @param[out] out_report  also given when strict fails; the caller destroys it; may be NULL.
    /// @return NXD_OK; INVALID_ARGUMENT; IO; CORRUPT.
    /// @since 0.1
    pub fn nxd_module_load_safetensors(root: *mut nxd_module_t, path: *const c_char, strict: i32, out_report: *mut *mut nxd_load_report_t) -> nxd_status_t;

    /// Writes the whole parameters, those of all stages, as one safetensors file, on the first rank of
    /// data-parallel copy 0; crash-safe.  [collective: tensor- and pipeline-parallel groups]
    ///
    /// @param path  file; replaced when complete. An index beside a model.safetensors, which is that of
    /// an older save, is removed then.
    /// @return NXD_OK on all ranks; IO on all ranks when the writer failed.
    /// @since 0.1
    pub fn nxd_module_save_safetensors(root: *mut nxd_module_t, path: *const c_char) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_embedding_options_init(options: *mut nxd_embedding_options_t, size: usize) -> nxd_status_t;

    /// Embedding table split over the tensor-parallel ranks.  [local]
    ///
    /// Forward: ids [...], I64, the same on all ranks -> [..., embedding_dim]. Ids outside of the table
    /// are INVALID_ARGUMENT on every rank.
    /// @param num_embeddings  rows; must divide by the group's size (embedding_dim with
    /// shard_across_embedding).
    /// @since 0.1
    pub fn nxd_parallel_embedding_create(ctx: *mut nxd_context_t, num_embeddings: i64, embedding_dim: i64, options: *const nxd_embedding_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_linear_options_init(options: *mut nxd_linear_options_t, size: usize) -> nxd_status_t;

    /// Linear layer whose output features are split over the tensor-parallel ranks.  [local]
    ///
    /// Forward: x [..., in_features], replicated (or a slice of sequence_dim with sequence_parallel)
    /// -> [..., out_features / tp], or [..., out_features] with gather_output.
    /// @return NXD_OK; INVALID_ARGUMENT (out_features does not divide; gather_output together with
    /// sequence_parallel); INVALID_STATE (model parallel not initialised).
    /// @since 0.1
    pub fn nxd_column_parallel_linear_create(ctx: *mut nxd_context_t, in_features: i64, out_features: i64, options: *const nxd_linear_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// Linear layer whose input features are split over the tensor-parallel ranks.  [local]
    ///
    /// Forward: x [..., in_features / tp] with input_is_parallel, else [..., in_features], which is
    /// split -> [..., out_features], summed over ranks in f32 or wider, or this rank's slice of the sum
    /// along sequence_dim with sequence_parallel.
    /// @return NXD_OK; INVALID_ARGUMENT (in_features does not divide; sequence_parallel without
    /// input_is_parallel); INVALID_STATE.
    /// @since 0.1
    pub fn nxd_row_parallel_linear_create(ctx: *mut nxd_context_t, in_features: i64, out_features: i64, options: *const nxd_linear_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// The whole initial weight of a layer made with keep_master_weight; borrowed.  [local]
    /// @return NXD_OK; INVALID_STATE (not kept).
    /// @since 0.1
    pub fn nxd_module_get_master_weight(module: *mut nxd_module_t, out_weight: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_norm_options_init(options: *mut nxd_norm_options_t, size: usize) -> nxd_status_t;

    /// Layer normalisation over the last dimension (Ba et al. 2016).  [local]
    /// Forward: x [..., size], and optionally a residual to add to it first -> the normalised sum and,
    /// when two outputs are asked for, the sum. The weight starts as ones, the bias as zeros.
    /// @since 0.1
    pub fn nxd_layer_norm_create(ctx: *mut nxd_context_t, size: i64, options: *const nxd_norm_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// Root-mean-square normalisation over the last dimension (Zhang and Sennrich 2019).  [local]
    ///
    /// Forward: as nxd_layer_norm_create's, computed in f32 or wider. The weight starts as ones.
    /// @since 0.1
    pub fn nxd_rms_norm_create(ctx: *mut nxd_context_t, size: i64, options: *const nxd_norm_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_rope_options_init(options: *mut nxd_rope_options_t, size: usize) -> nxd_status_t;

    /// Rotates query or key heads by their position.  [local]
    ///
    /// Forward: x [batch, sequence, heads, head_dim] -> the same shape; position i of the sequence is
    /// i.
    /// @since 0.1
    pub fn nxd_rotary_embedding_create(ctx: *mut nxd_context_t, head_dim: i64, options: *const nxd_rope_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_attention_options_init(options: *mut nxd_attention_options_t, size: usize) -> nxd_status_t;

    /// Self-attention with grouped key and value heads (Ainslie et al. 2023), heads split over the
    /// tensor-parallel ranks.  [local]
    ///
    /// Parameters q_proj, k_proj, v_proj, o_proj. With fewer key heads than ranks, each is held by
    /// several ranks and its gradients are summed by nxd_finish_gradients.
    /// Forward: x [batch, sequence, hidden], or a slice of [sequence, batch, hidden] with
    /// sequence_parallel; optionally a key mask [batch, sequence], I64 or BOOL, 0 where a position is
    /// padding -> the shape of x.
    /// @param n_heads  must divide by the group's size; n_kv_heads must divide it or be divided by it.
    /// @since 0.1
    pub fn nxd_attention_create(ctx: *mut nxd_context_t, hidden: i64, n_heads: i64, options: *const nxd_attention_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_mlp_options_init(options: *mut nxd_mlp_options_t, size: usize) -> nxd_status_t;

    /// down_proj(activation(gate_proj(x)) * up_proj(x)), split over the tensor-parallel ranks
    /// (Shazeer 2020).  [local]
    ///
    /// Forward: x [..., hidden] -> [..., hidden].
    /// @since 0.1
    pub fn nxd_gated_mlp_create(ctx: *mut nxd_context_t, hidden: i64, intermediate: i64, options: *const nxd_mlp_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// Dropout whose bits depend on the seed, the layer's name, the global index of each element, the
    /// step and the microbatch, and on nothing else.  [local]
    ///
    /// Forward: x, any shape -> the same shape. In training, elements are zeroed with probability p and
    /// the others scaled by 1 / (1 - p); in evaluation x itself.
    /// @param name       canonical name of the site; sites with one name draw the same bits. Replaced
    /// by the module's path in nxd_module_initialize.
    /// @param shard_dim  dimension of x that is split over the tensor-parallel ranks, so that each rank
    /// drops its own part of the whole; -1: x is replicated and dropped alike.
    /// @return NXD_OK; INVALID_ARGUMENT (p not in [0, 1)).
    /// @since 0.1
    pub fn nxd_dropout_create(ctx: *mut nxd_context_t, p: f64, name: *const c_char, shard_dim: i32, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// Identity; its backward sums the gradients of all ranks.  [collective: tensor-parallel group, in
    /// backward]
    /// @since 0.1
    pub fn nxd_copy_to_tensor_region(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, out_y: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// Sum over ranks; its backward is the identity.  [collective: tensor-parallel group]
    /// @since 0.1
    pub fn nxd_reduce_from_tensor_region(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, out_y: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// This rank's part of the last dimension; its backward gathers.  [collective: tensor-parallel
    /// group, in backward]
    /// @since 0.1
    pub fn nxd_scatter_to_tensor_region(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, out_y: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// All ranks' parts side by side in the last dimension; its backward takes this rank's part.
    /// [collective: tensor-parallel group]
    /// @since 0.1
    pub fn nxd_gather_from_tensor_region(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, out_y: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// This rank's part of a dimension; its backward gathers.  [collective: tensor-parallel group, in
    /// backward]
    /// @since 0.1
    pub fn nxd_scatter_to_sequence_region(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, dim: i32, out_y: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// All ranks' parts along a dimension.  [collective: tensor-parallel group]
    ///
    /// @param to_model_parallel  1: what follows is split over ranks, so the backward sums and scatters
    /// the gradients; 0: what follows is replicated, so it takes this rank's
    /// part.
    /// @since 0.1
    pub fn nxd_gather_from_sequence_region(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, dim: i32, to_model_parallel: i32, out_y: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// This rank's part, along a dimension, of the sum over ranks; its backward gathers.  [collective:
    /// tensor-parallel group]
    /// @since 0.1
    pub fn nxd_reduce_scatter_to_sequence_region(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, dim: i32, out_y: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_cross_entropy_options_init(options: *mut nxd_cross_entropy_options_t, size: usize) -> nxd_status_t;

    /// Cross entropy on logits whose vocabulary is split over ranks; never gathers it.  [collective:
    /// tensor-parallel group]
    ///
    /// @param logits    [..., vocabulary / tp], F32, F64 or BF16; left unchanged.
    /// @param labels    [...], I64, the same on all ranks; ignored where equal to ignore_index.
    /// @param[out] out_loss  scalar, or [...] with REDUCTION_NONE; F32, or F64 for F64 logits. The
    /// caller destroys it.
    /// @return NXD_OK; INVALID_ARGUMENT (shapes, dtypes, a label outside of the vocabulary); TIMEOUT;
    /// PEER_LOST.
    /// @since 0.1
    pub fn nxd_parallel_cross_entropy(ctx: *mut nxd_context_t, logits: *mut nxd_tensor_t, labels: *mut nxd_tensor_t, options: *const nxd_cross_entropy_options_t, out_loss: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// Cross entropy of the logits x weight^T, whose vocabulary is split over ranks, in blocks of
    /// tokens: the logits of one block exist at a time. Gradients of x and weight are formed with the
    /// loss, where autograd will ask for them, so that backward only scales them; it cannot be
    /// differentiated again. With REDUCTION_NONE, F64 or plain kernels all logits are made, as by
    /// nxd_parallel_cross_entropy.  [collective: tensor-parallel group]
    ///
    /// @param x       [..., features], F32, F64 or BF16: the same on all ranks, or this rank's part
    /// along sequence_dim. Its gradient is summed over ranks.
    /// @param weight  [vocabulary / tp, features], of the dtype of x: this rank's rows.
    /// @param labels  the whole x's shape without features, I64, the same on all ranks; ignored where
    /// equal to ignore_index.
    /// @param sequence_dim  dimension of x of which ranks hold parts (sequence parallelism), not the
    /// last; -1: none.
    /// @param[out] out_loss  as that of nxd_parallel_cross_entropy.
    /// @return NXD_OK; INVALID_ARGUMENT (shapes, dtypes, a label outside of the vocabulary); TIMEOUT;
    /// PEER_LOST.
    /// @since 0.1
    pub fn nxd_linear_cross_entropy(ctx: *mut nxd_context_t, x: *mut nxd_tensor_t, weight: *mut nxd_tensor_t, labels: *mut nxd_tensor_t, sequence_dim: i32, options: *const nxd_cross_entropy_options_t, out_loss: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_model_options_init(options: *mut nxd_model_options_t, size: usize) -> nxd_status_t;

    /// Builds a model from a Hugging Face configuration, initialised with the context's seed.  [local]
    ///
    /// Families: model_type "llama" and "gpt2". Parameter names and shapes are Hugging Face's.
    /// Forward inputs: ids [batch, sequence], I64; optionally labels of the same shape, -100 where a
    /// token is not predicted, which are shifted inside as Hugging Face does; optionally a key mask
    /// [batch, sequence], 0 where a position is padding.
    /// Outputs: without labels the logits [batch, sequence, vocabulary / tp]; with labels the mean
    /// loss over valid tokens, and as a second output, if asked for, the logits. A GPT-2's vocabulary
    /// is rounded up to a multiple of tp; logits of ids beyond it are below -1e30.
    /// With sequence_parallel the sequence must divide by the tensor-parallel size.
    /// @param config_json  text of config.json.
    /// @return NXD_OK; INVALID_ARGUMENT (not JSON, a field missing or out of range, sizes that do not
    /// divide); UNSUPPORTED (model_type, activation or rope_type unknown; the message lists the
    /// known ones; or a field that makes another model); INVALID_STATE (model parallel not
    /// initialised).
    /// @since 0.1
    pub fn nxd_model_create(ctx: *mut nxd_context_t, config_json: *const c_char, options: *const nxd_model_options_t, out_model: *mut *mut nxd_module_t) -> nxd_status_t;

    /// Builds a model from a directory's config.json and loads its safetensors, strictly.  [local]
    /// @since 0.1
    pub fn nxd_model_from_pretrained(ctx: *mut nxd_context_t, directory: *const c_char, options: *const nxd_model_options_t, out_model: *mut *mut nxd_module_t) -> nxd_status_t;

    /// Floating-point operations of one training step of a built-in model, all ranks together: 6 per
    /// matrix parameter and token, and 6 layers * sequence * attention width per token for causal
    /// attention; the input embedding counts nothing.  [local]
    /// @since 0.1
    pub fn nxd_model_get_step_flops(model: *mut nxd_module_t, batch: i64, sequence: i64, out_flops: *mut f64) -> nxd_status_t;

    /// Finishes the gradients of a model after backward: sums those of norms under sequence parallelism
    /// and of replicated key and value heads, reduces over data-parallel ranks, scales, takes the norm
    /// of the whole model and clips.  [collective: tensor-, pipeline- and data-parallel groups]
    ///
    /// Every rank calls it once per step, with gradients for the same parameters.
    /// @param[out] out_norm  of all gradients before clipping, with the same bits on all ranks; may be
    /// NULL.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (a norm that is not finite: gradients are left
    /// unclipped; or a ddp of the model's, which nxd_ddp_finish is for); TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_finish_gradients(root: *mut nxd_module_t, options: *const nxd_finish_options_t, out_norm: *mut f64) -> nxd_status_t;

    /// Data parallelism over a tree's trainable parameters, over the data-parallel group.
    /// [collective: the data-parallel group]
    ///
    /// Gradients become views into the buckets, and buckets are reduced during backward passes, in the
    /// reverse order of the parameters. With zero_stage 1 parameters become views as well. One ddp at a
    /// time has a parameter; when it and its optimizers are gone, the model has its tensors back.
    /// @since 0.1
    pub fn nxd_ddp_create(root: *mut nxd_module_t, options: *const nxd_ddp_options_t, out_ddp: *mut *mut nxd_ddp_t) -> nxd_status_t;

    /// AdamW over all trainable parameters of a tree (Loshchilov and Hutter 2019).  [local]
    ///
    /// State is kept in f32 (f64 for F64 parameters), sized like this rank's shards.
    /// @since 0.1
    pub fn nxd_adamw_create(root: *mut nxd_module_t, options: *const nxd_adamw_options_t, out_optimizer: *mut *mut nxd_optimizer_t) -> nxd_status_t;

    /// SGD over all trainable parameters of a tree.  [local]
    /// @since 0.1
    pub fn nxd_sgd_create(root: *mut nxd_module_t, options: *const nxd_sgd_options_t, out_optimizer: *mut *mut nxd_optimizer_t) -> nxd_status_t;

    /// A caller's own update rule over all trainable parameters of a tree.  [local]
    /// @return NXD_OK; INVALID_ARGUMENT. After a failure destroy is not called.
    /// @since 0.1
    pub fn nxd_custom_optimizer_create(root: *mut nxd_module_t, options: *const nxd_custom_optimizer_options_t, out_optimizer: *mut *mut nxd_optimizer_t) -> nxd_status_t;

    /// Weights that make mean losses of microbatches add up to the mean over all valid tokens of the
    /// step: each one's valid labels divided by those of all microbatches of all data-parallel ranks.
    /// [collective: the data-parallel group]
    ///
    /// Multiply each loss by its weight, or give the weight as its gradient to nxd_backward, and reduce
    /// gradients with SUM.
    /// @param labels   [.., sequence] I64 each; NULL among them: no tokens.
    /// @param shifted  1: as models take them, whose first label of a row predicts nothing.
    /// @param[out] out_weights  n; all 0 when no rank has a valid label.
    /// @return NXD_OK; INVALID_ARGUMENT; TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_loss_weights(ctx: *mut nxd_context_t, labels: *const *mut nxd_tensor_t, n: usize, ignore_index: i64, shifted: i32, out_weights: *mut f64) -> nxd_status_t;

    /// Fills options with defaults.  [local]
    /// @since 0.1
    pub fn nxd_pp_options_init(options: *mut nxd_pp_options_t, size: usize) -> nxd_status_t;

    /// Traces a model, cuts it and keeps this rank's stages.  [collective: the pipeline-parallel group]
    ///
    /// Parameters outside of this rank's stages lose their values; those inside that are on the meta
    /// device get theirs. Parameters that several stages share are made equal to their owner's, that of
    /// the first stage that has them, and their gradients are summed by every training run.
    /// @param model    the root; kept alive. Its forward runs once, on tensors without data: reading a
    /// value fails, and the message names the module and the operation.
    /// @param inputs   examples of the inputs of one run, whose shapes and dtypes count: dimension 0 is
    /// the batch. They may be on the meta device; NULL: left out in every run.
    /// @return NXD_OK; INVALID_ARGUMENT (names of cuts, leaves or inputs unknown: the nearest are
    /// given; sizes that do not divide; a schedule that does not admit the shape); INVALID_STATE (model
    /// parallel not initialised; a value is read); UNSUPPORTED (an operator without a shape
    /// function); TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_pp_create(model: *mut nxd_module_t, inputs: *const *mut nxd_tensor_t, n_inputs: usize, options: *const nxd_pp_options_t, out_pp: *mut *mut nxd_pp_t) -> nxd_status_t;

    /// Forwards and backwards of all microbatches of a batch.  [collective: the pipeline-parallel
    /// group, and the data-parallel group with a loss over tokens or broadcast_and_average_loss]
    ///
    /// Gradients add to those there are, microbatch by microbatch, and are partial as after
    /// nxd_backward: a ddp given by nxd_pp_set_ddp reduces them as they become complete;
    /// nxd_optimizer_step or nxd_finish_gradients over nxd_pp_get_local_module completes them.
    /// @param inputs  those of nxd_pp_create, the same on all ranks of the pipeline; another batch or
    /// sequence length makes the model be traced again.
    /// @param[out] out_loss  on the rank with the last stage, or with broadcast_and_average_loss
    /// everywhere; else 0. May be NULL.
    /// @since 0.1
    pub fn nxd_pp_run_train(pp: *mut nxd_pp_t, inputs: *const *mut nxd_tensor_t, n_inputs: usize, out_loss: *mut f64) -> nxd_status_t;

    /// Forwards alone, without recording gradients, in evaluation mode.  [collective: as
    /// nxd_pp_run_train]
    ///
    /// @param[out] out_loss  as of nxd_pp_run_train; 0 when the model gives no loss. May be NULL.
    /// @param outputs  filled, on the rank with the last stage, with n_outputs new handles: the model's
    /// outputs of all microbatches, joined along dimension 0, scalars as a vector; the
    /// caller destroys them. NULL elsewhere. outputs itself may be NULL when n_outputs
    /// is 0.
    /// @since 0.1
    pub fn nxd_pp_run_eval(pp: *mut nxd_pp_t, inputs: *const *mut nxd_tensor_t, n_inputs: usize, out_loss: *mut f64, outputs: *mut *mut nxd_tensor_t, n_outputs: usize) -> nxd_status_t;

    /// Losses of the last run's microbatches, on the rank with the last stage, by the rule of
    /// nxd_layout_get_group; with return_mb_loss.  [local]
    /// @since 0.1
    pub fn nxd_pp_get_losses(pp: *mut nxd_pp_t, losses: *mut f64, cap: usize, out_count: *mut usize) -> nxd_status_t;

    /// Reduces gradients while runs go on: the ddp is off for all microbatches but the last. NULL: no
    /// more. The pipeline keeps nothing of it alive: take it away before it is destroyed.  [local]
    /// @param ddp  over nxd_pp_get_local_module.
    /// @since 0.1
    pub fn nxd_pp_set_ddp(pp: *mut nxd_pp_t, ddp: *mut nxd_ddp_t) -> nxd_status_t;

    /// The part of the model that this rank has: a tree of the same names whose modules and parameters
    /// are those of its stages; borrowed. Optimizers, ddps, saving and loading take it as a root.
    /// [local]
    /// @since 0.1
    pub fn nxd_pp_get_local_module(pp: *mut nxd_pp_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// Number of modules that this rank's stages call, and the path of each; borrowed.  [local]
    /// @since 0.1
    pub fn nxd_pp_get_local_module_count(pp: *mut nxd_pp_t, out_count: *mut usize) -> nxd_status_t;

    /// Path of a module that this rank's stages call; borrowed.  [local]
    /// @since 0.1
    pub fn nxd_pp_get_local_module_name(pp: *mut nxd_pp_t, index: usize, out_name: *mut *const c_char) -> nxd_status_t;

    /// Number of cuts: one less than stages.  [local]
    /// @since 0.1
    pub fn nxd_pp_get_cut_count(pp: *mut nxd_pp_t, out_count: *mut usize) -> nxd_status_t;

    /// Path of the module that a cut comes after; borrowed.  [local]
    /// @since 0.1
    pub fn nxd_pp_get_cut(pp: *mut nxd_pp_t, index: usize, out_name: *mut *const c_char) -> nxd_status_t;

    /// The traced graph as text; borrowed.  [local]
    /// @since 0.1
    pub fn nxd_pp_get_graph_text(pp: *mut nxd_pp_t, out_text: *mut *const c_char) -> nxd_status_t;

    /// Number of modules and operators of this rank's stages whose weight gradients cannot be put off:
    /// in a zero-bubble schedule these are made together with their input gradients.  [local]
    /// @since 0.1
    pub fn nxd_pp_get_unsplit_count(pp: *mut nxd_pp_t, out_count: *mut usize) -> nxd_status_t;

    /// Name of such a parameter's node; borrowed. Known after a first training run.  [local]
    /// @since 0.1
    pub fn nxd_pp_get_unsplit_name(pp: *mut nxd_pp_t, index: usize, out_name: *mut *const c_char) -> nxd_status_t;

    /// Recomputes the activations of modules in their backward pass, instead of keeping them (Chen et
    /// al. 2016). Names and state do not change. May be called before or after nxd_pp_create.  [local]
    ///
    /// @param names  paths from the root, or class names, of the modules; NULL with n_names 0: all
    /// transformer layers of a built-in model.
    /// @param on     1; 0: no longer.
    /// @return NXD_OK; INVALID_ARGUMENT (a name that is neither a path nor a class: the nearest are
    /// given).
    /// @since 0.1
    pub fn nxd_apply_checkpoint(root: *mut nxd_module_t, names: *const *const c_char, n_names: usize, on: i32) -> nxd_status_t;
}
