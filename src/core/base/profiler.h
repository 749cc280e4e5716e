#pragma once

#include <atomic>
#include <cstdint>

#include "nxd.h"

namespace nxd {

// The time of the process by phase. Kernels and group calls open a PhaseScope for themselves; the
// outermost scope of a thread counts, and scopes inside of it are part of it.
// Threads of a team of the library's do not count: the thread that called the team does. A
// WaitScope within says which part of the phase was a wait for other ranks.
namespace profiler {

inline constexpr int kPhases = NXD_PHASE_COMMUNICATION + 1;

struct Total {
  double seconds = 0;
  double operations = 0;
  uint64_t calls = 0;
  double waiting_seconds = 0;
};

extern std::atomic<bool> running;

void start() noexcept;  // from zero
void stop() noexcept;
Total total(nxd_phase_t phase) noexcept;
const char* name(nxd_phase_t phase) noexcept;

}  // namespace profiler

class PhaseScope {
 public:
  explicit PhaseScope(nxd_phase_t phase, double operations = 0) noexcept {
    if (profiler::running.load(std::memory_order_relaxed)) begin(phase, operations);
  }
  ~PhaseScope() {
    if (counts_) end();
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

  // For a thread that helps another one, whose time counts.
  static void leave_out_this_thread() noexcept;

 private:
  void begin(nxd_phase_t phase, double operations) noexcept;
  void end() noexcept;

  bool counts_ = false;
  nxd_phase_t phase_ = NXD_PHASE_INVALID;
  double operations_ = 0;
  int64_t start_ = 0;  // nanoseconds
};

// Counts with the phase that is open when it begins, and not within another one of that phase. The
// phase may be of a call on another fiber of this thread, and end first: then it counts nothing.
class WaitScope {
 public:
  WaitScope() noexcept {
    if (profiler::running.load(std::memory_order_relaxed)) begin();
  }
  ~WaitScope() {
    if (start_ != 0) end();
  }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  void begin() noexcept;
  void end() noexcept;

  uint64_t phases_before_ = 0;  // that had ended on this thread
  int64_t start_ = 0;           // nanoseconds; 0: counts nothing
};

}  // namespace nxd
