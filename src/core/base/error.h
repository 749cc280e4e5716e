#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "nxd.h"

namespace nxd {

// What a failed distributed call was doing; see nxd_error_info_t.
struct ErrorContext {
  int root_rank = -1;
  uint64_t sequence = 0;
  std::string group;
  std::string operation;
  // Of the training step whose end failed; see core/optim/step_outcome.h.
  int64_t step = -1;
  nxd_parameter_state_t parameters = NXD_PARAMETERS_NONE;
};

// The library's one exception: a status code and a message that says what was expected and given.
// Copies share one immutable content, so that copying cannot fail. An error that passes from one
// thread to another is handed over by value: an exception_ptr would share the very object.
class Error : public std::exception {
 public:
  Error(nxd_status_t status, std::string message) : Error(status, std::move(message), {}) {}
  Error(nxd_status_t status, std::string message, ErrorContext context);
  // OUT_OF_MEMORY, made without memory.
  Error() noexcept = default;
  // The exception being handled; the one place where others become statuses.
  static Error from_current() noexcept;

  const char* what() const noexcept override;
  nxd_status_t status() const noexcept;
  const ErrorContext& context() const noexcept;

 private:
  struct Content {
    nxd_status_t status;
    std::string message;
    ErrorContext context;
  };
  std::shared_ptr<const Content> content_;  // null: out of memory
};

// Concatenates values as by operator<<.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void fail(nxd_status_t status, const Parts&... parts) {
  throw Error(status, text(parts...));
}

// Checks an argument: fails with INVALID_ARGUMENT and the message made of the parts.
template <class... Parts>
void check_argument(bool holds, const Parts&... parts) {
  if (!holds) fail(NXD_ERROR_INVALID_ARGUMENT, parts...);
}

// Checks the order of calls: fails with INVALID_STATE.
template <class... Parts>
void check_state(bool holds, const Parts&... parts) {
  if (!holds) fail(NXD_ERROR_INVALID_STATE, parts...);
}

// Checks an invariant of the library itself: fails with INTERNAL.
template <class... Parts>
void check_internal(bool holds, const Parts&... parts) {
  if (!holds) fail(NXD_ERROR_INTERNAL, parts...);
}

const char* status_name(nxd_status_t status) noexcept;

}  // namespace nxd
