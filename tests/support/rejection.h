// Calls from inside that are to fail.
#pragma once

#include <functional>
#include <string>

#include "core/base/error.h"

#include "support/check.h"

namespace nxd_test {

// Fails unless the call throws this status, with a message that has the part; gives the message.
inline std::string rejection(nxd_status_t status, const char* part,
                             const std::function<void()>& call) {
  std::string message = "nothing was rejected";
  nxd_status_t given = NXD_OK;
  try {
    call();
  } catch (const nxd::Error& e) {
    given = e.status();
    message = e.what();
  }
  if (given != status || message.find(part) == std::string::npos) {
    fail_msg("expected \"%s\", got: %s", part, message.c_str());
  }
  return message;
}

}  // namespace nxd_test
