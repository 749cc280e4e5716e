use crate::callback::{guard, release};
use crate::element::DType;
use crate::engine::module::Module;
use crate::engine::tensor::{maybe_outputs, Device, Tensor};
use crate::error::{c_string, check, check_abi, string, Result, Status};
use crate::object::{create, get, list, Owned};
use nxd_sys as sys;
use std::os::raw::{c_char, c_void};
use std::ptr::{null, null_mut};
use sys::Versioned;

pub use sys::nxd_init_t as Init;
pub use sys::nxd_parameter_options_t as ParameterOptions;

/// Parameter of a module, or rather this rank's shard of it; borrowed from its module.
#[repr(transparent)]
pub struct Parameter(sys::nxd_parameter_t);

/// Which part of a whole parameter a rank has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// `None` for a replicated parameter.
    pub dim: Option<usize>,
    /// Ranges of indices in that dimension, in local order.
    pub ranges: Vec<std::ops::Range<i64>>,
}

impl Parameter {
    /// The handle, for functions of the raw layer.
    pub fn as_raw(&self) -> *mut sys::nxd_parameter_t {
        self as *const Parameter as *mut sys::nxd_parameter_t
    }

    /// This rank's shard: another handle on it.
    pub fn tensor(&self) -> Result<Owned<Tensor>> {
        let mut raw = null_mut();
        check(unsafe { sys::nxd_parameter_get_tensor(self.as_raw(), &mut raw) })?;
        create(|out| unsafe { sys::nxd_tensor_retain(raw, out) })
    }

    /// Shape of the whole parameter.
    pub fn global_shape(&self) -> Result<Vec<i64>> {
        list(|data, cap, size| unsafe {
            sys::nxd_parameter_get_global_shape(self.as_raw(), data, cap, size)
        })
    }

    pub fn shard(&self) -> Result<Shard> {
        let mut dim = -1;
        let mut n = 0;
        check(unsafe {
            sys::nxd_parameter_get_shard(self.as_raw(), &mut dim, null_mut(), null_mut(), 0, &mut n)
        })?;
        let (mut begins, mut ends) = (vec![0; n], vec![0; n]);
        if n > 0 {
            let (begins, ends) = (begins.as_mut_ptr(), ends.as_mut_ptr());
            check(unsafe {
                sys::nxd_parameter_get_shard(self.as_raw(), &mut dim, begins, ends, n, &mut n)
            })?;
        }
        let ranges = begins.into_iter().zip(ends).map(|(begin, end)| begin..end).collect();
        Ok(Shard { dim: usize::try_from(dim).ok(), ranges })
    }

    /// Overwrites this rank's shard with its part of the whole value.
    pub fn set_full(&self, whole: &Tensor) -> Result<()> {
        check(unsafe { sys::nxd_parameter_set_full(self.as_raw(), whole.as_raw()) })
    }

    /// The whole value. Collective: tensor-parallel group.
    pub fn gather_full(&self) -> Result<Owned<Tensor>> {
        create(|out| unsafe { sys::nxd_parameter_gather_full(self.as_raw(), out) })
    }

    /// The whole gradient, if there is one. Collective: tensor-parallel group.
    pub fn gather_full_grad(&self) -> Result<Option<Owned<Tensor>>> {
        let grad = maybe_outputs(1, |out| unsafe {
            sys::nxd_parameter_gather_full_grad(self.as_raw(), out)
        })?;
        Ok(grad.into_iter().next().flatten())
    }

    /// Frees or freezes the parameter.
    pub fn set_trainable(&self, trainable: bool) -> Result<()> {
        check(unsafe { sys::nxd_parameter_set_trainable(self.as_raw(), trainable.into()) })
    }

    /// Has the parameter take its initial values from a closure, whenever they are drawn: it is
    /// given the name, the whole shape, the place of a first element in row-major order, and room
    /// for the values from there on.
    pub fn set_initializer<F>(&self, initializer: F) -> Result<()>
    where
        F: Fn(&str, &[i64], i64, &mut [f64]) -> Result<()> + 'static,
    {
        give_initializer(initializer, |call, data, destroy| unsafe {
            sys::nxd_parameter_set_initializer(self.as_raw(), call, data, destroy)
        })
    }

    /// Takes its initial values from its layer's options and the seed again.
    pub fn remove_initializer(&self) -> Result<()> {
        check(unsafe { sys::nxd_parameter_set_initializer(self.as_raw(), None, null_mut(), None) })
    }

    /// Calls a closure whenever a backward pass has added to the gradient.
    pub fn set_grad_hook<F: Fn(&Parameter) -> Result<()> + 'static>(&self, hook: F) -> Result<()> {
        let data = Box::into_raw(Box::new(hook));
        let status = unsafe {
            let (hook, destroy) = (Some(call::<F> as _), Some(release::<F> as _));
            sys::nxd_parameter_set_grad_hook(self.as_raw(), hook, data.cast(), destroy)
        };
        if status != Status::OK {
            // Not taken over.
            drop(unsafe { Box::from_raw(data) });
        }
        check(status)
    }

    pub fn remove_grad_hook(&self) -> Result<()> {
        check(unsafe { sys::nxd_parameter_set_grad_hook(self.as_raw(), None, null_mut(), None) })
    }
}

