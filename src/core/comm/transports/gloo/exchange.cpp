#include "core/comm/transports/gloo/exchange.h"

#include <algorithm>

namespace nxd {
namespace {
// Gloo writes a message with one system call at a time, whose size the kernel keeps below 2 GiB.
constexpr size_t kMessageLimit = size_t{1} << 28;
}  // namespace

void Exchange::send(int peer, uint64_t slot, const void* data, size_t size) {
  auto* bytes = const_cast<char*>(static_cast<const char*>(data));  // Gloo only reads it
  for (size_t at = 0; at < size; at += kMessageLimit) {
    const size_t part = std::min(kMessageLimit, size - at);
    sends_.push_back({peer, link_.buffer(bytes + at, part)});
    link_.post_send(peer, slot, *sends_.back().buffer, part);
  }
}

void Exchange::receive(int peer, uint64_t slot, void* data, size_t size) {
  auto* bytes = static_cast<char*>(data);
  for (size_t at = 0; at < size; at += kMessageLimit) {
    const size_t part = std::min(kMessageLimit, size - at);
    receives_.push_back({peer, link_.buffer(bytes + at, part)});
    link_.post_receive(peer, slot, *receives_.back().buffer, part);
  }
}

void Exchange::wait_received() {
  for (Message& message : receives_) link_.wait_received(message.peer, *message.buffer);
  receives_.clear();
}

void Exchange::wait_sent() {
  for (Message& message : sends_) link_.wait_sent(message.peer, *message.buffer);
  sends_.clear();
}

}  // namespace nxd
