#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/comm/operation.h"

namespace nxd {

class Arena;
struct ArenaPlace;

// An ordered set of ranks that communicate over buffers the caller owns. Semantics of every
// collective are those of the matching function of nxd.h, section 4. Failures are thrown as Error.
//
// Collectives are called by one thread at a time. Messages may go on at the same time, on threads
// of their own: one for each peer, tag and direction. abort() comes from any thread.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual const std::string& name() const = 0;
  virtual int rank() const = 0;  // this rank's place in the group
  virtual int size() const = 0;
  virtual const std::vector<int>& ranks() const = 0;  // world ranks, in group order

  virtual nxd_transport_t transport() const = 0;
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

  virtual void all_reduce(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                          nxd_reduce_t reduce) = 0;
  virtual void all_gather(const void* send, void* recv, size_t count, nxd_dtype_t dtype) = 0;
  virtual void reduce_scatter(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                              nxd_reduce_t reduce) = 0;
  virtual void broadcast(void* buffer, size_t count, nxd_dtype_t dtype, int root) = 0;
  virtual void all_to_all(const void* send, void* recv, size_t count, nxd_dtype_t dtype) = 0;
  virtual void send(const void* buffer, size_t count, nxd_dtype_t dtype, int to, int tag) = 0;
  virtual void receive(void* buffer, size_t count, nxd_dtype_t dtype, int from, int tag) = 0;
  virtual void barrier() = 0;

  virtual void abort() noexcept = 0;
  virtual void set_timeout_ms(int64_t timeout_ms) = 0;

  // Posts a refusal in place of the next collective: peers get INVALID_ARGUMENT naming this rank
  // and the reason, and the group stays usable. For callers that find their own arguments bad
  // before they can name a count or dtype.
  virtual void refuse(const char* operation, const std::string& reason) = 0;
  // The same in place of a message, for its one peer. A group that cannot pass the reason on
  // refuses a buffer that is missing.
  virtual void refuse_message(Operation operation, int peer, int tag, const std::string& reason) {
    static_cast<void>(reason);
    if (operation == Operation::kSend) {
      send(nullptr, 1, NXD_DTYPE_U8, peer, tag);
    } else {
      receive(nullptr, 1, NXD_DTYPE_U8, peer, tag);
    }
  }
};

}  // namespace nxd
