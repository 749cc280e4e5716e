#include "core/comm/memory/shared_counter.h"

#include <sched.h>

#include "core/base/cpu_pause.h"
#include "core/base/yield.h"
#include "core/comm/net/deadline.h"

namespace nxd {
namespace {

using std::chrono::microseconds;

// Yielding costs little when no other thread wants the core, and spinning much when the awaited
// rank does. A sleep and a wake-up cost some 50 us until the rank is back at work; so waiting awake
// pays for longer than that.
constexpr auto kSpin = microseconds(4);
constexpr auto kYield = microseconds(200);
// With more ranks than cores: about what giving the core to another rank costs, and having it back.
constexpr auto kGlance = microseconds(2);
constexpr int kFirstLooks = 200;
constexpr int kLooksPerClock = 32;

uint32_t this_core() noexcept { return static_cast<uint32_t>(::sched_getcpu() + 1); }

}  // namespace

bool SharedCounter::is_behind_us() const noexcept {
  const uint32_t there = core.load(std::memory_order_relaxed);
  return there != 0 && there == this_core();
}

void SharedCounter::advance_to(uint32_t target) noexcept {
  core.store(this_core(), std::memory_order_relaxed);
  futex.value.store(target, std::memory_order_seq_cst);
  futex.wake_sleepers();
}

bool SharedCounter::await_briefly(uint32_t target, bool cores_for_all) const noexcept {
  // Peers that come together wait for less than a pause takes.
  for (int look = 0; cores_for_all && look < kFirstLooks; ++look) {
    if (has_reached(target)) return true;
  }
  const auto start = Deadline::Clock::now();
  const auto hold = cores_for_all ? kSpin : kGlance;
  while (!is_behind_us() && Deadline::Clock::now() - start < hold) {
    for (int look = 0; look < kLooksPerClock; ++look) {
      if (has_reached(target)) return true;
      cpu_pause();
    }
  }
  while (!has_reached(target)) {
    if (Deadline::Clock::now() - start > kSpin + kYield || !try_yield()) return has_reached(target);
  }
  return true;
}

void SharedCounter::sleep(uint32_t target, int milliseconds) noexcept {
  const uint32_t seen = futex.value.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(seen - target) < 0) futex.sleep(seen, milliseconds);
}

}  // namespace nxd
