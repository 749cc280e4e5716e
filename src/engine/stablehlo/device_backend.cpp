#include "engine/stablehlo/device_backend.h"

#include <string>

#include "core/base/device_variables.h"
#include "core/base/environment.h"
#include "core/base/error.h"
#include "core/pjrt/pjrt_search.h"
#include "engine/device/recorded_device.h"
#include "engine/stablehlo/client_lease.h"
#include "engine/stablehlo/pjrt_program.h"

namespace nxd {
namespace {

// Where the CPU is asked for, a library that is merely installed is no reason to use its device.
bool has_plugin() {
  if (env::cpu_mode()) return env::get("NXD_PJRT_PLUGIN").has_value();
  return !search_pjrt_plugin().path.empty();
}

void choose_backend() {
  const auto asked = env::get("NXD_XLA_BACKEND");
  const std::string backend = asked ? *asked : has_plugin() ? "pjrt" : "replay";
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

}  // namespace

// Every tensor that is made there comes this way, and the search opens libraries.
void use_xla_device() {
  static const bool is_chosen = [] {
    choose_backend();
    return true;
  }();
  check_internal(is_chosen, "device xla has no backend");
}

}  // namespace nxd
