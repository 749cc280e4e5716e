#pragma once

#include <cstdint>

#include "core/base/philox.h"

namespace nxd {

// Which samples the ranks take in an epoch; see nxd_sample_epoch. Pure, and without memory: the
// permutation is a keyed bijection, so that any rank's samples can be asked for at once, of data
// sets of any size.
class EpochSampler {
 public:
  struct Options {
    int64_t samples = 0;
    int ranks = 1;
    int64_t epoch = 0;
    uint64_t seed = 0;
    bool shuffle = true;
    bool drop_last = false;
  };
  // INVALID_ARGUMENT for options out of range.
  explicit EpochSampler(const Options& options);

  // Samples of each rank.
  int64_t count() const { return count_; }
  // INVALID_ARGUMENT for a rank that is none.
  void check_rank(int rank) const;
  // The i-th sample of a rank, i below count().
  int64_t sample(int rank, int64_t i) const;

 private:
  int64_t permute(int64_t place) const;

  Options options_;
  int64_t count_;
  RandomSite site_;
  int64_t rows_ = 1, columns_ = 2;
};

}  // namespace nxd
