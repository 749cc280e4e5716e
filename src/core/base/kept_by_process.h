#pragma once

#include <memory>

#include "core/base/fork_guard.h"

namespace nxd {

// In a forked child the threads behind an object are missing, and closing a connection would reach
// into the parent's event loop. There objects are left as they are.
template <class T>
std::shared_ptr<T> kept_by_process(T* object) {
  return std::shared_ptr<T>(object, [fork_guard = ForkGuard()](T* o) {
    if (!fork_guard.is_foreign()) delete o;
  });
}

}  // namespace nxd
