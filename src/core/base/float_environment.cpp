#include "core/base/float_environment.h"

#include <utility>

namespace nxd {
namespace {

// The calling thread's; null where its caller has the default environment, or a callback runs.
thread_local const DefaultFloatEnvironment* innermost = nullptr;

}  // namespace

void DefaultFloatEnvironment::enter() noexcept {
  std::fegetenv(&callers_);
  std::fesetenv(FE_DFL_ENV);
  is_entered_ = true;
  outer_ = std::exchange(innermost, this);
}

void DefaultFloatEnvironment::leave() const noexcept {
  innermost = outer_;
  std::fesetenv(&callers_);
}

CallersFloatEnvironment::CallersFloatEnvironment() noexcept
    : call_(std::exchange(innermost, nullptr)) {
  if (call_) std::fesetenv(&call_->callers_);
}

CallersFloatEnvironment::~CallersFloatEnvironment() {
  if (!call_) return;
  std::fesetenv(FE_DFL_ENV);
  innermost = call_;
}

}  // namespace nxd
