#include "engine/stablehlo/device_backend.h"

#include <string>

#include "core/base/device_variables.h"
#include "core/base/environment.h"
#include "core/base/error.h"
#include "engine/device/recorded_device.h"
#include "engine/stablehlo/client_lease.h"
#include "engine/stablehlo/pjrt_program.h"

namespace nxd {

void use_xla_device() {
  const std::string backend = env::xla_backend();
  if (backend == "replay") {
    warn_of_device_variables(DeviceBackend::kReplay);
    return use_recorded_device(nullptr);
  }
  if (backend != "pjrt") {
    fail(NXD_ERROR_UNSUPPORTED, "environment variable NXD_XLA_BACKEND: expected replay or pjrt, ",
         "got \"", backend, "\"");
  }
  pjrt_client();
  use_recorded_device(&compile_by_pjrt);
}

}  // namespace nxd