unsafe extern "C" fn call<F: Fn(&Parameter) -> Result<()>>(
    parameter: *mut sys::nxd_parameter_t,
    data: *mut c_void,
) -> Status {
    guard(|| (*data.cast::<F>())(&*parameter.cast::<Parameter>()))
}

/// Hands a closure to the library, which keeps it when the call succeeds.
pub(crate) fn give_initializer<F>(
    initializer: F,
    set: impl FnOnce(sys::nxd_initializer_fn, *mut c_void, sys::nxd_destroy_fn) -> Status,
) -> Result<()>
where
    F: Fn(&str, &[i64], i64, &mut [f64]) -> Result<()> + 'static,
{
    let data = Box::into_raw(Box::new(initializer));
    let status = set(Some(fill::<F>), data.cast(), Some(release::<F>));
    if status != Status::OK {
        // Not taken over.
        drop(unsafe { Box::from_raw(data) });
    }
    check(status)
}

unsafe extern "C" fn fill<F>(
    name: *const c_char,
    shape: *const i64,
    ndim: usize,
    first: i64,
    values: *mut f64,
    count: usize,
    data: *mut c_void,
) -> Status
where
    F: Fn(&str, &[i64], i64, &mut [f64]) -> Result<()>,
{
    guard(|| {
        let shape: &[i64] =
            if ndim == 0 { &[] } else { std::slice::from_raw_parts(shape, ndim) };
        let values = std::slice::from_raw_parts_mut(values, count);
        (*data.cast::<F>())(&string(name), shape, first, values)
    })
}

/// Runs a closure in which this thread makes modules on the meta device: their parameters have
/// shapes and no memory until they are moved or loaded, or a pipeline has them.
pub fn with_deferred_init<R>(body: impl FnOnce() -> Result<R>) -> Result<R> {
    struct Restore(i32);
    impl Drop for Restore {
        fn drop(&mut self) {
            unsafe { sys::nxd_set_deferred_init(self.0, null_mut()) };
        }
    }
    check_abi()?;
    let previous = get(|out| unsafe { sys::nxd_set_deferred_init(1, out) })?;
    let _restore = Restore(previous);
    body()
}

/// A dimension as C takes it. One that does not fit is not cut to another, but the greatest there
/// is, which no tensor has.
pub(crate) fn dimension(dim: usize) -> i32 {
    i32::try_from(dim).unwrap_or(i32::MAX)
}

/// How a parameter of one's own is made: the whole options by [`ParameterOptions`], or these.
pub fn parameter_options(dtype: DType, shard_dim: Option<usize>, init: Init) -> ParameterOptions {
    ParameterOptions {
        dtype,
        has_shard_dim: shard_dim.is_some().into(),
        shard_dim: shard_dim.map_or(0, dimension),
        init,
        device: Device::CPU,
        ..Default::default()
    }
}

impl Module {
    /// Adds a parameter of this whole shape.
    pub fn add_parameter(
        &self,
        name: &str,
        global_shape: &[i64],
        options: &ParameterOptions,
    ) -> Result<&Parameter> {
        let (name, options) = (c_string(name)?, options.with_size());
        let mut raw = null_mut();
        check(unsafe {
            let (shape, ndim) = (global_shape.as_ptr(), global_shape.len() as i32);
            sys::nxd_module_add_parameter(
                self.as_raw(),
                name.as_ptr(),
                shape,
                ndim,
                &options,
                &mut raw,
            )
        })?;
        // The module's, which never loses it.
        Ok(unsafe { &*raw.cast::<Parameter>() })
    }

    /// Number of parameters of the tree; tied ones count once.
    pub fn parameter_count(&self) -> Result<usize> {
        get(|out| unsafe { sys::nxd_module_get_parameter_count(self.as_raw(), out) })
    }

    /// All parameters of the tree in a fixed order, with their names from this root.
    pub fn parameters(&self) -> Result<Vec<(String, &Parameter)>> {
        (0..self.parameter_count()?)
            .map(|i| {
                let (mut raw, mut name) = (null_mut(), null());
                check(unsafe {
                    sys::nxd_module_get_parameter(self.as_raw(), i, &mut raw, &mut name)
                })?;
                Ok(unsafe { (string(name), &*raw.cast::<Parameter>()) })
            })
            .collect()
    }

    /// A parameter of the tree by its name from this root.
    pub fn parameter(&self, name: &str) -> Result<&Parameter> {
        let name = c_string(name)?;
        let mut raw = null_mut();
        check(unsafe { sys::nxd_module_find_parameter(self.as_raw(), name.as_ptr(), &mut raw) })?;
        Ok(unsafe { &*raw.cast::<Parameter>() })
    }
}
