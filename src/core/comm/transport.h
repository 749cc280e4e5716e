#pragma once

#include <memory>

#include "core/comm/call.h"

namespace nxd {

class Arena;
struct ArenaPlace;

// Carries the calls of a group to its other ranks: within a process, a host, or between hosts.
// Semantics of every call are those of the matching function of nxd.h. Failures are thrown as
// Error. Calls are watched over by the monitor that the transport was made with, which also ends
// them from any thread.
//
// Collectives are called by one thread at a time. Messages may go on at the same time, on threads
// of their own: one for each peer, tag and direction.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual nxd_transport_t kind() const = 0;
  // A call that this rank rejects takes its place among the others: its peers get INVALID_ARGUMENT
  // with this rank and its reason, and the group stays usable.
  virtual void run(const Call& call) = 0;

  // Memory on which the group's collectives work in place; null where there is none. Holding it
  // keeps it alive beyond the group and its context.
  virtual std::shared_ptr<Arena> arena() const { return nullptr; }
  // A place in a peer's arena() as this process sees it; null for a place that is nowhere, or that
  // the system does not let this process see. After a first collective.
  virtual void* peer_memory(int peer, const ArenaPlace& place) {
    static_cast<void>(peer);
    static_cast<void>(place);
    return nullptr;
  }
};

}  // namespace nxd
