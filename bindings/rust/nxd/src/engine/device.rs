use crate::callback::{guard, guard_apart, release};
use crate::data::DataLoader;
use crate::engine::tensor::{give, maybe_outputs, Device, Tensor};
use crate::error::{check, check_abi, string, Result, Status};
use crate::object::{create, get, object, Owned};
use nxd_sys as sys;
use std::os::raw::{c_char, c_void};
use sys::Versioned;

pub use sys::nxd_device_loader_options_t as DeviceLoaderOptions;
pub use sys::nxd_device_metrics_t as DeviceMetrics;
pub use sys::nxd_graph_format_t as GraphFormat;

impl Tensor {
    /// The same values on a device; the tensor itself if it is there already.
    pub fn to_device(&self, device: Device) -> Result<Owned<Tensor>> {
        create(|out| unsafe { sys::nxd_tensor_to_device(self.as_raw(), device, out) })
    }
}

/// Ends a step: runs what this thread has recorded on device XLA as one graph, then its step
/// closures. Without `wait` the graph runs while this thread goes on: the next call that needs its
/// values waits, and fails as this one would have.
pub fn mark_step(wait: bool) -> Result<()> {
    check_abi()?;
    check(unsafe { sys::nxd_mark_step(wait.into()) })
}

/// Has a closure called once, by the next [`mark_step`] of this thread, when the graph has run.
pub fn add_step_closure<F: Fn() -> Result<()> + 'static>(closure: F) -> Result<()> {
    check_abi()?;
    let data = Box::into_raw(Box::new(closure));
    let status = unsafe {
        sys::nxd_add_step_closure(Some(call::<F> as _), data.cast(), Some(release::<F> as _))
    };
    if status != Status::OK {
        // Not taken over.
        drop(unsafe { Box::from_raw(data) });
    }
    check(status)
}

/// The same on a thread of the library's, while this one goes on. Its failure is that of a later
/// [`mark_step`] or of [`wait_step_closures`], with the closure's status.
pub fn add_step_closure_async<F: Fn() -> Result<()> + Send + 'static>(closure: F) -> Result<()> {
    check_abi()?;
    let data = Box::into_raw(Box::new(closure));
    let status = unsafe {
        sys::nxd_add_step_closure_async(
            Some(call_apart::<F> as _),
            data.cast(),
            Some(release::<F> as _),
        )
    };
    if status != Status::OK {
        // Not taken over.
        drop(unsafe { Box::from_raw(data) });
    }
    check(status)
}

/// Returns when the closures of this thread's steps that run on the other thread have run.
pub fn wait_step_closures() -> Result<()> {
    check(unsafe { sys::nxd_wait_step_closures() })
}

object! {
    /// Batches that a thread reads, and moves to a device, ahead of the steps that take them.
    DeviceLoader, nxd_device_loader_t, nxd_device_loader_destroy
}

impl DeviceLoader {
    /// The batches of a data loader, which is the device loader's as long as that exists.
    pub fn over(
        loader: &DataLoader,
        device: Device,
        options: &DeviceLoaderOptions,
    ) -> Result<Owned<DeviceLoader>> {
        let options = options.with_size();
        create(|out| unsafe {
            sys::nxd_device_loader_create(loader.as_raw(), device, &options, out)
        })
    }

    /// The batches that a closure makes on the loader's thread, each of `num_tensors` tensors, until
    /// it gives `None`. A failure is that of [`next`](Self::next), with the closure's status.
    pub fn from_fn<F>(
        read: F,
        num_tensors: usize,
        device: Device,
        options: &DeviceLoaderOptions,
    ) -> Result<Owned<DeviceLoader>>
    where
        F: FnMut() -> Result<Option<Vec<Owned<Tensor>>>> + Send + 'static,
    {
        let options = options.with_size();
        let data = Box::into_raw(Box::new(read));
        let made = create(|out| unsafe {
            let (call, destroy) = (Some(read_batch::<F> as _), Some(release::<F> as _));
            let data = data.cast();
            sys::nxd_device_loader_create_callback(
                call,
                data,
                destroy,
                num_tensors,
                device,
                &options,
                out,
            )
        });
        if made.is_err() {
            // Not taken over.
            drop(unsafe { Box::from_raw(data) });
        }
        made
    }

    /// Takes the next batch, of so many tensors; `None` at the end. Marks the step before it.
    pub fn next(&self, num_tensors: usize) -> Result<Option<Vec<Owned<Tensor>>>> {
        let mut end = 0;
        let tensors = maybe_outputs(num_tensors, |out| unsafe {
            sys::nxd_device_loader_next(self.as_raw(), out, num_tensors, &mut end)
        })?;
        Ok(if end == 0 { tensors.into_iter().collect() } else { None })
    }

    /// Where the data loader stands behind the last batch that was taken: what a checkpoint needs to
    /// keep. For a closure's batches, how many were taken.
    pub fn position(&self) -> Result<i64> {
        get(|out| unsafe { sys::nxd_device_loader_get_position(self.as_raw(), out) })
    }

    /// Goes on at a position of the data loader.
    pub fn set_position(&self, position: i64) -> Result<()> {
        check(unsafe { sys::nxd_device_loader_set_position(self.as_raw(), position) })
    }
}

unsafe extern "C" fn read_batch<F>(
    room: *mut *mut sys::nxd_tensor_t,
    num_tensors: usize,
    end: *mut i32,
    data: *mut c_void,
) -> Status
where
    F: FnMut() -> Result<Option<Vec<Owned<Tensor>>>>,
{
    guard_apart(|| match (*data.cast::<F>())()? {
        Some(batch) => give(batch.into_iter().map(Some).collect(), room, num_tensors),
        None => {
            *end = 1;
            Ok(())
        }
    })
}

unsafe extern "C" fn call<F: Fn() -> Result<()>>(data: *mut c_void) -> Status {
    guard(|| (*data.cast::<F>())())
}

unsafe extern "C" fn call_apart<F: Fn() -> Result<()>>(data: *mut c_void) -> Status {
    guard_apart(|| (*data.cast::<F>())())
}

/// Counts of device XLA in this process, on all threads.
pub fn device_metrics() -> Result<DeviceMetrics> {
    check_abi()?;
    let mut metrics = DeviceMetrics::default();
    check(unsafe { sys::nxd_device_get_metrics(&mut metrics) })?;
    Ok(metrics)
}

/// Starts all counts from 0 again.
pub fn reset_device_metrics() -> Result<()> {
    check(unsafe { sys::nxd_device_reset_metrics() })
}

/// The counts as text, and each operator that made an implicit sync or fell back.
pub fn device_report() -> Result<String> {
    copied(|buf, cap, needed| unsafe { sys::nxd_device_get_report(buf, cap, needed) })
}

/// The graph of the last step that this thread has marked.
pub fn step_graph(format: GraphFormat) -> Result<String> {
    copied(|buf, cap, needed| unsafe { sys::nxd_device_get_step_graph(format, buf, cap, needed) })
}

/// Text by the rule of a buffer, its room and what is needed.
fn copied(get: impl Fn(*mut c_char, usize, *mut usize) -> Status) -> Result<String> {
    check_abi()?;
    let mut room: Vec<c_char> = vec![0; 4096];
    loop {
        let mut needed = 0;
        let status = get(room.as_mut_ptr(), room.len(), &mut needed);
        if needed > room.len() {
            room.resize(needed + 4096, 0);
            continue;
        }
        check(status)?;
        return Ok(unsafe { string(room.as_ptr()) });
    }
}
