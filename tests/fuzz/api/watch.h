// State of the calling process for the one that watches it, in memory that they share: a call that
// crashes or hangs is known by its name and number.
#pragma once

#include <atomic>
#include <cstdint>

#include "nxd.h"

namespace nxd_fuzz {

struct Watch {
  static constexpr int kMostRanks = 4, kMostFunctions = 512;
  struct Rank {
    std::atomic<uint64_t> calls;        // so far of this seed
    std::atomic<const char*> function;  // in progress, or the last; the same address in both
  };
  Rank ranks[kMostRanks];
  std::atomic<uint64_t> calls[kMostFunctions], successes[kMostFunctions];  // of all seeds
  std::atomic<bool> prints;                                                // every call, to stderr
};
extern Watch* watch;

void watch_call(int rank, const char* function);
void watch_return(int rank, nxd_status_t status);

}  // namespace nxd_fuzz
