#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "core/base/blocked_signals.h"
#include "core/base/error.h"

namespace nxd {

// A thread of the library's own, on which signals are blocked (BlockedSignals). OUT_OF_MEMORY when
// there is none to be had.
template <class Function>
std::thread start_thread(const char* what_for, Function&& function) {
  const BlockedSignals blocked;
  try {
    return std::thread(std::forward<Function>(function));
  } catch (const std::system_error& e) {
    fail(NXD_ERROR_OUT_OF_MEMORY, "cannot start a thread ", what_for, ": ", e.what(),
         "; the system lets this user, container or program have no more of them (ulimit -u, the "
         "cgroup's pids.max), or has no memory");
  }
}

}  // namespace nxd
