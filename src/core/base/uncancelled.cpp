#include "core/base/uncancelled.h"

#include <pthread.h>

namespace nxd {
namespace {

struct Held {
  int times = 0;
  int before = PTHREAD_CANCEL_ENABLE;  // the first of them
};
thread_local Held held;

}  // namespace

Uncancelled::Uncancelled() noexcept {
  if (held.times++ == 0) ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &held.before);
}

Uncancelled::~Uncancelled() {
  if (--held.times == 0) ::pthread_setcancelstate(held.before, nullptr);
}

}  // namespace nxd
