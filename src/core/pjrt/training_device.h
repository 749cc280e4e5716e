#pragma once

#include "core/base/error.h"

namespace nxd {

// Device this process trains on; UNSUPPORTED says what was looked for.
nxd_device_t training_device();

}  // namespace nxd
