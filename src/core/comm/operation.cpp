#include "core/comm/operation.h"

#include <cstring>

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

Operation operation_named(const char* name) noexcept {
  for (int i = 0; name && i < static_cast<int>(Operation::kReject); ++i) {
    const auto operation = static_cast<Operation>(i);
    if (std::strcmp(name, operation_name(operation)) == 0) return operation;
  }
  return Operation::kReject;
}

}  // namespace nxd
