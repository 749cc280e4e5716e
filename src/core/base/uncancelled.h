#pragma once

#include <pthread.h>

namespace nxd {

// While it lives, a pthread_cancel of this thread waits. Cancellation unwinds the stack like an
// exception that no code may stop: it would end the process at the first function that lets nothing
// through, and leave a group's peers with half a call before that.
class Uncancelled {
 public:
  Uncancelled() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { ::pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace nxd
