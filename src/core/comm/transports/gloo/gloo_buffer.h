#pragma once

#include <gloo/transport/tcp/unbound_buffer.h>

#include <mutex>

namespace nxd {

// A buffer of messages that can be looked at. Gloo itself has waits alone, and one that times out
// closes every connection of its context: peers that are well would count this rank as lost.
class GlooBuffer final : public gloo::transport::tcp::UnboundBuffer {
 public:
  using UnboundBuffer::UnboundBuffer;

  // Takes a completed operation, as a wait for it does. False when there is none.
  bool take_sent() { return take(sendCompletions_); }
  bool take_received() { return take(recvCompletions_); }

  // True when a connection has ended that it had an operation waiting at.
  bool has_failed() {
    const std::lock_guard<std::mutex> lock(m_);
    return ex_ != nullptr;
  }

 private:
  bool take(int& completions) {
    const std::lock_guard<std::mutex> lock(m_);
    if (completions == 0) return false;
    --completions;
    return true;
  }
};

}  // namespace nxd
