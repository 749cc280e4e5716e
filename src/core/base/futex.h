#pragma once

#include <atomic>
#include <cstdint>

namespace nxd {

// A number whose changes threads sleep for, also those of other processes that share its memory.
// The wait of std::atomic yields the core several times first (libstdc++ 12), which costs time
// slices beside threads that compute; see try_yield.
struct Futex {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  // Wakes those that sleep, after a sequentially consistent change of the value. It costs a system
  // call only when there are any.
  void wake_sleepers() noexcept {
    if (sleepers.load(std::memory_order_seq_cst) != 0) wake_all();
  }
  void wake_all() noexcept;
  // Sleeps while the value is `seen`; below 0 milliseconds without bound. May return early.
  void sleep(uint32_t seen, int milliseconds = -1) noexcept;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace nxd
