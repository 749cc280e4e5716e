#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/error.h"
#include "core/base/float_environment.h"
#include "core/base/public_call.h"
#include "core/base/uncancelled.h"

namespace nxd {

// The last failure of the calling thread. Storage is plain thread-local memory: it needs no
// destructor at thread exit and no allocation, so it also works out of memory.
void set_last_error(nxd_status_t status, const char* message,
                    const ErrorContext* context = nullptr) noexcept;
// The same for a callback's own failure. The last error's context stays where it is this failure,
// which the callback passes on.
void leave_error(nxd_status_t status, const char* message) noexcept;
const char* last_error_message() noexcept;
// The distributed call that failed.
void fill_last_error_info(nxd_error_info_t& out) noexcept;
ErrorPayload last_error_payload() noexcept;

// Turns the exception being handled into a status and remembers its message.
nxd_status_t record_current_exception(Error::Thrower thrower = Error::Thrower::kLibrary) noexcept;

// Runs a function at the C boundary: nothing it throws gets through, and a cancellation of the
// thread waits until it is through. The name is that of the public function, which calls it. All
// arithmetic is that of the default floating-point environment.
template <class Function>
nxd_status_t guard(Function&& function, const char* name = __builtin_FUNCTION()) noexcept {
  const Uncancelled whole_call;
  const PublicCall call(name);
  const DefaultFloatEnvironment arithmetic;
  try {
    std::forward<Function>(function)();
    return NXD_OK;
  } catch (...) {
    return record_current_exception();
  }
}

// Made before a callback of the user's is called, on the same thread: so that a message that the
// callback's own nxd call has left is told from one of an earlier failure.
class CallbackWatch {
 public:
  CallbackWatch() noexcept;
  // Throws when the callback failed; its status and message pass through unchanged.
  void check(nxd_status_t status, const char* what) const;
  // The message that the callback's own failure with this status has left on this thread; null when
  // there is none. Valid until the thread's next failure.
  const char* message(nxd_status_t status) const noexcept;
  // The callback's status. A callback that throws, as C++ allows where it was not built without
  // exceptions, has failed by itself: USER.
  template <class Callback>
  static nxd_status_t answer(Callback&& callback) noexcept {
    const CallersFloatEnvironment environment;
    try {
      return callback();
    } catch (...) {
      return record_current_exception(Error::Thrower::kCallback);
    }
  }
  template <class Callback>
  void run(Callback&& callback, const char* what) const {
    check(answer(std::forward<Callback>(callback)), what);
  }

 private:
  uint64_t failures_before_;
};

}  // namespace nxd
