#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "core/comm/call.h"
#include "core/comm/memory/shared_writer.h"
#include "core/comm/transports/shm/shm_link.h"

namespace nxd {

// Messages between two ranks of a host, on any threads, at the same time as a collective. The
// sender offers a message and fills the parts of a desk; the receiver answers there, and takes the
// parts, or reads all of it from the sender's arena.
class ShmMessages {
 public:
  explicit ShmMessages(ShmLink& link);
  ~ShmMessages();
  ShmMessages(const ShmMessages&) = delete;
  ShmMessages& operator=(const ShmMessages&) = delete;

  void run(const Call& call);

 private:
  struct Desk {
    ShmDesk* memory = nullptr;
    uint32_t base = 0;
    SharedWriter writer;
  };
  // State of the messages to one rank, and from one.
  struct Outbox {
    std::mutex mutex;
    uint32_t offered = 0;
  };
  struct Inbox {
    std::mutex mutex;
    uint32_t taken = 0;
    std::map<int, std::deque<ShmOffer>> offers;  // by tag: taken out of the channel
  };
  // Either side's part in a message.
  ShmOffer offer_of(const Call& call) const;
  Desk borrow_desk();
  void return_desk(const Desk& desk);
  void send(const ShmOffer& given, const void* buffer, int to);
  void post(const ShmOffer& offer, int to);
  void receive(const ShmOffer& own, void* buffer, int from);
  ShmOffer await(int from, int tag);
  // One side's header and reason, of this rank or of a peer.
  template <class Note>
  MessageSide side(int rank, const Note& note) const {
    return {link_.ranks()[static_cast<size_t>(rank)], note.header, note.reason, sizeof note.reason};
  }

  ShmLink& link_;
  GroupMonitor& monitor_;
  std::vector<Outbox> outboxes_;  // by peer
  std::vector<Inbox> inboxes_;
  std::mutex desks_mutex_;
  std::vector<Desk> desks_;  // that no message uses
  size_t n_desks_ = 0;
};

}  // namespace nxd
