use crate::context::ArenaBuffer;
use crate::element::Element;
use crate::error::{check, Error, Result, Status};
use crate::group::{printable, Group, Lengths, Reduce};
use crate::object::{create, get, object, Owned};
use crate::store::milliseconds;
use nxd_sys as sys;
use std::os::raw::c_void;
use std::time::Duration;

/// Memory that a work may hold: it stays where it is while the value moves.
///
/// # Safety
/// The pointer is to `len` initialised elements, which nothing but this value reaches, and which are there
/// until it is dropped: for ever, where it is forgotten, as a work that runs may be.
pub unsafe trait Buffer {
    type Item: Element;
    fn data(&mut self) -> *mut Self::Item;
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

unsafe impl<T: Element> Buffer for Vec<T> {
    type Item = T;
    fn data(&mut self) -> *mut T {
        self.as_mut_ptr()
    }
    fn len(&self) -> usize {
        Vec::len(self)
    }
}

unsafe impl<T: Element> Buffer for ArenaBuffer<'_, T> {
    type Item = T;
    fn data(&mut self) -> *mut T {
        self.as_mut_ptr()
    }
    fn len(&self) -> usize {
        (**self).len()
    }
}

object! {
    /// The library's part of a [`Work`].
    Pending, nxd_work_t, nxd_work_destroy
}

/// A call that goes on while its caller does other things, and has its buffers until it is done.
///
/// A work that is dropped is cancelled if it has not begun, and waited for otherwise, within the
/// group's timeout. One that is forgotten keeps its buffers for ever. The group is to outlive its
/// works: those of a group that is dropped end with `ABORTED`, and peers count this rank as lost.
pub struct Work<B> {
    // Released before the buffers, which drop in the order of the fields.
    pending: Owned<Pending>,
    buffers: B,
    refused: Option<String>,
}

// A work is an object of its own, and its buffers travel with it.
unsafe impl<B: Send> Send for Work<B> {}

impl<B> Work<B> {
    /// True if the work is done, well or not.
    pub fn test(&self) -> Result<bool> {
        Ok(get(|out| unsafe { sys::nxd_work_test(self.pending.as_raw(), out) })? != 0)
    }

    /// Waits until the work is done and gives its buffers back.
    pub fn wait(self) -> Result<B> {
        let (buffers, outcome) = self.finish();
        outcome?;
        Ok(buffers.expect("a wait that has not failed gives them back"))
    }

    /// As [`Work::wait`], with the buffers of a work that failed too. When the context's interrupt
    /// has ended the wait the work goes on, and keeps its buffers for ever.
    pub fn finish(mut self) -> (Option<B>, Result<()>) {
        let mut outcome = self.wait_for(-1);
        if outcome.is_err() && !self.test().unwrap_or(false) {
            std::mem::forget(self);
            return (None, outcome);
        }
        if let (Err(_), Some(message)) = (&outcome, self.refused.take()) {
            outcome = Err(Error::new(Status::INVALID_ARGUMENT, message));
        }
        let Work { pending, buffers, .. } = self;
        drop(pending);
        (Some(buffers), outcome)
    }

    /// Waits no longer than the timeout; a `TIMEOUT` of a work that is not done leaves it going on.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<()> {
        self.wait_for(milliseconds(timeout))
    }

    fn wait_for(&mut self, timeout_ms: i64) -> Result<()> {
        check(unsafe { sys::nxd_work_wait(self.pending.as_raw(), timeout_ms) })
    }

    /// A descriptor that poll and epoll find readable once the work is done. It is the work's own.
    pub fn descriptor(&self) -> Result<std::os::unix::io::BorrowedFd<'_>> {
        let fd = get(|out| unsafe { sys::nxd_work_get_descriptor(self.pending.as_raw(), out) })?;
        Ok(unsafe { std::os::unix::io::BorrowedFd::borrow_raw(fd) })
    }

    /// Takes back a work that has not begun on this rank.
    pub fn cancel(&mut self) -> Result<()> {
        check(unsafe { sys::nxd_work_cancel(self.pending.as_raw()) })
    }

    /// How a work that is done has failed, if it has.
    pub fn error(&self) -> Result<Option<Error>> {
        let mut info = sys::nxd_error_info_t::default();
        check(unsafe { sys::nxd_work_get_error_info(self.pending.as_raw(), &mut info) })?;
        if info.status == Status::OK {
            return Ok(None);
        }
        // Its strings are the work's.
        let message = unsafe { crate::error::string(info.operation) } + " failed";
        Ok(Some(unsafe { Error::from_info(&info, message) }))
    }
}

fn start<B>(buffers: B, call: impl FnOnce(*mut *mut sys::nxd_work_t) -> Status) -> Result<Work<B>> {
    Ok(Work { pending: create(call)?, buffers, refused: None })
}

