#pragma once

#include <string>

#include "core/comm/process_group.h"

namespace nxd {

// One call on a group, with its arguments as the caller gave them.
struct GroupCall {
  Operation operation;
  const void* send = nullptr;
  void* recv = nullptr;  // also the buffer of a broadcast
  size_t count = 0;
  nxd_dtype_t dtype = NXD_DTYPE_INVALID;
  nxd_reduce_t reduce = NXD_REDUCE_INVALID;
  int peer = -1;  // root, to or from
  int tag = -1;

  const char* name() const { return operation_name(operation); }
  void run(ProcessGroup& group) const;
  // Takes the call's place, so that its peers do not wait for it.
  void refuse(ProcessGroup& group, const std::string& reason) const;
};

}  // namespace nxd
