//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// Key-value store through which ranks find one another.
#[repr(C)]
pub struct nxd_store_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A store of the caller's own. Each callback returns NXD_OK or an error, which passes through.
/// They are called from the thread that is inside the nxd call. Asynchronous work has its requests
/// to the store made by threads that are inside nxd_work_wait, nxd_work_test or another call that
/// waits or uses the store.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_store_callbacks_t {
    pub struct_size: usize,
    pub user_data: *mut c_void,
    /// may be NULL
    pub destroy: nxd_destroy_fn,
    pub set: Option<unsafe extern "C" fn(*const c_char, *const u8, usize, *mut c_void) -> nxd_status_t>,
    pub get: Option<unsafe extern "C" fn(*const c_char, *mut u8, usize, *mut usize, *mut i32, *mut c_void) -> nxd_status_t>,
    pub add: Option<unsafe extern "C" fn(*const c_char, i64, *mut i64, *mut c_void) -> nxd_status_t>,
}

unsafe impl Versioned for nxd_store_callbacks_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_store_callbacks_t {
    fn default() -> Self {
        zeroed::<Self>().with_size()
    }
}

extern "C" {
    /// [local] Store of the ranks that live on threads of this process.
    ///
    /// @param[out] out_store  shared by the threads; the caller destroys it.
    /// @since 0.1
    pub fn nxd_store_create_local(out_store: *mut *mut nxd_store_t) -> nxd_status_t;

    /// [blocking] Store in a file that all ranks of this host or shared file system can write.
    ///
    /// @param path  created when absent, and left in place by destroy. The path must be fresh for each
    /// job: keys of an earlier job are rejected by nxd_context_create.
    /// @return NXD_OK; INVALID_ARGUMENT; IO (cannot create or lock the file); CORRUPT (the file is no
    /// store); TIMEOUT (another process keeps the file locked).
    /// @since 0.1
    pub fn nxd_store_create_file(path: *const c_char, out_store: *mut *mut nxd_store_t) -> nxd_status_t;

    /// [blocking] Store served over TCP by one rank; speaks the protocol of torch's TCPStore.
    ///
    /// With NXD_SECRET or NXD_SECRET_FILE both ends prove that they have the same secret; see
    /// docs/security.md.
    ///
    /// @param host        name or address of the server, which listens there alone, or at all addresses
    /// where host is none of this host's; see docs/security.md.
    /// @param port        1..65535; for the server 0 picks a free port, see nxd_store_get_port.
    /// @param is_server   1: serve in this process and connect to it; 0: connect.
    /// @param timeout_ms  0: 300000. Also bounds each later request. One that ends with TIMEOUT may
    /// have been carried out by the server, or be so later; the next one connects
    /// anew.
    /// @return NXD_OK; INVALID_ARGUMENT; IO (port in use, name not found, no store or
    /// one with another secret at the port); TIMEOUT (no server).
    /// @since 0.1
    pub fn nxd_store_create_tcp(host: *const c_char, port: i32, is_server: i32, timeout_ms: i64, out_store: *mut *mut nxd_store_t) -> nxd_status_t;

    /// [local] Store over the caller's callbacks, which are copied; set, get and add are required.
    ///
    /// On failure destroy is not called: user_data stays the caller's.
    /// @return NXD_OK; INVALID_ARGUMENT (a callback is NULL); ABI_MISMATCH.
    /// @since 0.1
    pub fn nxd_store_create_callbacks(callbacks: *const nxd_store_callbacks_t, out_store: *mut *mut nxd_store_t) -> nxd_status_t;

    /// [local] Port the store's server listens on, for stores made by nxd_store_create_tcp.
    /// @return NXD_OK; INVALID_ARGUMENT (not a TCP store).
    /// @since 0.1
    pub fn nxd_store_get_port(store: *mut nxd_store_t, out_port: *mut i32) -> nxd_status_t;

    /// [blocking] Stores a copy of the value under the key.
    /// @param key    as for all calls, at most 64 KiB over TCP.
    /// @param value  size bytes, at most 1 GiB, and 64 MiB over TCP; may be NULL when size is 0.
    /// @return NXD_OK; INVALID_ARGUMENT; OUT_OF_MEMORY (also: all values of a store over TCP would take
    /// more than 1 GiB; nothing is stored. A server of torch's loses the connection instead);
    /// IO, TIMEOUT (the store is lost or silent, or the file of a file store is kept locked);
    /// CORRUPT (that file is no store any more). The status of a store's callback passes
    /// through.
    /// @since 0.1
    pub fn nxd_store_set(store: *mut nxd_store_t, key: *const c_char, value: *const c_void, size: usize) -> nxd_status_t;

    /// [blocking] Waits for the key and copies its value.
    ///
    /// @param timeout_ms   0 asks once and does not wait; over TCP at most the store's own bound.
    /// @param[out] out_size  bytes of the value, also when cap is too small.
    /// @return NXD_OK; INVALID_ARGUMENT (cap too small: nothing is copied);
    /// TIMEOUT (key absent, the store is silent, or the file of a file store is kept locked);
    /// IO (the store is lost); CORRUPT (as nxd_store_set).
    /// @since 0.1
    pub fn nxd_store_get(store: *mut nxd_store_t, key: *const c_char, timeout_ms: i64, buf: *mut c_void, cap: usize, out_size: *mut usize) -> nxd_status_t;

    /// [blocking] Adds to an integer key that starts at 0, atomically. Sums wrap.
    /// @return NXD_OK; INVALID_ARGUMENT (the value is no integer; a server of torch's loses the
    /// connection instead); OUT_OF_MEMORY, CORRUPT (as nxd_store_set); IO, TIMEOUT (the
    /// store is lost or silent, or the file of a file store is kept locked).
    /// @since 0.1
    pub fn nxd_store_add(store: *mut nxd_store_t, key: *const c_char, amount: i64, out_value: *mut i64) -> nxd_status_t;

    /// [local] Releases the store; contexts made from it keep what they need.
    /// @since 0.1
    pub fn nxd_store_destroy(store: *mut nxd_store_t);
}
