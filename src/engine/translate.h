#pragma once

#include <utility>

#include "core/base/last_error.h"

namespace nxd {

// Rethrows the exception being handled as an Error with the status that fits it: libtorch's own,
// and the standard ones that libtorch throws. An Error passes through unchanged, also one that
// crossed a backward pass of libtorch, which rethrows what its nodes threw.
[[noreturn]] void rethrow_translated();

// guard() for functions that call libtorch.
template <class Function>
nxd_status_t engine_guard(Function&& function) noexcept {
  return guard([&] {
    try {
      std::forward<Function>(function)();
    } catch (...) {
      rethrow_translated();
    }
  });
}

}  // namespace nxd
