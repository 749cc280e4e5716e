#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/process_group.h"

namespace nxd {

// A value that all ranks of some groups must have given alike, such as an option.
struct AgreedValue {
  const char* name;
  double value;  // not NaN
};

// Why this rank cannot take part in what others may be waiting for; "" when it can.
struct OwnRefusal {
  OwnRefusal(std::string reason) : why(std::move(reason)) {}
  OwnRefusal(const char* reason) : why(reason) {}
  OwnRefusal(std::string reason, nxd_status_t of) : why(std::move(reason)), status(of) {}

  std::string why;
  nxd_status_t status = NXD_ERROR_INVALID_ARGUMENT;  // or INVALID_STATE, UNSUPPORTED
};

// Compares what ranks were called with, over one group after another, before anything is changed.
// Every rank of the groups takes part, also one that has its own reason to refuse: all ranks fail
// together then, with its status, so that none waits for another. Differences are INVALID_ARGUMENT.
// Groups of one rank cost nothing.
void agree(const std::vector<ProcessGroup*>& groups, int world_rank,
           const std::vector<AgreedValue>& values, const OwnRefusal& own);

}  // namespace nxd
