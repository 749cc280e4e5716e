use crate::callback::{guard, release};
use crate::error::{c_path, c_string, check, invalid, Result, Status};
use crate::object::{create, get, object, Owned};
use nxd_sys as sys;
use std::ffi::CStr;
use std::os::raw::{c_char, c_void};
use std::path::Path;
use std::time::Duration;

object! {
    /// Key-value store through which ranks find one another.
    Store, nxd_store_t, nxd_store_destroy
}

// Every function of a store may be called from any thread (docs/threading.md).
unsafe impl Sync for Store {}
unsafe impl Sync for Owned<Store> {}
unsafe impl Send for Owned<Store> {}

/// A store of the program's own. Several threads may be inside at once.
pub trait StoreBackend: Send + Sync + 'static {
    /// Stores the value under the key, replacing an earlier one.
    fn set(&self, key: &str, value: &[u8]) -> Result<()>;
    /// The value of the key, if there is one. Does not wait.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>>;
    /// Adds to an integer that starts at 0, atomically, and gives the new value.
    fn add(&self, key: &str, amount: i64) -> Result<i64>;
}

impl Store {
    /// Store of the ranks that live on threads of this process.
    pub fn local() -> Result<Owned<Store>> {
        create(|out| unsafe { sys::nxd_store_create_local(out) })
    }

    /// Store in a file that all ranks can write; the path must be fresh for each job.
    pub fn file(path: impl AsRef<Path>) -> Result<Owned<Store>> {
        let path = c_path(path)?;
        create(|out| unsafe { sys::nxd_store_create_file(path.as_ptr(), out) })
    }

    /// Connects to a store that another process serves. The timeout also bounds each later
    /// [`Store::get`]; zero: 5 minutes.
    pub fn tcp(host: &str, port: u16, timeout: Duration) -> Result<Owned<Store>> {
        Store::tcp_store(host, port, 0, timeout)
    }

    /// Serves a store in this process; port 0 picks a free one, see [`Store::port`].
    pub fn tcp_server(host: &str, port: u16, timeout: Duration) -> Result<Owned<Store>> {
        Store::tcp_store(host, port, 1, timeout)
    }

    fn tcp_store(host: &str, port: u16, server: i32, timeout: Duration) -> Result<Owned<Store>> {
        let host = c_string(host)?;
        create(|out| unsafe {
            sys::nxd_store_create_tcp(
                host.as_ptr(),
                port.into(),
                server,
                milliseconds(timeout),
                out,
            )
        })
    }

    /// Store over the program's own.
    pub fn over<B: StoreBackend>(backend: B) -> Result<Owned<Store>> {
        let data = Box::into_raw(Box::new(backend));
        let callbacks = sys::nxd_store_callbacks_t {
            user_data: data.cast(),
            destroy: Some(release::<B>),
            set: Some(set::<B>),
            get: Some(get_value::<B>),
            add: Some(add::<B>),
            ..Default::default()
        };
        let made = create(|out| unsafe { sys::nxd_store_create_callbacks(&callbacks, out) });
        if made.is_err() {
            // Not taken over.
            drop(unsafe { Box::from_raw(data) });
        }
        made
    }

    /// Port that a TCP store's server listens on.
    pub fn port(&self) -> Result<u16> {
        let port = get(|out| unsafe { sys::nxd_store_get_port(self.as_raw(), out) })?;
        Ok(port as u16)
    }

    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        let key = c_string(key)?;
        check(unsafe {
            sys::nxd_store_set(self.as_raw(), key.as_ptr(), value.as_ptr().cast(), value.len())
        })
    }

    /// Waits for the key; a timeout of zero asks once.
    pub fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let key = c_string(key)?;
        let timeout = milliseconds(timeout);
        let mut value = vec![0u8; 256];
        loop {
            let mut size = 0;
            let status = unsafe {
                let (data, cap) = (value.as_mut_ptr().cast(), value.len());
                sys::nxd_store_get(self.as_raw(), key.as_ptr(), timeout, data, cap, &mut size)
            };
            if size > value.len() {
                value.resize(size, 0);
                continue;
            }
            check(status)?;
            value.truncate(size);
            return Ok(value);
        }
    }

    /// Adds to an integer that starts at 0, atomically, and gives the new value.
    pub fn add(&self, key: &str, amount: i64) -> Result<i64> {
        let key = c_string(key)?;
        get(|out| unsafe { sys::nxd_store_add(self.as_raw(), key.as_ptr(), amount, out) })
    }
}

/// A duration for the C interface. It is rounded up: a short time does not become 0, which means a
/// default, or none.
pub(crate) fn milliseconds(duration: Duration) -> i64 {
    let whole = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    whole.saturating_add((duration.subsec_nanos() % 1_000_000 > 0).into())
}

unsafe fn key_of<'a>(key: *const c_char) -> Result<&'a str> {
    CStr::from_ptr(key).to_str().or_else(|_| invalid("key: expected UTF-8"))
}

// The pointers of these are valid for the call, by the contract of nxd_store_callbacks_t.
unsafe extern "C" fn set<B: StoreBackend>(
    key: *const c_char,
    value: *const u8,
    size: usize,
    data: *mut c_void,
) -> Status {
    guard(|| {
        let value = if size == 0 { &[] } else { std::slice::from_raw_parts(value, size) };
        (*data.cast::<B>()).set(key_of(key)?, value)
    })
}

unsafe extern "C" fn get_value<B: StoreBackend>(
    key: *const c_char,
    buf: *mut u8,
    cap: usize,
    out_size: *mut usize,
    out_found: *mut i32,
    data: *mut c_void,
) -> Status {
    guard(|| {
        *out_found = 0;
        *out_size = 0;
        if let Some(value) = (*data.cast::<B>()).get(key_of(key)?)? {
            *out_found = 1;
            *out_size = value.len();
            if value.len() <= cap && !value.is_empty() {
                std::ptr::copy_nonoverlapping(value.as_ptr(), buf, value.len());
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn add<B: StoreBackend>(
    key: *const c_char,
    amount: i64,
    out_value: *mut i64,
    data: *mut c_void,
) -> Status {
    guard(|| {
        *out_value = (*data.cast::<B>()).add(key_of(key)?, amount)?;
        Ok(())
    })
}
