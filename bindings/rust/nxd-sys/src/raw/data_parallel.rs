//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// How the ranks of the tensor-parallel group hold a parameter.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_placement_t(pub i32);

impl nxd_placement_t {
    pub const INVALID: Self = Self(-1);
    /// each rank has an equal part along one dimension, in the order of the ranks and without padding; else nxd_ddp_set_shards
    pub const SHARDED: Self = Self(0);
    /// the same values on all ranks, and the same gradient
    pub const REPLICATED: Self = Self(1);
    /// the same values; gradients are summed over the group when they are finished, such as those of norms under sequence parallelism
    pub const PARTIAL_GRAD: Self = Self(2);
}

impl std::fmt::Debug for nxd_placement_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::SHARDED => f.write_str("SHARDED"),
            Self::REPLICATED => f.write_str("REPLICATED"),
            Self::PARTIAL_GRAD => f.write_str("PARTIAL_GRAD"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_placement_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Data parallelism over a set of parameters.
#[repr(C)]
pub struct nxd_ddp_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
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
    pub fp32_grads: i32,
    /// default on; off: buckets are reduced when gradients are finished
    pub overlap: nxd_toggle_t,
    /// default on: the first rank's parameters are sent to the others
    pub broadcast: nxd_toggle_t,
    /// 0
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

/// Options for the completion of gradients.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_finish_options_t {
    pub struct_size: usize,
    /// factor on all gradients before the norm, a normal number of F32; 0: 1
    pub scale: f64,
    /// gradients are scaled to this norm when theirs exceeds it and is finite; 0: no clipping
    pub max_norm: f64,
    /// 0: 2; 1 and infinity too
    pub norm_type: f64,
    /// SUM or AVG over data-parallel ranks; a ddp's own option counts where there is one
    pub data_parallel_reduce: nxd_reduce_t,
    /// default on; off: a norm that is not finite is no error
    pub check_finite: nxd_toggle_t,
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

extern "C" {
    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_ddp_options_init(options: *mut nxd_ddp_options_t, size: usize) -> nxd_status_t;

    /// [collective: the group] Data parallelism over buffers that the caller owns, such as another
    /// framework's.
    ///
    /// Norms are those of the group's ranks alone, until nxd_ddp_set_placements or _set_shards says how
    /// the model is split over other ranks. Before that max_norm, nxd_optimizer_save and _snapshot are
    /// UNSUPPORTED in a layout with tensor- or pipeline-parallel ranks, unless the group is the whole
    /// world; and check_finite skips an update on the group's ranks alone, so that other ranks which
    /// have the same parameters may go on without it.
    /// @param group   NULL: the data-parallel group, or the world where model parallelism is not
    /// initialised.
    /// @param names   of the parameters, each once: what nxd_optimizer_add_group, saved states and
    /// random bits key on; NULL: "0", "1" and so on.
    /// @param params  CPU tensors without gaps, in C order or another order of dimensions, such as
    /// channels last: F32, F64 or BF16, the same on all ranks, in the order of use. The
    /// structs are borrowed for the call; the memory until the ddp and its optimizers
    /// are destroyed, or nxd_ddp_rebind. Each parameter and gradient has memory of its
    /// own: a tied one is given once.
    /// @param grads   of the parameters' shapes and orders of dimensions, of their dtype, or F32 for
    /// BF16. Gradients are summed over backward passes by the caller, and reduced in
    /// place: with zero_stage 1 only this rank's part of them is meaningful afterwards.
    /// @return NXD_OK; INVALID_ARGUMENT, also when ranks differ; UNSUPPORTED (group NULL with context-
    /// or expert-parallel ranks); OUT_OF_MEMORY; ABI_MISMATCH; TIMEOUT; PEER_LOST. All ranks
    /// fail when one does, but for a ctx or group that is none.
    /// @since 0.1
    pub fn nxd_ddp_create_buffers(ctx: *mut nxd_context_t, group: *mut nxd_group_t, names: *const *const c_char, params: *const *mut DLTensor, grads: *const *mut DLTensor, num_params: usize, options: *const nxd_ddp_options_t, out_ddp: *mut *mut nxd_ddp_t) -> nxd_status_t;

    /// [collective: tensor-, pipeline- and data-parallel groups] Says how the parameters of a ddp over
    /// buffers are parts of a model. From then on norms and clipping are those of the whole model, each
    /// element counted once, and a saved state is one file with whole arrays, which every layout reads.
    /// nxd_ddp_finish, nxd_optimizer_step and nxd_optimizer_save are then collective over these groups.
    ///
    /// Before gradients are marked and before the first step. The ddp's group must be the data-parallel
    /// group. Parameters of different pipeline stages have different names, unless they are tied.
    /// @param placements  of all parameters, the same on the ranks of a stage.
    /// @param dims        of sharded parameters: the dimension that is split; NULL: 0 for all.
    /// @param tied        1 for a parameter that another pipeline stage has too and counts in norms;
    /// its gradient is complete on both. NULL: 0 for all.
    /// @param num_params  nxd_ddp_get_count.
    /// @return NXD_OK; INVALID_ARGUMENT, also when ranks differ (on all of them); INVALID_STATE (no
    /// nxd_init_model_parallel, a ddp of a module, gradients marked, a step made); UNSUPPORTED
    /// (context- or expert-parallel ranks); TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_ddp_set_placements(ddp: *mut nxd_ddp_t, placements: *const nxd_placement_t, dims: *const i32, tied: *const i32, num_params: usize) -> nxd_status_t;

    /// [collective: tensor-, pipeline- and data-parallel groups] nxd_ddp_set_placements for parameters
    /// that ranks hold other parts of than equal consecutive ones: padded vocabularies, fused weights,
    /// key heads that several ranks share. A saved state has them as a model on one rank would: without
    /// padding, fused weights one after another, each head once.
    ///
    /// @param shards         of all parameters, alike on the ranks of a stage: the options that their
    /// arrays are filled and gathered by (nxd_shard_initialize). NULL where each
    /// rank has the whole parameter.
    /// @param partial_grads  1: the ranks that hold the same elements, such as a norm's or a shared
    /// head's, have parts of their gradient, which are summed over these ranks
    /// when gradients are finished. 0: each of them has it complete. NULL: 0 for
    /// all.
    /// @param tied           as of nxd_ddp_set_placements.
    /// @param num_params     nxd_ddp_get_count.
    /// @return as nxd_ddp_set_placements; INVALID_ARGUMENT also for shards that no whole parameter has.
    /// @since 0.1
    pub fn nxd_ddp_set_shards(ddp: *mut nxd_ddp_t, shards: *const *const nxd_shard_options_t, partial_grads: *const i32, tied: *const i32, num_params: usize) -> nxd_status_t;

    /// [local] Says that a buffer has moved, for frameworks that allocate new gradients.
    ///
    /// At any time before the parameter is marked in a step, such as in the hook that then marks it.
    /// Reductions of other parameters may be under way. Memory that was left is not touched any more.
    /// A gradient that is freed between steps is bound anew, or its parameter's reduction would use it:
    /// at the latest before nxd_ddp_finish or nxd_optimizer_step, and for a parameter that is marked
    /// unused too, whose gradient is written where other ranks have used it.
    /// @param param  NULL: as before. Values of memory at another address are read anew; values that
    /// were replaced where they lie are told by nxd_ddp_mark_reloaded.
    /// @param grad   NULL: as before.
    /// @return NXD_OK; INVALID_ARGUMENT (another shape or dtype); INVALID_STATE (a ddp of a module, or
    /// the parameter is marked in this step).
    /// @since 0.1
    pub fn nxd_ddp_rebind(ddp: *mut nxd_ddp_t, index: usize, param: *mut DLTensor, grad: *mut DLTensor) -> nxd_status_t;

    /// [local] Number of parameters.
    /// @since 0.1
    pub fn nxd_ddp_get_count(ddp: *mut nxd_ddp_t, out_count: *mut usize) -> nxd_status_t;

    /// [local] Name of a parameter; borrowed from the ddp.
    /// @since 0.1
    pub fn nxd_ddp_get_name(ddp: *mut nxd_ddp_t, index: usize, out_name: *mut *const c_char) -> nxd_status_t;

    /// [collective: the group] Says that a gradient is complete for this step; when all of a bucket's
    /// are, and the buckets before it have started, its reduction starts.
    ///
    /// For buffers; a module's ddp sees its gradients itself. Ranks may mark in different orders.
    /// Marking only overlaps the reduction with the backward pass. Parameters that are not marked are
    /// reduced, as they are, when gradients are finished.
    /// @return NXD_OK; INVALID_ARGUMENT (index); INVALID_STATE (marked twice, nxd_ddp_set_sync off, or
    /// a module's ddp); an error of an earlier bucket's reduction.
    /// @since 0.1
    pub fn nxd_ddp_mark_ready(ddp: *mut nxd_ddp_t, index: usize) -> nxd_status_t;

    /// [collective: the group] Marks a parameter that took no part in this step on this rank: its
    /// gradient counts as zeros, and may be overwritten by them. One that took part on no rank is left
    /// alone by nxd_optimizer_step, and by nxd_optimizer_update after nxd_ddp_finish.
    /// @return as nxd_ddp_mark_ready.
    /// @since 0.1
    pub fn nxd_ddp_mark_unused(ddp: *mut nxd_ddp_t, index: usize) -> nxd_status_t;

    /// [local] Reduces during the next backward passes (1, the default), or lets gradients add up (0):
    /// off for all microbatches of a step but the last.
    /// @since 0.1
    pub fn nxd_ddp_set_sync(ddp: *mut nxd_ddp_t, sync: i32) -> nxd_status_t;

    /// [local] Bytes of buckets that the ddp holds on this rank. A module's gradients lie in them; over
    /// buffers they come beside parameters and gradients.
    /// @since 0.1
    pub fn nxd_ddp_get_buffer_bytes(ddp: *mut nxd_ddp_t, out_bytes: *mut u64) -> nxd_status_t;

    /// [local] Says that the caller's buffers hold the values of one step again, after a step that
    /// left them PARTIAL. A module's parameters know: nxd_parameter_set_full,
    /// nxd_module_load_safetensors and nxd_module_initialize make them whole.
    /// @return NXD_OK; INVALID_STATE (a module's ddp).
    /// @since 0.1
    pub fn nxd_ddp_mark_reloaded(ddp: *mut nxd_ddp_t) -> nxd_status_t;

    /// [blocking] Waits for reductions under way and releases the ddp; optimizers over it keep what
    /// they need.
    /// @since 0.1
    pub fn nxd_ddp_destroy(ddp: *mut nxd_ddp_t);

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_finish_options_init(options: *mut nxd_finish_options_t, size: usize) -> nxd_status_t;

    /// [collective: tensor-, pipeline- and data-parallel groups] Finishes the gradients of a ddp of
    /// zero_stage 0: waits for the reductions, then does what nxd_finish_grads does. An update by
    /// nxd_optimizer_update may follow. Another nxd_ddp_finish, or nxd_optimizer_step, would reduce the
    /// same gradients again: the caller fills them anew before.
    /// @param[out] out_norm  as nxd_finish_grads; may be NULL.
    /// @since 0.1
    pub fn nxd_ddp_finish(ddp: *mut nxd_ddp_t, options: *const nxd_finish_options_t, out_norm: *mut f64) -> nxd_status_t;

    /// [local] Gives the samples of a data set that a data-parallel rank takes in an epoch: as
    /// torch.utils.data.DistributedSampler, with a permutation of this library's own.
    ///
    /// Every epoch is one permutation of all samples, the same on all ranks; rank r takes places r,
    /// r + ranks and so on. Without drop_last the permutation is continued from its start until the
    /// ranks have equally many; with it the tail is dropped.
    /// @param shuffle  0: the samples in order.
    /// @param[out] out_indices  room for cap indices; cap 0: only the count is wanted.
    /// @param[out] out_count    indices of this rank, also when they exceed cap: then nothing is
    /// copied, and a cap other than 0 is INVALID_ARGUMENT.
    /// @since 0.1
    pub fn nxd_sample_epoch(num_samples: i64, ranks: i32, rank: i32, epoch: i64, seed: u64, shuffle: i32, drop_last: i32, out_indices: *mut i64, cap: usize, out_count: *mut usize) -> nxd_status_t;
}
