use crate::callback::{guard, release};
use crate::element::DType;
use crate::engine::tensor::{
    give, maybe_outputs, maybe_pointers, maybe_raw, outputs, pointers, Inputs, Tensor,
};
use crate::error::{c_string, check, check_abi, invalid, Error, Result, Status};
use crate::object::{create, get, object, Owned};
use nxd_sys as sys;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::ptr::null_mut;

impl Tensor {
    pub fn requires_grad(&self) -> Result<bool> {
        Ok(get(|out| unsafe { sys::nxd_tensor_get_requires_grad(self.as_raw(), out) })? != 0)
    }

    /// Makes a leaf require a gradient, or not.
    pub fn set_requires_grad(&self, requires: bool) -> Result<()> {
        check(unsafe { sys::nxd_tensor_set_requires_grad(self.as_raw(), requires.into()) })
    }

    /// Gradient accumulated in a leaf, if there is one.
    pub fn grad(&self) -> Result<Option<Owned<Tensor>>> {
        let grad =
            maybe_outputs(1, |out| unsafe { sys::nxd_tensor_share_grad(self.as_raw(), out) })?;
        Ok(grad.into_iter().next().flatten())
    }

    /// Replaces the gradient of a leaf, or clears it.
    pub fn set_grad(&self, grad: Option<&Tensor>) -> Result<()> {
        check(unsafe { sys::nxd_tensor_set_grad(self.as_raw(), maybe_raw(grad)) })
    }

    /// A handle on the same memory, outside of the recorded graph.
    pub fn detach(&self) -> Result<Owned<Tensor>> {
        create(|out| unsafe { sys::nxd_tensor_detach(self.as_raw(), out) })
    }

    /// Accumulates gradients of a scalar into the leaves of its graph. Collective: the groups of the
    /// layers in the graph.
    pub fn backward(&self) -> Result<()> {
        backward(&[self], &[], false)
    }
}

fn grads_of(
    outputs: &[&Tensor],
    grads: &[Option<&Tensor>],
) -> Result<*const *mut sys::nxd_tensor_t> {
    match grads.len() {
        0 => Ok(null_mut()),
        n if n == outputs.len() => Ok(maybe_pointers(grads)),
        n => {
            invalid(format!("grads: expected one for each of {} outputs, got {}", outputs.len(), n))
        }
    }
}

/// Accumulates gradients into the leaves of the graph. Collective: the groups of the layers in it.
/// `grads`: of the outputs, `None` for a scalar's 1; empty: all of them so.
pub fn backward(outputs: &[&Tensor], grads: &[Option<&Tensor>], retain_graph: bool) -> Result<()> {
    let (grads, retain) = (grads_of(outputs, grads)?, retain_graph.into());
    check(unsafe { sys::nxd_backward(pointers(outputs), grads, outputs.len(), retain) })
}

/// Gradients of outputs with respect to some inputs, without touching any leaf's; `None` where an
/// input has no influence. Collective: the groups of the layers in the graph.
pub fn grad(
    of: &[&Tensor],
    grads: &[Option<&Tensor>],
    inputs: &[&Tensor],
    retain_graph: bool,
) -> Result<Vec<Option<Owned<Tensor>>>> {
    let grads = grads_of(of, grads)?;
    maybe_outputs(inputs.len(), |out| unsafe {
        let (retain, n) = (retain_graph.into(), inputs.len());
        sys::nxd_grad(pointers(of), grads, of.len(), pointers(inputs), n, retain, out)
    })
}

/// Runs a closure with recording on or off, on this thread.
pub fn with_grad<R>(enabled: bool, body: impl FnOnce() -> Result<R>) -> Result<R> {
    struct Restore(i32);
    impl Drop for Restore {
        fn drop(&mut self) {
            unsafe { sys::nxd_set_grad_enabled(self.0, null_mut()) };
        }
    }
    check_abi()?;
    let previous = get(|out| unsafe { sys::nxd_set_grad_enabled(enabled.into(), out) })?;
    let _restore = Restore(previous);
    body()
}

/// Runs a closure with automatic casts on (`BF16`) or off (`INVALID`), on this thread.
pub fn with_autocast<R>(dtype: DType, body: impl FnOnce() -> Result<R>) -> Result<R> {
    struct Restore(DType);
    impl Drop for Restore {
        fn drop(&mut self) {
            unsafe { sys::nxd_set_autocast(self.0, null_mut()) };
        }
    }
    check_abi()?;
    let previous = get(|out| unsafe { sys::nxd_set_autocast(dtype, out) })?;
    let _restore = Restore(previous);
    body()
}

object! {
    /// A differentiable function of one's own.
    Function, nxd_function_t, nxd_function_destroy
}

/// One application of a custom function.
pub struct Call<'a>(*mut sys::nxd_function_call_t, PhantomData<&'a ()>);

impl<'a> Call<'a> {
    /// Keeps a tensor from forward for backward.
    pub fn save(&self, tensor: &Tensor) -> Result<()> {
        check(unsafe { sys::nxd_function_call_save(self.0, tensor.as_raw()) })
    }

    /// A tensor kept by forward, by its order.
    pub fn saved(&self, index: usize) -> Result<&'a Tensor> {
        let mut raw = null_mut();
        check(unsafe { sys::nxd_function_call_get_saved(self.0, index, &mut raw) })?;
        // Borrowed for the callback.
        Ok(unsafe { &*raw.cast::<Tensor>() })
    }

    /// True if backward needs the gradient of an input.
    pub fn needs_grad(&self, input: usize) -> Result<bool> {
        Ok(get(|out| unsafe { sys::nxd_function_call_needs_grad(self.0, input, out) })? != 0)
    }
}

