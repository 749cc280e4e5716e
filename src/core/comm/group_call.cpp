#include "core/comm/group_call.h"

#include "core/base/phase_clock.h"

namespace nxd {

void GroupCall::run(ProcessGroup& group) const {
  const PhaseScope phase(NXD_PHASE_COMMUNICATION);
  switch (operation) {
    case Operation::kAllReduce: return group.all_reduce(send, recv, count, dtype, reduce);
    case Operation::kAllGather: return group.all_gather(send, recv, count, dtype);
    case Operation::kReduceScatter: return group.reduce_scatter(send, recv, count, dtype, reduce);
    case Operation::kBroadcast: return group.broadcast(recv, count, dtype, peer);
    case Operation::kAllToAll: return group.all_to_all(send, recv, count, dtype);
    case Operation::kBarrier: return group.barrier();
    case Operation::kSend: return group.send(send, count, dtype, peer, tag);
    case Operation::kReceive: return group.receive(recv, count, dtype, peer, tag);
    case Operation::kRefuse: break;
  }
  fail(NXD_ERROR_INTERNAL, "no such operation");
}

void GroupCall::refuse(ProcessGroup& group, const std::string& reason) const {
  if (is_message(operation)) {
    group.refuse_message(operation, peer, tag, reason);
  } else {
    group.refuse(name(), reason);
  }
}

}  // namespace nxd
