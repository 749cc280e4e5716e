#pragma once

#include <memory>
#include <vector>

#include "core/optim/bucket_plan.h"
#include "core/optim/parameter_source.h"

namespace nxd {

// Hands the parts of parameters that each rank has updated to all others: the second half of a
// sharded update.
//
// Values are views of buckets of the gradients' plan (bucket_view() says where), or they lie with
// their owner and pass through one staging bucket. Buckets that are in shared memory are written by
// every rank in place, at peer_copies(), so that nothing is left to move.
class ParameterGather {
 public:
  ParameterGather(std::shared_ptr<ParameterSource> source, const BucketPlan& plan,
                  bool bucket_views);
  ~ParameterGather();
  ParameterGather(const ParameterGather&) = delete;
  ParameterGather& operator=(const ParameterGather&) = delete;

  // The place of a value in its bucket; null for an empty parameter, and when values are no views.
  void* bucket_view(size_t parameter) const;

  // A barrier: from now on until gather() each rank writes to its parts. Collective.
  void begin();
  // True if others write into this rank's values, from when they have begun.
  bool has_peer_copies() const;
  // Another rank's copies of a bucket, in this process; empty where gather() moves the data.
  const std::vector<void*>& peer_copies(size_t bucket) const;
  // Completes the values of all parameters. Collective.
  void gather();
  // In place of it: the peers wait for this rank's parts, which will not come.
  void reject(const char* reason) noexcept;

  uint64_t buffer_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nxd
