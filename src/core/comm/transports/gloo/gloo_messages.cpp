#include "core/comm/transports/gloo/gloo_messages.h"

#include <cstring>

#include "core/base/profiler.h"
#include "core/comm/transports/gloo/exchange.h"
#include "core/comm/transports/gloo/slots.h"

namespace nxd {
namespace {

constexpr size_t kInlineLimit = 4096;

}  // namespace

// A header, followed by inline data or the reason of a rejection.
struct GlooMessages::Envelope {
  CallHeader header;
  char body[kInlineLimit];

  size_t size() const { return sizeof header + header.payload_size; }
};

MessageSide GlooMessages::side(int rank, const Envelope& envelope) const {
  return {link_.ranks()[static_cast<size_t>(rank)], envelope.header, envelope.body,
          sizeof envelope.body};
}

GlooMessages::Envelope GlooMessages::envelope(const Call& call) const {
  Envelope own;
  own.header = call.header(0);
  const std::string why = call.rejection(link_.rank(), link_.size());
  if (!why.empty()) {
    link_.monitor().note_rejection(why);
    own.header.reject({link_.monitor().world_rank(), false, why}, own.body, sizeof own.body);
  }
  return own;
}

void GlooMessages::run(const Call& call) {
  const GroupMonitor::Scope scope(link_.monitor(), call.name(), call.record());
  call.check_peer(link_.monitor(), link_.rank(), link_.size());
  link_.connect({call.peer});
  Envelope own = envelope(call);
  call.operation == Operation::kSend ? send(own, call) : receive(own, call);
}

void GlooMessages::send(Envelope& own, const Call& call) {
  const auto slot = static_cast<uint64_t>(call.tag);
  const size_t bytes = own.header.message_bytes();
  if (!own.header.is_rejected() && bytes <= kInlineLimit) {
    own.header.payload_size = static_cast<uint32_t>(bytes);
    if (bytes > 0) std::memcpy(own.body, call.send, bytes);
  }
  Envelope answer;
  Exchange exchange(link_);
  exchange.receive(call.peer, kMessageAnswerSlot + slot, &answer, sizeof answer);
  exchange.send(call.peer, kMessageHeaderSlot + slot, &own, own.size());
  {
    const WaitScope wait;
    exchange.wait_received();
  }
  exchange.wait_sent();
  check_message(link_.monitor(), side(link_.rank(), own), side(call.peer, answer));
  if (bytes <= kInlineLimit) return;
  exchange.send(call.peer, kMessageDataSlot + slot, call.send, bytes);
  exchange.wait_sent();
}

void GlooMessages::receive(Envelope& own, const Call& call) {
  const auto slot = static_cast<uint64_t>(call.tag);
  const size_t bytes = own.header.message_bytes();
  Envelope envelope;
  Exchange exchange(link_);
  exchange.receive(call.peer, kMessageHeaderSlot + slot, &envelope, sizeof envelope);
  {
    const WaitScope wait;
    exchange.wait_received();
  }
  const bool agreed = own.header.fits(envelope.header);
  if (agreed && bytes > kInlineLimit) {
    exchange.receive(call.peer, kMessageDataSlot + slot, call.recv, bytes);
  }
  exchange.send(call.peer, kMessageAnswerSlot + slot, &own, own.size());
  if (agreed && bytes > 0 && bytes <= kInlineLimit) std::memcpy(call.recv, envelope.body, bytes);
  exchange.wait_received();
  exchange.wait_sent();
  check_message(link_.monitor(), side(link_.rank(), own), side(call.peer, envelope));
}

}  // namespace nxd
