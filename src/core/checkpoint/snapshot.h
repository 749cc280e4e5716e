#pragma once

#include <string>
#include <vector>

#include "core/checkpoint/checkpoint_manifest.h"
#include "core/comm/process_group.h"

namespace nxd {

// Values as they were at one moment, which a checkpoint writes as one file. Their owner may change
// them meanwhile.
class Snapshot {
 public:
  virtual ~Snapshot() = default;
  // The groups that write() uses; null ones have one rank. Nothing else may use them meanwhile.
  virtual std::vector<ProcessGroup*> groups() const = 0;
  // Collective over these, on any thread. After a failure it may be called again. Gives the files
  // of values that this rank wrote, each of which is on the disk; they stand beside path.
  virtual std::vector<CheckpointFile> write(const std::string& path) = 0;
};

}  // namespace nxd
