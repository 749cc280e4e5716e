#include "core/base/error.h"

#include <ios>
#include <new>
#include <system_error>

namespace nxd {

Error::Error(nxd_status_t status, std::string message, ErrorContext context)
    : content_(std::make_shared<const Content>(
          Content{status, std::move(message), std::move(context)})) {}

const char* Error::what() const noexcept {
  return content_ ? content_->message.c_str() : "out of memory";
}

nxd_status_t Error::status() const noexcept {
  return content_ ? content_->status : NXD_ERROR_OUT_OF_MEMORY;
}

const ErrorContext& Error::context() const noexcept {
  static const ErrorContext none;
  return content_ ? content_->context : none;
}

Error Error::from_current() noexcept {
  try {
    try {
      throw;
    } catch (const Error& e) {
      return e;
    } catch (const std::bad_alloc&) {
      return {};
    } catch (const std::system_error& e) {
      return {NXD_ERROR_IO, e.what()};
    } catch (const std::exception& e) {
      return {NXD_ERROR_INTERNAL, e.what()};
    } catch (...) {
      return {NXD_ERROR_INTERNAL, "an exception that is no std::exception"};
    }
  } catch (...) {
    return {};  // no memory for the message
  }
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

}  // namespace nxd
