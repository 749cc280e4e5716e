//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

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

/// The part of a whole weight that a rank holds. Ranks have parts of one dimension, of equal sizes,
/// in the ranks' order.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_shard_options_t {
    pub struct_size: usize,
    /// of dim in the whole weight; 0: the shards' sizes together. Where these exceed it, the last ranks have padding, which is zeros
    pub size: i64,
    /// 1: ranks have parts of dim; 0: each rank has the whole weight, and the other fields are 0
    pub has_dim: i32,
    /// from the end when negative
    pub dim: i32,
    /// weights of one size that lie one after another along dim, such as those of gate and up projection, of each of which a rank has its part; 0: 1. Without padding and num_heads
    pub num_fused: i32,
    /// dim is so many heads; where there are fewer than ranks, several ranks have the same one. 0: of no concern
    pub num_heads: i32,
}

unsafe impl Versioned for nxd_shard_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        if self.dim != 0 {
            self.has_dim = 1;
        }
        self
    }
}

impl Default for nxd_shard_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_shard_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

extern "C" {
    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_shard_options_init(options: *mut nxd_shard_options_t, size: usize) -> nxd_status_t;

    /// [local] Fills a shard with its part of the whole weight's initial values. These depend on the
    /// context's seed, the name and the element's index in the whole weight (Philox4x32-10, Salmon et
    /// al. 2011), and are those of a parameter of that canonical name in a model of libnxd: no number
    /// of ranks changes a bit of them. Values of 16-bit floats are those of F32, rounded.
    ///
    /// @param name   of the weight, such as "model.layers.0.mlp.up_proj.weight".
    /// @param init   not DEFAULT. The fan_in of KAIMING_UNIFORM is the product of the whole weight's
    /// sizes but the first. A layer of an embedding takes the first instead, its number
    /// of rows.
    /// @param shard  F32, F64, BF16 or F16, of at least one dimension where has_dim.
    /// @return NXD_OK; INVALID_ARGUMENT (shapes, dtypes, options; on all ranks a distribution with
    /// values beyond the range of the shard's dtype); INVALID_STATE (no
    /// nxd_init_model_parallel, finalized); UNSUPPORTED (context- or expert-parallel ranks);
    /// OUT_OF_MEMORY.
    /// @since 0.1
    pub fn nxd_shard_initialize(ctx: *mut nxd_context_t, name: *const c_char, init: nxd_init_t, a: f64, b: f64, options: *const nxd_shard_options_t, shard: *mut DLTensor) -> nxd_status_t;

    /// [local] Copies this rank's part of a whole weight.
    /// @param full   any dtype.
    /// @param shard  of the dtype of full.
    /// @return as nxd_shard_initialize; the size of options is 0, or that of full.
    /// @since 0.1
    pub fn nxd_shard_set_full(ctx: *mut nxd_context_t, full: *const DLTensor, options: *const nxd_shard_options_t, shard: *mut DLTensor) -> nxd_status_t;

    /// [collective: tensor-parallel group] Puts the whole weight together from all ranks' shards, on
    /// every rank. Where ranks hold the same heads, or the same weight, the first one's counts.
    /// @param shard  any dtype, of equal sizes on all ranks, which are compared.
    /// @param full   of the dtype of shard.
    /// @return as nxd_shard_set_full, on all ranks, without any change of full; TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_shard_gather_full(ctx: *mut nxd_context_t, shard: *const DLTensor, options: *const nxd_shard_options_t, full: *mut DLTensor) -> nxd_status_t;

    /// [local] Reads this rank's part of a tensor, and no other bytes of it, from safetensors.
    ///
    /// @param path   a .safetensors file, or a directory with model.safetensors or
    /// model.safetensors.index.json; with both the file is read.
    /// @param name   of the tensor.
    /// @param shard  any dtype that the stored one can be converted to: floats among one another, else
    /// the same. After a failure its values are undefined.
    /// @return as nxd_shard_initialize; INVALID_ARGUMENT also for a name that is not there; IO;
    /// CORRUPT; UNSUPPORTED (a stored dtype that is not computed with, or not known).
    /// @since 0.1
    pub fn nxd_shard_load_safetensors(ctx: *mut nxd_context_t, path: *const c_char, name: *const c_char, options: *const nxd_shard_options_t, shard: *mut DLTensor) -> nxd_status_t;
}
