#pragma once

#include <cstddef>

#include "core/base/error.h"

namespace nxd {

// Converts count elements between F32, F64, BF16 and F16, rounding once, to nearest even; equal
// dtypes, also others, are copied. INVALID_ARGUMENT for other pairs. Buffers need no alignment and
// do not overlap.
void convert_elements(const void* in, nxd_dtype_t in_dtype, void* out, nxd_dtype_t out_dtype,
                      size_t count);

bool can_convert(nxd_dtype_t from, nxd_dtype_t to) noexcept;

}  // namespace nxd
