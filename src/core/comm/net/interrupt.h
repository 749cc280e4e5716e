#pragma once

#include "core/base/error.h"

namespace nxd {

// The user's callback that may end a wait; called while a call blocks.
struct Interrupt {
  nxd_interrupt_fn callback = nullptr;
  void* user_data = nullptr;

  // The callback's answer. Threads of the library's own do not ask: for them it is NXD_OK.
  nxd_status_t poll() const;
  // Fails with the callback's status, unchanged.
  void check(const char* operation) const;
};

// While it lives, waits on this thread that know of no group (for keys of a store, or for its
// server) ask the callback too.
class InterruptScope {
 public:
  InterruptScope(const Interrupt& interrupt, const char* operation);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  static void check();

 private:
  const Interrupt interrupt_;
  const char* const operation_;
  const InterruptScope* const outer_;
};

}  // namespace nxd
