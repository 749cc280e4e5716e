#pragma once

#include <cstddef>
#include <memory>

#include "core/pjrt/pjrt_client.h"
#include "core/pjrt/pjrt_executable.h"

namespace nxd {

// Executables of this process, by their module and client: env::most_graphs() of them, of which the
// least recently used one leaves for another, and fewer where the process is short of memory
// mappings. A module that runs on several clients has several.
// One that was given stays until its holder lets go. Threads may use this at the same time.
class KeptPrograms {
 public:
  static std::shared_ptr<PjrtExecutable> find(const void* module, const PjrtClient& client);
  // One that is not kept yet.
  static void add(const void* module, const PjrtClient& client,
                  std::shared_ptr<PjrtExecutable> executable);
  static void remove(const void* module, const PjrtClient& client);
  static size_t count();
};

}  // namespace nxd
