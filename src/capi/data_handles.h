#pragma once

// Handles of data loaders.
#include <memory>

#include "capi/arguments.h"
#include "core/base/fork_guard.h"
#include "core/data/data_loader.h"

struct nxd_data_loader {
  std::shared_ptr<nxd::DataLoader> value;  // training states share it
  nxd::ForkGuard fork_guard{};
};

namespace nxd {

inline DataLoader& unwrap(nxd_data_loader_t* loader) {
  check_argument(loader, "loader: expected a loader, got NULL");
  loader->fork_guard.check("loader");
  return *loader->value;
}

}  // namespace nxd
