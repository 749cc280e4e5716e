#pragma once

#include <vector>

#include "core/comm/transports/shm/shm_agreement.h"

namespace nxd {

// Small data of collectives, which every rank finds in shared memory.
//
// The smallest all-reduces do without a barrier: each rank writes an eager message, whose cache
// lines carry the flag of the call, and reads the others' as they come. A line that does not come
// in time, or has another call's flag, sends its reader into the barrier, where ranks compare what
// they called.
class ShmEager {
 public:
  explicit ShmEager(ShmAgreement& agreement);

  // True if an all-reduce of so many bytes goes by eager messages.
  bool takes_message(size_t bytes) const { return bytes > 0 && bytes <= message_limit_; }
  void all_reduce_messages(const Call& call, size_t bytes);

  // After an agreement on the eager protocol.
  void run(const Call& call);

 private:
  bool read_messages(size_t bytes, uint64_t flag, int looks);
  bool await_messages(size_t bytes, uint64_t flag, int looks);
  char* message_of(int rank) {
    return messages_.data() + static_cast<size_t>(rank) * message_limit_;
  }

  ShmAgreement& agreement_;
  const size_t message_limit_;
  std::vector<const void*> inputs_;  // of a reduction
  std::vector<char> messages_;       // this rank's copies of the peers'
};

}  // namespace nxd