/// Pointers to a pair of buffers.
fn pair<S: Buffer, R: Buffer<Item = S::Item>>(
    send: &mut S,
    recv: &mut R,
) -> (*const c_void, *mut c_void) {
    (send.data() as *const c_void, recv.data().cast())
}

/// Asynchronous forms. They return at once, and fail later: through the work.
impl Group {
    /// Buffers that do not fit take the call's place, so that the peers are told why.
    fn start_pair<B>(
        &self,
        operation: &str,
        buffers: B,
        fits: Lengths,
        call: impl FnOnce(*mut *mut sys::nxd_work_t) -> Status,
    ) -> Result<Work<B>> {
        let refused = match fits.bad {
            None => return start(buffers, call),
            Some(message) => message,
        };
        let (operation, text) = (printable(operation), printable(&refused));
        let pending = create(|out| unsafe {
            let group = self.as_raw();
            sys::nxd_group_reject_async(group, operation.as_ptr(), -1, -1, text.as_ptr(), out)
        })?;
        Ok(Work { pending, buffers, refused: Some(refused) })
    }

    pub fn all_reduce_async<B: Buffer>(&self, mut buffer: B, reduce: Reduce) -> Result<Work<B>> {
        let (data, n): (*mut c_void, _) = (buffer.data().cast(), buffer.len());
        start(buffer, |out| unsafe {
            sys::nxd_all_reduce_async(self.as_raw(), data, data, n, B::Item::DTYPE, reduce, out)
        })
    }

    pub fn all_gather_async<S: Buffer, R: Buffer<Item = S::Item>>(
        &self,
        mut send: S,
        mut recv: R,
    ) -> Result<Work<(S, R)>> {
        let fits = self.require_parts("receive", recv.len(), "send", send.len())?;
        let count = send.len();
        let (from, to) = pair(&mut send, &mut recv);
        self.start_pair("all_gather", (send, recv), fits, |out| unsafe {
            sys::nxd_all_gather_async(self.as_raw(), from, to, count, S::Item::DTYPE, out)
        })
    }

    pub fn reduce_scatter_async<S: Buffer, R: Buffer<Item = S::Item>>(
        &self,
        mut send: S,
        mut recv: R,
        reduce: Reduce,
    ) -> Result<Work<(S, R)>> {
        let fits = self.require_parts("send", send.len(), "receive", recv.len())?;
        let count = recv.len();
        let (from, to) = pair(&mut send, &mut recv);
        self.start_pair("reduce_scatter", (send, recv), fits, |out| unsafe {
            sys::nxd_reduce_scatter_async(
                self.as_raw(),
                from,
                to,
                count,
                S::Item::DTYPE,
                reduce,
                out,
            )
        })
    }

    pub fn broadcast_async<B: Buffer>(&self, mut buffer: B, root: i32) -> Result<Work<B>> {
        let (data, n) = (buffer.data().cast(), buffer.len());
        start(buffer, |out| unsafe {
            sys::nxd_broadcast_async(self.as_raw(), data, n, B::Item::DTYPE, root, out)
        })
    }

    pub fn all_to_all_async<S: Buffer, R: Buffer<Item = S::Item>>(
        &self,
        mut send: S,
        mut recv: R,
    ) -> Result<Work<(S, R)>> {
        let size = self.size()? as usize;
        let fits = self.require(send.len() == recv.len() && send.len() % size == 0, || {
            let (sent, received) = (send.len(), recv.len());
            format!("expected equal multiples of {}, got {} and {}", size, sent, received)
        });
        let count = send.len() / size;
        let (from, to) = pair(&mut send, &mut recv);
        self.start_pair("all_to_all", (send, recv), fits, |out| unsafe {
            sys::nxd_all_to_all_async(self.as_raw(), from, to, count, S::Item::DTYPE, out)
        })
    }

    pub fn send_async<B: Buffer>(&self, mut buffer: B, to: i32, tag: i32) -> Result<Work<B>> {
        let (data, n) = (buffer.data().cast(), buffer.len());
        start(buffer, |out| unsafe {
            sys::nxd_send_async(self.as_raw(), data, n, B::Item::DTYPE, to, tag, out)
        })
    }

    pub fn receive_async<B: Buffer>(&self, mut buffer: B, from: i32, tag: i32) -> Result<Work<B>> {
        let (data, n) = (buffer.data().cast(), buffer.len());
        start(buffer, |out| unsafe {
            sys::nxd_receive_async(self.as_raw(), data, n, B::Item::DTYPE, from, tag, out)
        })
    }

    pub fn barrier_async(&self) -> Result<Work<()>> {
        start((), |out| unsafe { sys::nxd_barrier_async(self.as_raw(), out) })
    }
}
