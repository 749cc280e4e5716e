#include "core/comm/solo_group.h"

namespace nxd {

SoloGroup::SoloGroup(std::shared_ptr<const LinkShared> shared, std::string name, int world_rank)
    : shared_(std::move(shared)), name_(std::move(name)), ranks_{world_rank} {}

void SoloGroup::fail_call(nxd_status_t status, const char* operation,
                          const std::string& message) const {
  throw Error(status,
              text(operation, " on group \"", name_, "\" (rank 0 of 1, world rank ", ranks_[0],
                   "): ", message),
              {status == NXD_ERROR_INVALID_ARGUMENT ? ranks_[0] : -1, sequence_, name_, operation});
}

void SoloGroup::check_usable(const char* operation) const {
  if (shared_->stamp.is_foreign()) {
    fail_call(NXD_ERROR_INVALID_STATE, operation,
              "this process was forked from the one that made "
              "the context; groups cannot be used in it");
  }
  if (aborted_) fail_call(NXD_ERROR_ABORTED, operation, "the group was aborted");
  if (shared_->finalized) {
    fail_call(NXD_ERROR_INVALID_STATE, operation, "the context was finalized");
  }
  if (const auto loss = shared_->board->loss()) {
    throw Error(loss->status,
                text(operation, " on group \"", name_, "\": rank ", loss->rank, " ", loss->reason),
                {loss->rank, sequence_, name_, operation});
  }
}

void SoloGroup::run(const CollectiveCall& call) {
  const char* operation = operation_name(call.operation);
  check_usable(operation);
  const std::string refusal = call.refusal(1);
  if (!refusal.empty()) fail_call(NXD_ERROR_INVALID_ARGUMENT, operation, refusal);
  run_alone(call);
  ++sequence_;
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

void SoloGroup::send(const void*, size_t, nxd_dtype_t, int to, int) {
  check_usable("send");
  fail_call(NXD_ERROR_INVALID_ARGUMENT, "send",
            text("to: expected another rank of the group, got ", to, " in a group of one"));
}

void SoloGroup::receive(void*, size_t, nxd_dtype_t, int from, int) {
  check_usable("receive");
  fail_call(NXD_ERROR_INVALID_ARGUMENT, "receive",
            text("from: expected another rank of the group, got ", from, " in a group of one"));
}

void SoloGroup::refuse(const char* operation, const std::string& reason) {
  check_usable(operation);
  fail_call(NXD_ERROR_INVALID_ARGUMENT, operation, reason);
}

}  // namespace nxd
