//! Parameters and gradients in memory of the program's own, which a ddp and its optimizers share.
use crate::element::{count, dlpack, reach, DType, Element};
use crate::error::{invalid, told, Error, Result, Status};
use nxd_sys as sys;
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::ffi::CString;
use std::os::raw::{c_char, c_void};
use std::rc::Rc;

/// Types that parameters may have.
pub trait Float: Element {}
impl Float for f32 {}
impl Float for f64 {}
impl Float for crate::element::Bf16 {}

/// Elements in the order of memory, reached through pointers alone: the library keeps one too.
struct Memory {
    data: Cell<*mut c_void>,
    count: usize,
    dtype: DType,
    release: unsafe fn(*mut c_void, usize),
    lock: RefCell<()>,
}

impl Memory {
    fn new<T: Float>(values: Vec<T>) -> Memory {
        unsafe fn release<T>(data: *mut c_void, count: usize) {
            drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(data.cast::<T>(), count)));
        }
        let values = values.into_boxed_slice();
        let count = values.len();
        let data = Cell::new(Box::into_raw(values).cast::<T>().cast());
        Memory { data, count, dtype: T::DTYPE, release: release::<T>, lock: RefCell::new(()) }
    }

    /// Memory that others free.
    fn foreign<T: Float>(data: *mut T, count: usize) -> Memory {
        unsafe fn keep(_: *mut c_void, _: usize) {}
        let data = Cell::new(data.cast());
        Memory { data, count, dtype: T::DTYPE, release: keep, lock: RefCell::new(()) }
    }

    fn check<T: Float>(&self, name: &str) -> Result<()> {
        if T::DTYPE == self.dtype {
            return Ok(());
        }
        invalid(format!(
            "{}: expected elements of {:?}, asked for {:?}",
            name,
            self.dtype,
            T::DTYPE
        ))
    }

    fn get<T: Float>(&self, name: &str) -> Result<Ref<'_, [T]>> {
        self.check::<T>(name)?;
        // The lock stands for the memory, which may be NULL without elements.
        Ok(Ref::map(self.lend(name)?, |_| match self.count {
            0 => &[][..],
            count => unsafe { std::slice::from_raw_parts(self.data.get().cast::<T>(), count) },
        }))
    }

    fn get_mut<T: Float>(&self, name: &str) -> Result<RefMut<'_, [T]>> {
        self.check::<T>(name)?;
        Ok(RefMut::map(self.lock(name)?, |_| match self.count {
            0 => &mut [][..],
            count => unsafe { std::slice::from_raw_parts_mut(self.data.get().cast::<T>(), count) },
        }))
    }

    fn lend(&self, name: &str) -> Result<Ref<'_, ()>> {
        self.lock.try_borrow().map_err(|_| in_use(name))
    }

    fn lock(&self, name: &str) -> Result<RefMut<'_, ()>> {
        self.lock.try_borrow_mut().map_err(|_| in_use(name))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Made by new with this very function.
        unsafe { (self.release)(self.data.get(), self.count) }
    }
}

fn in_use(name: &str) -> Error {
    Error::new(Status::INVALID_STATE, format!("{}: its memory is borrowed elsewhere", name))
}

/// A parameter with its gradient.
pub struct Array {
    name: String,
    shape: Vec<i64>,
    /// `None`: C order.
    strides: Option<Vec<i64>>,
    values: Memory,
    gradient: Memory,
    /// The library may be reducing the gradient.
    away: Cell<bool>,
    /// Others own the memory.
    foreign: bool,
}

impl Array {
    /// Values in C order, with a gradient of the same type that starts as zeros.
    pub fn new<T: Float>(name: &str, shape: &[i64], values: Vec<T>) -> Result<Array> {
        let gradient = vec![T::default(); values.len()];
        Array::with_gradient(name, shape, values, gradient)
    }

    /// With a gradient in memory of its own: of the same type, or `f32` for `Bf16`.
    pub fn with_gradient<T: Float, G: Float>(
        name: &str,
        shape: &[i64],
        values: Vec<T>,
        gradient: Vec<G>,
    ) -> Result<Array> {
        let wanted = count(shape)?;
        for (what, given) in [("values", values.len()), ("gradient", gradient.len())] {
            if given != wanted {
                return invalid(format!(
                    "{} of {}: expected {} elements for shape {:?}, got {}",
                    what, name, wanted, shape, given
                ));
            }
        }
        Ok(Array {
            name: name.to_string(),
            shape: shape.to_vec(),
            strides: None,
            values: Memory::new(values),
            gradient: Memory::new(gradient),
            away: Cell::new(false),
            foreign: false,
        })
    }

