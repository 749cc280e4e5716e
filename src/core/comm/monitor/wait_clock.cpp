#include "core/comm/monitor/wait_clock.h"

namespace nxd {
namespace {

thread_local const WaitClock* clock_of_thread = nullptr;

}  // namespace

const WaitClock* WaitClock::current() noexcept { return clock_of_thread; }

WaitClockScope::WaitClockScope(const WaitClock* clock) noexcept { clock_of_thread = clock; }

WaitClockScope::~WaitClockScope() { clock_of_thread = nullptr; }

}  // namespace nxd
