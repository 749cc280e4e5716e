#include "core/base/error.h"

#include <atomic>
#include <new>
#include <system_error>

#include "core/base/rethrow.h"

namespace nxd {
namespace {

const ErrorContext no_context;

std::atomic<Rethrow> translating_rethrow = nullptr;

Error thrown_by_callback(const std::exception& e) {
  return {NXD_ERROR_USER, text("the callback threw: ", e.what())};
}

}  // namespace

void set_rethrow(Rethrow rethrow) noexcept { translating_rethrow = rethrow; }

const ErrorContext& Error::context() const noexcept {
  return content_ ? content_->context : no_context;
}

Error Error::current(Thrower thrower) noexcept {
  const bool by_library = thrower == Thrower::kLibrary;
  try {
    try {
      const Rethrow rethrow = translating_rethrow;
      if (rethrow && by_library) rethrow();
      throw;
    } catch (const Error& e) {
      return e;
    } catch (const std::bad_alloc&) {
      return plain(NXD_ERROR_OUT_OF_MEMORY, "out of memory");
    } catch (const std::system_error& e) {
      if (!by_library) return thrown_by_callback(e);
      if (e.code() == std::errc::resource_unavailable_try_again) {
        return plain(NXD_ERROR_OUT_OF_MEMORY,
                     "cannot start a thread: the system lets this user, container or program have "
                     "no more of them (ulimit -u, the cgroup's pids.max), or has no memory");
      }
      return {NXD_ERROR_IO, e.what()};
    } catch (const std::exception& e) {
      if (!by_library) return thrown_by_callback(e);
      return {NXD_ERROR_INTERNAL, e.what()};
    } catch (...) {
      if (!by_library) {
        return plain(NXD_ERROR_USER, "the callback threw what is no std::exception");
      }
      return plain(NXD_ERROR_INTERNAL, "an exception that is no std::exception");
    }
  } catch (...) {
    return plain(NXD_ERROR_OUT_OF_MEMORY, "out of memory, also for the message of an error");
  }
}

Error::Error(nxd_status_t status, std::string message, ErrorContext context) : status_(status) {
  if (status == NXD_OK) {
    status_ = NXD_ERROR_INTERNAL;
    message += " (reported with the status of a success)";
  }
  content_ = std::make_shared<const Content>(Content{std::move(message), std::move(context)});
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
