#include "core/comm/operation.h"

namespace nxd {

const char* operation_name(Operation operation) noexcept {
  switch (operation) {
    case Operation::kAllReduce: return "all_reduce";
    case Operation::kAllGather: return "all_gather";
    case Operation::kReduceScatter: return "reduce_scatter";
    case Operation::kBroadcast: return "broadcast";
    case Operation::kAllToAll: return "all_to_all";
    case Operation::kBarrier: return "barrier";
    case Operation::kSend: return "send";
    case Operation::kReceive: return "receive";
    default: return "call";
  }
}

}  // namespace nxd
