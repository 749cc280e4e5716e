#pragma once

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "engine/dtype.h"

namespace nxd {

// Between nxd.h's devices and libtorch's, as engine/dtype.h maps dtypes.
at::Device to_device(nxd_device_t device);
nxd_device_t from_device(at::Device device);

}  // namespace nxd