    /// Over memory of another owner, such as a tensor of a framework, which is updated where it is.
    ///
    /// # Safety
    /// Both pointers are to as many elements as the shape has, in C order, or in another order that
    /// [`Array::with_strides`] tells. The memory lives until
    /// the ddp and its optimizers are dropped, or [`Ddp::rebind`](crate::Ddp::rebind) has named
    /// another. Nothing else writes the values, or reads what the library writes, during its calls;
    /// and nothing touches a gradient between [`Ddp::mark_ready`](crate::Ddp::mark_ready) and the
    /// end of the step.
    pub unsafe fn over_memory<T: Float, G: Float>(
        name: &str,
        shape: &[i64],
        values: *mut T,
        gradient: *mut G,
    ) -> Result<Array> {
        let count = count(shape)?;
        if count > 0 && (values.is_null() || gradient.is_null()) {
            return invalid(format!("{}: expected memory, got a null pointer", name));
        }
        Ok(Array {
            name: name.to_string(),
            shape: shape.to_vec(),
            strides: None,
            values: Memory::foreign(values, count),
            gradient: Memory::foreign(gradient, count),
            away: Cell::new(false),
            foreign: true,
        })
    }

    /// The same elements with the dimensions in another order, such as channels last: the element
    /// `(i, j, ...)` of values and gradient is that of the index `i * strides[0] + j * strides[1] ...`.
    pub fn with_strides(mut self, strides: &[i64]) -> Result<Array> {
        let last = reach(&self.shape, strides)?;
        if self.values.count > 0 && last >= self.values.count {
            return invalid(format!(
                "{}: expected strides without gaps for the shape {:?}, got {:?}",
                self.name, self.shape, strides
            ));
        }
        self.strides = Some(strides.to_vec());
        Ok(self)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// The elements as they lie in memory.
    pub fn values<T: Float>(&self) -> Result<Ref<'_, [T]>> {
        self.values.get(&self.name)
    }

    pub fn values_mut<T: Float>(&self) -> Result<RefMut<'_, [T]>> {
        self.values.get_mut(&self.name)
    }

    /// `INVALID_STATE` between [`Ddp::mark_ready`](crate::Ddp::mark_ready) and the end of the step.
    pub fn gradient<T: Float>(&self) -> Result<Ref<'_, [T]>> {
        self.here()?;
        self.gradient.get(&self.name)
    }

    /// See [`Array::gradient`].
    pub fn gradient_mut<T: Float>(&self) -> Result<RefMut<'_, [T]>> {
        self.here()?;
        self.gradient.get_mut(&self.name)
    }

    fn describe(&self, data: *mut c_void, dtype: DType) -> sys::DLTensor {
        let mut tensor = dlpack(data, &self.shape, dtype);
        if let Some(strides) = &self.strides {
            tensor.strides = strides.as_ptr() as *mut i64;
        }
        tensor
    }

    fn here(&self) -> Result<()> {
        if !self.away.get() {
            return Ok(());
        }
        let message = format!("{}: its gradient is being reduced until the step", self.name);
        Err(Error::new(Status::INVALID_STATE, message))
    }
}

/// The parameters of a ddp, in the order of use.
pub(crate) struct Arrays(pub(crate) Vec<Array>);

impl Arrays {
    /// Descriptions of all parameters and of all gradients; they borrow shapes and strides.
    pub(crate) fn describe(&self) -> (Vec<sys::DLTensor>, Vec<sys::DLTensor>) {
        let of = |array: &Array, memory: &Memory| array.describe(memory.data.get(), memory.dtype);
        self.0.iter().map(|a| (of(a, &a.values), of(a, &a.gradient))).unzip()
    }

