//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

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

/// Hardware that decides the order of ranks.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_platform_t(pub i32);

impl nxd_platform_t {
    pub const INVALID: Self = Self(-1);
    /// tensor-parallel ranks adjacent, then context, data, pipeline
    pub const NEUTRAL: Self = Self(0);
    /// as neutral, but tensor groups of 4 are strided within a host
    pub const TRN1: Self = Self(1);
    /// as neutral, but tensor groups of 64 are rings; with lnc_size 2 those of 32 instead, in worlds of 64 ranks or more
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

/// A layout of ranks. Sizes are rejected, never clamped: tensor x pipeline x context, and tensor x
/// pipeline x expert, must divide the world. Context- and expert-parallel groups are for a caller's
/// own use: nothing is reduced over them, so with a size above 1 layers, models, their training,
/// pipelines, and ddps over buffers without a group of their own are UNSUPPORTED.
///
/// reduce_dtype is no part of a layout: tensor-parallel ranks exchange the partial sums of linear
/// layers in it, where these are BF16. BF16 halves the bytes; each rank's part is then rounded
/// before the parts are added.
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
    /// F32, or BF16: of the partial sums of BF16 linear layers
    pub reduce_dtype: nxd_dtype_t,
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

extern "C" {
    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_parallel_options_init(options: *mut nxd_parallel_options_t, size: usize) -> nxd_status_t;

    /// [local] Number of groups along an axis of a layout; no context needed.
    /// @return NXD_OK; INVALID_ARGUMENT (sizes that do not divide); UNSUPPORTED (platform and layout).
    /// @since 0.1
    pub fn nxd_layout_get_group_count(options: *const nxd_parallel_options_t, world_size: i32, axis: nxd_axis_t, out_count: *mut i32) -> nxd_status_t;

    /// [local] Ranks of one group of a layout, in group order; no context needed.
    ///
    /// @param index   0..count-1, in the order of the lists NxD Core prints.
    /// @param ranks   room for cap ranks; may be NULL when cap is 0.
    /// @param[out] out_size  ranks in the group, also when they exceed cap: then nothing is copied, and
    /// a cap other than 0 is INVALID_ARGUMENT.
    /// @since 0.1
    pub fn nxd_layout_get_group(options: *const nxd_parallel_options_t, world_size: i32, axis: nxd_axis_t, index: i32, ranks: *mut i32, cap: usize, out_size: *mut usize) -> nxd_status_t;

    /// [local] Group that a rank belongs to, and its place in it; no context needed.
    /// @since 0.1
    pub fn nxd_layout_find_rank(options: *const nxd_parallel_options_t, world_size: i32, axis: nxd_axis_t, rank: i32, out_group_index: *mut i32, out_rank_in_group: *mut i32) -> nxd_status_t;

    /// [collective: world] Lays out the context's world and makes its groups.
    ///
    /// @param options  NULL: one tensor- and pipeline-parallel rank, all others data parallel.
    /// @return NXD_OK; INVALID_ARGUMENT (sizes, ranks that disagree about them, or tensor-parallel
    /// ranks with different seeds); INVALID_STATE (initialised already, finalized, forked);
    /// UNSUPPORTED (platform and layout); TIMEOUT; PEER_LOST; ABORTED.
    /// @since 0.1
    pub fn nxd_init_model_parallel(ctx: *mut nxd_context_t, options: *const nxd_parallel_options_t) -> nxd_status_t;

    /// [local] Forgets the layout, so that nxd_init_model_parallel may be called again.
    ///
    /// Modules made under the old layout keep their groups. Works still pending on groups that nothing
    /// keeps end with ABORTED first, as with nxd_group_destroy.
    /// @return NXD_OK; INVALID_STATE (not initialised; in an interrupt callback).
    /// @since 0.1
    pub fn nxd_destroy_model_parallel(ctx: *mut nxd_context_t) -> nxd_status_t;

    /// [local] 1 between nxd_init_model_parallel and nxd_destroy_model_parallel; 0 for NULL, and in a
    /// fork of the context's process.
    /// @since 0.1
    pub fn nxd_model_parallel_is_initialized(ctx: *mut nxd_context_t) -> i32;

    /// [local] Ranks in this rank's group along an axis.
    /// @return NXD_OK; INVALID_ARGUMENT (axis); INVALID_STATE (not initialised).
    /// @since 0.1
    pub fn nxd_parallel_get_size(ctx: *mut nxd_context_t, axis: nxd_axis_t, out_size: *mut i32) -> nxd_status_t;

    /// [local] This rank's place in its group along an axis.
    /// @since 0.1
    pub fn nxd_parallel_get_rank(ctx: *mut nxd_context_t, axis: nxd_axis_t, out_rank: *mut i32) -> nxd_status_t;

    /// [local] World rank of the first member of this rank's group along an axis.
    /// @since 0.1
    pub fn nxd_parallel_get_source_rank(ctx: *mut nxd_context_t, axis: nxd_axis_t, out_rank: *mut i32) -> nxd_status_t;

    /// [local] This rank's group along an axis; borrowed from the context until the layout is
    /// destroyed.
    /// @since 0.1
    pub fn nxd_parallel_get_group(ctx: *mut nxd_context_t, axis: nxd_axis_t, out_group: *mut *mut nxd_group_t) -> nxd_status_t;

    /// [local] All groups along an axis: their number, and the ranks of one by index.
    ///
    /// @param index  0..count-1; the ranks come as from nxd_layout_get_group.
    /// @since 0.1
    pub fn nxd_parallel_get_group_list(ctx: *mut nxd_context_t, axis: nxd_axis_t, index: i32, ranks: *mut i32, cap: usize, out_size: *mut usize, out_count: *mut i32) -> nxd_status_t;

    /// [local] World rank of the next pipeline stage; the last stage's next is the first.
    /// @since 0.1
    pub fn nxd_parallel_get_pipeline_next_rank(ctx: *mut nxd_context_t, out_rank: *mut i32) -> nxd_status_t;

    /// [local] World rank of the previous pipeline stage; the first stage's previous is the last.
    /// @since 0.1
    pub fn nxd_parallel_get_pipeline_previous_rank(ctx: *mut nxd_context_t, out_rank: *mut i32) -> nxd_status_t;
}
