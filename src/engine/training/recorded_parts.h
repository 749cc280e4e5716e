#pragma once

#include <memory>
#include <vector>

#include "core/optim/bucket_plan.h"
#include "engine/device/recording.h"

namespace nxd {

// A parameter whose sharded update every rank records alike, with its part of one size, so that a
// plug-in may run the graphs of all ranks as replicas of one program: see BucketPlan::Parts. The
// number of the part, in which ranks differ, is an input of the graph.
class RecordedParts {
 public:
  RecordedParts(const BucketPlan& plan, size_t bucket, std::shared_ptr<ProcessGroup> ranks);

  size_t parameter() const { return parameter_; }
  // Where this rank's part begins: the parameter's end where it is padding alone.
  int64_t begin() const;

  // This rank's part of the gradient that the ranks have together; padding is zeros.
  DeviceValuePtr scatter(const DeviceValuePtr& gradient, nxd_reduce_t reduce) const;
  // This rank's part of values.
  DeviceValuePtr own_part(const DeviceValuePtr& values) const;
  // The parts of all ranks, in the memory of the values.
  DeviceValuePtr gather(const DeviceValuePtr& part, const DeviceValuePtr& values) const;

 private:
  std::shared_ptr<ProcessGroup> group_;
  size_t parameter_;
  int64_t count_;  // elements of the parameter
  int64_t part_;   // of a part
};

}  // namespace nxd
