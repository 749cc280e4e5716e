#pragma once

#include <vector>

#include "core/comm/transports/shm/shm_agreement.h"

namespace nxd {

// Small data of collectives, which every rank finds in shared memory.
//
// The smallest all-reduces do without a barrier: each rank writes a letter, whose cache lines carry
// the mark of the call, and reads the others' as they come. For example, with ranks A, B and C each
// writes its own letter first. A then looks at B's and at C's, adds A + B + C in rank order, and is
// done; B and C do the same. A line that does not come in time, or has another call's mark, sends
// its reader into the barrier, where ranks compare what they called.
class ShmEager {
 public:
  explicit ShmEager(ShmAgreement& agreement);

  // Whether an all-reduce of so many bytes goes by letters.
  bool takes_letters(size_t bytes) const { return bytes > 0 && bytes <= letter_limit_; }
  void all_reduce_letters(const Call& call, size_t bytes);

  // After an agreement on the eager protocol.
  void run(const Call& call);

 private:
  bool read_letters(size_t bytes, uint64_t mark, int looks);
  char* letter_of(int rank) { return letters_.data() + static_cast<size_t>(rank) * letter_limit_; }

  ShmAgreement& agreement_;
  const size_t letter_limit_;
  std::vector<const void*> inputs_;  // of a reduction
  std::vector<char> letters_;        // this rank's copies of the peers'
};

}  // namespace nxd
