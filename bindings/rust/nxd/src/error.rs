use crate::callback;
use nxd_sys as sys;
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::c_char;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use sys::nxd_parameter_state_t as ParameterState;
pub use sys::nxd_status_t as Status;

pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed: a status, what was expected and what was given, and, of a distributed call,
/// who is to blame for it.
#[derive(Clone)]
pub struct Error(Box<Details>);

#[derive(Clone)]
struct Details {
    status: Status,
    message: String,
    root_rank: Option<i32>,
    sequence: u64,
    group: String,
    operation: String,
    step: Option<i64>,
    parameters: ParameterState,
}

impl Error {
    /// An error of a closure's own: the call that the closure is part of fails with it.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Error(Box::new(Details {
            status,
            message: message.into(),
            root_rank: None,
            sequence: 0,
            group: String::new(),
            operation: String::new(),
            step: None,
            parameters: ParameterState::NONE,
        }))
    }

    /// An error of a closure's own, with status `USER`.
    pub fn user(message: impl Into<String>) -> Self {
        Error::new(Status::USER, message)
    }

    pub fn status(&self) -> Status {
        self.0.status
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// World rank that was lost or disagreed.
    pub fn root_rank(&self) -> Option<i32> {
        self.0.root_rank
    }

    /// Number of the collective in its group, from 0.
    pub fn sequence(&self) -> u64 {
        self.0.sequence
    }

    /// Name of the group; empty when none was involved.
    pub fn group(&self) -> &str {
        &self.0.group
    }

    /// Such as "all_reduce"; empty when no collective was involved.
    pub fn operation(&self) -> &str {
        &self.0.operation
    }

    /// The training step whose end failed.
    pub fn step(&self) -> Option<i64> {
        self.0.step
    }

    /// The step that this rank's parameters are of after that failure.
    pub fn parameters(&self) -> ParameterState {
        self.0.parameters
    }

    /// # Safety
    /// The strings of `info` are NULL or valid.
    pub(crate) unsafe fn from_info(info: &sys::nxd_error_info_t, message: String) -> Self {
        Error(Box::new(Details {
            status: info.status,
            message,
            root_rank: (info.root_rank >= 0).then_some(info.root_rank),
            sequence: info.sequence,
            group: string(info.group),
            operation: string(info.operation),
            step: (info.step >= 0).then_some(info.step),
            parameters: info.parameters,
        }))
    }

    /// The error of this thread's last call.
    fn last(status: Status) -> Self {
        let mut info = sys::nxd_error_info_t::default();
        // Both are of this thread, and copied before its next call.
        let message = unsafe { string(sys::nxd_last_error()) };
        let known = unsafe { sys::nxd_last_error_info(&mut info) } == Status::OK;
        if !known || info.status != status {
            return Error::new(status, message);
        }
        unsafe { Error::from_info(&info, message) }
    }

    /// The library's account of a failed call, with the words of the closure that made it fail.
    fn with_cause(mut self, cause: Error) -> Self {
        if cause.status() != self.status() {
            return self;
        }
        let known = self.message().contains(cause.message());
        let message = match (known, self.message().is_empty()) {
            (true, _) => std::mem::take(&mut self.0.message),
            (false, true) => cause.0.message.clone(),
            (false, false) => format!("{}: {}", self.0.message, cause.0.message),
        };
        if self.0.operation.is_empty() {
            self = cause;
        }
        self.0.message = message;
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.status, self.0.message)
    }
}

/// As `Display`: what a program that ends with an error shows.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Error::new(Status::IO, error.to_string())
    }
}

/// The outcome of a call. A panic of a closure that the call was in goes on from here.
pub(crate) fn check(status: Status) -> Result<()> {
    let cause = callback::take_failure();
    if status == Status::OK {
        return Ok(());
    }
    let error = Error::last(status);
    Err(match cause {
        Some(cause) => error.with_cause(cause),
        None => error,
    })
}

pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::new(Status::INVALID_ARGUMENT, message))
}

/// Compares the loaded library's ABI number with this crate's, once.
pub(crate) fn check_abi() -> Result<()> {
    use std::sync::atomic::{AtomicBool, Ordering};
    static SAME: AtomicBool = AtomicBool::new(false);
    if SAME.load(Ordering::Relaxed) {
        return Ok(());
    }
    let loaded = unsafe { sys::nxd_abi_version() };
    if loaded != sys::NXD_ABI_VERSION {
        return Err(Error::new(
            Status::ABI_MISMATCH,
            format!(
                "the loaded libnxd {} has ABI {}, and this program was built for ABI {}",
                unsafe { string(sys::nxd_version()) },
                loaded,
                sys::NXD_ABI_VERSION
            ),
        ));
    }
    SAME.store(true, Ordering::Relaxed);
    Ok(())
}

/// # Safety
/// NULL, or a terminated string.
pub(crate) unsafe fn string(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    CStr::from_ptr(text).to_string_lossy().into_owned()
}

/// A path, which need not be UTF-8.
pub(crate) fn c_path(path: impl AsRef<Path>) -> Result<CString> {
    let path = path.as_ref();
    CString::new(path.as_os_str().as_bytes())
        .or_else(|_| invalid(format!("expected no NUL within a path, got {:?}", path)))
}

pub(crate) fn c_string(text: &str) -> Result<CString> {
    CString::new(text)
        .or_else(|_| invalid(format!("expected no NUL within a string, got {:?}", text)))
}

/// A collective call with a text or path of this rank's. One that is none goes as NULL, which the
/// library rejects on all ranks: the peers, who are in the call already or about to be, would wait
/// otherwise.
pub(crate) fn told<R>(
    text: Result<CString>,
    call: impl Fn(*const c_char) -> Result<R>,
) -> Result<R> {
    match text {
        Ok(text) => call(text.as_ptr()),
        Err(error) => {
            let _ = call(std::ptr::null());
            Err(error)
        }
    }
}
