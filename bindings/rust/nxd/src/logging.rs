use crate::callback::{guard, release};
use crate::error::{check, check_abi, string, Result};
use nxd_sys as sys;
use std::os::raw::{c_char, c_void};

pub use sys::nxd_log_level_t as LogLevel;

/// Gives the process's log lines to a closure, until it is replaced. It is called on any thread
/// that is inside a call of the library.
pub fn set_log<F: Fn(LogLevel, &str) + Send + Sync + 'static>(log: F) -> Result<()> {
    check_abi()?;
    let data = Box::into_raw(Box::new(log));
    let status =
        unsafe { sys::nxd_log_set_callback(Some(call::<F>), data.cast(), Some(release::<F>)) };
    if status != sys::nxd_status_t::OK {
        // Not taken over.
        drop(unsafe { Box::from_raw(data) });
    }
    check(status)
}

/// Log lines go to stderr again.
pub fn reset_log() -> Result<()> {
    check(unsafe { sys::nxd_log_set_callback(None, std::ptr::null_mut(), None) })
}

/// Sets the process's log level; the default is NXD_LOG_LEVEL or `WARN`.
pub fn set_log_level(level: LogLevel) -> Result<()> {
    check_abi()?;
    check(unsafe { sys::nxd_log_set_level(level) })
}

unsafe extern "C" fn call<F: Fn(LogLevel, &str)>(
    level: LogLevel,
    message: *const c_char,
    data: *mut c_void,
) {
    guard(|| {
        (*data.cast::<F>())(level, &string(message));
        Ok(())
    });
}

/// Release of the loaded library, such as "0.1.0".
pub fn version() -> String {
    unsafe { string(sys::nxd_version()) }
}

/// Versions of the library, its compiler, libtorch, Gloo and oneDNN as a JSON object.
pub fn build_info() -> String {
    unsafe { string(sys::nxd_build_info()) }
}

/// Every environment variable the library reads, one per line.
pub fn environment_table() -> String {
    unsafe { string(sys::nxd_environment_table()) }
}
