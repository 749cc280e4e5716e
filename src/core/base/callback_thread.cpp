#include "core/base/callback_thread.h"

#include <utility>

namespace nxd {
namespace {

thread_local bool is_internal = false;

}  // namespace

InternalThread::InternalThread() noexcept { is_internal = true; }

InternalThread::~InternalThread() { is_internal = false; }

bool InternalThread::is_current() noexcept { return is_internal; }

ProgramsCallback::ProgramsCallback(const CallbackSignals& signals) noexcept
    : was_internal_(std::exchange(is_internal, false)) {
  if (was_internal_) signals.apply();
}

ProgramsCallback::~ProgramsCallback() { is_internal = was_internal_; }

}  // namespace nxd
