#pragma once

#include <chrono>
#include <cstdint>

namespace nxd {

// Bound on the requests a second that all waiting ranks of a world make to its store together: a
// server answers several times as many.
constexpr int64_t kStoreRequestsPerSecond = 8000;

// The pause of each rank between so many requests at a time.
inline std::chrono::milliseconds store_pause(int ranks, int requests) {
  return std::chrono::milliseconds(int64_t{ranks} * requests * 1000 / kStoreRequestsPerSecond);
}

}  // namespace nxd
