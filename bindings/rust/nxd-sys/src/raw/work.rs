//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// A call that goes on while its caller does other things.
#[repr(C)]
pub struct nxd_work_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Called once when a work is done.
///
/// It runs on a thread of the library's, or inside the call that ends the work: nxd_work_cancel, or
/// nxd_work_set_callback when the work is done already. A thread of the library's has the signals
/// blocked then, and later, that the thread of nxd_work_set_callback had. The callback must return
/// soon, must not wait for calls of the same group, whose next work waits for it, and must not
/// destroy the group. It may destroy the work, and start others.
/// @param status  as nxd_work_wait returns it.
pub type nxd_work_callback_t = Option<
    unsafe extern "C" fn(user_data: *mut c_void, status: nxd_status_t),
>;

extern "C" {
    /// [collective: group] nxd_all_reduce without waiting.
    ///
    /// @param send     as for nxd_all_reduce; borrowed until the work is done.
    /// @param receive  likewise.
    /// @param[out] out_work  the caller destroys it.
    /// @return as all *_async functions: NXD_OK; INVALID_ARGUMENT (NULL; the peers are told);
    /// OUT_OF_MEMORY; INVALID_STATE (after fork, and as above). All others are the work's.
    /// @since 0.1
    pub fn nxd_all_reduce_async(group: *mut nxd_group_t, send: *const c_void, receive: *mut c_void, count: usize, dtype: nxd_dtype_t, reduce: nxd_reduce_t, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// [collective: group] nxd_all_gather without waiting.
    /// @since 0.1
    pub fn nxd_all_gather_async(group: *mut nxd_group_t, send: *const c_void, receive: *mut c_void, count: usize, dtype: nxd_dtype_t, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// [collective: group] nxd_reduce_scatter without waiting.
    /// @since 0.1
    pub fn nxd_reduce_scatter_async(group: *mut nxd_group_t, send: *const c_void, receive: *mut c_void, count: usize, dtype: nxd_dtype_t, reduce: nxd_reduce_t, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// [collective: group] nxd_broadcast without waiting.
    /// @since 0.1
    pub fn nxd_broadcast_async(group: *mut nxd_group_t, buffer: *mut c_void, count: usize, dtype: nxd_dtype_t, root: i32, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// [collective: group] nxd_all_to_all without waiting.
    /// @since 0.1
    pub fn nxd_all_to_all_async(group: *mut nxd_group_t, send: *const c_void, receive: *mut c_void, count: usize, dtype: nxd_dtype_t, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// [collective: the two ranks] nxd_send without waiting; the other rank may call nxd_receive or
    /// nxd_receive_async.
    ///
    /// Each peer and tag with a work pending takes a thread.
    /// @since 0.1
    pub fn nxd_send_async(group: *mut nxd_group_t, buffer: *const c_void, count: usize, dtype: nxd_dtype_t, to: i32, tag: i32, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// [collective: the two ranks] nxd_receive without waiting; the other rank may call nxd_send or
    /// nxd_send_async.
    /// @since 0.1
    pub fn nxd_receive_async(group: *mut nxd_group_t, buffer: *mut c_void, count: usize, dtype: nxd_dtype_t, from: i32, tag: i32, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// [collective: group] nxd_barrier without waiting: the work is done when every rank of the group
    /// has called.
    /// @since 0.1
    pub fn nxd_barrier_async(group: *mut nxd_group_t, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// [collective: group; of a message: the two ranks] Fails a call that this rank cannot make, on
    /// all ranks that make it.
    ///
    /// For a binding that rejects an argument, such as an array of another framework, before it can
    /// name a pointer, a count or a dtype. The call takes the place of this rank's next collective of
    /// the group, or message. The peers get INVALID_ARGUMENT at once, with the reason, and the group
    /// stays usable. In place of nxd_ddp_create_buffers, call it on the ddp's group.
    /// @param operation  name of the call as nxd_error_info_t has it, such as "all_reduce" or "send";
    /// NULL and any other name: a collective without a name.
    /// @param peer  of a message; not read otherwise.
    /// @param tag   likewise.
    /// @param reason  as text; NULL: none. Peers may get only its first 170 bytes.
    /// @return never NXD_OK: INVALID_ARGUMENT with the reason, or why the peers were not told.
    /// @since 0.1
    pub fn nxd_group_reject(group: *mut nxd_group_t, operation: *const c_char, peer: i32, tag: i32, reason: *const c_char) -> nxd_status_t;

    /// [collective: group; of a message: the two ranks] nxd_group_reject without waiting: the work
    /// takes the call's place in the order, and fails with the reason.
    /// @since 0.1
    pub fn nxd_group_reject_async(group: *mut nxd_group_t, operation: *const c_char, peer: i32, tag: i32, reason: *const c_char, out_work: *mut *mut nxd_work_t) -> nxd_status_t;

    /// [local] Tells whether the work is done, well or not; from any thread.
    ///
    /// @param[out] out_done  1 when it is; nxd_work_wait then returns at once.
    /// @return NXD_OK, also for a work that failed; INVALID_ARGUMENT; INVALID_STATE (after fork).
    /// @since 0.1
    pub fn nxd_work_test(work: *mut nxd_work_t, out_done: *mut i32) -> nxd_status_t;

    /// [blocking] Waits until the work is done, and returns how it ended.
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

    /// [local] Has a function called when the work is done, for programs that do not wait in a thread.
    ///
    /// @param callback  not NULL; a work has one.
    /// @param user_data  handed to the callback; borrowed until it has returned or nxd_work_destroy
    /// has.
    /// @return NXD_OK; INVALID_ARGUMENT (NULL); INVALID_STATE (it has one already; after fork);
    /// OUT_OF_MEMORY.
    /// @since 0.1
    pub fn nxd_work_set_callback(work: *mut nxd_work_t, callback: nxd_work_callback_t, user_data: *mut c_void) -> nxd_status_t;

    /// [local] A descriptor that poll, select or epoll finds readable once the work is done, for event
    /// loops.
    ///
    /// Do not read or close it. A work whose store is made of callbacks needs calls of nxd_work_test
    /// meanwhile, as it may need the caller's thread.
    /// @param[out] out_descriptor  borrowed until nxd_work_destroy; the same at each call.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (after fork); IO (no descriptor is free).
    /// @since 0.1
    pub fn nxd_work_get_descriptor(work: *mut nxd_work_t, out_descriptor: *mut i32) -> nxd_status_t;

    /// [local] Cancels a work that has not begun on this rank: it is done, with ABORTED.
    ///
    /// Its place in the order is kept: when its turn comes the peers get INVALID_ARGUMENT, naming this
    /// rank, and the group goes on. nxd_group_abort ends a work that has begun.
    /// @return NXD_OK; INVALID_STATE (it has begun or ended).
    /// @since 0.1
    pub fn nxd_work_cancel(work: *mut nxd_work_t) -> nxd_status_t;

    /// [local] How the work ended, as nxd_last_error_info.
    ///
    /// @param[in,out] out_info  struct_size set by the caller; the rest is filled. Strings are borrowed
    /// from the work. A work that went well has status NXD_OK, its group and
    /// its operation, and no more.
    /// @return NXD_OK; INVALID_ARGUMENT (NULL); INVALID_STATE (not done yet);
    /// ABI_MISMATCH (struct_size).
    /// @since 0.1
    pub fn nxd_work_get_error_info(work: *mut nxd_work_t, out_info: *mut nxd_error_info_t) -> nxd_status_t;

    /// [blocking] Releases the work: one that has not begun is cancelled, one that runs is waited for,
    /// which the group's timeout bounds. Afterwards its buffers are the caller's, and its callback is
    /// not running, unless it is the callback that calls, and will not be called.
    /// @since 0.1
    pub fn nxd_work_destroy(work: *mut nxd_work_t);
}
