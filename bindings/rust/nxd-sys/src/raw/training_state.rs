//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// The parts of a run's state.
#[repr(C)]
pub struct nxd_training_state_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

extern "C" {
    /// [local] Makes a state without parts, which has the context's random state alone.
    /// @since 0.1
    pub fn nxd_training_state_create(ctx: *mut nxd_context_t, out_state: *mut *mut nxd_training_state_t) -> nxd_status_t;

    /// [local] Adds an optimizer, which the state keeps alive. nxd_training_state_add_module
    /// (training.h) adds the parameters.
    /// @param name  such as "optimizer"; the file is NAME.safetensors, so that it is a name of
    /// nxd_checkpoint_get_path. No other part has it. The same on all ranks.
    /// @return NXD_OK; INVALID_ARGUMENT.
    /// @since 0.1
    pub fn nxd_training_state_add_optimizer(state: *mut nxd_training_state_t, name: *const c_char, optimizer: *mut nxd_optimizer_t) -> nxd_status_t;

    /// [local] Adds the position of a data loader, which the state keeps alive. It is saved as the text
    /// that nxd_checkpoint_get_value has under the name.
    /// @param name  such as "data": a key of nxd_checkpoint_set_value that no other part and no text
    /// has. The same on all ranks.
    /// @return NXD_OK; INVALID_ARGUMENT.
    /// @since 0.1
    pub fn nxd_training_state_add_data_loader(state: *mut nxd_training_state_t, name: *const c_char, loader: *mut nxd_data_loader_t) -> nxd_status_t;

    /// [local] Keeps a text with the state, or replaces it.
    /// @param key  as of nxd_checkpoint_set_value; not the name of a data loader.
    /// @param value  the same on all ranks: a save fails where ranks differ.
    /// @return NXD_OK; INVALID_ARGUMENT.
    /// @since 0.1
    pub fn nxd_training_state_set_value(state: *mut nxd_training_state_t, key: *const c_char, value: *const c_char) -> nxd_status_t;

    /// [local] A text of the state: the last that was set, or that a checkpoint had which was loaded
    /// since.
    /// @param buf  room for cap bytes; may be NULL when cap is 0.
    /// @param[out] out_needed  bytes with the terminator, as for nxd_checkpoint_get_path; 0 when there
    /// is no such key.
    /// @since 0.1
    pub fn nxd_training_state_get_value(state: *mut nxd_training_state_t, key: *const c_char, buf: *mut c_char, cap: usize, out_needed: *mut usize) -> nxd_status_t;

    /// [collective: world] Saves all parts as the checkpoint of a step, and waits until it is there:
    /// nxd_checkpoint_create, nxd_training_state_snapshot and nxd_checkpoint_publish in one.
    ///
    /// Gradients are no part: a run goes on as without a break from a save between two steps. One amid
    /// an accumulation (the context's microbatch is not 0) keeps that alone, with a warning in the log.
    /// @param directory  as of nxd_checkpoint_create.
    /// @param step       likewise.
    /// @param keep_last  as of nxd_checkpoint_publish.
    /// @return as these, all ranks alike; INVALID_ARGUMENT also where ranks have different parts. The
    /// failure of an earlier save in the background that nxd_training_state_wait has not told
    /// is this call's, which then saves nothing.
    /// @since 0.1
    pub fn nxd_training_state_save(state: *mut nxd_training_state_t, directory: *const c_char, step: i64, keep_last: i32) -> nxd_status_t;

    /// [collective: world] Saves all parts while training goes on. The program stands still while they
    /// are copied; the rest is nxd_checkpoint_publish_async. An earlier save in the background is
    /// waited for.
    /// @return NXD_OK: it is under way; failures as of nxd_training_state_save. How it ended is told by
    /// nxd_training_state_wait, or else by the next save; a failure that neither tells goes to
    /// the log.
    /// @since 0.1
    pub fn nxd_training_state_save_async(state: *mut nxd_training_state_t, directory: *const c_char, step: i64, keep_last: i32) -> nxd_status_t;

    /// [local] Waits until the last nxd_training_state_save_async has ended, and fails as it did: all
    /// ranks alike.
    /// @param timeout_ms  negative: until it has ended.
    /// @return NXD_OK: it is published, or nothing is under way; TIMEOUT (after timeout_ms; it goes
    /// on); else as nxd_checkpoint_wait: that save is given up, and the next one starts anew.
    /// @since 0.1
    pub fn nxd_training_state_wait(state: *mut nxd_training_state_t, timeout_ms: i64) -> nxd_status_t;

    /// [collective: world] Loads all parts from the newest complete checkpoint, as
    /// nxd_checkpoint_open_newest finds it, whatever the layout was that saved it.
    /// @param verify  as of nxd_checkpoint_open.
    /// @param[out] out_step  the step it is of; -1, with NXD_OK and nothing changed, where there is
    /// none: training starts anew.
    /// @return as nxd_checkpoint_open_newest and nxd_training_state_restore.
    /// @since 0.1
    pub fn nxd_training_state_load_newest(state: *mut nxd_training_state_t, directory: *const c_char, verify: i32, out_step: *mut i64) -> nxd_status_t;

    /// [collective: world] Puts all parts into a checkpoint that is being written, which may have files
    /// and texts of the caller's beside them, and which the caller publishes. The context's random
    /// state is that of the checkpoint's first snapshot.
    /// @return NXD_OK; INVALID_ARGUMENT (ranks have different parts); else as nxd_optimizer_snapshot.
    /// All ranks fail when one does, but for NULL handles.
    /// @since 0.1
    pub fn nxd_training_state_snapshot(state: *mut nxd_training_state_t, checkpoint: *mut nxd_checkpoint_t) -> nxd_status_t;

    /// [collective: world] Loads all parts from a checkpoint that was opened: parameters first, then
    /// states of optimizers, positions, random state and texts, which replace those of the state.
    /// @return NXD_OK; INVALID_ARGUMENT (ranks have different parts; the checkpoint lacks one, or has
    /// another model's or optimizer's); INVALID_STATE (another seed; the checkpoint was not
    /// opened; a device loader reads a data loader); IO; CORRUPT. All ranks fail when one does,
    /// but for NULL handles. Nothing is changed by a checkpoint that lacks a part or is of
    /// another seed, and where a position cannot be set; after other failures parts before the
    /// failed one are loaded, and a restore that succeeds is to follow.
    /// @since 0.1
    pub fn nxd_training_state_restore(state: *mut nxd_training_state_t, checkpoint: *mut nxd_checkpoint_t) -> nxd_status_t;

    /// [local] Releases the state and its parts. A save in the background is waited for.
    /// @since 0.1
    pub fn nxd_training_state_destroy(state: *mut nxd_training_state_t);
}
