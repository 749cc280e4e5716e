use crate::arrays::{reading, told_reading, Arrays};
use crate::checkpoint::{text, Checkpoint};
use crate::context::Context;
use crate::data::DataLoader;
use crate::error::{c_path, c_string, check, told, Result};
use crate::object::{create, get, object, Owned};
use crate::optimizer::Optimizer;
use nxd_sys as sys;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

object! {
    /// The library's part of a [`TrainingState`].
    TrainingStateHandle, nxd_training_state_t, nxd_training_state_destroy
}

/// All that a training run goes on from: models, optimizers, positions of data loaders, the
/// context's random state, and texts. It keeps its parts alive.
pub struct TrainingState {
    // Released before the memory that it uses.
    handle: Owned<TrainingStateHandle>,
    /// One without parts, of which no rank whose state has arrays can take a snapshot.
    none: Owned<TrainingStateHandle>,
    arrays: Vec<Rc<Arrays>>,
}

impl TrainingState {
    /// A state without parts.
    pub fn new(ctx: &Context) -> Result<TrainingState> {
        let make = || create(|out| unsafe { sys::nxd_training_state_create(ctx.as_raw(), out) });
        Ok(TrainingState { handle: make()?, none: make()?, arrays: Vec::new() })
    }

    /// Adds an optimizer, as the file `name`.safetensors.
    pub fn add_optimizer(&mut self, name: &str, optimizer: &Optimizer) -> Result<()> {
        let name = c_string(name)?;
        check(unsafe {
            sys::nxd_training_state_add_optimizer(self.as_raw(), name.as_ptr(), optimizer.as_raw())
        })?;
        self.arrays.extend(optimizer.arrays());
        Ok(())
    }

    /// Adds the position of a data loader, as a text of that name.
    pub fn add_data_loader(&mut self, name: &str, loader: &DataLoader) -> Result<()> {
        let name = c_string(name)?;
        check(unsafe {
            sys::nxd_training_state_add_data_loader(self.as_raw(), name.as_ptr(), loader.as_raw())
        })
    }

    /// Keeps a text, which is the same on all ranks.
    pub fn set_value(&mut self, key: &str, value: &str) -> Result<()> {
        let (key, value) = (c_string(key)?, c_string(value)?);
        check(unsafe {
            sys::nxd_training_state_set_value(self.as_raw(), key.as_ptr(), value.as_ptr())
        })
    }

    /// A text that was set, or that the checkpoint had which was loaded since.
    pub fn value(&self, key: &str) -> Result<Option<String>> {
        let key = c_string(key)?;
        text(|buf, cap, needed| unsafe {
            sys::nxd_training_state_get_value(self.as_raw(), key.as_ptr(), buf, cap, needed)
        })
    }

    /// Saves all parts as the checkpoint of a step, and keeps the last so many; 0: all. Collective:
    /// world.
    pub fn save(&mut self, directory: impl AsRef<Path>, step: i64, keep_last: i32) -> Result<()> {
        told_reading(&self.arrays, c_path(directory), |path| {
            check(unsafe { sys::nxd_training_state_save(self.as_raw(), path, step, keep_last) })
        })
    }

    /// The same in the background, while the program goes on. Collective: world.
    pub fn save_async(
        &mut self,
        directory: impl AsRef<Path>,
        step: i64,
        keep_last: i32,
    ) -> Result<()> {
        told_reading(&self.arrays, c_path(directory), |path| {
            check(unsafe {
                sys::nxd_training_state_save_async(self.as_raw(), path, step, keep_last)
            })
        })
    }

    /// Waits until the last [`TrainingState::save_async`] has ended, and fails as it did. `None`:
    /// without end.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<()> {
        let timeout = timeout.map_or(-1, crate::store::milliseconds);
        check(unsafe { sys::nxd_training_state_wait(self.as_raw(), timeout) })
    }

    /// Loads all parts from the newest complete checkpoint, and gives its step; `None`, and nothing
    /// changed, where there is none. Collective: world.
    pub fn load_newest(
        &mut self,
        directory: impl AsRef<Path>,
        verify: bool,
    ) -> Result<Option<i64>> {
        let step = told(c_path(directory), |path| {
            get(|out| unsafe {
                sys::nxd_training_state_load_newest(self.as_raw(), path, verify.into(), out)
            })
        })?;
        Ok((step >= 0).then_some(step))
    }

    /// Puts all parts into a checkpoint that is being written. Collective: world.
    pub fn snapshot(&self, checkpoint: &Checkpoint) -> Result<()> {
        let take = |state: &TrainingStateHandle| {
            check(unsafe { sys::nxd_training_state_snapshot(state.as_raw(), checkpoint.as_raw()) })
        };
        reading(&self.arrays, || drop(take(&self.none)), || take(&self.handle))
    }

    /// Loads all parts from a checkpoint that was opened. Collective: world.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        check(unsafe { sys::nxd_training_state_restore(self.as_raw(), checkpoint.as_raw()) })
    }

    /// The handle, for functions of the raw layer.
    pub fn as_raw(&self) -> *mut sys::nxd_training_state_t {
        self.handle.as_raw()
    }
}
