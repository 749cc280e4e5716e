use crate::context::Context;
use crate::error::{c_path, check, invalid, Result};
use crate::object::{create, get, object, Owned};
use nxd_sys as sys;
use std::path::Path;
use std::ptr::null_mut;
use sys::Versioned;

pub use sys::nxd_data_loader_options_t as DataLoaderOptions;
pub use sys::nxd_token_format_t as TokenFormat;

object! {
    /// Batches from files of token ids or of text, read ahead by a thread: every sample once an epoch over all
    /// data-parallel ranks, in an order that no number of ranks changes.
    DataLoader, nxd_data_loader_t, nxd_data_loader_destroy
}

unsafe impl Send for Owned<DataLoader> {}

impl DataLoader {
    /// Opens files, for batches of `batch_size` samples of `sequence_length` tokens. Collective: the
    /// world.
    pub fn open<P: AsRef<Path>>(
        ctx: &Context,
        paths: &[P],
        batch_size: i64,
        sequence_length: i64,
        options: &DataLoaderOptions,
    ) -> Result<Owned<DataLoader>> {
        let names: Result<Vec<_>> = paths.iter().map(|path| c_path(path)).collect();
        let names = match names {
            Ok(names) => names,
            // The peers are in the call already, or about to be.
            Err(error) => return Err(ctx.world_group()?.reject("", error.message().to_string())),
        };
        let names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let options = options.with_size();
        create(|out| unsafe {
            let (ctx, paths, count) = (ctx.as_raw(), names.as_ptr(), names.len());
            sys::nxd_data_loader_create(
                ctx,
                paths,
                count,
                batch_size,
                sequence_length,
                &options,
                out,
            )
        })
    }

    /// Takes this rank's next batches, as many as fit exactly into `ids`; with `next_labels` into
    /// `labels` too, which are as many.
    pub fn next(&self, ids: &mut [i64], labels: Option<&mut [i64]>) -> Result<()> {
        let labels = match labels {
            None => null_mut(),
            Some(labels) if labels.len() == ids.len() => labels.as_mut_ptr(),
            Some(labels) => {
                return invalid(format!("labels: expected {}, got {}", ids.len(), labels.len()))
            }
        };
        check(unsafe {
            sys::nxd_data_loader_next(self.as_raw(), ids.as_mut_ptr(), labels, ids.len())
        })
    }

    /// Samples of an epoch, over all ranks.
    pub fn num_samples(&self) -> Result<i64> {
        get(|out| unsafe { sys::nxd_data_loader_get_sample_count(self.as_raw(), out) })
    }

    /// Samples that all ranks together have taken: what a checkpoint needs to keep.
    pub fn position(&self) -> Result<i64> {
        get(|out| unsafe { sys::nxd_data_loader_get_position(self.as_raw(), out) })
    }

    /// Goes on behind so many samples, whatever the ranks and batches were that took them.
    pub fn set_position(&self, position: i64) -> Result<()> {
        check(unsafe { sys::nxd_data_loader_set_position(self.as_raw(), position) })
    }
}
