use crate::context::{ranks, Context, Transport};
use crate::element::Element;
use crate::error::{c_string, check, Error, Result, Status};
use crate::object::{create, get, object, Owned};
use crate::store::milliseconds;
use nxd_sys as sys;
use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::time::Duration;

pub use sys::nxd_reduce_t as Reduce;

object! {
    /// An ordered set of ranks that communicate. Every collective is called by all of them, in the
    /// same order, and bounded by the group's timeout.
    Group, nxd_group_t, nxd_group_destroy
}

// A context's groups may be used from different threads, each by one at a time.
unsafe impl Send for Owned<Group> {}

object! {
    /// The bytes that ranks have brought to a rendezvous.
    Payloads, nxd_payloads_t, nxd_payloads_destroy
}

impl Group {
    /// Makes a group of some of the world's ranks. Collective: the listed ranks.
    pub fn create(ctx: &Context, ranks: &[i32], name: &str) -> Result<Owned<Group>> {
        let make = |ranks: &[i32], name: &CStr| -> Result<Owned<Group>> {
            create(|out| unsafe {
                let (data, n) = (ranks.as_ptr(), ranks.len());
                sys::nxd_group_create(ctx.as_raw(), data, n, name.as_ptr(), out)
            })
        };
        c_string(name).map_or_else(
            |error| {
                // The library tells the peers of a list that begins so that arguments cannot be read.
                let _ = make(&[&[-1][..], ranks].concat(), Default::default());
                Err(error)
            },
            |name| make(ranks, &name),
        )
    }

    pub fn size(&self) -> Result<i32> {
        get(|out| unsafe { sys::nxd_group_get_size(self.as_raw(), out) })
    }

    /// This rank's place in the group.
    pub fn rank(&self) -> Result<i32> {
        get(|out| unsafe { sys::nxd_group_get_rank(self.as_raw(), out) })
    }

    /// World ranks of the group.
    pub fn ranks(&self) -> Result<Vec<i32>> {
        ranks(|data, cap, size| unsafe { sys::nxd_group_get_ranks(self.as_raw(), data, cap, size) })
    }

    /// Bound of every later call; all ranks should agree.
    pub fn set_timeout(&self, timeout: Duration) -> Result<()> {
        check(unsafe { sys::nxd_group_set_timeout(self.as_raw(), milliseconds(timeout)) })
    }

    /// Gives the group's next call a key: ranks whose keys differ all get `INVALID_ARGUMENT`.
    pub fn set_next_key(&self, key: u64) -> Result<()> {
        check(unsafe { sys::nxd_group_set_next_key(self.as_raw(), key) })
    }

    pub fn transport(&self) -> Result<Transport> {
        get(|out| unsafe { sys::nxd_group_get_transport(self.as_raw(), out) })
    }

