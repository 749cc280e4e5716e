#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/comm/operation.h"

namespace nxd {

class GroupMonitor;

// Why a call does not take place.
struct Rejection {
  int rank = -1;           // in the world: whose arguments are at fault
  bool disagrees = false;  // with those of other ranks, which why names; else they are bad
  std::string why;

  // INVALID_ARGUMENT, as the monitor's rank is told of it.
  Error error(const GroupMonitor& monitor) const;
};

// Digest of the call that a rank is about to make. Ranks compare these before any data moves.
struct CallHeader {
  enum class Rejected : uint8_t { kNot, kArguments, kDisagreement };

  uint64_t sequence = 0;
  uint64_t count = 0;
  int32_t root = -1;  // of a rejected call: the rank in the world that is at fault
  uint32_t payload_size = 0;
  Operation operation = Operation::kBarrier;
  int8_t dtype = NXD_DTYPE_INVALID;
  int8_t reduce = NXD_REDUCE_INVALID;
  Rejected rejected = Rejected::kNot;  // else the payload says why
  uint32_t copied = 0;                 // the data were copied to where the peers can read them
  uint64_t key = 0;                    // the caller's; 0: none

  // Writes down the rejection, and as much of the reason as there is room for.
  void reject(const Rejection& rejection, char* reason, size_t room);
  std::optional<Rejection> rejection(const char* reason, size_t room) const;
  bool is_rejected() const { return rejected != Rejected::kNot; }

  // Bytes of the data of a message; 0 when it is rejected.
  size_t message_bytes() const;
  // True if the message takes place, for either side.
  bool fits(const CallHeader& other) const;

  bool agrees_with(const CallHeader& other) const;
  // A hash of what ranks compare: headers that agree have the same, others hardly ever.
  uint64_t digest() const;
  std::string describe() const;
};
static_assert(sizeof(CallHeader) == 40);

// The rejection for two ranks that make different calls; the other one is at fault.
Rejection disagreement(int rank, const CallHeader& header, int other_rank, const CallHeader& other);

// A rank's part in the agreement on a call.
struct CallProposal {
  const CallHeader* header;
  const char* reason;  // header->payload_size bytes, of a rank that rejects it
};

// Nothing when all ranks agree and none rejects the call. Every rank looks at the same proposals in
// the same order, so all find the same. Proposals are by place in ranks, which are world ranks.
std::optional<Rejection> find_rejection(const std::vector<int>& ranks,
                                        const std::vector<CallProposal>& proposals);

// One side of a message.
struct MessageSide {
  int world_rank;
  const CallHeader& header;
  const char* reason;
  size_t room;  // of the reason
};
// Fails with INVALID_ARGUMENT, naming both sides, unless they agree and neither rejects the
// message.
void check_message(const GroupMonitor& monitor, const MessageSide& own, const MessageSide& other);

}  // namespace nxd
