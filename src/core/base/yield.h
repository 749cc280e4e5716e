#pragma once

namespace nxd {

// Gives the core to another thread, as sched_yield does, for a wait of microseconds. Gives false
// where other threads compute on the core: the caller should sleep until it is woken, then.
//
// A thread that yields has its next turn after those of all others. Beside one that computes that
// is milliseconds later, and the scheduler of Linux takes the yielded time for used. A sleeper that
// is woken has its turn at once. So a thread whose turn came late does not yield for some time,
// which grows while each yield is late.
bool try_yield() noexcept;

}  // namespace nxd
