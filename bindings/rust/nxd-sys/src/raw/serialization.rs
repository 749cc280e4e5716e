//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// An open file of tensors and texts.
#[repr(C)]
pub struct nxd_serialization_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Options of nxd_save and nxd_serialization_save.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_save_options_t {
    pub struct_size: usize,
    /// default on; off: each rank writes, at a path of its own
    pub master_only: nxd_toggle_t,
    /// 1: the first rank of each host writes; 0: that of the world
    pub each_host: i32,
    /// num_values names of texts; copied
    pub keys: *const *const c_char,
    /// num_values texts, such as {"1200"}
    pub values: *const *const c_char,
    pub num_values: usize,
}

unsafe impl Versioned for nxd_save_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_save_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_save_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

#[cfg(feature = "engine")]
extern "C" {
    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_save_options_init(options: *mut nxd_save_options_t, size: usize) -> nxd_status_t;

    /// [collective: world] Writes tensors and texts as one file, once they are all in the host's
    /// memory: values of the recorded device, and dense copies of tensors that are not in C order. The
    /// ranks that write need that memory; nxd_serialization_save needs less.
    ///
    /// All ranks return when all files are there. Every rank runs first what it has recorded.
    /// @param path     file; replaced when complete. That of this rank with master_only off, else the
    /// same on all ranks.
    /// @param names    num_tensors names, each once; not "__metadata__".
    /// @param tensors  num_tensors; on the CPU or the recorded device. A rank that does not write
    /// has its own checked, and left out.
    /// @return NXD_OK; INVALID_ARGUMENT (also one path for several ranks, or several for one file);
    /// UNSUPPORTED (a dtype that files cannot have); IO; OUT_OF_MEMORY; TIMEOUT; PEER_LOST.
    /// All ranks fail when one does, but for ctx NULL. A path whose file could not be written
    /// has what it had before, unless the message says that the new one is complete.
    /// @since 0.1
    pub fn nxd_save(ctx: *mut nxd_context_t, path: *const c_char, names: *const *const c_char, tensors: *const *mut nxd_tensor_t, num_tensors: usize, options: *const nxd_save_options_t) -> nxd_status_t;

    /// [collective: world] The same file, written tensor by tensor: no more than one of them is copied
    /// to the host's memory at a time.
    /// @since 0.1
    pub fn nxd_serialization_save(ctx: *mut nxd_context_t, path: *const c_char, names: *const *const c_char, tensors: *const *mut nxd_tensor_t, num_tensors: usize, options: *const nxd_save_options_t) -> nxd_status_t;

    /// [local] Opens a file of nxd_save, nxd_serialization_save, or any other safetensors. Its header
    /// is checked now; each tensor is read when it is asked for.
    ///
    /// A file that is replaced meanwhile is still read as it was. One of more than 256 may have to be
    /// opened again, and another in its place is CORRUPT then.
    /// @param path  as of nxd_module_load_safetensors.
    /// @return NXD_OK; INVALID_ARGUMENT; UNSUPPORTED (a dtype that is not known); IO; CORRUPT.
    /// @since 0.1
    pub fn nxd_serialization_load(path: *const c_char, out_serialization: *mut *mut nxd_serialization_t) -> nxd_status_t;

    /// [local] Number of tensors.
    /// @since 0.1
    pub fn nxd_serialization_get_count(serialization: *mut nxd_serialization_t, out_count: *mut usize) -> nxd_status_t;

    /// [local] Name of a tensor by index, in alphabetical order; borrowed.
    /// @since 0.1
    pub fn nxd_serialization_get_name(serialization: *mut nxd_serialization_t, index: usize, out_name: *mut *const c_char) -> nxd_status_t;

    /// [local] Reads a tensor.
    /// @param device  CPU or XLA.
    /// @param[out] out_tensor  of the file's shape and dtype; the caller destroys it.
    /// @return NXD_OK; INVALID_ARGUMENT (no such tensor: near names are in the message; another
    /// device); UNSUPPORTED (a dtype that this library does not compute with); IO; CORRUPT.
    /// @since 0.1
    pub fn nxd_serialization_create_tensor(serialization: *mut nxd_serialization_t, name: *const c_char, device: nxd_device_t, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] Number of texts.
    /// @since 0.1
    pub fn nxd_serialization_get_value_count(serialization: *mut nxd_serialization_t, out_count: *mut usize) -> nxd_status_t;

    /// [local] A text by index, in alphabetical order of the keys; both borrowed, either may be NULL.
    /// @since 0.1
    pub fn nxd_serialization_get_value(serialization: *mut nxd_serialization_t, index: usize, out_key: *mut *const c_char, out_value: *mut *const c_char) -> nxd_status_t;

    /// [local] Closes the file. Tensors that were read stay.
    /// @since 0.1
    pub fn nxd_serialization_destroy(serialization: *mut nxd_serialization_t);
}
