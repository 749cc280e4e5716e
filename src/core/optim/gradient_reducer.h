#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/comm/work.h"
#include "core/optim/bucket_plan.h"
#include "core/optim/parameter_source.h"

namespace nxd {

// Reduces the gradients of a source's parameters over its data-parallel group, bucket by bucket.
//
// A step: mark_ready() as gradients become complete, in any order; then wait(). Buckets start in
// the plan's order on every rank, whatever the order of marks, so that ranks agree; a bucket starts
// when all of its parameters are marked and the bucket before it has started. wait() starts the
// rest. All calls come from one thread.
//
// Gradients lie in the buckets themselves (resident: home() says where, and the source's buffers()
// must point there by the time a parameter is marked), or they lie with their owner and pass
// through a bounded number of staging buckets, each way.
class GradientReducer {
 public:
  struct Options {
    int64_t bucket_bytes = int64_t{25} << 20;
    nxd_reduce_t reduce = NXD_REDUCE_SUM;
    bool scatter = false;  // each rank gets its part of every bucket, and nothing else
    bool overlap = true;   // buckets start when they are full; else in wait()
    bool resident = false;
  };
  GradientReducer(std::shared_ptr<ParameterSource> source, const Options& options);
  // Waits for what is under way, whatever its outcome: the buffers are others' afterwards.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  const BucketPlan& plan() const { return plan_; }
  const Options& options() const { return options_; }
  // The part of every bucket that is this rank's when scattered: its place in the group.
  int part() const;

  // Where a resident gradient is to be; null for an empty parameter.
  void* home(size_t parameter) const;

  // INVALID_STATE when it is marked already.
  void mark_ready(size_t parameter);
  // The parameter took no part on this rank: zeros.
  void mark_unused(size_t parameter);
  bool is_marked(size_t parameter) const { return marked_[parameter] != 0; }
  bool under_way() const;  // something is marked, and wait() has not been called since

  // Completes the reduction of this step. Gives for each parameter whether it took part on any rank
  // of the data and tensor groups; those that did have gradients on every rank afterwards.
  // A failure leaves the reducer ready for a next step, as far as the group is.
  const std::vector<char>& wait();

  uint64_t buffer_bytes() const;

 private:
  std::shared_ptr<ParameterSource> source_;
  Options options_;
  BucketPlan plan_;
  std::vector<char> marked_;
};

}  // namespace nxd
