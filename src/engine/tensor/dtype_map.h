#pragma once

#include <ATen/ATen.h>

#include "core/base/error.h"

namespace nxd {

// Between nxd.h's dtypes and devices and libtorch's. A value that is none is INVALID_ARGUMENT; one
// that the other side does not have is UNSUPPORTED.
at::ScalarType to_scalar_type(nxd_dtype_t dtype);
nxd_dtype_t to_nxd_dtype(at::ScalarType type);

at::Device to_device(nxd_device_t device);
nxd_device_t from_device(at::Device device);

}  // namespace nxd
