use crate::element::{count, dlpack, DType, Element};
use crate::error::{check, check_abi, invalid, Result};
use crate::object::{create, get, list, object, Owned};
use nxd_sys as sys;
use std::os::raw::c_void;
use std::ptr::{null, null_mut};

pub use sys::nxd_device_t as Device;

object! {
    /// Handle on a tensor. Several handles may share one storage, and count as one object: so none
    /// may move to another thread.
    Tensor, nxd_tensor_t, nxd_tensor_destroy
}

/// A vector that a tensor has taken over.
struct Taken<T> {
    managed: sys::DLManagedTensor,
    shape: Vec<i64>,
    data: Vec<T>,
}

unsafe extern "C" fn delete<T>(managed: *mut sys::DLManagedTensor) {
    // Made by from_vec; elements may be dropped on any thread.
    drop(Box::from_raw((*managed).manager_ctx.cast::<Taken<T>>()));
}

impl Tensor {
    /// Zeros in C order.
    pub fn zeros(shape: &[i64], dtype: DType, device: Device) -> Result<Owned<Tensor>> {
        create(|out| unsafe {
            sys::nxd_tensor_create(shape.as_ptr(), shape.len() as i32, dtype, device, out)
        })
    }

    /// A copy of elements in C order.
    pub fn from_slice<T: Element>(data: &[T], shape: &[i64]) -> Result<Owned<Tensor>> {
        let bytes = std::mem::size_of_val(data);
        create(|out| unsafe {
            let (data, ndim) = (data.as_ptr().cast(), shape.len() as i32);
            sys::nxd_tensor_from_data(data, bytes, shape.as_ptr(), ndim, T::DTYPE, out)
        })
    }

    /// A tensor over the memory of a vector, in C order and without a copy.
    pub fn from_vec<T: Element>(data: Vec<T>, shape: &[i64]) -> Result<Owned<Tensor>> {
        let wanted = count(shape)?;
        if wanted != data.len() {
            let given = data.len();
            return invalid(format!(
                "data: expected {} elements for {:?}, got {}",
                wanted, shape, given
            ));
        }
        let mut taken = Box::new(Taken {
            managed: sys::DLManagedTensor {
                dl_tensor: dlpack(null_mut(), &[], T::DTYPE),
                manager_ctx: null_mut(),
                deleter: Some(delete::<T>),
            },
            shape: shape.to_vec(),
            data,
        });
        taken.managed.dl_tensor = dlpack(taken.data.as_mut_ptr().cast(), &taken.shape, T::DTYPE);
        let raw = Box::into_raw(taken);
        let made = create(|out| unsafe {
            (*raw).managed.manager_ctx = raw.cast();
            sys::nxd_tensor_from_dlpack(&mut (*raw).managed, out)
        });
        if made.is_err() {
            // Not taken over.
            drop(unsafe { Box::from_raw(raw) });
        }
        made
    }

    /// A scalar.
    pub fn scalar<T: Element>(value: T) -> Result<Owned<Tensor>> {
        Tensor::from_slice(&[value], &[])
    }

    /// A copy of a borrowed DLPack tensor, any strides.
    ///
    /// # Safety
    /// `source` describes valid memory.
    pub unsafe fn copy_dltensor(source: &sys::DLTensor) -> Result<Owned<Tensor>> {
        create(|out| sys::nxd_tensor_from_dltensor(source, out))
    }

    /// A tensor over the memory of a managed DLPack tensor of another library, which is taken over
    /// on success.
    ///
    /// # Safety
    /// `managed` is a valid managed tensor that belongs to the caller.
    pub unsafe fn from_dlpack(managed: *mut sys::DLManagedTensor) -> Result<Owned<Tensor>> {
        create(|out| sys::nxd_tensor_from_dlpack(managed, out))
    }

    /// The tensor's memory for another library, without a copy.
    pub fn to_dlpack(&self) -> Result<Dlpack> {
        let mut managed = null_mut();
        check(unsafe { sys::nxd_tensor_to_dlpack(self.as_raw(), &mut managed) })?;
        Ok(Dlpack(managed))
    }

    /// Another handle on the same tensor.
    pub fn retain(&self) -> Result<Owned<Tensor>> {
        create(|out| unsafe { sys::nxd_tensor_retain(self.as_raw(), out) })
    }

    pub fn ndim(&self) -> Result<i32> {
        get(|out| unsafe { sys::nxd_tensor_get_ndim(self.as_raw(), out) })
    }

    pub fn shape(&self) -> Result<Vec<i64>> {
        list(|data, cap, size| unsafe { sys::nxd_tensor_get_shape(self.as_raw(), data, cap, size) })
    }

