#include "core/pjrt/pjrt_search.h"

#include <dlfcn.h>

#include "core/base/environment.h"
#include "core/base/error.h"

namespace nxd {

std::string find_pjrt_plugin() {
  std::string tried;
  for (const char* name : {"NXD_PJRT_PLUGIN", "NEURON_LIBRARY_PATH"}) {
    if (const auto path = env::get(name)) return *path;
    tried += std::string(tried.empty() ? "" : " and ") + name;
  }
  tried += " are not set";
  for (const char* name : {"libneuronpjrt.so", "/opt/aws/neuron/lib/libneuronpjrt.so"}) {
    if (void* library = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {
      ::dlclose(library);
      return name;
    }
    tried += std::string(", there is no ") + name;
  }
  fail(NXD_ERROR_UNSUPPORTED, "no PJRT plug-in was found: ", tried,
       "; scripts/fetch_pjrt_cpu, of the sources, fetches one for the CPU");
}

}  // namespace nxd
