#include "core/comm/memory/shared_counter.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "core/base/cpu_pause.h"
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

// The order of the two, the value before the sleepers, and the reverse in sleep, see to it that a
// rank about to sleep either sees the new value or is seen.
void SharedCounter::advance_to(uint32_t target) noexcept {
  core.store(this_core(), std::memory_order_relaxed);
  value.store(target, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) wake();
}

void SharedCounter::wake() noexcept {
  ::syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
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
    if (Deadline::Clock::now() - start > kSpin + kYield) return false;
    ::sched_yield();
  }
  return true;
}

void SharedCounter::sleep(uint32_t target, int milliseconds) noexcept {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = value.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(seen - target) < 0) {
    const timespec timeout{milliseconds / 1000, (milliseconds % 1000) * 1000000L};
    ::syscall(SYS_futex, &value, FUTEX_WAIT, seen, &timeout, nullptr, 0);
  }
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace nxd
