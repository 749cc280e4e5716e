#pragma once

#include <cstddef>

#include "core/base/error.h"

namespace nxd {

// Bytes of one element; INVALID_ARGUMENT for a value that is no dtype.
size_t dtype_size(nxd_dtype_t dtype);
bool is_dtype(nxd_dtype_t dtype) noexcept;
// Such as "f32"; "invalid" for a value that is no dtype.
const char* dtype_name(nxd_dtype_t dtype) noexcept;
bool dtype_is_float(nxd_dtype_t dtype) noexcept;
bool dtype_is_16_bit_float(nxd_dtype_t dtype) noexcept;
// The largest finite number of a float dtype.
double dtype_largest(nxd_dtype_t dtype) noexcept;

}  // namespace nxd
