#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "core/base/text_stream.h"
#include "nxd.h"

namespace nxd {

// An addition of the room that failed: values that it alone knows the meaning of.
struct ErrorPayload {
  const char* kind = nullptr;  // of static storage; null: none
  int64_t values[2] = {};
};

// The distributed call that failed; see nxd_error_info_t.
struct ErrorContext {
  int root_rank = -1;
  uint64_t sequence = 0;
  std::string group;
  std::string operation;
  ErrorPayload payload = {};
};

// The library's one exception: a status code and a message that says what was expected and given.
// Copies share their text, so that an error can be kept and thrown again without memory.
class Error : public std::exception {
 public:
  Error(nxd_status_t status, std::string message) : Error(status, std::move(message), {}) {}
  // NXD_OK would read as success at the C boundary: it becomes INTERNAL. A callback's own pass.
  Error(nxd_status_t status, std::string message, ErrorContext context);
  // Takes no memory. The message is a literal.
  static Error plain(nxd_status_t status, const char* message) noexcept {
    return Error(status, message, Plain());
  }
  // The exception being handled, as one of this type. Takes no memory when there is none. One of
  // another type that a caller's callback threw is the callback's own failure: USER.
  enum class Thrower { kLibrary, kCallback };
  static Error current(Thrower thrower = Thrower::kLibrary) noexcept;

  const char* what() const noexcept override {
    return content_ ? content_->message.c_str() : plain_;
  }
  nxd_status_t status() const noexcept { return status_; }
  const ErrorContext& context() const noexcept;

 private:
  struct Plain {};
  struct Content {
    std::string message;
    ErrorContext context;
  };
  Error(nxd_status_t status, const char* message, Plain) noexcept
      : status_(status), plain_(message) {}

  nxd_status_t status_;
  const char* plain_ = nullptr;
  std::shared_ptr<const Content> content_;
};

// A stream that lacks memory for a value keeps quiet about it, and gives a part.
inline void check_stream(const std::ios& stream) {
  if (stream.bad()) throw std::bad_alloc();
}

// Concatenates values as by operator<<.
template <class... Parts>
std::string text(const Parts&... parts) {
  TextWriter out;
  (out << ... << parts);
  check_stream(out);
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

// A field or argument that is 0 or 1; the parts are its name.
template <class... Parts>
bool flag(int32_t value, const Parts&... name) {
  check_argument(value == 0 || value == 1, name..., ": expected 0 or 1, got ", value);
  return value == 1;
}

// A field whose default is not off.
inline bool toggle(nxd_toggle_t value, bool default_value, const char* name) {
  check_argument(value >= NXD_TOGGLE_DEFAULT && value <= NXD_TOGGLE_OFF, name,
                 ": expected an NXD_TOGGLE_*, got ", value);
  return value == NXD_TOGGLE_DEFAULT ? default_value : value == NXD_TOGGLE_ON;
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
// True if it is one of NXD_ERROR_*. To be asked of every status that is read from a store, a file
// or a peer.
bool is_error(nxd_status_t status) noexcept;

}  // namespace nxd
