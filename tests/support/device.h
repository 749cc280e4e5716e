#pragma once

#include <cstdlib>
#include <string>

#include "nxd.h"
#include "support/ranks.h"

// The recorded device as tests see it.
namespace nxd_test {

inline nxd_device_metrics_t metrics() {
  nxd_device_metrics_t m = {};
  m.struct_size = sizeof m;
  NXD_TEST_OK(nxd_device_get_metrics(&m));
  return m;
}

// Graphs that were made ready: a plug-in's programs may lie on the disk.
inline uint64_t graphs_made() { return metrics().compiles + metrics().loads; }

// The graph of this thread's last step.
inline std::string step_graph(nxd_graph_format_t format) {
  size_t needed = 0;
  NXD_TEST_OK(nxd_device_get_step_graph(format, nullptr, 0, &needed));
  if (needed == 0) return "";
  std::string text(needed, '\0');
  NXD_TEST_OK(nxd_device_get_step_graph(format, text.data(), text.size(), &needed));
  text.pop_back();
  return text;
}

// True when graphs are compiled, and not replayed.
inline bool through_a_plugin() {
  const char* backend = std::getenv("NXD_XLA_BACKEND");
  return backend && std::string(backend) == "pjrt";
}

}  // namespace nxd_test
