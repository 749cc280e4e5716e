// Send and receive of GlooGroup. The sender says what it has, with the data when they are few; the
// receiver answers what it expects; larger data follow once both agree.
#include <algorithm>
#include <cstring>

#include "core/base/dtype.h"
#include "core/comm/net/socket.h"
#include "core/comm/transports/gloo/gloo_group.h"
#include "core/comm/transports/gloo/slots.h"

namespace nxd {
namespace {

using Kind = GroupMonitor::Kind;

constexpr size_t kInlineLimit = 4096;

}  // namespace

// A header, followed by inline data or the reason of a refusal.
struct GlooGroup::Envelope {
  CallHeader header;
  char body[kInlineLimit];

  size_t size() const { return sizeof header + header.payload_size; }
  std::string reason() const {
    return std::string(body,
                       header.refused ? std::min<size_t>(header.payload_size, sizeof body) : 0);
  }
  void refuse(const std::string& why) {
    header.refused = 1;
    header.payload_size = static_cast<uint32_t>(std::min(why.size(), sizeof body));
    std::memcpy(body, why.data(), header.payload_size);
  }
  // Of the data; 0 when there is a refusal.
  size_t bytes() const { return header.refused ? 0 : header.count * dtype_size(header.dtype); }
};

GlooGroup::Envelope GlooGroup::envelope(Operation operation, const void* buffer, size_t count,
                                        nxd_dtype_t dtype) {
  Envelope own;
  own.header = CallHeader();
  own.header.operation = operation;
  own.header.count = count;
  own.header.dtype = static_cast<int8_t>(dtype);
  const std::string refusal = message_refusal(buffer, count, dtype);
  if (!refusal.empty()) own.refuse(refusal);
  return own;
}

void GlooGroup::send(const void* buffer, size_t count, nxd_dtype_t dtype, int to, int tag) {
  const NoSigpipe quiet;
  const GroupMonitor::Call started(monitor_, "send", Kind::kMessage, {count, dtype, to});
  Envelope own = envelope(Operation::kSend, buffer, count, dtype);
  offer(own, buffer, to, tag);
}

void GlooGroup::receive(void* buffer, size_t count, nxd_dtype_t dtype, int from, int tag) {
  const NoSigpipe quiet;
  const GroupMonitor::Call started(monitor_, "receive", Kind::kMessage, {count, dtype, from});
  Envelope own = envelope(Operation::kReceive, buffer, count, dtype);
  accept(own, buffer, from, tag);
}

void GlooGroup::refuse_message(Operation operation, int peer, int tag, const std::string& reason) {
  const NoSigpipe quiet;
  const GroupMonitor::Call started(monitor_, operation_name(operation), Kind::kMessage,
                                   {0, NXD_DTYPE_INVALID, peer});
  Envelope own = envelope(operation, nullptr, 0, NXD_DTYPE_U8);
  own.refuse(reason);
  operation == Operation::kSend ? offer(own, nullptr, peer, tag) : accept(own, nullptr, peer, tag);
}

void GlooGroup::offer(Envelope& own, const void* buffer, int to, int tag) {
  check_peer(monitor_, "to", to, rank(), size(), tag);
  link_.connect({to});
  const auto slot = static_cast<uint64_t>(tag);
  const size_t bytes = own.bytes();
  if (!own.header.refused && bytes <= kInlineLimit) {
    own.header.payload_size = static_cast<uint32_t>(bytes);
    if (bytes > 0) std::memcpy(own.body, buffer, bytes);
  }
  Envelope answer;
  Exchange exchange(link_);
  exchange.receive(to, kMessageAnswerSlot + slot, &answer, sizeof answer);
  exchange.send(to, kMessageHeaderSlot + slot, &own, own.size());
  exchange.wait_received();
  exchange.wait_sent();
  check_message(monitor_, {monitor_.world_rank(), &own.header, own.reason()},
                {ranks()[static_cast<size_t>(to)], &answer.header, answer.reason()});
  if (bytes <= kInlineLimit) return;
  exchange.send(to, kMessageDataSlot + slot, buffer, bytes);
  exchange.wait_sent();
}

void GlooGroup::accept(Envelope& own, void* buffer, int from, int tag) {
  check_peer(monitor_, "from", from, rank(), size(), tag);
  link_.connect({from});
  const auto slot = static_cast<uint64_t>(tag);
  const size_t bytes = own.bytes();
  Envelope offer;
  Exchange exchange(link_);
  exchange.receive(from, kMessageHeaderSlot + slot, &offer, sizeof offer);
  exchange.wait_received();
  const bool agreed = !own.header.refused && !offer.header.refused &&
                      own.header.count == offer.header.count &&
                      own.header.dtype == offer.header.dtype;
  if (agreed && bytes > kInlineLimit) {
    exchange.receive(from, kMessageDataSlot + slot, buffer, bytes);
  }
  exchange.send(from, kMessageAnswerSlot + slot, &own, own.size());
  if (agreed && bytes > 0 && bytes <= kInlineLimit) std::memcpy(buffer, offer.body, bytes);
  exchange.wait_received();
  exchange.wait_sent();
  check_message(monitor_, {monitor_.world_rank(), &own.header, own.reason()},
                {ranks()[static_cast<size_t>(from)], &offer.header, offer.reason()});
}

}  // namespace nxd
