#pragma once

#include <memory>
#include <vector>

#include "core/optim/bucket_plan.h"
#include "core/optim/parameter_source.h"

namespace nxd {

// Hands the parts of parameters that each rank has updated to all others: the second half of a
// sharded update.
//
// Values lie in buckets of the gradients' plan (resident: home() says where), or they lie with
// their owner and pass through one staging bucket. Resident buckets that are in shared memory are
// written by every rank in place, at mirrors(), so that nothing is left to move.
class ParameterGather {
 public:
  ParameterGather(std::shared_ptr<ParameterSource> source, const BucketPlan& plan, bool resident);
  ~ParameterGather();
  ParameterGather(const ParameterGather&) = delete;
  ParameterGather& operator=(const ParameterGather&) = delete;

  // The place of a resident value; null for an empty parameter, and when values are not resident.
  void* home(size_t parameter) const;

  // Meets the other ranks: from now on until gather() each writes to its parts. Collective.
  void begin();
  // Whether others write into this rank's values, from when they have begun.
  bool is_mirrored() const;
  // Another rank's copies of a bucket, in this process; empty where gather() moves the data.
  const std::vector<void*>& mirrors(size_t bucket) const;
  // Completes the values of all parameters. Collective.
  void gather();

  uint64_t buffer_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nxd
