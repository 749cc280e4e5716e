#pragma once

#include "core/comm/transports/gloo/gloo_link.h"

namespace nxd {

// Messages in flight between this rank and its peers. All lengths have been agreed on. Messages of
// one peer and slot arrive in the order they are posted in; empty ones are not sent.
class Exchange {
 public:
  explicit Exchange(GlooLink& link) : link_(link) {}

  void send(int peer, uint64_t slot, const void* data, size_t size);
  void receive(int peer, uint64_t slot, void* data, size_t size);

  // Waits for the receives, or the sends, posted so far.
  void wait_received();
  void wait_sent();

 private:
  struct Message {
    int peer;
    GlooLink::Buffer buffer;
  };
  GlooLink& link_;
  std::vector<Message> sends_, receives_;
};

}  // namespace nxd
