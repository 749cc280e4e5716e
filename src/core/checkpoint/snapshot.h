#pragma once

#include <string>
#include <vector>

#include "core/comm/process_group.h"

namespace nxd {

// Values as they were at one moment, which a checkpoint writes as one file. Their owner may change
// them meanwhile.
class Snapshot {
 public:
  virtual ~Snapshot() = default;
  // The groups that write() uses; null ones have one rank. Nothing else may use them meanwhile.
  virtual std::vector<ProcessGroup*> groups() const = 0;
  // Collective over these, on any thread. After a failure it may be called again.
  virtual void write(const std::string& path) = 0;
};

}  // namespace nxd
