//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// A checkpoint that is being written, or was opened to be read.
#[repr(C)]
pub struct nxd_checkpoint_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

extern "C" {
    /// [collective: world] Begins the checkpoint of a step.
    ///
    /// The directory is made if it is not there; every rank must see it, as on a file system that hosts
    /// share. The files are written below a hidden name, so that a job that is killed leaves nothing
    /// that looks like a checkpoint. Remains of such a job are removed here. One job at a time writes
    /// into a directory. A checkpoint that the context publishes in the background is waited for.
    /// @param directory  of all checkpoints of a run; UTF-8. A relative one leads from the working
    /// directory of this call, wherever the program goes afterwards.
    /// @param step  0 to 2^52. One that is there already is replaced when the new one is published.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (another checkpoint is being written there);
    /// IO, on all ranks when it is so on one.
    /// @since 0.1
    pub fn nxd_checkpoint_create(ctx: *mut nxd_context_t, directory: *const c_char, step: i64, out_checkpoint: *mut *mut nxd_checkpoint_t) -> nxd_status_t;

    /// [collective: world] Opens the checkpoint of a step to read it.
    /// @param verify  1: the ranks share the reading of all files and compare their checksums; 0: the
    /// files' sizes alone are compared with the manifest.
    /// @return NXD_OK; INVALID_ARGUMENT; IO (not there, or cannot be read); CORRUPT (names the file);
    /// UNSUPPORTED (of a later version of libnxd).
    /// @since 0.1
    pub fn nxd_checkpoint_open(ctx: *mut nxd_context_t, directory: *const c_char, step: i64, verify: i32, out_checkpoint: *mut *mut nxd_checkpoint_t) -> nxd_status_t;

    /// [collective: world] Opens the newest checkpoint that is complete: that of the highest step with
    /// a manifest that this version can read, and with files of the sizes that it names. Others are
    /// named in the log, as warnings.
    /// @param verify  as for nxd_checkpoint_open.
    /// @param[out] out_checkpoint  NULL, with NXD_OK, where there is none: training starts anew.
    /// @return NXD_OK; INVALID_ARGUMENT; IO; CORRUPT (a checksum differs).
    /// @since 0.1
    pub fn nxd_checkpoint_open_newest(ctx: *mut nxd_context_t, directory: *const c_char, verify: i32, out_checkpoint: *mut *mut nxd_checkpoint_t) -> nxd_status_t;

    /// [local] The step that a checkpoint is of.
    /// @since 0.1
    pub fn nxd_checkpoint_get_step(checkpoint: *mut nxd_checkpoint_t, out_step: *mut i64) -> nxd_status_t;

    /// [local] Absolute path of a file in the checkpoint: to be written by any rank until it is
    /// published, or of a file that an opened one has. Another rank's file must have another name. For
    /// a snapshot's name it is that of the index of the ranks' shares, where several ranks have written
    /// it: functions that read safetensors take an index in the place of a file.
    /// @param name  1 to 200 bytes of UTF-8; no '/', no '.' in front, not manifest.json.
    /// @param buf  room for cap bytes; may be NULL when cap is 0.
    /// @param[out] out_needed  bytes with the terminator. When they exceed cap nothing is copied, and a
    /// cap other than 0 is INVALID_ARGUMENT.
    /// @return NXD_OK; INVALID_ARGUMENT (also for a file that an opened checkpoint does not have).
    /// @since 0.1
    pub fn nxd_checkpoint_get_path(checkpoint: *mut nxd_checkpoint_t, name: *const c_char, buf: *mut c_char, cap: usize, out_needed: *mut usize) -> nxd_status_t;

    /// [local] Keeps a text with the checkpoint, such as a sampler's position or a configuration.
    ///
    /// One rank may set it, or all of them to one value: nxd_checkpoint_publish fails when ranks
    /// differ.
    /// @param key  1 to 256 bytes of UTF-8.
    /// @param value  at most 2^20 bytes of UTF-8.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (it is published, or was opened).
    /// @since 0.1
    pub fn nxd_checkpoint_set_value(checkpoint: *mut nxd_checkpoint_t, key: *const c_char, value: *const c_char) -> nxd_status_t;

    /// [local] A text that was kept with the checkpoint.
    /// @param buf  room for cap bytes; may be NULL when cap is 0.
    /// @param[out] out_needed  bytes with the terminator, as for nxd_checkpoint_get_path; 0 when there
    /// is no such key.
    /// @since 0.1
    pub fn nxd_checkpoint_get_value(checkpoint: *mut nxd_checkpoint_t, key: *const c_char, buf: *mut c_char, cap: usize, out_needed: *mut usize) -> nxd_status_t;

    /// [collective: world] Completes a checkpoint.
    ///
    /// Snapshots are written first. The ranks share the files: each is brought to the disk, and its
    /// size and checksum (XXH3 of 128 bits) go into manifest.json, with the values, the seeds of all
    /// contexts, and the first one's step and microbatch: those of the first snapshot, or of the first
    /// call where there is none. Then the directory gets its name, in one step of the file system: a
    /// job that is killed leaves the checkpoint as a whole or not at all.
    /// @param keep_last  complete checkpoints to keep: this one, and the others of the highest steps.
    /// Any beyond are removed where their step is lower than this one's. 0: all.
    /// @return NXD_OK; INVALID_ARGUMENT (ranks differ; a file that is no regular file, or that two
    /// snapshots write; values and names of more than 64 MiB in all); INVALID_STATE (published
    /// already, or opened to be read); IO (such as
    /// a full disk: earlier checkpoints stay as they are, and this one may be published again;
    /// where the message says that it is complete, its name alone may not be on the disk: it
    /// can be read, and publishing it again brings the name there). All ranks fail alike.
    /// @since 0.1
    pub fn nxd_checkpoint_publish(checkpoint: *mut nxd_checkpoint_t, keep_last: i32) -> nxd_status_t;

    /// [collective: world] nxd_checkpoint_publish, without waiting for the disk.
    ///
    /// Arguments and values are compared before it returns. A thread of each rank does the rest, over
    /// groups of its own that no other call meets. Files of the caller's must be complete before, and
    /// stay as they are. Until nxd_checkpoint_wait has returned, only it, nxd_checkpoint_test and
    /// getters of the step and of values are good on the checkpoint.
    ///
    /// A context publishes one checkpoint at a time in the background: nxd_checkpoint_create and other
    /// collective calls on its checkpoints wait for the one under way, and so does
    /// nxd_context_finalize. How it ended is told by nxd_checkpoint_wait alone.
    /// @return NXD_OK: it is under way; INVALID_ARGUMENT and INVALID_STATE as nxd_checkpoint_publish;
    /// OUT_OF_MEMORY (no thread); TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_checkpoint_publish_async(checkpoint: *mut nxd_checkpoint_t, keep_last: i32) -> nxd_status_t;

    /// [local] Waits until nxd_checkpoint_publish_async has ended, and fails as it did: all ranks
    /// alike.
    /// @param timeout_ms  negative: until it has ended.
    /// @return NXD_OK: it is published; TIMEOUT (after timeout_ms; it goes on); IO and others as
    /// nxd_checkpoint_publish, after which it may be published again; PEER_LOST; INVALID_STATE
    /// (nothing is under way, or has been); the interrupt callback's status.
    /// @since 0.1
    pub fn nxd_checkpoint_wait(checkpoint: *mut nxd_checkpoint_t, timeout_ms: i64) -> nxd_status_t;

    /// [local] Says whether nxd_checkpoint_publish_async has ended, well or not.
    /// @param[out] out_done  1 when it has.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (nothing is under way, or has been).
    /// @since 0.1
    pub fn nxd_checkpoint_test(checkpoint: *mut nxd_checkpoint_t, out_done: *mut i32) -> nxd_status_t;

    /// [local] Sets the context's step and microbatch to those that an opened checkpoint has, so that
    /// random bits continue as in a run without a break.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (no context that wrote the checkpoint had this
    /// one's seed; it was not opened but is being written).
    /// @since 0.1
    pub fn nxd_checkpoint_restore_random_state(checkpoint: *mut nxd_checkpoint_t) -> nxd_status_t;

    /// [local] Releases a checkpoint; one that was not published is removed from the disk, by rank 0.
    /// One that is being published in the background is waited for. Its failure goes to the log if no
    /// nxd_checkpoint_wait has told it.
    /// @since 0.1
    pub fn nxd_checkpoint_destroy(checkpoint: *mut nxd_checkpoint_t);
}
