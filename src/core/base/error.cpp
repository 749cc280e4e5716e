#include "core/base/error.h"

namespace nxd {

Error::Error(nxd_status_t status, std::string message, ErrorContext context)
    : status_(status), message_(std::move(message)), context_(std::move(context)) {
  if (status != NXD_OK) return;
  status_ = NXD_ERROR_INTERNAL;
  message_ += " (reported with the status of a success)";
}

const char* status_name(nxd_status_t status) noexcept {
  switch (status) {
    case NXD_OK: return "OK";
    case NXD_ERROR_INVALID_ARGUMENT: return "INVALID_ARGUMENT";
    case NXD_ERROR_INVALID_STATE: return "INVALID_STATE";
    case NXD_ERROR_UNSUPPORTED: return "UNSUPPORTED";
    case NXD_ERROR_OUT_OF_MEMORY: return "OUT_OF_MEMORY";
    case NXD_ERROR_TIMEOUT: return "TIMEOUT";
    case NXD_ERROR_PEER_LOST: return "PEER_LOST";
    case NXD_ERROR_ABORTED: return "ABORTED";
    case NXD_ERROR_IO: return "IO";
    case NXD_ERROR_CORRUPT: return "CORRUPT";
    case NXD_ERROR_INTERNAL: return "INTERNAL";
    case NXD_ERROR_ABI_MISMATCH: return "ABI_MISMATCH";
    case NXD_ERROR_USER: return "USER";
    default: return "UNKNOWN";
  }
}

bool is_error(nxd_status_t status) noexcept {
  return status <= NXD_ERROR_INVALID_ARGUMENT && status >= NXD_ERROR_USER;
}

}  // namespace nxd
