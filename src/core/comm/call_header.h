#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/comm/operation.h"

namespace nxd {

class GroupMonitor;

// What a rank is about to do. Ranks compare these before any data moves.
struct CallHeader {
  uint64_t sequence = 0;
  uint64_t count = 0;
  int32_t root = -1;
  uint32_t payload_size = 0;
  Operation operation = Operation::kBarrier;
  int8_t dtype = NXD_DTYPE_INVALID;
  int8_t reduce = NXD_REDUCE_INVALID;
  uint8_t refused = 0;  // the rank's own arguments are bad; the payload says why
  uint32_t copied = 0;  // the data were copied to where the peers can read them

  bool agrees_with(const CallHeader& other) const;
  // A hash of what ranks compare: headers that agree have the same, others hardly ever.
  uint64_t digest() const;
  std::string describe() const;
};
static_assert(sizeof(CallHeader) == 32);

// What one rank of a group brings to a call.
struct CallOffer {
  const CallHeader* header;
  const void* reason;  // header->payload_size bytes, of a rank that refused
};

// Fails with INVALID_ARGUMENT, naming both sides, unless all ranks agree and none refused. Every
// rank looks at the same offers in the same order, so all come to the same verdict. Offers are by
// place in ranks, which are world ranks.
void check_offers(const GroupMonitor& monitor, const std::vector<int>& ranks,
                  const std::vector<CallOffer>& offers);

// The same for the two ends of a message, with the reasons of a side that refused.
struct MessageSide {
  int world_rank;
  const CallHeader* header;
  std::string reason;
};
void check_message(const GroupMonitor& monitor, const MessageSide& own, const MessageSide& other);

}  // namespace nxd
