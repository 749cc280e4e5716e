//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// Outcome of a call. Values never change their meaning.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_status_t(pub i32);

impl nxd_status_t {
    pub const OK: Self = Self(0);
    /// NULL, shape, dtype, size, range, or ranks that disagree
    pub const INVALID_ARGUMENT: Self = Self(-1);
    /// wrong order of calls, after fork, after finalize
    pub const INVALID_STATE: Self = Self(-2);
    /// valid, but not on this device, build or layout
    pub const UNSUPPORTED: Self = Self(-3);
    pub const OUT_OF_MEMORY: Self = Self(-4);
    /// a peer, or a store, did not answer in time; after a call on a group the context's groups are poisoned
    pub const TIMEOUT: Self = Self(-5);
    /// a peer died or left; the context's groups are poisoned
    pub const PEER_LOST: Self = Self(-6);
    /// nxd_group_abort or nxd_context_abort was called
    pub const ABORTED: Self = Self(-7);
    /// file or network, not a peer of the group
    pub const IO: Self = Self(-8);
    /// a file's content contradicts itself or its checksum
    pub const CORRUPT: Self = Self(-9);
    /// a defect of the library: please report it
    pub const INTERNAL: Self = Self(-10);
    /// a struct from a header this library does not know
    pub const ABI_MISMATCH: Self = Self(-11);
    /// a callback's own failure; passed through unchanged
    pub const USER: Self = Self(-12);
}

