#pragma once

#include "core/base/blocked_signals.h"
#include "core/base/float_environment.h"
#include "nxd.h"

namespace nxd {

// A caller's pointer, shared by the functions that hand it to callbacks; destroy is called with the
// last of them. It is set once nothing can fail any more: until then the pointer is the caller's.
struct UserData {
  explicit UserData(void* given) : data(given) {}
  UserData(const UserData&) = delete;
  UserData& operator=(const UserData&) = delete;
  ~UserData() {
    if (!destroy) return;
    const CallersFloatEnvironment environment;
    destroy(data);
  }

  void* const data;
  // For callbacks on threads of the library.
  const CallbackSignals signals;
  nxd_destroy_fn destroy = nullptr;
};

}  // namespace nxd