    /// In elements.
    pub fn strides(&self) -> Result<Vec<i64>> {
        list(|data, cap, size| unsafe {
            sys::nxd_tensor_get_strides(self.as_raw(), data, cap, size)
        })
    }

    pub fn dtype(&self) -> Result<DType> {
        get(|out| unsafe { sys::nxd_tensor_get_dtype(self.as_raw(), out) })
    }

    pub fn device(&self) -> Result<Device> {
        get(|out| unsafe { sys::nxd_tensor_get_device(self.as_raw(), out) })
    }

    pub fn element_count(&self) -> Result<usize> {
        let count = get(|out| unsafe { sys::nxd_tensor_get_element_count(self.as_raw(), out) })?;
        Ok(count as usize)
    }

    /// All elements, in C order.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let mut values = vec![T::default(); self.element_count()?];
        self.copy_to(&mut values)?;
        Ok(values)
    }

    /// Copies all elements out, in C order.
    pub fn copy_to<T: Element>(&self, values: &mut [T]) -> Result<()> {
        self.require::<T>()?;
        let (data, bytes) = (values.as_mut_ptr().cast(), std::mem::size_of_val(values));
        check(unsafe { sys::nxd_tensor_copy_to_host(self.as_raw(), data, bytes) })
    }

    /// Overwrites all elements in place, in C order; not recorded by autograd.
    pub fn copy_from<T: Element>(&self, values: &[T]) -> Result<()> {
        self.require::<T>()?;
        let (data, bytes) = (values.as_ptr().cast(), std::mem::size_of_val(values));
        check(unsafe { sys::nxd_tensor_copy_from_host(self.as_raw(), data, bytes) })
    }

    /// Value of a tensor of one element.
    pub fn item(&self) -> Result<f64> {
        get(|out| unsafe { sys::nxd_tensor_get_item(self.as_raw(), out) })
    }

    /// The elements in place, without a copy; the tensor has to be contiguous.
    ///
    /// # Safety
    /// While the slice lives nothing writes to the tensor's storage or moves it, through this handle
    /// or another.
    pub unsafe fn slice<T: Element>(&self) -> Result<&[T]> {
        let (data, n) = self.memory::<T>()?;
        Ok(std::slice::from_raw_parts(data, n))
    }

    /// The same, to be written.
    ///
    /// # Safety
    /// While the slice lives nothing else uses the tensor's storage. [`Tensor::mark_modified`] is
    /// called afterwards.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn slice_mut<T: Element>(&self) -> Result<&mut [T]> {
        let (data, n) = self.memory::<T>()?;
        Ok(std::slice::from_raw_parts_mut(data, n))
    }

    /// Says that the memory was written by other means than this library.
    pub fn mark_modified(&self) -> Result<()> {
        check(unsafe { sys::nxd_tensor_mark_modified(self.as_raw()) })
    }

    fn require<T: Element>(&self) -> Result<()> {
        let dtype = self.dtype()?;
        // A byte may stand for a BOOL.
        if dtype == T::DTYPE || (dtype == DType::BOOL && T::DTYPE == DType::U8) {
            return Ok(());
        }
        invalid(format!("expected elements of {:?}, asked for {:?}", dtype, T::DTYPE))
    }

    fn memory<T: Element>(&self) -> Result<(*mut T, usize)> {
        self.require::<T>()?;
        let (shape, strides) = (self.shape()?, self.strides()?);
        let n = count(&shape)?;
        let mut step = 1;
        for (&size, &stride) in shape.iter().zip(&strides).rev() {
            if size != 1 && stride != step && n != 0 {
                return invalid(format!(
                    "not contiguous: shape {:?}, strides {:?}",
                    shape, strides
                ));
            }
            step *= size;
        }
        if n == 0 {
            return Ok((std::ptr::NonNull::dangling().as_ptr(), 0));
        }
        let mut data: *mut c_void = null_mut();
        check(unsafe { sys::nxd_tensor_get_data(self.as_raw(), &mut data) })?;
        Ok((data.cast(), n))
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.dtype(), self.shape()) {
            (Ok(dtype), Ok(shape)) => write!(f, "Tensor {:?} {:?}", dtype, shape),
            _ => write!(f, "Tensor"),
        }
    }
}

/// A tensor's memory as DLPack, which lives until this is dropped or handed on.
pub struct Dlpack(*mut sys::DLManagedTensor);

impl Dlpack {
    /// The tensor in place.
    pub fn tensor(&self) -> &sys::DLTensor {
        unsafe { &(*self.0).dl_tensor }
    }

    /// Hands the tensor on to a library that calls its deleter.
    pub fn into_raw(self) -> *mut sys::DLManagedTensor {
        let managed = self.0;
        std::mem::forget(self);
        managed
    }
}

