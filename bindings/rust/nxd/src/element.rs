use crate::error::{invalid, Result};
use nxd_sys as sys;
use std::fmt;
use std::os::raw::c_void;

pub use sys::nxd_dtype_t as DType;

/// Types of elements that buffers may have.
///
/// # Safety
/// The type has the size of `DTYPE`, and every pattern of bits is a value of it.
pub unsafe trait Element: Copy + Default + Send + Sync + 'static {
    const DTYPE: DType;
}

macro_rules! element {
    ($($rust:ty => $dtype:ident),*) => {
        $(unsafe impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}
element!(f32 => F32, f64 => F64, i32 => I32, i64 => I64, u8 => U8, i8 => I8, i16 => I16);
element!(Bf16 => BF16, F16 => F16);

/// The upper half of an `f32`.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Bf16(pub u16);

impl Bf16 {
    /// Rounds to nearest, ties to even.
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        if value.is_nan() {
            return Bf16((bits >> 16) as u16 | 0x40);
        }
        Bf16(((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16)
    }

    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

impl fmt::Debug for Bf16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_f32().fmt(f)
    }
}

/// The bits of an IEEE half-precision number, to be carried and converted elsewhere.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct F16(pub u16);

/// DLPack's description of a dtype: code and bits.
pub(crate) fn dlpack_dtype(dtype: DType) -> sys::DLDataType {
    let (code, bits) = match dtype {
        DType::I8 => (0, 8),
        DType::I16 => (0, 16),
        DType::I32 => (0, 32),
        DType::I64 => (0, 64),
        DType::U8 => (1, 8),
        DType::F16 => (2, 16),
        DType::F32 => (2, 32),
        DType::F64 => (2, 64),
        DType::BF16 => (4, 16),
        _ => (6, 8),
    };
    sys::DLDataType { code, bits, lanes: 1 }
}

/// A tensor in C order on the CPU, described for DLPack; the shape is borrowed.
pub(crate) fn dlpack(data: *mut c_void, shape: &[i64], dtype: DType) -> sys::DLTensor {
    const CPU: i32 = 1;
    sys::DLTensor {
        data,
        device: sys::DLDevice { device_type: CPU, device_id: 0 },
        ndim: shape.len() as i32,
        dtype: dlpack_dtype(dtype),
        shape: shape.as_ptr() as *mut i64,
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    }
}

/// Elements of a shape.
pub(crate) fn count(shape: &[i64]) -> Result<usize> {
    let product = shape.iter().try_fold(1usize, |n, &size| {
        usize::try_from(size).ok().and_then(|size| n.checked_mul(size))
    });
    product
        .map_or_else(|| invalid(format!("shape: expected sizes of 0 or more, got {:?}", shape)), Ok)
}

/// The index of the last element, with strides of 0 or more.
pub(crate) fn reach(shape: &[i64], strides: &[i64]) -> Result<usize> {
    if shape.len() != strides.len() {
        return invalid(format!("expected a stride for each of {:?}, got {:?}", shape, strides));
    }
    let mut last = 0usize;
    for (&size, &stride) in shape.iter().zip(strides) {
        let far = (size - 1).max(0).checked_mul(stride).and_then(|n| usize::try_from(n).ok());
        match far.and_then(|far| last.checked_add(far)) {
            Some(sum) => last = sum,
            None => {
                return invalid(format!("expected strides of 0 or more, got {:?}", strides));
            }
        }
    }
    Ok(last)
}
