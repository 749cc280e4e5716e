#include "core/comm/monitor/blocked_callers.h"

namespace nxd {
namespace {

thread_local const BlockedCallers* callers_of_thread = nullptr;

}  // namespace

BlockedCallers::Behalf::Behalf(const BlockedCallers& callers) noexcept {
  callers_of_thread = &callers;
}

BlockedCallers::Behalf::~Behalf() { callers_of_thread = nullptr; }

bool BlockedCallers::is_blocked() noexcept {
  return !callers_of_thread || callers_of_thread->count_.load(std::memory_order_relaxed) > 0;
}

}  // namespace nxd
