#pragma once

#include <chrono>
#include <cstdint>

namespace nxd {

// Bound on the requests a second that all waiting ranks of a world make to its store together: a
// server answers several times as many.
constexpr int64_t kStoreQuestionsPerSecond = 8000;

// The pause of each rank between so many questions at a time.
inline std::chrono::milliseconds store_pause(int ranks, int questions) {
  return std::chrono::milliseconds(int64_t{ranks} * questions * 1000 / kStoreQuestionsPerSecond);
}

}  // namespace nxd
