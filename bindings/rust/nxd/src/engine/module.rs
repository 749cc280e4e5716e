use crate::callback::{guard, release};
use crate::checkpoint::text;
use crate::context::Context;
use crate::element::DType;
use crate::engine::parameter::give_initializer;
use crate::engine::tensor::{give, maybe_outputs, maybe_pointers, outputs, Device, Inputs, Tensor};
use crate::error::{c_string, check, string, Result, Status};
use crate::object::{borrow, create, get, object, Owned};
use crate::optimizer::{Over, Trainable};
use nxd_sys as sys;
use std::ffi::CString;
use std::os::raw::c_void;
use std::ptr::{null, null_mut};

object! {
    /// Node of a model: a class name, parameters, children, and a forward function.
    Module, nxd_module_t, nxd_module_destroy
}

unsafe impl Trainable for Module {
    fn of(&self) -> Over {
        Over::Module(self.as_raw())
    }
}

unsafe impl Trainable for Owned<Module> {
    fn of(&self) -> Over {
        (**self).of()
    }
}

impl Module {
    /// A module whose forward is a closure: it is given the module, its inputs, and how many outputs
    /// are wanted.
    pub fn create<F>(ctx: &Context, class_name: &str, forward: F) -> Result<Owned<Module>>
    where
        F: Fn(&Module, Inputs<'_>, usize) -> Result<Vec<Owned<Tensor>>> + 'static,
    {
        let class_name = c_string(class_name)?;
        let data = Box::into_raw(Box::new(forward));
        let made = create(|out| unsafe {
            let (call, destroy) = (Some(run::<F> as _), Some(release::<F> as _));
            let class_name = class_name.as_ptr();
            sys::nxd_module_create(ctx.as_raw(), class_name, call, data.cast(), destroy, out)
        });
        if made.is_err() {
            // Not taken over.
            drop(unsafe { Box::from_raw(data) });
        }
        made
    }

    /// A mere container.
    pub fn container(ctx: &Context, class_name: &str) -> Result<Owned<Module>> {
        let class_name = c_string(class_name)?;
        create(|out| unsafe {
            let (class_name, data) = (class_name.as_ptr(), null_mut());
            sys::nxd_module_create(ctx.as_raw(), class_name, None, data, None, out)
        })
    }

    /// A module that calls its children in order; they become "0", "1" and so on.
    pub fn sequential(ctx: &Context, children: &[&Module]) -> Result<Owned<Module>> {
        let children: Vec<_> = children.iter().map(|child| child.as_raw()).collect();
        create(|out| unsafe {
            let (list, n) = (children.as_ptr(), children.len());
            sys::nxd_module_create_sequential(ctx.as_raw(), list, n, out)
        })
    }

    /// Adds a child, which this module keeps alive.
    pub fn add_child(&self, name: &str, child: &Module) -> Result<()> {
        let name = c_string(name)?;
        check(unsafe { sys::nxd_module_add_child(self.as_raw(), name.as_ptr(), child.as_raw()) })
    }

    /// Makes a parameter of one path stand for that of another as well.
    pub fn tie(&self, owner_path: &str, alias_path: &str) -> Result<()> {
        let (owner, alias) = (c_string(owner_path)?, c_string(alias_path)?);
        check(unsafe { sys::nxd_module_tie(self.as_raw(), owner.as_ptr(), alias.as_ptr()) })
    }

    /// Adds a tensor that no gradient reaches, such as a running mean, and shares it; one that is
    /// saved is in files of parameters.
    pub fn add_buffer(&self, name: &str, tensor: &Tensor, saved: bool) -> Result<()> {
        let name = c_string(name)?;
        check(unsafe {
            let (module, tensor) = (self.as_raw(), tensor.as_raw());
            sys::nxd_module_add_buffer(module, name.as_ptr(), tensor, saved.into())
        })
    }

    /// A buffer of the tree by its name.
    pub fn buffer(&self, name: &str) -> Result<Owned<Tensor>> {
        let name = c_string(name)?;
        create(|out| unsafe { sys::nxd_module_share_buffer(self.as_raw(), name.as_ptr(), out) })
    }

    /// The names of all buffers of the tree.
    pub fn buffer_names(&self) -> Result<Vec<String>> {
        let count = get(|out| unsafe { sys::nxd_module_get_buffer_count(self.as_raw(), out) })?;
        (0..count)
            .map(|index| {
                let name = text(|buf, cap, needed| unsafe {
                    sys::nxd_module_get_buffer_name(self.as_raw(), index, buf, cap, needed)
                })?;
                Ok(name.unwrap_or_default())
            })
            .collect()
    }

    /// Runs the module and gives its first output. Collective: the groups of its layers.
    pub fn forward(&self, inputs: &[&Tensor]) -> Result<Owned<Tensor>> {
        let inputs: Vec<_> = inputs.iter().map(|&input| Some(input)).collect();
        Ok(self.forward_all(&inputs, 1)?.remove(0))
    }

    /// Runs the module; `None` where an optional input is left out. Collective: the groups of its
    /// layers.
    pub fn forward_all(
        &self,
        inputs: &[Option<&Tensor>],
        num_outputs: usize,
    ) -> Result<Vec<Owned<Tensor>>> {
        outputs(num_outputs, |out| unsafe {
            let n = inputs.len();
            sys::nxd_module_forward(self.as_raw(), maybe_pointers(inputs), n, out, num_outputs)
        })
    }

    /// Runs the module and keeps what its backward needs, for programs with a differentiation of
    /// their own. Collective: the groups of its layers.
    pub fn forward_tape(
        &self,
        inputs: &[Option<&Tensor>],
        num_outputs: usize,
    ) -> Result<(Vec<Owned<Tensor>>, Owned<Tape>)> {
        let mut tape = null_mut();
        let given = outputs(num_outputs, |out| unsafe {
            let (list, n) = (maybe_pointers(inputs), inputs.len());
            sys::nxd_module_forward_tape(self.as_raw(), list, n, out, num_outputs, &mut tape)
        })?;
        Ok((given, unsafe { Owned::from_raw(tape) }))
    }

    /// Such as "ColumnParallelLinear".
    pub fn class_name(&self) -> Result<String> {
        let mut name = null();
        check(unsafe { sys::nxd_module_get_class_name(self.as_raw(), &mut name) })?;
        Ok(unsafe { string(name) })
    }

    /// The path of each output that the last forward could give: names, keys and positions that lead
    /// to it in the result, joined by dots.
    pub fn output_paths(&self) -> Result<Vec<String>> {
        let count = get(|out| unsafe { sys::nxd_module_get_output_count(self.as_raw(), out) })?;
        (0..count)
            .map(|i| {
                let mut path = null();
                check(unsafe { sys::nxd_module_get_output_path(self.as_raw(), i, &mut path) })?;
                Ok(unsafe { string(path) })
            })
            .collect()
    }

    /// A module below this one by its dotted path; "" is the module itself.
    pub fn module(&self, path: &str) -> Result<&Module> {
        let path = c_string(path)?;
        // A tree never loses a module.
        unsafe { borrow(|out| sys::nxd_module_find_module(self.as_raw(), path.as_ptr(), out)) }
    }

    /// Direct children and their names, in order of addition.
    pub fn children(&self) -> Result<Vec<(String, &Module)>> {
        let count = get(|out| unsafe { sys::nxd_module_get_child_count(self.as_raw(), out) })?;
        (0..count)
            .map(|i| {
                let (mut raw, mut name) = (null_mut(), null());
                check(unsafe { sys::nxd_module_get_child(self.as_raw(), i, &mut raw, &mut name) })?;
                Ok(unsafe { (string(name), &*raw.cast::<Module>()) })
            })
            .collect()
    }

    /// Switches the tree between training and evaluation.
    pub fn set_training(&self, training: bool) -> Result<()> {
        check(unsafe { sys::nxd_module_set_training(self.as_raw(), training.into()) })
    }

    /// Draws all parameters of the tree anew, the same on all ranks.
    pub fn initialize(&self, seed: u64) -> Result<()> {
        check(unsafe { sys::nxd_module_initialize(self.as_raw(), seed) })
    }

    /// Has all parameters that the tree has now take their initial values from a closure, see
    /// [`Parameter::set_initializer`](crate::Parameter::set_initializer).
    pub fn set_initializer<F>(&self, initializer: F) -> Result<()>
    where
        F: Fn(&str, &[i64], i64, &mut [f64]) -> Result<()> + 'static,
    {
        give_initializer(initializer, |call, data, destroy| unsafe {
            sys::nxd_module_set_initializer(self.as_raw(), call, data, destroy)
        })
    }

    /// Moves all parameters to a device, in place.
    pub fn move_to(&self, device: Device) -> Result<()> {
        check(unsafe { sys::nxd_move_model_to_device(self.as_raw(), device) })
    }

    /// The whole initial weight of a layer made with `keep_master_weight`: another handle on it.
    pub fn master_weight(&self) -> Result<Owned<Tensor>> {
        let mut raw = null_mut();
        check(unsafe { sys::nxd_module_get_master_weight(self.as_raw(), &mut raw) })?;
        create(|out| unsafe { sys::nxd_tensor_retain(raw, out) })
    }

    /// Casts all parameters of the tree to a dtype, in place.
    pub fn cast(&self, dtype: DType) -> Result<()> {
        check(unsafe { sys::nxd_module_cast(self.as_raw(), dtype) })
    }

    /// Forgets the gradients of all parameters of the tree.
    pub fn zero_grad(&self) -> Result<()> {
        check(unsafe { sys::nxd_module_zero_grad(self.as_raw()) })
    }

    /// Recomputes the activations of modules, by path or class name, in their backward pass, or no
    /// longer; no names: all transformer layers of a built-in model.
    pub fn apply_checkpoint(&self, names: &[&str], on: bool) -> Result<()> {
        let names = Texts::new(names)?;
        let (list, n) = names.pointers();
        check(unsafe { sys::nxd_apply_checkpoint(self.as_raw(), list, n, on.into()) })
    }

    /// Has column- and row-parallel layers, those below modules of some classes or all, share whole
    /// heads, as if heads of zeros followed up to a multiple of `tp_degree`. The hook is given each
    /// module that is visited, its heads, and what they are padded to. Collective: tensor-parallel
    /// group.
    pub fn pad<F>(
        &self,
        tp_degree: i32,
        num_heads: i64,
        wrapped_classes: &[&str],
        mut hook: F,
    ) -> Result<()>
    where
        F: FnMut(&Module, i64, i64) -> Result<()>,
    {
        let (call, data) = (Some(pad_hook::<F> as _), &mut hook as *mut F);
        told_texts(wrapped_classes, |list, n| {
            check(unsafe {
                sys::nxd_pad_model(self.as_raw(), tp_degree, num_heads, list, n, call, data.cast())
            })
        })
    }
}

unsafe extern "C" fn pad_hook<F: FnMut(&Module, i64, i64) -> Result<()>>(
    module: *mut sys::nxd_module_t,
    num_heads: i64,
    num_padded_heads: i64,
    data: *mut c_void,
) -> Status {
    guard(|| (*data.cast::<F>())(&*module.cast::<Module>(), num_heads, num_padded_heads))
}

unsafe extern "C" fn run<F>(
    this: *mut sys::nxd_module_t,
    inputs: *const *mut sys::nxd_tensor_t,
    num_inputs: usize,
    outputs: *mut *mut sys::nxd_tensor_t,
    num_outputs: usize,
    data: *mut c_void,
) -> Status
where
    F: Fn(&Module, Inputs<'_>, usize) -> Result<Vec<Owned<Tensor>>>,
{
    guard(|| {
        let inputs = Inputs::from_raw(inputs, num_inputs);
        let given = (*data.cast::<F>())(&*this.cast::<Module>(), inputs, num_outputs)?;
        give(given.into_iter().map(Some).collect(), outputs, num_outputs)
    })
}

object! {
    /// One run of a module that can be gone back through once.
    Tape, nxd_tape_t, nxd_tape_destroy
}

impl Tape {
    /// Adds to the parameters' gradients and gives those of the n inputs; `None` in and out stands
    /// for zero and for an input without a gradient. Collective: the groups of the module's layers.
    pub fn backward(
        &self,
        grad_outputs: &[Option<&Tensor>],
        num_inputs: usize,
    ) -> Result<Vec<Option<Owned<Tensor>>>> {
        maybe_outputs(num_inputs, |out| unsafe {
            let (list, n) = (maybe_pointers(grad_outputs), grad_outputs.len());
            sys::nxd_tape_backward(self.as_raw(), list, n, out, num_inputs)
        })
    }
}

/// Strings as the C interface takes them.
pub(crate) struct Texts {
    _texts: Vec<CString>,
    pointers: Vec<*const std::os::raw::c_char>,
}

impl Texts {
    pub(crate) fn new<S: AsRef<str>>(texts: &[S]) -> Result<Texts> {
        let texts = texts.iter().map(|t| c_string(t.as_ref())).collect::<Result<Vec<_>>>()?;
        let pointers = texts.iter().map(|text| text.as_ptr()).collect();
        Ok(Texts { _texts: texts, pointers })
    }

    /// NULL for none.
    pub(crate) fn pointers(&self) -> (*const *const std::os::raw::c_char, usize) {
        let n = self.pointers.len();
        (if n == 0 { null() } else { self.pointers.as_ptr() }, n)
    }
}

/// A collective call with texts of this rank's. Where one of them is none they go as no array, which the
/// library rejects on all ranks: the peers, who are in the call already or about to be, would wait
/// otherwise.
pub(crate) fn told_texts<S: AsRef<str>, R>(
    texts: &[S],
    call: impl FnOnce(*const *const std::os::raw::c_char, usize) -> Result<R>,
) -> Result<R> {
    let given = Texts::new(texts);
    let (list, n) = given.as_ref().map_or((null(), texts.len()), Texts::pointers);
    let outcome = call(list, n);
    given.and(outcome)
}
