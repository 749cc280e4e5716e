#pragma once

#include <string>

#include "core/base/error.h"

namespace nxd_test {

// The error of a call on one rank; a status of NXD_OK when there is none.
struct Told {
  nxd_status_t status = NXD_OK;
  int rank = -1;
  std::string message;
};

template <class Function>
Told told_by(Function&& function) {
  try {
    function();
    return {};
  } catch (const nxd::Error& e) {
    return {e.status(), e.context().root_rank, e.what()};
  }
}

}  // namespace nxd_test