    /// While they live the library alone uses the memory.
    fn lock(&self, part: impl Fn(&Array) -> &Memory) -> Result<Vec<RefMut<'_, ()>>> {
        self.0.iter().map(|array| part(array).lock(&array.name)).collect()
    }

    /// Lets a call see other memory of a parameter, and keeps it once the call went well.
    pub(crate) fn rebind(
        &self,
        index: usize,
        values: Option<(*mut c_void, DType)>,
        gradient: Option<(*mut c_void, DType)>,
        call: impl FnOnce(*mut sys::DLTensor, *mut sys::DLTensor) -> Result<()>,
    ) -> Result<()> {
        let array = &self.0[index];
        let mut described = [values, gradient]
            .map(|memory| memory.map(|(data, dtype)| array.describe(data, dtype)));
        let [v, g] = &mut described;
        let pointer = |tensor: &mut Option<sys::DLTensor>| {
            tensor.as_mut().map_or(std::ptr::null_mut(), |tensor| tensor as *mut _)
        };
        call(pointer(v), pointer(g))?;
        for (memory, new) in [(&array.values, values), (&array.gradient, gradient)] {
            if let Some((data, _)) = new {
                memory.data.set(data);
            }
        }
        Ok(())
    }

    /// Runs `tell` with zeros in the place of gradients that the program has borrowed. `rebind` is
    /// `nxd_ddp_rebind` of a gradient.
    pub(crate) fn beside_borrowed_gradients(
        &self,
        rebind: impl Fn(usize, &mut sys::DLTensor) -> Status,
        tell: impl FnOnce(),
    ) {
        let bind = |index: usize, data: *mut c_void| {
            let array = &self.0[index];
            rebind(index, &mut array.describe(data, array.gradient.dtype)) == Status::OK
        };
        let borrowed = |array: &Array| array.gradient.lock(&array.name).is_err();
        // No type has larger elements.
        let mut zeros: Vec<(usize, Vec<u64>)> = self
            .0
            .iter()
            .enumerate()
            .filter(|(_, array)| borrowed(array))
            .map(|(index, array)| (index, vec![0; array.gradient.count]))
            .collect();
        if zeros.iter_mut().all(|(index, zeros)| bind(*index, zeros.as_mut_ptr().cast())) {
            tell();
        }
        for (index, zeros) in zeros {
            if !bind(index, self.0[index].gradient.data.get()) {
                std::mem::forget(zeros); // which the library may use still
            }
        }
    }

    pub(crate) fn is_foreign(&self, index: usize) -> bool {
        self.0.get(index).map_or(false, |array| array.foreign)
    }

    /// Leaves a gradient to the library until [`Arrays::bring_back`].
    pub(crate) fn give_away(&self, index: usize) -> Result<()> {
        if let Some(array) = self.0.get(index) {
            array.gradient.lock(&array.name)?;
            array.away.set(true);
        }
        Ok(())
    }

    pub(crate) fn bring_back(&self) {
        self.bring_back_if(|_| true);
    }

    pub(crate) fn bring_back_if(&self, back: impl Fn(usize) -> bool) {
        for (index, array) in self.0.iter().enumerate() {
            array.away.set(array.away.get() && !back(index));
        }
    }
}

/// Runs a call that uses the memory of arrays, if there are any, and ends their reduction. Where the
/// program has borrowed some of it, `tell` makes it fail on the peers, who are in it already or about to
/// be. That touches no value, and no borrowed gradient.
pub(crate) fn with_arrays<R>(
    arrays: &Option<Rc<Arrays>>,
    tell: impl FnOnce(&Arrays),
    call: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let arrays = match arrays {
        Some(arrays) => arrays,
        None => return call(),
    };
    let gradients = arrays.lock(|array| &array.gradient);
    let locks =
        gradients.and_then(|gradients| Ok((gradients, arrays.lock(|array| &array.values)?)));
    let locks = locks.map_err(|error| {
        tell(arrays);
        error
    })?;
    let result = call()?;
    drop(locks);
    arrays.bring_back();
    Ok(result)
}

/// While it lives nobody writes values.
fn lend<'a>(all: impl IntoIterator<Item = &'a Rc<Arrays>>) -> Result<Vec<Ref<'a, ()>>> {
    let arrays = all.into_iter().flat_map(|arrays| &arrays.0);
    arrays.map(|array| array.values.lend(&array.name)).collect()
}

/// Runs a collective call that reads values. Where the program has borrowed them to write, `tell` makes it
/// fail on the peers without a look at them.
pub(crate) fn reading<'a, R>(
    arrays: impl IntoIterator<Item = &'a Rc<Arrays>>,
    tell: impl FnOnce(),
    call: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let lent = lend(arrays).map_err(|error| {
        tell();
        error
    })?;
    let result = call();
    drop(lent);
    result
}

/// The same of a call with a text or path, which is told by none.
pub(crate) fn told_reading<'a, R>(
    arrays: impl IntoIterator<Item = &'a Rc<Arrays>>,
    text: Result<CString>,
    call: impl Fn(*const c_char) -> Result<R>,
) -> Result<R> {
    reading(arrays, || drop(call(std::ptr::null())), || told(text, &call))
}
