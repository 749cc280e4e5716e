#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "core/base/dtype.h"
#include "core/base/error.h"

namespace nxd {

// Between nxd.h's dtypes and libtorch's. A value that is none is INVALID_ARGUMENT; one that the
// other side does not have is UNSUPPORTED.
inline at::ScalarType to_scalar_type(nxd_dtype_t dtype) {
  switch (dtype) {
    case NXD_DTYPE_F32: return at::kFloat;
    case NXD_DTYPE_F64: return at::kDouble;
    case NXD_DTYPE_BF16: return at::kBFloat16;
    case NXD_DTYPE_F16: return at::kHalf;
    case NXD_DTYPE_I32: return at::kInt;
    case NXD_DTYPE_I64: return at::kLong;
    case NXD_DTYPE_U8: return at::kByte;
    case NXD_DTYPE_I8: return at::kChar;
    case NXD_DTYPE_I16: return at::kShort;
    case NXD_DTYPE_BOOL: return at::kBool;
    default: fail(NXD_ERROR_INVALID_ARGUMENT, "dtype: expected an NXD_DTYPE_*, got ", dtype);
  }
}

inline std::optional<nxd_dtype_t> find_nxd_dtype(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return NXD_DTYPE_F32;
    case at::kDouble: return NXD_DTYPE_F64;
    case at::kBFloat16: return NXD_DTYPE_BF16;
    case at::kHalf: return NXD_DTYPE_F16;
    case at::kInt: return NXD_DTYPE_I32;
    case at::kLong: return NXD_DTYPE_I64;
    case at::kByte: return NXD_DTYPE_U8;
    case at::kChar: return NXD_DTYPE_I8;
    case at::kShort: return NXD_DTYPE_I16;
    case at::kBool: return NXD_DTYPE_BOOL;
    default: return std::nullopt;
  }
}

inline nxd_dtype_t to_nxd_dtype(at::ScalarType type) {
  if (const auto dtype = find_nxd_dtype(type)) return *dtype;
  fail(NXD_ERROR_UNSUPPORTED, "the tensor's dtype ", c10::toString(type), " has no NXD_DTYPE_*");
}

// For messages: "f32" and the like, or libtorch's word for a dtype that nxd.h does not have.
inline const char* dtype_text(at::ScalarType type) {
  const auto dtype = find_nxd_dtype(type);
  return dtype ? dtype_name(*dtype) : c10::toString(type);
}

}  // namespace nxd
