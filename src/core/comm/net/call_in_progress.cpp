#include "core/comm/net/call_in_progress.h"

namespace nxd {
namespace {

// The general TLS model is used: a library of the initial-exec model needs room in the program's
// own block, which has little to spare, and cannot be loaded once the program runs.
thread_local CallInProgress* innermost_call = nullptr;
thread_local CallInProgress::Aside* last_aside = nullptr;

}  // namespace

CallInProgress::CallInProgress(const void* object) noexcept
    : innermost_(innermost_call), object_(object), outer_(innermost_) {
  innermost_ = this;
}

CallInProgress* CallInProgress::innermost() noexcept { return innermost_call; }

bool CallInProgress::is_set_aside(const void* object) noexcept {
  for (const Aside* aside = last_aside; aside; aside = aside->after_) {
    for (const CallInProgress* call = aside->calls_; call; call = call->outer_) {
      if (call->object_ == object) return true;
    }
  }
  return false;
}

CallInProgress::Aside::Aside(const void* asker) noexcept
    : asker_(asker), calls_(innermost_call), after_(last_aside) {
  if (after_) after_->before_ = this;
  last_aside = this;
  innermost_call = nullptr;
}

// Another fiber's may have been made after this one, and live on.
CallInProgress::Aside::~Aside() {
  if (after_) after_->before_ = before_;
  (before_ ? before_->after_ : last_aside) = after_;
  innermost_call = calls_;
}

bool CallInProgress::Aside::is_of(const void* asker) noexcept {
  for (const Aside* aside = last_aside; aside; aside = aside->after_) {
    if (aside->asker_ == asker) return true;
  }
  return false;
}

}  // namespace nxd
