#include "core/comm/transports/solo_group.h"

namespace nxd {

using Kind = GroupMonitor::Kind;

void SoloGroup::refuse_call(const std::string& message) const {
  throw monitor_->error(NXD_ERROR_INVALID_ARGUMENT, monitor_->world_rank(), message);
}

void SoloGroup::run(const CollectiveCall& call) {
  const GroupMonitor::Call started(*monitor_, operation_name(call.operation), Kind::kCollective,
                                   {call.count, call.dtype, call.root});
  const std::string refusal = call.refusal(1);
  if (!refusal.empty()) refuse_call(refusal);
  run_alone(call);
}

void SoloGroup::all_reduce(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                           nxd_reduce_t reduce) {
  run({Operation::kAllReduce, send, recv, count, dtype, reduce});
}

void SoloGroup::all_gather(const void* send, void* recv, size_t count, nxd_dtype_t dtype) {
  run({Operation::kAllGather, send, recv, count, dtype});
}

void SoloGroup::reduce_scatter(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                               nxd_reduce_t reduce) {
  run({Operation::kReduceScatter, send, recv, count, dtype, reduce});
}

void SoloGroup::broadcast(void* buffer, size_t count, nxd_dtype_t dtype, int root) {
  run({Operation::kBroadcast, nullptr, buffer, count, dtype, NXD_REDUCE_INVALID, root});
}

void SoloGroup::all_to_all(const void* send, void* recv, size_t count, nxd_dtype_t dtype) {
  run({Operation::kAllToAll, send, recv, count, dtype});
}

void SoloGroup::barrier() { run({Operation::kBarrier}); }

void SoloGroup::send(const void*, size_t count, nxd_dtype_t dtype, int to, int) {
  const GroupMonitor::Call started(*monitor_, "send", Kind::kMessage, {count, dtype, to});
  refuse_call(text("to: expected another rank of the group, got ", to, " in a group of one"));
}

void SoloGroup::receive(void*, size_t count, nxd_dtype_t dtype, int from, int) {
  const GroupMonitor::Call started(*monitor_, "receive", Kind::kMessage, {count, dtype, from});
  refuse_call(text("from: expected another rank of the group, got ", from, " in a group of one"));
}

void SoloGroup::refuse(const char* operation, const std::string& reason) {
  const GroupMonitor::Call started(*monitor_, operation);
  refuse_call(reason);
}

}  // namespace nxd
