#pragma once

#include <string>

#include "core/comm/call_header.h"
#include "core/comm/monitor/group_monitor.h"

namespace nxd {

// One call on a group, with its arguments as the caller gave them, good or bad. It is packed once,
// and handed on as it is: from the C boundary, or a caller of the library's own, to the transport.
struct Call {
  Operation operation = Operation::kReject;
  const void* send = nullptr;
  void* recv = nullptr;  // also the buffer of a broadcast
  size_t count = 0;
  nxd_dtype_t dtype = NXD_DTYPE_INVALID;
  nxd_reduce_t reduce = NXD_REDUCE_INVALID;
  int peer = -1;  // root, to or from: a rank in the group
  int tag = -1;
  const char* label = nullptr;  // in place of the operation's name
  std::string rejected = {};    // why this rank rejects the call, whatever the rest says
  uint64_t key = 0;             // compared between ranks; 0: none

  static Call all_reduce(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                         nxd_reduce_t reduce) {
    return {Operation::kAllReduce, send, recv, count, dtype, reduce};
  }
  static Call all_gather(const void* send, void* recv, size_t count, nxd_dtype_t dtype) {
    return {Operation::kAllGather, send, recv, count, dtype};
  }
  static Call reduce_scatter(const void* send, void* recv, size_t count, nxd_dtype_t dtype,
                             nxd_reduce_t reduce) {
    return {Operation::kReduceScatter, send, recv, count, dtype, reduce};
  }
  static Call broadcast(void* buffer, size_t count, nxd_dtype_t dtype, int root) {
    return {Operation::kBroadcast, nullptr, buffer, count, dtype, NXD_REDUCE_INVALID, root};
  }
  static Call all_to_all(const void* send, void* recv, size_t count, nxd_dtype_t dtype) {
    return {Operation::kAllToAll, send, recv, count, dtype};
  }
  static Call barrier() { return {Operation::kBarrier}; }
  static Call send_to(const void* buffer, size_t count, nxd_dtype_t dtype, int to, int tag) {
    return {Operation::kSend, buffer, nullptr, count, dtype, NXD_REDUCE_INVALID, to, tag};
  }
  static Call receive_from(void* buffer, size_t count, nxd_dtype_t dtype, int from, int tag) {
    return {Operation::kReceive, nullptr, buffer, count, dtype, NXD_REDUCE_INVALID, from, tag};
  }
  // The next collective, whichever it is: for ranks that reject it before they can name it.
  static Call named(const char* label) {
    Call call;
    call.label = label;
    return call;
  }

  const char* name() const noexcept { return label ? label : operation_name(operation); }
  bool is_message() const noexcept { return nxd::is_message(operation); }
  // The data that this rank sends.
  const void* data() const noexcept { return operation == Operation::kBroadcast ? recv : send; }
  // Bytes of so many times count elements; 0 for arguments that make no sense.
  size_t bytes(size_t times = 1) const;

  // Why this rank of a group of so many ranks rejects the call; "" when it does not.
  std::string rejection(int rank, int size) const;
  // Fails with INVALID_ARGUMENT unless the message's peer is another rank of the group, and its tag
  // is one: no peer could be told of the rejection.
  void check_peer(const GroupMonitor& monitor, int rank, int size) const;
  // The same call in place of itself, rejected: its peers get the reason and do not wait for it.
  Call rejected_for(const std::string& why) const;

  CallHeader header(uint64_t sequence) const;
  FlightRecord::Operation record() const;
};

// Carries out a collective in a group of one rank. The call must not be one to reject.
void run_alone(const Call& call);

}  // namespace nxd
