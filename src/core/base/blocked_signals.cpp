#include "core/base/blocked_signals.h"

#include <pthread.h>

#include <csignal>

namespace nxd {

BlockedSignals::BlockedSignals() {
  static_assert(sizeof(sigset_t) <= sizeof saved_);
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, reinterpret_cast<sigset_t*>(saved_));
}

BlockedSignals::~BlockedSignals() {
  pthread_sigmask(SIG_SETMASK, reinterpret_cast<sigset_t*>(saved_), nullptr);
}

}  // namespace nxd
