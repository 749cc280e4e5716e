use crate::error::{check, check_abi, Result, Status};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

/// A kind of object that the library gives out. Its values live behind references alone: an
/// [`Owned`] one belongs to the program, a plain `&T` to what it was got from.
///
/// # Safety
/// A reference to the type is a handle of type `Raw`.
pub unsafe trait Object {
    type Raw;

    /// Releases a handle; always one of the library's local functions.
    ///
    /// # Safety
    /// The handle is the caller's, and not used again.
    unsafe fn destroy(raw: *mut Self::Raw);
}

/// An object that belongs to the program and is released with this handle. It keeps the objects
/// that it uses alive, so the order in which objects are dropped is free.
pub struct Owned<T: Object>(NonNull<T>);

impl<T: Object> Owned<T> {
    /// Takes over a handle of the raw layer.
    ///
    /// # Safety
    /// `raw` is a valid handle that belongs to the caller.
    pub unsafe fn from_raw(raw: *mut T::Raw) -> Self {
        Owned(NonNull::new(raw.cast::<T>()).expect("a call that succeeds gives an object"))
    }

    /// Gives the handle to the raw layer, which has to destroy it.
    pub fn into_raw(self) -> *mut T::Raw {
        let raw = self.0.as_ptr().cast::<T::Raw>();
        std::mem::forget(self);
        raw
    }
}

impl<T: Object> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // Valid until drop.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Object> Drop for Owned<T> {
    fn drop(&mut self) {
        // The only owner's last use.
        unsafe { T::destroy(self.0.as_ptr().cast::<T::Raw>()) }
    }
}

impl<T: Object> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = std::any::type_name::<T>();
        write!(f, "{}({:p})", name.rsplit("::").next().unwrap_or(name), self.0)
    }
}

/// Declares the type that stands for a handle of the C interface.
macro_rules! object {
    ($(#[$doc:meta])* $name:ident, $raw:ident, $destroy:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $name(nxd_sys::$raw);

        impl $name {
            /// The handle, for functions of the raw layer.
            pub fn as_raw(&self) -> *mut nxd_sys::$raw {
                self as *const $name as *mut nxd_sys::$raw
            }
        }

        unsafe impl $crate::object::Object for $name {
            type Raw = nxd_sys::$raw;

            unsafe fn destroy(raw: *mut nxd_sys::$raw) {
                nxd_sys::$destroy(raw)
            }
        }
    };
}
pub(crate) use object;

/// The object that a call gives to its caller.
pub(crate) fn create<T: Object>(call: impl FnOnce(*mut *mut T::Raw) -> Status) -> Result<Owned<T>> {
    check_abi()?;
    let mut raw = std::ptr::null_mut();
    let status = call(&mut raw);
    // Somebody's before a panic of a closure's may go on in check: a work whose buffers are dropped
    // then has to end.
    let made = (status == Status::OK).then(|| unsafe { Owned::from_raw(raw) });
    check(status)?;
    Ok(made.expect("the call has succeeded"))
}

/// The value that a call gives by its last argument.
pub(crate) fn get<V: Default>(call: impl FnOnce(*mut V) -> Status) -> Result<V> {
    let mut value = V::default();
    check(call(&mut value))?;
    Ok(value)
}

/// The object that a call lends, as long as its owner is borrowed.
///
/// # Safety
/// The lent object outlives 'a.
pub(crate) unsafe fn borrow<'a, T: Object>(
    call: impl FnOnce(*mut *mut T::Raw) -> Status,
) -> Result<&'a T> {
    let mut raw = std::ptr::null_mut();
    check(call(&mut raw))?;
    Ok(&*raw.cast::<T>())
}

/// Everything that a call gives by the rule of a buffer, its capacity and the size needed.
pub(crate) fn list<V: Clone + Default>(
    mut call: impl FnMut(*mut V, usize, *mut usize) -> Status,
) -> Result<Vec<V>> {
    let mut size = 0;
    check(call(std::ptr::null_mut(), 0, &mut size))?;
    let mut values = vec![V::default(); size];
    if size > 0 {
        check(call(values.as_mut_ptr(), size, &mut size))?;
    }
    Ok(values)
}
