#pragma once

#include <ATen/core/Tensor.h>

namespace nxd {

// Makes device xla:0 the recorded one for this process; to be called before the first tensor on it
// is made. UNSUPPORTED when NXD_XLA_BACKEND asks for something else, or another library has the
// device already.
void use_recorded_device();

}  // namespace nxd
