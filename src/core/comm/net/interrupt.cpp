#include "core/comm/net/interrupt.h"

#include <utility>

#include "core/base/callback_thread.h"
#include "core/base/last_error.h"
#include "core/comm/net/call_in_progress.h"

namespace nxd {
namespace {

thread_local const InterruptScope* innermost_scope = nullptr;

}  // namespace

std::optional<Interruption> Interrupt::poll() const {
  if (!callback || InternalThread::is_current()) return std::nullopt;
  const CallbackWatch watch;
  nxd_status_t status = NXD_OK;
  {
    const CallInProgress::Aside aside(this);
    const InterruptScope* const scope = std::exchange(innermost_scope, nullptr);
    status = CallbackWatch::answer([this] { return callback(user_data); });
    innermost_scope = scope;
  }
  if (status == NXD_OK) return std::nullopt;
  const char* const why = watch.message(status);
  return Interruption{
      status, text("interrupted by the interrupt callback", why ? ": " : "", why ? why : "")};
}

void Interrupt::check(const char* operation) const {
  const auto interruption = poll();
  if (interruption) fail(interruption->status, operation, ": ", interruption->how);
}

bool Interrupt::is_asking() const noexcept { return CallInProgress::Aside::is_of(this); }

InterruptScope::InterruptScope(const Interrupt& interrupt, const char* operation)
    : interrupt_(interrupt), operation_(operation), outer_(innermost_scope) {
  innermost_scope = this;
}

InterruptScope::~InterruptScope() { innermost_scope = outer_; }

void InterruptScope::check() {
  if (innermost_scope) innermost_scope->interrupt_.check(innermost_scope->operation_);
}

}  // namespace nxd
