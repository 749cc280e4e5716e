//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// Reductions.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_reduce_t(pub i32);

impl nxd_reduce_t {
    pub const INVALID: Self = Self(-1);
    /// of integers it wraps, as their product does
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

/// The bytes that the ranks of a group have brought to a rendezvous.
#[repr(C)]
pub struct nxd_payloads_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

extern "C" {
    /// [collective: the listed ranks] Makes a group of some of the world's ranks.
    ///
    /// @param ranks  world ranks in group order, each once, this rank among them; the same list in the
    /// same order on every member. Members make groups in the same order.
    /// @param name   part of messages, which have 63 bytes of it at most; NULL: "group".
    /// @param[out] out_group  the caller destroys it.
    /// @return NXD_OK; INVALID_ARGUMENT (also of another member); INVALID_STATE (finalized, after
    /// fork); UNSUPPORTED (ranks of several hosts over SHARED_MEMORY); CORRUPT (the store);
    /// TIMEOUT (a member did not come, or has another list); PEER_LOST; ABORTED.
    /// @since 0.1
    pub fn nxd_group_create(ctx: *mut nxd_context_t, ranks: *const i32, num_ranks: usize, name: *const c_char, out_group: *mut *mut nxd_group_t) -> nxd_status_t;

    /// [local] Releases a group made by nxd_group_create; borrowed groups are left alone.
    ///
    /// Works still pending on it end with ABORTED first, as nxd_group_abort ends them, which peers that
    /// wait then count as a loss; their buffers are then the caller's, and later calls of modules and
    /// ddps that use the group end with ABORTED too. Without pending works they keep the group, and go
    /// on.
    /// @since 0.1
    pub fn nxd_group_destroy(group: *mut nxd_group_t);

    /// [local] Makes every pending and later call on the group return ABORTED; idempotent, from any
    /// thread.
    ///
    /// Peers that wait for this rank get PEER_LOST or TIMEOUT. They count it as lost, so that calls on
    /// all other groups of their contexts fail with PEER_LOST, and those of this rank's with ABORTED. A
    /// pending call may return before this one does. Its thread may destroy the group and the context
    /// at once: destroy waits for this call.
    /// @since 0.1
    pub fn nxd_group_abort(group: *mut nxd_group_t) -> nxd_status_t;

    /// [local] Ranks in the group.
    /// @since 0.1
    pub fn nxd_group_get_size(group: *mut nxd_group_t, out_size: *mut i32) -> nxd_status_t;

    /// [local] This rank's place in the group.
    /// @since 0.1
    pub fn nxd_group_get_rank(group: *mut nxd_group_t, out_rank: *mut i32) -> nxd_status_t;

    /// [local] World ranks of the group, as from nxd_layout_get_group.
    /// @since 0.1
    pub fn nxd_group_get_ranks(group: *mut nxd_group_t, ranks: *mut i32, cap: usize, out_size: *mut usize) -> nxd_status_t;

    /// [local] Bound of every later call on the group, in milliseconds; all ranks should agree.
    /// @return NXD_OK; INVALID_ARGUMENT (not positive).
    /// @since 0.1
    pub fn nxd_group_set_timeout(group: *mut nxd_group_t, timeout_ms: i64) -> nxd_status_t;

    /// [local] The transport of the group's data; for a group of one, SHARED_MEMORY.
    /// @since 0.1
    pub fn nxd_group_get_transport(group: *mut nxd_group_t, out_transport: *mut nxd_transport_t) -> nxd_status_t;

    /// [local] Gives the group's next call a key, for a caller whose calls a compiler may reorder.
    ///
    /// The next collective or message that this rank issues on the group has the key, whether it waits
    /// or not. Ranks compare their keys before data move: where they differ, the call fails with
    /// INVALID_ARGUMENT on every rank, with the calls and keys of two of them, and the group stays
    /// usable. So ranks that issue two calls of one size in different orders get an error, never each
    /// other's sums. Where calls may really come in any order, make a group for each stream of calls:
    /// groups do not wait for each other.
    /// @param key  any number; 0: none.
    /// @return NXD_OK; INVALID_ARGUMENT (NULL).
    /// @since 0.1
    pub fn nxd_group_set_next_key(group: *mut nxd_group_t, key: u64) -> nxd_status_t;

    /// [collective: group] Reduces count elements of every rank and leaves the result on every rank.
    ///
    /// @param send     count elements; may equal receive. One that overlaps it otherwise is
    /// INVALID_ARGUMENT.
    /// @param receive  count elements.
    /// @param count    0 is allowed; then buffers may be NULL.
    /// @param dtype    F32, F64, BF16, F16, I32 or I64.
    /// @return NXD_OK; INVALID_ARGUMENT (also when ranks disagree); TIMEOUT; PEER_LOST; ABORTED.
    /// @since 0.1
    pub fn nxd_all_reduce(group: *mut nxd_group_t, send: *const c_void, receive: *mut c_void, count: usize, dtype: nxd_dtype_t, reduce: nxd_reduce_t) -> nxd_status_t;

    /// [collective: group] Concatenates count elements of every rank, in rank order, on every rank.
    ///
    /// @param send     count elements; may be receive + rank * count elements. One that overlaps
    /// receive otherwise is INVALID_ARGUMENT.
    /// @param receive  size * count elements.
    /// @param dtype    any.
    /// @since 0.1
    pub fn nxd_all_gather(group: *mut nxd_group_t, send: *const c_void, receive: *mut c_void, count: usize, dtype: nxd_dtype_t) -> nxd_status_t;

    /// [collective: group] Reduces size * count elements and leaves the rank-th part of the result.
    ///
    /// @param send     size * count elements.
    /// @param receive  count elements; may be send + rank * count elements. One that overlaps send
    /// otherwise is INVALID_ARGUMENT.
    /// @param dtype    F32, F64, BF16, F16, I32 or I64.
    /// @since 0.1
    pub fn nxd_reduce_scatter(group: *mut nxd_group_t, send: *const c_void, receive: *mut c_void, count: usize, dtype: nxd_dtype_t, reduce: nxd_reduce_t) -> nxd_status_t;

    /// [collective: group] Copies count elements of one rank to all others.
    ///
    /// @param buffer  count elements; read on root, written elsewhere.
    /// @param root    rank in the group.
    /// @since 0.1
    pub fn nxd_broadcast(group: *mut nxd_group_t, buffer: *mut c_void, count: usize, dtype: nxd_dtype_t, root: i32) -> nxd_status_t;

    /// [collective: group] Sends the i-th part of send to rank i and receives its part for this rank.
    ///
    /// Every rank exchanges with every other, so between hosts each connects to all ranks of the group.
    ///
    /// @param send     size * count elements. One that overlaps receive is INVALID_ARGUMENT.
    /// @param receive  size * count elements, the i-th part from rank i.
    /// @since 0.1
    pub fn nxd_all_to_all(group: *mut nxd_group_t, send: *const c_void, receive: *mut c_void, count: usize, dtype: nxd_dtype_t) -> nxd_status_t;

    /// [collective: the two ranks] Sends count elements to one rank, which calls nxd_receive with the
    /// same tag.
    ///
    /// Several sends from one rank to another arrive in order per tag. Returns when the buffer may be
    /// reused.
    /// @param to   rank in the group, not this one.
    /// @param tag  0..65535.
    /// @since 0.1
    pub fn nxd_send(group: *mut nxd_group_t, buffer: *const c_void, count: usize, dtype: nxd_dtype_t, to: i32, tag: i32) -> nxd_status_t;

    /// [collective: the two ranks] Receives count elements from one rank, which calls nxd_send with
    /// the same tag.
    ///
    /// @return NXD_OK; INVALID_ARGUMENT when the sender's count or dtype differ, on both sides.
    /// @since 0.1
    pub fn nxd_receive(group: *mut nxd_group_t, buffer: *mut c_void, count: usize, dtype: nxd_dtype_t, from: i32, tag: i32) -> nxd_status_t;

    /// [collective: group] Returns when every rank of the group has called.
    /// @since 0.1
    pub fn nxd_barrier(group: *mut nxd_group_t) -> nxd_status_t;

    /// [collective: group] Waits for every rank of the group at a place of the program that has a name,
    /// and gives each rank what all of them have brought.
    ///
    /// Ranks that stand at different places get an error that names two of them. It ends the step of
    /// device XLA first, as nxd_mark_step(1) does: a rank whose step fails fails on all of them.
    /// @param tag      name of the place, the same on all ranks; UTF-8.
    /// @param payload  size bytes; may be NULL when size is 0. Ranks may bring different sizes; every
    /// rank gets room for as many of the largest as there are ranks.
    /// @param[out] out_payloads  the caller destroys it.
    /// @return NXD_OK; INVALID_ARGUMENT, also when tags differ (on all ranks); OUT_OF_MEMORY; TIMEOUT;
    /// PEER_LOST; ABORTED.
    /// @since 0.1
    pub fn nxd_group_rendezvous(group: *mut nxd_group_t, tag: *const c_char, payload: *const c_void, size: usize, out_payloads: *mut *mut nxd_payloads_t) -> nxd_status_t;

    /// [local] The bytes that one rank has brought.
    ///
    /// @param rank  in the group.
    /// @param[out] out_data  borrowed from payloads; not NULL, also for 0 bytes.
    /// @return NXD_OK; INVALID_ARGUMENT (NULL, rank).
    /// @since 0.1
    pub fn nxd_payloads_get(payloads: *mut nxd_payloads_t, rank: i32, out_data: *mut *const c_void, out_size: *mut usize) -> nxd_status_t;

    /// [local] Releases the payloads.
    /// @since 0.1
    pub fn nxd_payloads_destroy(payloads: *mut nxd_payloads_t);
}