type Forward = dyn Fn(&Call<'_>, Inputs<'_>) -> Result<Vec<Owned<Tensor>>>;
type Backward = dyn Fn(&Call<'_>, Inputs<'_>) -> Result<Vec<Option<Owned<Tensor>>>>;
type Shape = dyn Fn(Inputs<'_>) -> Result<Vec<Owned<Tensor>>>;

struct Closures {
    forward: Box<Forward>,
    backward: Option<Box<Backward>>,
    shape: Option<Box<Shape>>,
}

/// Makes a [`Function`] of closures.
pub struct FunctionBuilder {
    name: String,
    num_outputs: usize,
    closures: Closures,
}

impl Function {
    /// `name`: stable and unique, such as "mylib::swish". The closure gives as many outputs as the
    /// builder is told, one at first.
    pub fn builder(
        name: &str,
        forward: impl Fn(&Call<'_>, Inputs<'_>) -> Result<Vec<Owned<Tensor>>> + 'static,
    ) -> FunctionBuilder {
        let closures = Closures { forward: Box::new(forward), backward: None, shape: None };
        FunctionBuilder { name: name.to_string(), num_outputs: 1, closures }
    }

    /// Applies the function to inputs; recorded when one of them requires a gradient.
    pub fn apply(&self, inputs: &[&Tensor], num_outputs: usize) -> Result<Vec<Owned<Tensor>>> {
        outputs(num_outputs, |out| unsafe {
            let n = inputs.len();
            sys::nxd_function_apply(self.as_raw(), pointers(inputs), n, out, num_outputs)
        })
    }
}

impl FunctionBuilder {
    pub fn outputs(mut self, n: usize) -> Self {
        self.num_outputs = n;
        self
    }

    /// From the outputs' gradients, of which a missing one means zero, those of the inputs. Without
    /// it the function is not differentiable.
    pub fn backward(
        mut self,
        backward: impl Fn(&Call<'_>, Inputs<'_>) -> Result<Vec<Option<Owned<Tensor>>>> + 'static,
    ) -> Self {
        self.closures.backward = Some(Box::new(backward));
        self
    }

    /// Outputs on the meta device from inputs there. Without it the function cannot be traced.
    pub fn shape(
        mut self,
        shape: impl Fn(Inputs<'_>) -> Result<Vec<Owned<Tensor>>> + 'static,
    ) -> Self {
        self.closures.shape = Some(Box::new(shape));
        self
    }

    pub fn build(self) -> Result<Owned<Function>> {
        let name = c_string(&self.name)?;
        let has_backward = self.closures.backward.is_some();
        let has_shape = self.closures.shape.is_some();
        let data = Box::into_raw(Box::new(self.closures));
        let options = sys::nxd_function_options_t {
            name: name.as_ptr(),
            num_outputs: self.num_outputs,
            forward: Some(forward),
            backward: if has_backward { Some(backward_of) } else { None },
            shape: if has_shape { Some(shape) } else { None },
            user_data: data.cast(),
            destroy: Some(release::<Closures>),
            ..Default::default()
        };
        let made = create(|out| unsafe { sys::nxd_function_create(&options, out) });
        if made.is_err() {
            // Not taken over.
            drop(unsafe { Box::from_raw(data) });
        }
        made
    }
}

fn all(tensors: Vec<Owned<Tensor>>) -> Vec<Option<Owned<Tensor>>> {
    tensors.into_iter().map(Some).collect()
}

// Handles and room are valid for the call, by the contract of nxd_function_options_t.
unsafe extern "C" fn forward(
    call: *mut sys::nxd_function_call_t,
    inputs: *const *mut sys::nxd_tensor_t,
    num_inputs: usize,
    outputs: *mut *mut sys::nxd_tensor_t,
    num_outputs: usize,
    data: *mut c_void,
) -> Status {
    guard(|| {
        let closures = &*data.cast::<Closures>();
        let call = Call(call, PhantomData);
        let given = (closures.forward)(&call, Inputs::from_raw(inputs, num_inputs))?;
        give(all(given), outputs, num_outputs)
    })
}

unsafe extern "C" fn backward_of(
    call: *mut sys::nxd_function_call_t,
    grads: *const *mut sys::nxd_tensor_t,
    num_outputs: usize,
    grad_inputs: *mut *mut sys::nxd_tensor_t,
    num_inputs: usize,
    data: *mut c_void,
) -> Status {
    guard(|| {
        let closures = &*data.cast::<Closures>();
        let backward = closures.backward.as_ref();
        let backward = backward.ok_or_else(|| Error::new(Status::INTERNAL, "no backward"))?;
        let call = Call(call, PhantomData);
        give(backward(&call, Inputs::from_raw(grads, num_outputs))?, grad_inputs, num_inputs)
    })
}

unsafe extern "C" fn shape(
    inputs: *const *mut sys::nxd_tensor_t,
    num_inputs: usize,
    outputs: *mut *mut sys::nxd_tensor_t,
    num_outputs: usize,
    data: *mut c_void,
) -> Status {
    guard(|| {
        let closures = &*data.cast::<Closures>();
        let shape = closures.shape.as_ref();
        let shape = shape.ok_or_else(|| Error::new(Status::INTERNAL, "no shape function"))?;
        give(all(shape(Inputs::from_raw(inputs, num_inputs))?), outputs, num_outputs)
    })
}
