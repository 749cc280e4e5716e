#pragma once

#include <ATen/core/Tensor.h>

#include "core/base/dtype.h"

namespace nxd {

// UNSUPPORTED for a dtype without a counterpart.
nxd_dtype_t to_nxd_dtype(at::ScalarType dtype);
// INVALID_ARGUMENT for a value that is no dtype.
at::ScalarType to_scalar_type(nxd_dtype_t dtype);

}  // namespace nxd
