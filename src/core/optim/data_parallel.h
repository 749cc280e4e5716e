#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/agree/agree.h"
#include "core/layout/shard_options.h"
#include "core/optim/gradient_finish.h"
#include "core/optim/gradient_reducer.h"
#include "core/optim/parameter_gather.h"
#include "core/optim/parameter_source.h"
#include "nxd.h"

namespace nxd {

// See nxd_ddp_create.
struct DataParallelOptions {
  int64_t bucket_bytes = GradientReducer::Options().bucket_bytes;
  nxd_reduce_t reduce = NXD_REDUCE_SUM;
  int zero_stage = 0;
  bool fp32_grads = false;
  bool overlap = true;
  bool broadcast = true;
};

// A set of parameters, their gradients' reduction and, with ZeRO stage 1, the gathering of their
// values. Optimizers share its parts and may outlive it.
class DataParallel {
 public:
  DataParallel() = default;
  virtual ~DataParallel() = default;
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  const std::shared_ptr<ParameterSource>& source() const { return source_; }
  const std::shared_ptr<GradientReducer>& reducer() const { return reducer_; }
  // Null but for ZeRO stage 1.
  const std::shared_ptr<ParameterGather>& gather() const { return gather_; }

  // False: gradients add up, and none is reduced.
  bool sync() const { return sync_ && !holds_; }
  void set_sync(bool sync) { sync_ = sync; }
  // A pipeline's part in it: true for all microbatches of a run but the last.
  void set_holds(bool holds) { holds_ = holds; }
  uint64_t buffer_bytes() const;

  // A pipeline's training run begins, whose last microbatch completes the step's gradients, or is
  // rejected before that. Copies' runs take the same calls of the group, wherever one fails. False:
  // reject_run() has nothing to do, for this run reduces none, or it is rejected in a step that
  // another has reduced.
  virtual bool begin_run(bool /*is_rejected*/) noexcept { return false; }
  // It has ended well on this rank.
  virtual void end_run() noexcept {}
  // It has not: copies that reduce gradients are told as the step ends, or another run begins.
  virtual void reject_run(const char* /*why*/) noexcept {}

  // See nxd_ddp_mark_ready, _mark_unused, _rebind, _mark_reloaded, _set_placements and _set_shards:
  // INVALID_STATE unless parameters are a caller's buffers.
  virtual void mark_ready(size_t index);
  virtual void mark_unused(size_t index);
  virtual void rebind(size_t index, const DLTensor* param, const DLTensor* grad);
  virtual void mark_reloaded();
  virtual void set_placements(const nxd_placement_t* placements, const int32_t* dims,
                              const int32_t* tied, size_t n);
  // resolved: whether the shards are those that the caller has given.
  virtual void set_shards(const std::vector<ShardOptions>& shards, const Outcome& resolved,
                          const int32_t* partial_grads, const int32_t* tied, size_t n);

 protected:
  // The steps of making one, for subclasses. First, before anything is changed: INVALID_ARGUMENT on
  // all ranks of the group unless all gave the same options and none rejects.
  // Collective over the group.
  static void agree_on_options(ProcessGroup& group, const DataParallelOptions& options,
                               Proposal proposal);
  // Then, with the source in place: that ranks have the same parameters, the same way. Makes the
  // reducer and the gather. Gradients are views of buckets, and so are values, or they are not.
  void make_parts(const DataParallelOptions& options, bool gradient_views, bool value_views);
  // Last: the first rank's values, unless they are alike already.
  void broadcast_values(const DataParallelOptions& options);

  std::shared_ptr<ParameterSource> source_;
  std::shared_ptr<GradientReducer> reducer_;
  std::shared_ptr<ParameterGather> gather_;

 private:
  bool sync_ = true, holds_ = false;
};

// See nxd_ddp_finish. Gives the norm.
double finish(DataParallel& ddp, const FinishOptions& options);

}  // namespace nxd
