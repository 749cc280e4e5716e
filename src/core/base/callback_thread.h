#pragma once

#include "core/base/blocked_signals.h"

namespace nxd {

// The user's callbacks run only on threads that are inside a call of the user's. A thread of the
// library's own marks itself with this for as long as it lives. The mark is libnxd_core's: one in
// a header would be another variable in each of the two libraries.
class InternalThread {
 public:
  InternalThread() noexcept;
  ~InternalThread();
  InternalThread(const InternalThread&) = delete;
  InternalThread& operator=(const InternalThread&) = delete;

  static bool is_current() noexcept;
};

// While it lives, a thread of the library's runs a callback that the program has asked to have
// there, and counts as a thread of the program's: nobody else may be inside of a call to call back
// for the calls that the callback makes. Does nothing on a thread of the program's.
class ProgramsCallback {
 public:
  // With the signals blocked, from then on, that were when the callback was handed over.
  explicit ProgramsCallback(const CallbackSignals& signals) noexcept;
  ~ProgramsCallback();
  ProgramsCallback(const ProgramsCallback&) = delete;
  ProgramsCallback& operator=(const ProgramsCallback&) = delete;

 private:
  const bool was_internal_;
};

}  // namespace nxd
