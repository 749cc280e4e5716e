#pragma once

#include <string>

#include "core/comm/agreement.h"

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
};

// Carries out a collective in a group of one rank. The call must not be one to refuse.
void run_alone(const CollectiveCall& call);

}  // namespace nxd