    /// A handle that any thread may abort this group with.
    pub fn aborter(&self) -> GroupAborter<'_> {
        GroupAborter { group: self.as_raw(), _borrowed: PhantomData }
    }

    /// Reduces equally many elements of every rank and leaves the result on every rank.
    pub fn all_reduce<T: Element>(&self, send: &[T], recv: &mut [T], reduce: Reduce) -> Result<()> {
        let fits = self.require(recv.len() == send.len(), || {
            format!("receive: expected the {} elements of send, got {}", send.len(), recv.len())
        });
        let (from, to, count) = (send.as_ptr().cast(), recv.as_mut_ptr().cast(), send.len());
        self.collective("all_reduce", fits, || unsafe {
            sys::nxd_all_reduce(self.as_raw(), from, to, count, T::DTYPE, reduce)
        })
    }

    /// [`Group::all_reduce`] in place.
    pub fn all_reduce_in_place<T: Element>(&self, buffer: &mut [T], reduce: Reduce) -> Result<()> {
        let data: *mut c_void = buffer.as_mut_ptr().cast();
        let count = buffer.len();
        check(unsafe { sys::nxd_all_reduce(self.as_raw(), data, data, count, T::DTYPE, reduce) })
    }

    /// Concatenates the elements of every rank, in rank order, on every rank.
    pub fn all_gather<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        let fits = self.require_parts("receive", recv.len(), "send", send.len())?;
        let (from, to, count) = (send.as_ptr().cast(), recv.as_mut_ptr().cast(), send.len());
        self.collective("all_gather", fits, || unsafe {
            sys::nxd_all_gather(self.as_raw(), from, to, count, T::DTYPE)
        })
    }

    /// Reduces the elements of every rank and leaves each rank its part of the result.
    pub fn reduce_scatter<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        reduce: Reduce,
    ) -> Result<()> {
        let fits = self.require_parts("send", send.len(), "receive", recv.len())?;
        let (from, to, count) = (send.as_ptr().cast(), recv.as_mut_ptr().cast(), recv.len());
        self.collective("reduce_scatter", fits, || unsafe {
            sys::nxd_reduce_scatter(self.as_raw(), from, to, count, T::DTYPE, reduce)
        })
    }

    /// Copies the elements of one rank of the group to all others.
    pub fn broadcast<T: Element>(&self, buffer: &mut [T], root: i32) -> Result<()> {
        let (data, count) = (buffer.as_mut_ptr().cast(), buffer.len());
        check(unsafe { sys::nxd_broadcast(self.as_raw(), data, count, T::DTYPE, root) })
    }

    /// Sends the i-th part of send to rank i and receives its part for this rank.
    pub fn all_to_all<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        let size = self.size()? as usize;
        let fits = self.require(send.len() == recv.len() && send.len() % size == 0, || {
            format!(
                "send, receive: expected equally many elements, a multiple of {}, got {} and {}",
                size,
                send.len(),
                recv.len()
            )
        });
        let (from, to, count) = (send.as_ptr().cast(), recv.as_mut_ptr().cast(), send.len() / size);
        self.collective("all_to_all", fits, || unsafe {
            sys::nxd_all_to_all(self.as_raw(), from, to, count, T::DTYPE)
        })
    }

    /// Sends to a rank of the group, which receives with the same tag.
    pub fn send<T: Element>(&self, buffer: &[T], to: i32, tag: i32) -> Result<()> {
        let (data, count) = (buffer.as_ptr().cast(), buffer.len());
        check(unsafe { sys::nxd_send(self.as_raw(), data, count, T::DTYPE, to, tag) })
    }

    /// Receives from a rank of the group, which sends with the same tag.
    pub fn receive<T: Element>(&self, buffer: &mut [T], from: i32, tag: i32) -> Result<()> {
        let (data, count) = (buffer.as_mut_ptr().cast(), buffer.len());
        check(unsafe { sys::nxd_receive(self.as_raw(), data, count, T::DTYPE, from, tag) })
    }

    /// Returns when every rank of the group has called.
    pub fn barrier(&self) -> Result<()> {
        check(unsafe { sys::nxd_barrier(self.as_raw()) })
    }

    /// Waits for all ranks at the place of this name, and gives what each has brought, by rank.
    pub fn rendezvous(&self, tag: &str, payload: &[u8]) -> Result<Vec<Vec<u8>>> {
        let tag = match c_string(tag) {
            Ok(tag) => tag,
            // The peers are in the call already, or about to be.
            Err(error) => return Err(self.reject("", error.message().to_string())),
        };
        let all: Owned<Payloads> = create(|out| unsafe {
            let data = payload.as_ptr().cast();
            sys::nxd_group_rendezvous(self.as_raw(), tag.as_ptr(), data, payload.len(), out)
        })?;
        (0..self.size()?)
            .map(|rank| {
                let (mut data, mut size) = (std::ptr::null(), 0);
                check(unsafe { sys::nxd_payloads_get(all.as_raw(), rank, &mut data, &mut size) })?;
                Ok(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) }.to_vec())
            })
            .collect()
    }

    fn collective(
        &self,
        operation: &str,
        fits: Lengths,
        call: impl FnOnce() -> Status,
    ) -> Result<()> {
        match fits.bad {
            None => check(call()),
            Some(message) => Err(self.reject(operation, message)),
        }
    }

    /// Makes a collective that this rank cannot make fail on its peers, with the reason, and gives
    /// the error for this rank: they would wait for it otherwise. For arrays of other frameworks:
    /// the methods of this crate do so themselves. `operation` is the collective's name, such as
    /// "all_reduce", or "" for any. [collective: group]
    pub fn reject(&self, operation: &str, reason: impl Into<String>) -> Error {
        let reason = reason.into();
        let (operation, text) = (printable(operation), printable(&reason));
        unsafe {
            sys::nxd_group_reject(self.as_raw(), operation.as_ptr(), -1, -1, text.as_ptr());
        }
        Error::new(Status::INVALID_ARGUMENT, reason)
    }

    pub(crate) fn require(&self, good: bool, message: impl FnOnce() -> String) -> Lengths {
        Lengths { bad: if good { None } else { Some(message()) } }
    }

    /// That a buffer has a part for each rank of the size of another buffer.
    pub(crate) fn require_parts(
        &self,
        whole_name: &str,
        whole: usize,
        part_name: &str,
        part: usize,
    ) -> Result<Lengths> {
        let size = self.size()? as usize;
        Ok(self.require(part.checked_mul(size) == Some(whole), || {
            format!(
                "{}: expected {} times the {} elements of {}, got {}",
                whole_name, size, part, part_name, whole
            )
        }))
    }
}

/// For the library, which takes no NUL.
pub(crate) fn printable(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

/// The reason why the lengths of a collective's slices do not fit. The collective is rejected then: so
/// the peers are told why, and do not wait.
pub(crate) struct Lengths {
    pub(crate) bad: Option<String>,
}

/// Functions of a group that any thread may call.
#[derive(Clone, Copy)]
pub struct GroupAborter<'a> {
    group: *mut sys::nxd_group_t,
    _borrowed: PhantomData<&'a ()>,
}

// nxd_group_abort is safe from any thread.
unsafe impl Send for GroupAborter<'_> {}
unsafe impl Sync for GroupAborter<'_> {}

impl GroupAborter<'_> {
    /// Makes every pending and later call on the group fail with `ABORTED`.
    pub fn abort(&self) -> Result<()> {
        check(unsafe { sys::nxd_group_abort(self.group) })
    }
}
