#pragma once

#include <atomic>
#include <cstdint>

#include "core/base/futex.h"

namespace nxd {

// A counter in shared memory that one rank advances and others wait for. It only ever grows, and
// wraps around: ranks are never apart by more than a few calls.
struct alignas(128) SharedCounter {
  Futex futex;
  // Digests of the rank's calls, in the same cache line, so that a rank that finds the value
  // reached need not fetch another. They are used in turn: a waiting rank is never two turns
  // behind.
  std::atomic<uint64_t> digests[2] = {};
  // The core, counted from 1, that the rank ran on when it last advanced the counter.
  std::atomic<uint32_t> core{0};

  bool has_reached(uint32_t target) const noexcept {
    return static_cast<int32_t>(futex.value.load(std::memory_order_acquire) - target) >= 0;
  }
  // True if the rank that advances it probably shares this thread's core, and cannot go on before
  // this thread lets it.
  bool is_behind_us() const noexcept;
  // Wakes those that sleep, which costs a system call only when there are any.
  void advance_to(uint32_t target) noexcept;
  // Waits awake for a short while: first holding the core, for longer if there are cores for all
  // ranks, and not at all for a rank that needs this one; then letting others have it. Gives
  // true if the target was reached.
  bool await_briefly(uint32_t target, bool cores_for_all) const noexcept;
  // Wakes those that sleep, for them to poll.
  void wake() noexcept { futex.wake_all(); }
  // Sleeps until the target is reached or, at the latest, for some milliseconds. May return early.
  void sleep(uint32_t target, int milliseconds) noexcept;
};

}  // namespace nxd
