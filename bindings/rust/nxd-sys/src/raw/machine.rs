//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// Work that the library spends time on while it trains.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_phase_t(pub i32);

impl nxd_phase_t {
    pub const INVALID: Self = Self(-1);
    /// y = x W^T of linear layers
    pub const GEMM_FORWARD: Self = Self(0);
    /// dx = dy W
    pub const GEMM_INPUT_GRAD: Self = Self(1);
    /// dW = dy^T x
    pub const GEMM_WEIGHT_GRAD: Self = Self(2);
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
            Self::GEMM_INPUT_GRAD => f.write_str("GEMM_INPUT_GRAD"),
            Self::GEMM_WEIGHT_GRAD => f.write_str("GEMM_WEIGHT_GRAD"),
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

/// Time and calls of a phase, from nxd_profile_get_phase.
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
    /// of these seconds, those in which a rank had come to a collective or a message and its peers had not; over TCP with the way of headers and of small data. The rest of communication moves and adds data
    pub waiting_seconds: f64,
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

extern "C" {
    /// [local] 1 when NXD_CPU_MODE asks for eager execution on the CPU.
    /// @since 0.1
    pub fn nxd_cpu_mode() -> i32;

    /// [local] Device this process trains on: the CPU with NXD_CPU_MODE=1; else device XLA, when
    /// NXD_XLA_BACKEND is set or a PJRT plug-in is found.
    ///
    /// The plug-in is that of NXD_PJRT_PLUGIN, that of NEURON_LIBRARY_PATH, or Neuron's
    /// libneuronpjrt.so, where the loader finds it or in /opt/aws/neuron/lib: the first of these.
    /// @return NXD_OK; UNSUPPORTED when NXD_CPU_MODE is not 1 and there is neither; the message lists
    /// what was looked for.
    /// @since 0.1
    pub fn nxd_get_device(out_device: *mut nxd_device_t) -> nxd_status_t;

    /// [local] Measures the machine's matrix-product peak: square products, the median of a
    /// few runs on this thread's OpenMP team.
    ///
    /// @param dtype  F32 or BF16.
    /// @param size   edge; 0: 2048.
    /// @param[out] out_rate  floating-point operations per second, 2 size^3 per product.
    /// @return NXD_OK; INVALID_ARGUMENT (dtype, size); OUT_OF_MEMORY.
    /// @since 0.1
    pub fn nxd_measure_gemm_peak(dtype: nxd_dtype_t, size: i32, out_rate: *mut f64) -> nxd_status_t;

    /// [local] Ends the threads that the library and OpenMP keep for the calling thread between calls.
    /// The next call that needs threads starts new ones. Otherwise the library's threads spin for 50 us
    /// after each call, OpenMP's for some milliseconds, and then sleep. Older OpenMP keeps its own.
    ///
    /// @return NXD_OK; INVALID_STATE (inside a parallel region); UNSUPPORTED (OpenMP before 5.0).
    /// @since 0.1
    pub fn nxd_release_threads() -> nxd_status_t;

    /// [local] Clears the phases of the process and counts from now on. Fused kernels and collectives
    /// count, plain ATen operators do not. A kernel's phase includes the kernels that it calls. While
    /// on, each kernel reads a clock twice; while off, the cost is too small to be measured.
    /// @since 0.1
    pub fn nxd_profile_start() -> nxd_status_t;

    /// [local] Ends counting; the phases keep what they have. Kernels in progress are counted still.
    /// @since 0.1
    pub fn nxd_profile_stop() -> nxd_status_t;

    /// [local] Reads one phase, while counting or later.
    ///
    /// @param phase  an NXD_PHASE_*; INVALID_ARGUMENT for others, so that a loop from 0 ends there.
    /// @param[in,out] out_stats  struct_size set by the caller.
    /// @since 0.1
    pub fn nxd_profile_get_phase(phase: nxd_phase_t, out_stats: *mut nxd_phase_stats_t) -> nxd_status_t;
}