impl Drop for Dlpack {
    fn drop(&mut self) {
        // The only owner's last use.
        unsafe {
            if let Some(deleter) = (*self.0).deleter {
                deleter(self.0);
            }
        }
    }
}

/// True if ATen takes the memory of new tensors from the library's pool.
pub fn aten_pool() -> Result<bool> {
    check_abi()?;
    Ok(get(|out| unsafe { sys::nxd_memory_get_aten_pool(out) })? != 0)
}

/// See [`aten_pool`].
pub fn set_aten_pool(on: bool) -> Result<()> {
    check_abi()?;
    check(unsafe { sys::nxd_memory_set_aten_pool(on.into()) })
}

/// Device that this process trains on: the CPU with NXD_CPU_MODE=1.
pub fn device() -> Result<Device> {
    check_abi()?;
    get(|out| unsafe { sys::nxd_get_device(out) })
}

/// Tensors that a closure is given: borrowed for the call, and some may be left out.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a>(&'a [Option<&'a Tensor>]);

impl<'a> Inputs<'a> {
    /// # Safety
    /// n handles or NULLs, valid for 'a.
    pub(crate) unsafe fn from_raw(list: *const *mut sys::nxd_tensor_t, n: usize) -> Self {
        if n == 0 {
            return Inputs(&[]);
        }
        // A reference that may be missing is a pointer that may be NULL.
        Inputs(std::slice::from_raw_parts(list.cast::<Option<&Tensor>>(), n))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// An input that has to be there.
    pub fn get(&self, index: usize) -> Result<&'a Tensor> {
        match self.0.get(index) {
            Some(Some(tensor)) => Ok(tensor),
            Some(None) => invalid(format!("input {} was left out", index)),
            None => invalid(format!("expected at least {} inputs, got {}", index + 1, self.len())),
        }
    }

    /// An input that may be left out.
    pub fn optional(&self, index: usize) -> Option<&'a Tensor> {
        self.0.get(index).copied().flatten()
    }

    pub fn iter(&self) -> impl Iterator<Item = Option<&'a Tensor>> + 'a {
        self.0.iter().copied()
    }
}

/// Pointer to tensors as the C interface takes them.
pub(crate) fn pointers(list: &[&Tensor]) -> *const *mut sys::nxd_tensor_t {
    list.as_ptr().cast()
}

/// The same, with some left out.
pub(crate) fn maybe_pointers(list: &[Option<&Tensor>]) -> *const *mut sys::nxd_tensor_t {
    list.as_ptr().cast()
}

/// The n tensors that a call gives out.
pub(crate) fn outputs(
    n: usize,
    call: impl FnOnce(*mut *mut sys::nxd_tensor_t) -> sys::nxd_status_t,
) -> Result<Vec<Owned<Tensor>>> {
    let given = maybe_outputs(n, call)?;
    match given.into_iter().collect() {
        Some(tensors) => Ok(tensors),
        None => invalid("the call leaves out an output that was asked for"),
    }
}

/// The same, some of which may be missing.
pub(crate) fn maybe_outputs(
    n: usize,
    call: impl FnOnce(*mut *mut sys::nxd_tensor_t) -> sys::nxd_status_t,
) -> Result<Vec<Option<Owned<Tensor>>>> {
    check_abi()?;
    let mut raw = vec![null_mut(); n];
    let status = call(raw.as_mut_ptr());
    let own = |raw: *mut sys::nxd_tensor_t| match raw.is_null() {
        true => None,
        // New handles of the caller's.
        false => Some(unsafe { Owned::<Tensor>::from_raw(raw) }),
    };
    let tensors: Vec<_> = raw.into_iter().map(own).collect();
    check(status).map(|()| tensors)
}

/// Fills the outputs of a callback, whose handles the library takes over.
///
/// # Safety
/// Room for n handles.
pub(crate) unsafe fn give(
    tensors: Vec<Option<Owned<Tensor>>>,
    room: *mut *mut sys::nxd_tensor_t,
    n: usize,
) -> Result<()> {
    if tensors.len() != n {
        return invalid(format!("expected {} outputs of the closure, got {}", n, tensors.len()));
    }
    for (i, tensor) in tensors.into_iter().enumerate() {
        *room.add(i) = tensor.map_or(null_mut(), Owned::into_raw);
    }
    Ok(())
}

/// A raw pointer to a tensor that may be left out.
pub(crate) fn maybe_raw(tensor: Option<&Tensor>) -> *mut sys::nxd_tensor_t {
    tensor.map_or(null::<sys::nxd_tensor_t>() as *mut _, Tensor::as_raw)
}
