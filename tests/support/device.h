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

// True when graphs are compiled, and not replayed.
inline bool through_a_plugin() {
  const char* backend = std::getenv("NXD_XLA_BACKEND");
  return backend && std::string(backend) == "pjrt";
}

}  // namespace nxd_test
