#include "core/pjrt/training_device.h"

#include "core/base/environment.h"
#include "core/pjrt/pjrt_search.h"

namespace nxd {

nxd_device_t training_device() {
  if (env::cpu_mode()) return NXD_DEVICE_CPU;
  if (env::get("NXD_XLA_BACKEND")) return NXD_DEVICE_XLA;
  const PluginSearch search = search_pjrt_plugin();
  if (!search.path.empty()) return NXD_DEVICE_XLA;
  fail(NXD_ERROR_UNSUPPORTED, "no device to train on: NXD_CPU_MODE is ",
       env::get("NXD_CPU_MODE").value_or("not set"),
       " (1 asks for the CPU), NXD_XLA_BACKEND is not set (replay asks for recorded steps on the ",
       "CPU), and no PJRT plug-in was found: ", search.tried);
}

}  // namespace nxd
