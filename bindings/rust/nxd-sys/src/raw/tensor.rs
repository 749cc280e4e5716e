//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// Handle on a tensor. Several handles may share one storage.
#[repr(C)]
pub struct nxd_tensor_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

#[cfg(feature = "engine")]
extern "C" {
    /// [local] Sets whether ATen, libtorch's tensor library, takes the memory of new CPU tensors from
    /// the pool of nxd_memory_get_stats too. The setting is for the whole process and may change at any
    /// time: memory goes back to where it came from.
    ///
    /// It starts on if libnxd brought libtorch into the process. It starts off if the program, or
    /// another of its libraries, uses libtorch itself or has given ATen an allocator. NXD_ATEN_POOL=1
    /// or 0 overrides both. This is decided when libnxd is loaded.
    ///
    /// If it starts on, malloc is also told to keep up to 64 MB of free memory (glibc's mallopt), but
    /// not if the environment configures malloc. Switching the pool off later does not undo that.
    /// @param on  1 or 0.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (the program has set an allocator of its own
    /// that ATen ranks higher).
    /// @since 0.1
    pub fn nxd_memory_set_aten_pool(on: i32) -> nxd_status_t;

    /// [local] Tells whether ATen takes the memory of new CPU tensors from the pool: 1 or 0.
    /// @since 0.1
    pub fn nxd_memory_get_aten_pool(out_on: *mut i32) -> nxd_status_t;

    /// [local] A tensor of zeros in C order.
    ///
    /// @param shape   ndim sizes, at most 64, each 0 or more; may be NULL when ndim is 0 (a scalar).
    /// @param device  NXD_DEVICE_CPU, NXD_DEVICE_XLA or NXD_DEVICE_META (shape and dtype only).
    /// @return NXD_OK; INVALID_ARGUMENT; OUT_OF_MEMORY; UNSUPPORTED (device).
    /// @since 0.1
    pub fn nxd_tensor_create(shape: *const i64, ndim: i32, dtype: nxd_dtype_t, device: nxd_device_t, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] A tensor in C order with a copy of the caller's data.
    ///
    /// @param data   as many elements of dtype as the shape has; NULL only when it has none.
    /// @param bytes  size of data: elements times the element size, checked.
    /// @since 0.1
    pub fn nxd_tensor_from_data(data: *const c_void, bytes: usize, shape: *const i64, ndim: i32, dtype: nxd_dtype_t, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] A tensor with a copy of a borrowed DLPack tensor, any strides.
    ///
    /// @param source  borrowed for the call; on the CPU.
    /// @return NXD_OK; INVALID_ARGUMENT; UNSUPPORTED (device, dtype, lanes).
    /// @since 0.1
    pub fn nxd_tensor_from_dltensor(source: *const DLTensor, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] A tensor over the memory of a managed DLPack tensor, without a copy.
    ///
    /// @param managed  taken over on success: its deleter is called, on any thread, when the last
    /// tensor over the memory is gone. On failure it stays the caller's.
    /// @return NXD_OK; INVALID_ARGUMENT (also data that is not aligned to the element size, or BOOL
    /// with bytes other than 0 and 1); UNSUPPORTED (device, dtype, lanes; negative strides,
    /// which cannot be shared).
    /// @since 0.1
    pub fn nxd_tensor_from_dlpack(managed: *mut DLManagedTensor, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] The same for the versioned form; read-only memory is rejected.
    /// @return as nxd_tensor_from_dlpack; INVALID_ARGUMENT too for read-only memory, UNSUPPORTED for a
    /// major version other than 1.
    /// @since 0.1
    pub fn nxd_tensor_from_dlpack_versioned(managed: *mut DLManagedTensorVersioned, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] The tensor's memory as a managed DLPack tensor, without a copy.
    /// After writing through it, call nxd_tensor_mark_modified.
    ///
    /// @param[out] out_managed  the caller calls its deleter once; the memory lives until then.
    /// @return NXD_OK; INVALID_ARGUMENT (requires grad: detach first); UNSUPPORTED (not on the CPU).
    /// @since 0.1
    pub fn nxd_tensor_to_dlpack(tensor: *mut nxd_tensor_t, out_managed: *mut *mut DLManagedTensor) -> nxd_status_t;

    /// [local] The same in the versioned form.
    /// @since 0.1
    pub fn nxd_tensor_to_dlpack_versioned(tensor: *mut nxd_tensor_t, out_managed: *mut *mut DLManagedTensorVersioned) -> nxd_status_t;

    /// [local] Another handle on the same tensor.
    /// @since 0.1
    pub fn nxd_tensor_retain(tensor: *mut nxd_tensor_t, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] Releases a handle.
    /// @since 0.1
    pub fn nxd_tensor_destroy(tensor: *mut nxd_tensor_t);

    /// [local] Number of dimensions.
    /// @since 0.1
    pub fn nxd_tensor_get_ndim(tensor: *mut nxd_tensor_t, out_ndim: *mut i32) -> nxd_status_t;

    /// [local] Sizes of the dimensions.
    ///
    /// @param shape  room for cap sizes; may be NULL when cap is 0.
    /// @param[out] out_ndim  dimensions. When it exceeds cap nothing is copied, and a cap other than 0
    /// is INVALID_ARGUMENT.
    /// @since 0.1
    pub fn nxd_tensor_get_shape(tensor: *mut nxd_tensor_t, shape: *mut i64, cap: usize, out_ndim: *mut usize) -> nxd_status_t;

    /// [local] Strides in elements; as nxd_tensor_get_shape.
    /// @since 0.1
    pub fn nxd_tensor_get_strides(tensor: *mut nxd_tensor_t, strides: *mut i64, cap: usize, out_ndim: *mut usize) -> nxd_status_t;

    /// [local] Element type.
    /// @since 0.1
    pub fn nxd_tensor_get_dtype(tensor: *mut nxd_tensor_t, out_dtype: *mut nxd_dtype_t) -> nxd_status_t;

    /// [local] Device.
    /// @since 0.1
    pub fn nxd_tensor_get_device(tensor: *mut nxd_tensor_t, out_device: *mut nxd_device_t) -> nxd_status_t;

    /// [local] Number of elements.
    /// @since 0.1
    pub fn nxd_tensor_get_element_count(tensor: *mut nxd_tensor_t, out_count: *mut i64) -> nxd_status_t;

    /// [local] First element in memory; borrowed. After writing through it, call
    /// nxd_tensor_mark_modified.
    /// @return NXD_OK; UNSUPPORTED (not on the CPU).
    /// @since 0.1
    pub fn nxd_tensor_get_data(tensor: *mut nxd_tensor_t, out_data: *mut *mut c_void) -> nxd_status_t;

    /// [local] Says that the tensor's memory was written by other means than this library, so that
    /// what was derived from it is made anew.
    /// @since 0.1
    pub fn nxd_tensor_mark_modified(tensor: *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] Copies all elements out, in C order.
    /// @param bytes  size of buf: elements times the element size, checked.
    /// @since 0.1
    pub fn nxd_tensor_copy_to_host(tensor: *mut nxd_tensor_t, buf: *mut c_void, bytes: usize) -> nxd_status_t;

    /// [local] Overwrites all elements in place from C order; not recorded by autograd.
    /// @since 0.1
    pub fn nxd_tensor_copy_from_host(tensor: *mut nxd_tensor_t, buf: *const c_void, bytes: usize) -> nxd_status_t;

    /// [local] Value of a tensor of one element, as a double.
    /// @return NXD_OK; INVALID_ARGUMENT (not one element).
    /// @since 0.1
    pub fn nxd_tensor_get_item(tensor: *mut nxd_tensor_t, out_value: *mut f64) -> nxd_status_t;
}
