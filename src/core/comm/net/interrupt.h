#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "core/base/error.h"

namespace nxd {

// A callback's answer that ends a wait.
struct Interruption {
  nxd_status_t status;
  std::string how;  // for the error's message
};

// The user's callback that may end a wait; called while a call blocks. Calls that the callback
// makes are no part of those that it is asked in.
struct Interrupt {
  nxd_interrupt_fn callback = nullptr;
  void* user_data = nullptr;

  // Between two questions of a wait.
  static constexpr std::chrono::milliseconds kBeat{20};

  // Asks the callback. Threads of the library's own do not ask.
  std::optional<Interruption> poll() const;
  // Fails with the callback's status, unchanged.
  void check(const char* operation) const;
  // True when this thread is in the callback, asked by this very object.
  bool is_asking() const noexcept;
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
