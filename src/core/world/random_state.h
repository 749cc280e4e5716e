#pragma once

#include <atomic>
#include <cstdint>

#include "core/base/error.h"

namespace nxd {

// The seed, training step and microbatch that random bits are drawn for.
class RandomState {
 public:
  explicit RandomState(uint64_t seed) : seed_(seed) {}

  uint64_t seed() const { return seed_; }
  int64_t step() const { return step_; }
  int64_t microbatch() const { return microbatch_; }

  void set_step(int64_t step, int64_t microbatch) {
    // So far from the end of the numbers that no run comes there.
    constexpr int64_t kMostSteps = int64_t{1} << 62;
    check_argument(step >= 0, "step: expected 0 or more, got ", step);
    check_argument(step <= kMostSteps, "step: expected at most 2^62, got ", step);
    check_argument(microbatch >= 0, "microbatch: expected 0 or more, got ", microbatch);
    step_ = step;
    microbatch_ = microbatch;
  }

 private:
  const uint64_t seed_;
  std::atomic<int64_t> step_{0}, microbatch_{0};
};

}  // namespace nxd
