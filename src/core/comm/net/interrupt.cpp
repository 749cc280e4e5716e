#include "core/comm/net/interrupt.h"

#include "core/base/callback_thread.h"
#include "core/base/last_error.h"

namespace nxd {
namespace {

thread_local const InterruptScope* innermost_scope = nullptr;

}  // namespace

nxd_status_t Interrupt::poll() const {
  if (!callback || InternalThread::is_current()) return NXD_OK;
  return CallbackWatch::answer([this] { return callback(user_data); });
}

void Interrupt::check(const char* operation) const {
  const nxd_status_t status = poll();
  if (status != NXD_OK) fail(status, operation, ": interrupted by the interrupt callback");
}

InterruptScope::InterruptScope(const Interrupt& interrupt, const char* operation)
    : interrupt_(interrupt), operation_(operation), outer_(innermost_scope) {
  innermost_scope = this;
}

InterruptScope::~InterruptScope() { innermost_scope = outer_; }

void InterruptScope::check() {
  if (innermost_scope) innermost_scope->interrupt_.check(innermost_scope->operation_);
}

}  // namespace nxd
