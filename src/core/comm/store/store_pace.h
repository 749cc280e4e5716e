#pragma once

#include <chrono>
#include <cstdint>

namespace nxd {

// How many questions a second all ranks of a world that wait put to its store together, at most: a
// server answers several times as many.
constexpr int64_t kStoreQuestionsPerSecond = 8000;

// The pause of each rank between so many questions at a time.
inline std::chrono::milliseconds store_pause(int ranks, int questions) {
  return std::chrono::milliseconds(int64_t{ranks} * questions * 1000 / kStoreQuestionsPerSecond);
}

}  // namespace nxd
