#include "core/base/dtype.h"

#include <cfloat>

namespace nxd {

size_t dtype_size(nxd_dtype_t dtype) {
  switch (dtype) {
    case NXD_DTYPE_F64:
    case NXD_DTYPE_I64: return 8;
    case NXD_DTYPE_F32:
    case NXD_DTYPE_I32: return 4;
    case NXD_DTYPE_BF16:
    case NXD_DTYPE_F16:
    case NXD_DTYPE_I16: return 2;
    case NXD_DTYPE_U8:
    case NXD_DTYPE_I8:
    case NXD_DTYPE_BOOL: return 1;
    default: fail(NXD_ERROR_INVALID_ARGUMENT, "dtype: expected an NXD_DTYPE_*, got ", dtype);
  }
}

bool is_dtype(nxd_dtype_t dtype) noexcept {
  return dtype >= NXD_DTYPE_F32 && dtype <= NXD_DTYPE_BOOL;
}

const char* dtype_name(nxd_dtype_t dtype) noexcept {
  switch (dtype) {
    case NXD_DTYPE_F32: return "f32";
    case NXD_DTYPE_F64: return "f64";
    case NXD_DTYPE_BF16: return "bf16";
    case NXD_DTYPE_F16: return "f16";
    case NXD_DTYPE_I32: return "i32";
    case NXD_DTYPE_I64: return "i64";
    case NXD_DTYPE_U8: return "u8";
    case NXD_DTYPE_I8: return "i8";
    case NXD_DTYPE_I16: return "i16";
    case NXD_DTYPE_BOOL: return "bool";
    default: return "invalid";
  }
}

bool dtype_is_float(nxd_dtype_t dtype) noexcept {
  return dtype == NXD_DTYPE_F32 || dtype == NXD_DTYPE_F64 || dtype_is_16_bit_float(dtype);
}

bool dtype_is_16_bit_float(nxd_dtype_t dtype) noexcept {
  return dtype == NXD_DTYPE_BF16 || dtype == NXD_DTYPE_F16;
}

double dtype_largest(nxd_dtype_t dtype) noexcept {
  switch (dtype) {
    case NXD_DTYPE_F16: return 65504;
    case NXD_DTYPE_BF16: return 0x1.fep127;
    case NXD_DTYPE_F32: return FLT_MAX;
    default: return DBL_MAX;
  }
}

}  // namespace nxd
