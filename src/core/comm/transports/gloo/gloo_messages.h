#pragma once

#include "core/comm/call.h"
#include "core/comm/transports/gloo/gloo_link.h"

namespace nxd {

// Messages between two ranks over Gloo, on any threads, at the same time as a collective. The
// sender tells what it has, with the data when they are few; the receiver answers what it expects;
// larger data follow once both agree.
class GlooMessages {
 public:
  explicit GlooMessages(GlooLink& link) : link_(link) {}

  void run(const Call& call);

 private:
  struct Envelope;

  Envelope envelope(const Call& call) const;
  void send(Envelope& own, const Call& call);
  void receive(Envelope& own, const Call& call);
  MessageSide side(int rank, const Envelope& envelope) const;

  GlooLink& link_;
};

}  // namespace nxd
