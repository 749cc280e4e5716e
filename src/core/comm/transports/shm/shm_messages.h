#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include "core/comm/call.h"
#include "core/comm/memory/shared_writer.h"
#include "core/comm/transports/shm/shm_inbox.h"
#include "core/comm/transports/shm/shm_link.h"

namespace nxd {

// Messages between two ranks of a host, on any threads, at the same time as a collective. The
// sender posts the message's descriptor and fills the parts of a staging buffer. The receiver
// answers there, and takes the parts, or reads all of it from the sender's arena.
class ShmMessages {
 public:
  explicit ShmMessages(ShmLink& link);
  ~ShmMessages();
  ShmMessages(const ShmMessages&) = delete;
  ShmMessages& operator=(const ShmMessages&) = delete;

  void run(const Call& call);

 private:
  struct StagingBuffer {
    ShmStagingBuffer* memory = nullptr;
    uint32_t base = 0;
    SharedWriter writer;
  };
  // State of the messages to one rank.
  struct Outbox {
    std::mutex mutex;
    uint32_t posted = 0;
  };
  // Either side's part in a message.
  ShmMessageDescriptor describe(const Call& call) const;
  StagingBuffer borrow_staging();
  void return_staging(const StagingBuffer& staging);
  void send(const ShmMessageDescriptor& given, const void* buffer, int to);
  void post(const ShmMessageDescriptor& message, int to);
  void receive(const ShmMessageDescriptor& own, void* buffer, int from);
  // One side's header and reason, of this rank or of a peer.
  template <class Descriptor>
  MessageSide side(int rank, const Descriptor& descriptor) const {
    return {link_.ranks()[static_cast<size_t>(rank)], descriptor.header, descriptor.reason,
            sizeof descriptor.reason};
  }

  ShmLink& link_;
  GroupMonitor& monitor_;
  std::vector<Outbox> outboxes_;  // by peer
  std::deque<ShmInbox> inboxes_;
  std::mutex staging_mutex_;
  std::vector<StagingBuffer> staging_;  // that no message uses
  size_t n_staging_ = 0;
};

}  // namespace nxd
