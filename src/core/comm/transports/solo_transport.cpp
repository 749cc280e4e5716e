#include "core/comm/transports/solo_transport.h"

namespace nxd {

std::string SoloTransport::rejection(const Call& call) const {
  if (!call.is_message()) return call.rejection(0, 1);
  return text(call.operation == Operation::kSend ? "to" : "from",
              ": expected another rank of the group, got ", call.peer, " in a group of one");
}

void SoloTransport::run(const Call& call) {
  const GroupMonitor::Scope scope(*monitor_, call.name(), call.record());
  const std::string why = rejection(call);
  if (!why.empty()) throw Rejection{monitor_->world_rank(), false, why}.error(*monitor_);
  run_alone(call);
}

}  // namespace nxd