impl std::fmt::Debug for nxd_status_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::OK => f.write_str("OK"),
            Self::INVALID_ARGUMENT => f.write_str("INVALID_ARGUMENT"),
            Self::INVALID_STATE => f.write_str("INVALID_STATE"),
            Self::UNSUPPORTED => f.write_str("UNSUPPORTED"),
            Self::OUT_OF_MEMORY => f.write_str("OUT_OF_MEMORY"),
            Self::TIMEOUT => f.write_str("TIMEOUT"),
            Self::PEER_LOST => f.write_str("PEER_LOST"),
            Self::ABORTED => f.write_str("ABORTED"),
            Self::IO => f.write_str("IO"),
            Self::CORRUPT => f.write_str("CORRUPT"),
            Self::INTERNAL => f.write_str("INTERNAL"),
            Self::ABI_MISMATCH => f.write_str("ABI_MISMATCH"),
            Self::USER => f.write_str("USER"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_status_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Element types.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_dtype_t(pub i32);

impl nxd_dtype_t {
    pub const INVALID: Self = Self(-1);
    pub const F32: Self = Self(0);
    pub const F64: Self = Self(1);
    pub const BF16: Self = Self(2);
    pub const F16: Self = Self(3);
    pub const I32: Self = Self(4);
    pub const I64: Self = Self(5);
    pub const U8: Self = Self(6);
    pub const I8: Self = Self(7);
    pub const I16: Self = Self(8);
    pub const BOOL: Self = Self(9);
}

impl std::fmt::Debug for nxd_dtype_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::F32 => f.write_str("F32"),
            Self::F64 => f.write_str("F64"),
            Self::BF16 => f.write_str("BF16"),
            Self::F16 => f.write_str("F16"),
            Self::I32 => f.write_str("I32"),
            Self::I64 => f.write_str("I64"),
            Self::U8 => f.write_str("U8"),
            Self::I8 => f.write_str("I8"),
            Self::I16 => f.write_str("I16"),
            Self::BOOL => f.write_str("BOOL"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_dtype_t {
    fn default() -> Self {
        Self(0)
    }
}

/// On, off, or the default that the field's comment names.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_toggle_t(pub i32);

impl nxd_toggle_t {
    pub const INVALID: Self = Self(-1);
    pub const DEFAULT: Self = Self(0);
    pub const ON: Self = Self(1);
    pub const OFF: Self = Self(2);
}

impl std::fmt::Debug for nxd_toggle_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::DEFAULT => f.write_str("DEFAULT"),
            Self::ON => f.write_str("ON"),
            Self::OFF => f.write_str("OFF"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_toggle_t {
    fn default() -> Self {
        Self(0)
    }
}

/// The step that this rank's parameters belong to after an optimizer's step.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_parameter_state_t(pub i32);

impl nxd_parameter_state_t {
    pub const INVALID: Self = Self(-1);
    /// no step was concerned
    pub const NONE: Self = Self(0);
    /// all are as before the step
    pub const OLD: Self = Self(1);
    /// all are as after it
    pub const NEW: Self = Self(2);
    /// some of each: of no use until they are loaded again
    pub const PARTIAL: Self = Self(3);
}

impl std::fmt::Debug for nxd_parameter_state_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::NONE => f.write_str("NONE"),
            Self::OLD => f.write_str("OLD"),
            Self::NEW => f.write_str("NEW"),
            Self::PARTIAL => f.write_str("PARTIAL"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_parameter_state_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Severity of log lines; lines below the process-wide level are dropped.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_log_level_t(pub i32);

impl nxd_log_level_t {
    pub const INVALID: Self = Self(-1);
    pub const DEBUG: Self = Self(0);
    pub const INFO: Self = Self(1);
    pub const WARN: Self = Self(2);
    pub const ERROR: Self = Self(3);
    pub const OFF: Self = Self(4);
}

impl std::fmt::Debug for nxd_log_level_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::DEBUG => f.write_str("DEBUG"),
            Self::INFO => f.write_str("INFO"),
            Self::WARN => f.write_str("WARN"),
            Self::ERROR => f.write_str("ERROR"),
            Self::OFF => f.write_str("OFF"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_log_level_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Kind of a device.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_device_t(pub i32);

impl nxd_device_t {
    pub const INVALID: Self = Self(-1);
    pub const CPU: Self = Self(0);
    /// holds no tensors: NXD_DEVICE_XLA runs by Neuron's plug-in
    pub const NEURON: Self = Self(1);
    /// shapes and dtypes, no values
    pub const META: Self = Self(2);
    /// records operators, and runs a step as one graph; see nxd/device.h
    pub const XLA: Self = Self(3);
}

impl std::fmt::Debug for nxd_device_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::CPU => f.write_str("CPU"),
            Self::NEURON => f.write_str("NEURON"),
            Self::META => f.write_str("META"),
            Self::XLA => f.write_str("XLA"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_device_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Receives log lines, without a newline. Called only on a thread that is inside an nxd call.
pub type nxd_log_fn = Option<
    unsafe extern "C" fn(level: nxd_log_level_t, message: *const c_char, user_data: *mut c_void),
>;

/// Releases a callback's user_data; called exactly once.
pub type nxd_destroy_fn = Option<
    unsafe extern "C" fn(user_data: *mut c_void),
>;

/// The distributed call that failed. Strings are borrowed like nxd_last_error.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_error_info_t {
    pub struct_size: usize,
    pub status: nxd_status_t,
    /// world rank that was lost or disagreed; -1 when none is to blame
    pub root_rank: i32,
    /// number of the collective in its group, from 0
    pub sequence: u64,
    /// name of the group; "" when no group was involved
    pub group: *const c_char,
    /// such as "all_reduce"; "" when no collective was involved
    pub operation: *const c_char,
    /// of the training step whose end failed; -1 when none did
    pub step: i64,
    /// what that failure has left of this rank's parameters
    pub parameters: nxd_parameter_state_t,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_error_info_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_error_info_t {
    fn default() -> Self {
        zeroed::<Self>().with_size()
    }
}

extern "C" {
    /// [local] ABI number of the loaded library: bindings compare it with NXD_ABI_VERSION first.
    /// @since 0.1
    pub fn nxd_abi_version() -> u32;

    /// [local] Release of the loaded library, such as "0.1.0"; static storage.
    /// @since 0.1
    pub fn nxd_version() -> *const c_char;

    /// [local] Name of a status code, such as "INVALID_ARGUMENT"; "UNKNOWN" for other values.
    /// @since 0.1
    pub fn nxd_status_string(status: nxd_status_t) -> *const c_char;

    /// [local] Message of this thread's last failed call; "" when none failed yet, never NULL.
    ///
    /// Borrowed: valid until the next nxd call on this thread. A successful call leaves it as it is.
    /// @since 0.1
    pub fn nxd_last_error() -> *const c_char;

    /// [local] Copies this thread's last error message into buf, cut to cap - 1 bytes and terminated.
    ///
    /// @param buf  may be NULL when cap is 0.
    /// @return bytes needed for the whole message and its terminator.
    /// @since 0.1
    pub fn nxd_last_error_copy(buf: *mut c_char, cap: usize) -> usize;

    /// [local] Leaves the message of a failure that a callback of the program's is about to return:
    /// `nxd_set_last_error(NXD_ERROR_USER, "no batch is left"); return NXD_ERROR_USER;`
    ///
    /// The call that the callback is part of fails with this message, and so do the calls of other
    /// ranks that the failure ends; without it they only name the status. Both places know at which
    /// task, parameter or key it was. It is for the thread that the callback is called on. Where this
    /// thread's last error already has this status and message, what nxd_last_error_info says of it
    /// stays.
    /// @param status   what the callback returns; with NXD_OK nothing changes.
    /// @param message  UTF-8, copied, cut to 2047 bytes; NULL for none.
    /// @since 0.1
    pub fn nxd_set_last_error(status: nxd_status_t, message: *const c_char);

    /// [local] Structured form of this thread's last error.
    ///
    /// @param[in,out] out_info  struct_size set by the caller; the rest is filled.
    /// @return NXD_OK; INVALID_ARGUMENT (NULL); ABI_MISMATCH (struct_size).
    /// @since 0.1
    pub fn nxd_last_error_info(out_info: *mut nxd_error_info_t) -> nxd_status_t;

    /// [local] Destructor of a Python capsule of a DLPack tensor, for PyCapsule_New. It destroys what
    /// the capsule holds, unless a consumer took it over.
    ///
    /// The destructor is in C because one that runs Python would disturb the error that a consumer
    /// raises when it rejects the tensor. Does nothing in a process without a Python interpreter.
    /// @param capsule  a PyObject, named "dltensor" or "dltensor_versioned" until it is consumed.
    /// @since 0.1
    pub fn nxd_python_capsule_destroy(capsule: *mut c_void);

    /// [local] Replaces the process-wide log callback; NULL restores the default, lines on stderr.
    ///
    /// @param user_data  kept until the callback is replaced, also where it is NULL; then
    /// destroy(user_data) is called if destroy is not NULL. Not called when the
    /// process ends before.
    /// @since 0.1
    pub fn nxd_log_set_callback(callback: nxd_log_fn, user_data: *mut c_void, destroy: nxd_destroy_fn) -> nxd_status_t;

    /// [local] Sets the process-wide log level; the default is NXD_LOG_LEVEL or WARN.
    /// @return NXD_OK; INVALID_ARGUMENT (level).
    /// @since 0.1
    pub fn nxd_log_set_level(level: nxd_log_level_t) -> nxd_status_t;

    /// [local] Versions of the library, its compiler, libtorch, Gloo and oneDNN as a JSON object.
    ///
    /// Static storage.
    /// @since 0.1
    pub fn nxd_build_info() -> *const c_char;

    /// [local] Every environment variable the library reads, one per line: name, default, meaning.
    ///
    /// Static storage.
    /// @since 0.1
    pub fn nxd_environment_table() -> *const c_char;
}
