use crate::callback::{guard, release};
use crate::engine::tensor::{Device, Tensor};
use crate::error::{check, check_abi, string, Result, Status};
use crate::object::{create, Owned};
use nxd_sys as sys;
use std::os::raw::{c_char, c_void};

pub use sys::nxd_device_metrics_t as DeviceMetrics;
pub use sys::nxd_graph_format_t as GraphFormat;

impl Tensor {
    /// The same values on a device; the tensor itself if it is there already.
    pub fn to_device(&self, device: Device) -> Result<Owned<Tensor>> {
        create(|out| unsafe { sys::nxd_tensor_to_device(self.as_raw(), device, out) })
    }
}

/// Ends a step: runs what this thread has recorded on device XLA as one graph, then its step
/// closures.
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

unsafe extern "C" fn call<F: Fn() -> Result<()>>(data: *mut c_void) -> Status {
    guard(|| (*data.cast::<F>())())
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
