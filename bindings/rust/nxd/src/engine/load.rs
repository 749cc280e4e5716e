use crate::checkpoint::Checkpoint;
use crate::engine::module::Module;
use crate::error::{c_path, c_string, check, string, told, Result};
use crate::object::{get, object, Owned};
use crate::training_state::TrainingState;
use nxd_sys as sys;
use std::path::Path;
use std::ptr::{null, null_mut};

pub use sys::nxd_mismatch_t as Mismatch;

object! {
    /// Names and tensors that a load did not match.
    LoadReport, nxd_load_report_t, nxd_load_report_destroy
}

impl LoadReport {
    /// Names of the mismatches of a kind.
    pub fn names(&self, kind: Mismatch) -> Result<Vec<String>> {
        let count = get(|out| unsafe { sys::nxd_load_report_get_count(self.as_raw(), kind, out) })?;
        (0..count)
            .map(|i| {
                let mut name = null();
                check(unsafe { sys::nxd_load_report_get_name(self.as_raw(), kind, i, &mut name) })?;
                Ok(unsafe { string(name) })
            })
            .collect()
    }
}

impl Module {
    /// Reads parameters from safetensors, each rank its own shards. With `strict` any mismatch is an
    /// error that changes nothing.
    pub fn load_safetensors(
        &self,
        path: impl AsRef<Path>,
        strict: bool,
    ) -> Result<Owned<LoadReport>> {
        let path = c_path(path)?;
        let mut report = null_mut();
        let status = unsafe {
            sys::nxd_module_load_safetensors(
                self.as_raw(),
                path.as_ptr(),
                strict.into(),
                &mut report,
            )
        };
        // Also given when a strict load fails.
        let owned = match report.is_null() {
            true => None,
            false => Some(unsafe { Owned::<LoadReport>::from_raw(report) }),
        };
        check(status)?;
        owned.map_or_else(|| crate::error::invalid("no report was given"), Ok)
    }

    /// Writes the whole parameters as one safetensors file. Collective: tensor- and pipeline-parallel
    /// groups.
    pub fn save_safetensors(&self, path: impl AsRef<Path>) -> Result<()> {
        told(c_path(path), |path| {
            check(unsafe { sys::nxd_module_save_safetensors(self.as_raw(), path) })
        })
    }

    /// The parameters as they are now become a file of a checkpoint. Collective: world.
    pub fn snapshot(&self, checkpoint: &Checkpoint, name: &str) -> Result<()> {
        told(c_string(name), |name| {
            check(unsafe { sys::nxd_module_snapshot(self.as_raw(), checkpoint.as_raw(), name) })
        })
    }
}

impl TrainingState {
    /// Adds the parameters of a module, as the file `name`.safetensors.
    pub fn add_module(&mut self, name: &str, root: &Module) -> Result<()> {
        let name = c_string(name)?;
        check(unsafe {
            sys::nxd_training_state_add_module(self.as_raw(), name.as_ptr(), root.as_raw())
        })
    }
}
