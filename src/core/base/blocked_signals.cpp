#include "core/base/blocked_signals.h"

#include <pthread.h>

#include <csignal>
#include <ctime>
#include <initializer_list>

namespace nxd {

BlockedSignals::BlockedSignals() {
  static_assert(sizeof(sigset_t) <= sizeof saved_);
  sigset_t blocked;
  sigfillset(&blocked);
  // The kernel ends the process where a thread's own instruction raises one that is blocked.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_BLOCK, &blocked, reinterpret_cast<sigset_t*>(saved_));
}

BlockedSignals::~BlockedSignals() {
  pthread_sigmask(SIG_SETMASK, reinterpret_cast<sigset_t*>(saved_), nullptr);
}

CallbackSignals::CallbackSignals() noexcept {
  static_assert(sizeof(sigset_t) <= sizeof blocked_);
  pthread_sigmask(SIG_SETMASK, nullptr, reinterpret_cast<sigset_t*>(blocked_));
}

void CallbackSignals::apply() const noexcept {
  pthread_sigmask(SIG_SETMASK, reinterpret_cast<const sigset_t*>(blocked_), nullptr);
}

HeldSignal::HeldSignal(int signal) noexcept : signal_(signal) {
  sigset_t held, old, pending;
  sigemptyset(&held);
  sigaddset(&held, signal_);
  pthread_sigmask(SIG_BLOCK, &held, &old);
  was_blocked_ = sigismember(&old, signal_) == 1;
  if (was_blocked_) return;
  was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, signal_) == 1;
}

HeldSignal::~HeldSignal() {
  if (was_blocked_) return;
  sigset_t held, pending;
  sigemptyset(&held);
  sigaddset(&held, signal_);
  if (!was_pending_ && sigpending(&pending) == 0 && sigismember(&pending, signal_) == 1) {
    const timespec now{0, 0};
    sigtimedwait(&held, nullptr, &now);
  }
  pthread_sigmask(SIG_UNBLOCK, &held, nullptr);
}

}  // namespace nxd
