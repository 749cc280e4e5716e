#pragma once

#include <string>

#include "core/comm/call_header.h"
#include "core/comm/monitor/group_monitor.h"

namespace nxd {

// Arguments of a collective as the caller gave them.
struct CollectiveCall {
  Operation operation;
  const void* send = nullptr;
  void* recv = nullptr;  // also the buffer of a broadcast
  size_t count = 0;
  nxd_dtype_t dtype = NXD_DTYPE_INVALID;
  nxd_reduce_t reduce = NXD_REDUCE_INVALID;
  int root = -1;

  // Why these arguments cannot be carried out in a group of this size; "" when they can.
  std::string refusal(int size) const;
  CallHeader header(uint64_t sequence) const;
  // Bytes of so many times count elements; 0 for arguments that make no sense.
  size_t bytes(size_t times) const;
};

// The same for the buffer of a send or receive.
std::string message_refusal(const void* buffer, size_t count, nxd_dtype_t dtype);
// Fails with INVALID_ARGUMENT unless peer is another rank of the group and tag is one.
void check_peer(const GroupMonitor& monitor, const char* argument, int peer, int rank, int size,
                int tag);

// Carries out a collective in a group of one rank. The call must not be one to refuse.
void run_alone(const CollectiveCall& call);

}  // namespace nxd
