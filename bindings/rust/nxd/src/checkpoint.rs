use crate::context::Context;
use crate::error::{c_path, c_string, check, told, Result};
use crate::object::{create, get, object, Owned};
use nxd_sys as sys;
use std::ffi::{CStr, OsString};
use std::os::raw::c_char;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::time::Duration;

object! {
    /// A directory of files that appears at once or not at all: one that is being written, or was
    /// opened to be read. Dropping one that was not published removes it; one that is being
    /// published is waited for.
    Checkpoint, nxd_checkpoint_t, nxd_checkpoint_destroy
}

/// A text of a getter, and none where it says that it needs no room.
pub(crate) fn text(
    read: impl Fn(*mut c_char, usize, &mut usize) -> sys::nxd_status_t,
) -> Result<Option<String>> {
    Ok(bytes(read)?.map(|text| String::from_utf8_lossy(&text).into_owned()))
}

fn bytes(
    read: impl Fn(*mut c_char, usize, &mut usize) -> sys::nxd_status_t,
) -> Result<Option<Vec<u8>>> {
    let mut needed = 0;
    check(read(null_mut(), 0, &mut needed))?;
    if needed == 0 {
        return Ok(None);
    }
    let mut room: Vec<c_char> = vec![0; needed];
    check(read(room.as_mut_ptr(), room.len(), &mut needed))?;
    Ok(Some(unsafe { CStr::from_ptr(room.as_ptr()) }.to_bytes().to_vec()))
}

impl Checkpoint {
    /// Begins the checkpoint of a step. Collective: world.
    pub fn create(
        ctx: &Context,
        directory: impl AsRef<Path>,
        step: i64,
    ) -> Result<Owned<Checkpoint>> {
        told(c_path(directory), |path| {
            create(|out| unsafe { sys::nxd_checkpoint_create(ctx.as_raw(), path, step, out) })
        })
    }

    /// Opens that of a step; with `verify` the checksums of all files are compared. Collective:
    /// world.
    pub fn open(
        ctx: &Context,
        directory: impl AsRef<Path>,
        step: i64,
        verify: bool,
    ) -> Result<Owned<Checkpoint>> {
        told(c_path(directory), |path| {
            create(|out| unsafe {
                sys::nxd_checkpoint_open(ctx.as_raw(), path, step, verify.into(), out)
            })
        })
    }

    /// Opens the newest complete one, if there is one. Collective: world.
    pub fn open_newest(
        ctx: &Context,
        directory: impl AsRef<Path>,
        verify: bool,
    ) -> Result<Option<Owned<Checkpoint>>> {
        told(c_path(directory), |path| {
            let mut out = null_mut();
            check(unsafe {
                sys::nxd_checkpoint_open_newest(ctx.as_raw(), path, verify.into(), &mut out)
            })?;
            Ok((!out.is_null()).then(|| unsafe { Owned::from_raw(out) }))
        })
    }

    pub fn step(&self) -> Result<i64> {
        get(|out| unsafe { sys::nxd_checkpoint_get_step(self.as_raw(), out) })
    }

    /// Where a file of the checkpoint is to be written, or lies.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        let name = c_string(name)?;
        let path = bytes(|buf, cap, needed| unsafe {
            sys::nxd_checkpoint_get_path(self.as_raw(), name.as_ptr(), buf, cap, needed)
        })?;
        Ok(OsString::from_vec(path.unwrap_or_default()).into())
    }

    /// Keeps a text with the checkpoint.
    pub fn set_value(&self, key: &str, value: &str) -> Result<()> {
        let (key, value) = (c_string(key)?, c_string(value)?);
        check(unsafe { sys::nxd_checkpoint_set_value(self.as_raw(), key.as_ptr(), value.as_ptr()) })
    }

    /// A text that was kept with the checkpoint.
    pub fn value(&self, key: &str) -> Result<Option<String>> {
        let key = c_string(key)?;
        text(|buf, cap, needed| unsafe {
            sys::nxd_checkpoint_get_value(self.as_raw(), key.as_ptr(), buf, cap, needed)
        })
    }

    /// Completes the checkpoint, and keeps the last so many; 0: all. Collective: world.
    pub fn publish(&self, keep_last: i32) -> Result<()> {
        check(unsafe { sys::nxd_checkpoint_publish(self.as_raw(), keep_last) })
    }

    /// The same in the background, while the program goes on. Collective: world.
    pub fn publish_async(&self, keep_last: i32) -> Result<()> {
        check(unsafe { sys::nxd_checkpoint_publish_async(self.as_raw(), keep_last) })
    }

    /// Waits until [`Checkpoint::publish_async`] has ended, and fails as it did. `None`: without
    /// end; after a `TIMEOUT` it goes on.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        let timeout = timeout.map_or(-1, crate::store::milliseconds);
        check(unsafe { sys::nxd_checkpoint_wait(self.as_raw(), timeout) })
    }

    /// True when [`Checkpoint::publish_async`] has ended, well or not.
    pub fn is_done(&self) -> Result<bool> {
        Ok(get(|out| unsafe { sys::nxd_checkpoint_test(self.as_raw(), out) })? != 0)
    }

    /// The context's random bits continue where those of the checkpoint's writer did.
    pub fn restore_random_state(&self) -> Result<()> {
        check(unsafe { sys::nxd_checkpoint_restore_random_state(self.as_raw()) })
    }
}
