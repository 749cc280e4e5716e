//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// The source of a context's rank, and of the addresses of its peers.
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

/// The means that carries the data of a group.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_transport_t(pub i32);

impl nxd_transport_t {
    pub const INVALID: Self = Self(-1);
    pub const AUTO: Self = Self(0);
    /// TCP between all ranks
    pub const GLOO: Self = Self(1);
    /// groups that span hosts are rejected
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

/// Asked every few tens of milliseconds while a call blocks, on the calling thread. Any status but
/// NXD_OK ends the call, which returns that status unchanged. If the call is a collective or a
/// message, its group is poisoned. Peers that wait for this rank then get PEER_LOST, as they do
/// when nxd_context_create is ended. nxd_work_wait leaves the work as it is, and so does the wait
/// for works of nxd_context_finalize.
///
/// The callback may make calls. INVALID_STATE: those on the group of the call that it is asked in,
/// nxd_context_finalize and nxd_destroy_model_parallel. A destroy of this group or of the context
/// logs an error, and leaves it as it is.
pub type nxd_interrupt_fn = Option<
    unsafe extern "C" fn(user_data: *mut c_void) -> nxd_status_t,
>;

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
    /// of initial weights and random bits, the same on ranks that share tensors; 0: NXD_SEED or 0
    pub seed: u64,
    /// every layer through plain ATen operators; default: NXD_PLAIN_KERNELS or off
    pub plain_kernels: nxd_toggle_t,
    /// of all groups, the same on all ranks; AUTO: NXD_TRANSPORT or by topology
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

extern "C" {
    /// [local] Fills options with defaults.
    /// @param size  sizeof(nxd_context_options_t) as the caller's header has it.
    /// @return NXD_OK; INVALID_ARGUMENT (NULL); ABI_MISMATCH (size).
    /// @since 0.1
    pub fn nxd_context_options_init(options: *mut nxd_context_options_t, size: usize) -> nxd_status_t;

    /// [collective: world] Joins the world, and waits until all ranks have joined.
    ///
    /// @param options      NULL: from the environment. A struct_size that is none tells no peer.
    /// @param[out] out_ctx the caller destroys it.
    /// @return NXD_OK; INVALID_ARGUMENT (rank, size, address, or ranks that disagree); TIMEOUT (a rank
    /// did not come, its number is in the message); PEER_LOST (a rank gave up, or was given bad
    /// arguments); UNSUPPORTED (ranks of several hosts over SHARED_MEMORY); IO; CORRUPT
    /// (another program wrote to the store); the interrupt callback's.
    /// @since 0.1
    pub fn nxd_context_create(options: *const nxd_context_options_t, out_ctx: *mut *mut nxd_context_t) -> nxd_status_t;

    /// [collective: world] Leaves together with all ranks: waits for this rank's works and for the
    /// other ranks, then disconnects.
    ///
    /// Afterwards calls that other ranks take part in are INVALID_STATE. Getters, settings, memory and
    /// destroy still work.
    /// @return NXD_OK; INVALID_STATE (finalized, forked, in a callback); TIMEOUT; PEER_LOST; ABORTED;
    /// the interrupt callback's, after which it may be called again if it waited for works.
    /// @since 0.1
    pub fn nxd_context_finalize(ctx: *mut nxd_context_t) -> nxd_status_t;

    /// [local] Leaves now; peers that wait for this rank get PEER_LOST.
    ///
    /// Works still pending on its groups end with ABORTED first; their buffers are then the caller's.
    /// @since 0.1
    pub fn nxd_context_destroy(ctx: *mut nxd_context_t);

    /// [local] Makes every pending and later collective of this context return ABORTED; idempotent,
    /// from any thread.
    ///
    /// A pending call may return before this one does. Its thread may destroy the context at once:
    /// destroy waits for this call.
    /// @since 0.1
    pub fn nxd_context_abort(ctx: *mut nxd_context_t) -> nxd_status_t;

    /// [local] The last 64 collectives and 64 messages of each living group as one line of JSON: what
    /// each was called with, when it started, how long it took or has been waiting, and for whom.
    ///
    /// It tells what every rank was doing when a job hangs. Any thread may call it, also while calls
    /// block on other threads. With NXD_FLIGHT_RECORD set, a group that fails adds its part to a file
    /// by itself.
    ///
    /// @param buf  room for cap bytes; may be NULL when cap is 0.
    /// @param[out] out_needed  bytes with the terminator. When they exceed cap nothing is copied, and a
    /// cap other than 0 is INVALID_ARGUMENT. The record may have grown by the
    /// next call: leave some room.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (after fork).
    /// @since 0.1
    pub fn nxd_context_get_flight_record(ctx: *mut nxd_context_t, buf: *mut c_char, cap: usize, out_needed: *mut usize) -> nxd_status_t;

    /// [local] Rank of this context in the world.
    /// @since 0.1
    pub fn nxd_context_get_rank(ctx: *mut nxd_context_t, out_rank: *mut i32) -> nxd_status_t;

    /// [local] Number of ranks in the world.
    /// @since 0.1
    pub fn nxd_context_get_size(ctx: *mut nxd_context_t, out_size: *mut i32) -> nxd_status_t;

    /// [local] Rank among the ranks of this host.
    /// @since 0.1
    pub fn nxd_context_get_local_rank(ctx: *mut nxd_context_t, out_rank: *mut i32) -> nxd_status_t;

    /// [local] Group of all ranks; borrowed from the context.
    /// @since 0.1
    pub fn nxd_context_get_world_group(ctx: *mut nxd_context_t, out_group: *mut *mut nxd_group_t) -> nxd_status_t;

    /// [local] Switches every layer made from this context between fused kernels (0) and plain ATen
    /// operators (1).
    ///
    /// All ranks should agree. In f64 products alone have kernels: all else takes the plain path.
    /// @since 0.1
    pub fn nxd_context_set_plain_kernels(ctx: *mut nxd_context_t, plain: i32) -> nxd_status_t;

    /// [local] Tells whether layers run through plain ATen operators.
    /// @since 0.1
    pub fn nxd_context_get_plain_kernels(ctx: *mut nxd_context_t, out_plain: *mut i32) -> nxd_status_t;

    /// [local] Sets the training step and microbatch that random bits are drawn for; both start at 0.
    ///
    /// All ranks of a model set the same values. nxd_pp_run_train advances the microbatch by those of
    /// its run. nxd_optimizer_step advances the step by one and sets the microbatch to 0. Random bits
    /// are there for steps below 2^40 and microbatches below 2^24: calls that draw some reject others.
    /// @return NXD_OK; INVALID_ARGUMENT (negative, or a step beyond 2^62).
    /// @since 0.1
    pub fn nxd_context_set_step(ctx: *mut nxd_context_t, step: i64, microbatch: i64) -> nxd_status_t;

    /// [local] The training step and microbatch that random bits are drawn for.
    /// @param[out] out_microbatch  may be NULL.
    /// @since 0.1
    pub fn nxd_context_get_step(ctx: *mut nxd_context_t, out_step: *mut i64, out_microbatch: *mut i64) -> nxd_status_t;

    /// [local] Writes text and a newline to stdout on world rank 0; does nothing elsewhere.
    /// @since 0.1
    pub fn nxd_master_print(ctx: *mut nxd_context_t, text: *const c_char) -> nxd_status_t;
}
