#include "core/world/device.h"

#include <dlfcn.h>

#include <string>

#include "core/base/environment.h"

namespace nxd {

nxd_device_t training_device() {
  if (env::cpu_mode()) return NXD_DEVICE_CPU;
  if (env::get("NXD_XLA_BACKEND") || !env::pjrt_plugin().empty()) return NXD_DEVICE_XLA;
  std::string tried;
  for (const char* name : {"libneuronpjrt.so", "/opt/aws/neuron/lib/libneuronpjrt.so"}) {
    if (void* library = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {
      ::dlclose(library);
      return NXD_DEVICE_NEURON;
    }
    tried += (tried.empty() ? "" : ", ") + std::string(name);
  }
  fail(NXD_ERROR_UNSUPPORTED, "no device to train on: NXD_CPU_MODE is ",
       env::get("NXD_CPU_MODE").value_or("not set"),
       " (1 asks for the CPU), NXD_XLA_BACKEND and NXD_PJRT_PLUGIN are not set, and no Neuron "
       "plug-in was found (",
       tried, ")");
}

}  // namespace nxd
