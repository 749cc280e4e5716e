//! The layer between a closure and the C frames that call it: no panic crosses them, and a
//! closure's own error is not lost on the way.
use crate::error::{Error, Result, Status};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::os::raw::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr::NonNull;

enum Failure {
    Error(Error),
    Panic(Box<dyn Any + Send>),
}

thread_local! {
    static FAILED: Cell<bool> = const { Cell::new(false) };
    static FAILURE: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

fn keep(failure: Failure) {
    let _ = FAILURE.try_with(|kept| {
        // A panic is not displaced by what follows from it.
        let mut kept = kept.borrow_mut();
        if !matches!(*kept, Some(Failure::Panic(_))) {
            *kept = Some(failure);
        }
        FAILED.with(|failed| failed.set(true));
    });
}

/// Runs a closure that a C frame has called; its failure is kept for the call that it belongs to.
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> Status {
    guarded(body, keep)
}

/// The same on a thread of the library's, where no call waits for the failure: the library alone is
/// told of it. One that is kept there would be that of the next closure's first call.
#[cfg(feature = "engine")]
pub(crate) fn guard_apart(body: impl FnOnce() -> Result<()>) -> Status {
    guarded(body, |failure| {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(failure)));
    })
}

fn guarded(body: impl FnOnce() -> Result<()>, keep: impl FnOnce(Failure)) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::OK,
        Ok(Err(error)) => {
            // OK would tell the library that all went well.
            let status = if error.status() == Status::OK { Status::USER } else { error.status() };
            tell(status, error.message());
            keep(Failure::Error(error));
            status
        }
        Err(panic) => {
            let words = panic.downcast_ref::<&str>().copied();
            let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            tell(Status::USER, &format!("panic: {}", words.unwrap_or("of another type than text")));
            keep(Failure::Panic(panic));
            Status::USER
        }
    }
}

/// The message for the call that the closure is part of, and for other ranks.
fn tell(status: Status, message: &str) {
    let message: Vec<u8> = message.bytes().filter(|&byte| byte != 0).collect();
    if let Ok(message) = CString::new(message) {
        unsafe { nxd_sys::nxd_set_last_error(status, message.as_ptr()) };
    }
}

/// Error of a closure since the last call on this thread; a panic goes on from here.
#[inline]
pub(crate) fn take_failure() -> Option<Error> {
    if !FAILED.try_with(|failed| failed.replace(false)).unwrap_or(false) {
        return None;
    }
    match FAILURE.with(|kept| kept.borrow_mut().take()) {
        Some(Failure::Panic(panic)) => resume_unwind(panic),
        Some(Failure::Error(error)) => Some(error),
        None => None,
    }
}

/// Drops a boxed `T` that the library no longer uses. Its panic is reported and ends here: there
/// may be no call to hand it on to.
pub(crate) unsafe extern "C" fn release<T>(data: *mut c_void) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(data.cast::<T>()))));
}

/// A boxed value that the library has a pointer to: it is reached through pointers alone, so that
/// moving this leaves theirs valid.
pub(crate) struct Shared<T>(NonNull<T>);

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        Shared(NonNull::from(Box::leak(Box::new(value))))
    }

    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Made by new; the library's pointer is gone by now.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
