use crate::element::DType;
use crate::engine::tensor::{maybe_outputs, maybe_pointers, outputs, pointers, Tensor};
use crate::error::{c_string, check, invalid, string, Result, Status};
use crate::object::{create, get, object, Owned};
use nxd_sys as sys;
use std::ffi::{CStr, CString};
use std::os::raw::c_char;
use std::ptr::null;

object! {
    /// One call of an ATen operator: arguments are set by name, then it runs.
    Op, nxd_op_t, nxd_op_destroy
}

/// Values that arguments of operators may have.
pub trait Argument {
    #[doc(hidden)]
    fn set(&self, op: &Op, name: &CStr) -> Status;
}

macro_rules! argument {
    ($($kind:ty: |$value:ident| $function:ident($($given:expr),*);)*) => {
        $(impl Argument for $kind {
            fn set(&self, op: &Op, name: &CStr) -> Status {
                let $value = self;
                unsafe { sys::$function(op.as_raw(), name.as_ptr(), $($given),*) }
            }
        })*
    };
}
argument! {
    &Tensor: |t| nxd_op_set_tensor(t.as_raw());
    Option<&Tensor>: |t| nxd_op_set_tensor(super::tensor::maybe_raw(*t));
    &[&Tensor]: |t| nxd_op_set_tensors(pointers(t), t.len());
    &[Option<&Tensor>]: |t| nxd_op_set_tensors(maybe_pointers(t), t.len());
    i64: |v| nxd_op_set_int(*v);
    i32: |v| nxd_op_set_int((*v).into());
    f64: |v| nxd_op_set_double(*v);
    bool: |v| nxd_op_set_bool((*v).into());
    DType: |v| nxd_op_set_dtype(*v);
    &[i64]: |v| nxd_op_set_ints(v.as_ptr(), v.len());
    &[f64]: |v| nxd_op_set_doubles(v.as_ptr(), v.len());
}

impl Argument for &Owned<Tensor> {
    fn set(&self, op: &Op, name: &CStr) -> Status {
        (&***self).set(op, name)
    }
}

impl Argument for &str {
    fn set(&self, op: &Op, name: &CStr) -> Status {
        // One with a NUL is none in C: as NULL it is rejected.
        let value = CString::new(*self).ok();
        let pointer = value.as_ref().map_or(null(), |value| value.as_ptr());
        unsafe { sys::nxd_op_set_string(op.as_raw(), name.as_ptr(), pointer) }
    }
}

impl Op {
    /// Looks up an operator, such as "softmax" with overload "int"; "": the one without a name, or
    /// the only one.
    pub fn new(name: &str, overload: &str) -> Result<Owned<Op>> {
        let (name, overload) = (c_string(name)?, c_string(overload)?);
        create(|out| unsafe { sys::nxd_op_create(name.as_ptr(), overload.as_ptr(), out) })
    }

    /// Such as "aten::relu(Tensor self) -> Tensor".
    pub fn schema(&self) -> Result<String> {
        let mut schema: *const c_char = null();
        check(unsafe { sys::nxd_op_get_schema(self.as_raw(), &mut schema) })?;
        Ok(unsafe { string(schema) })
    }

    pub fn set(&self, name: &str, value: impl Argument) -> Result<&Self> {
        let name = c_string(name)?;
        check(value.set(self, &name))?;
        Ok(self)
    }

    /// Runs the operator; arguments not set take the schema's defaults.
    pub fn run(&self) -> Result<&Self> {
        check(unsafe { sys::nxd_op_run(self.as_raw()) })?;
        Ok(self)
    }

    /// Number of results of the last run.
    pub fn result_count(&self) -> Result<usize> {
        get(|out| unsafe { sys::nxd_op_get_result_count(self.as_raw(), out) })
    }

    /// A tensor result of the last run; an error if the operator leaves it out.
    pub fn tensor(&self, index: usize) -> Result<Owned<Tensor>> {
        match self.maybe_tensor(index)? {
            Some(tensor) => Ok(tensor),
            None => invalid(format!("index: the operator leaves result {} out", index)),
        }
    }

    /// The same; None if the operator leaves it out, as an `output_mask` may ask.
    pub fn maybe_tensor(&self, index: usize) -> Result<Option<Owned<Tensor>>> {
        let tensor = maybe_outputs(1, |out| unsafe {
            sys::nxd_op_share_tensor(self.as_raw(), index, out)
        })?;
        Ok(tensor.into_iter().next().flatten())
    }

    /// A number or boolean result of the last run.
    pub fn number(&self, index: usize) -> Result<f64> {
        get(|out| unsafe { sys::nxd_op_get_double(self.as_raw(), index, out) })
    }

    /// Calls an operator whose required arguments are all tensors; gives its first result.
    pub fn call(name: &str, inputs: &[&Tensor]) -> Result<Owned<Tensor>> {
        Ok(Op::call_overload(name, "", inputs, 1)?.remove(0))
    }

    /// The same by overload, with n results.
    pub fn call_overload(
        name: &str,
        overload: &str,
        inputs: &[&Tensor],
        n: usize,
    ) -> Result<Vec<Owned<Tensor>>> {
        let (name, overload) = (c_string(name)?, c_string(overload)?);
        outputs(n, |out| unsafe {
            let (name, overload) = (name.as_ptr(), overload.as_ptr());
            sys::nxd_op_call(name, overload, pointers(inputs), inputs.len(), out, n)
        })
    }
}
