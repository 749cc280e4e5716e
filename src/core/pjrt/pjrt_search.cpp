#include "core/pjrt/pjrt_search.h"

#include <dlfcn.h>

#include "core/base/environment.h"
#include "core/base/error.h"

namespace nxd {
namespace {

// It stays open: XLA's plug-in frees memory twice when it is closed and opened again.
bool opens(const char* library) { return ::dlopen(library, RTLD_LAZY | RTLD_LOCAL) != nullptr; }

}  // namespace

PluginSearch search_pjrt_plugin() {
  if (const auto path = env::get("NXD_PJRT_PLUGIN")) return {*path, ""};
  if (const auto path = env::get("NEURON_LIBRARY_PATH")) return {*path, ""};
  PluginSearch search{"", "NXD_PJRT_PLUGIN and NEURON_LIBRARY_PATH are not set"};
  for (const char* name : {"libneuronpjrt.so", "/opt/aws/neuron/lib/libneuronpjrt.so"}) {
    if (opens(name)) return {name, ""};
    search.tried += std::string(", there is no ") + name;
  }
  return search;
}

std::string find_pjrt_plugin() {
  const PluginSearch search = search_pjrt_plugin();
  if (!search.path.empty()) return search.path;
  fail(NXD_ERROR_UNSUPPORTED, "no PJRT plug-in was found: ", search.tried,
       "; scripts/fetch_pjrt_cpu, of the sources, fetches one for the CPU");
}

}  // namespace nxd
