#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/exchanged_buffer.h"
#include "core/comm/process_group.h"
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
// Gradients are views of the buckets (bucket_views: bucket_view() says where, and the source's
// buffers() must point there by the time a parameter is marked), or they lie with their owner and
// pass through a bounded number of staging buckets, each way.
class GradientReducer {
 public:
  struct Options {
    int64_t bucket_bytes = int64_t{25} << 20;
    nxd_reduce_t reduce = NXD_REDUCE_SUM;
    bool scatter = false;       // each rank gets its part of every bucket, and nothing else
    bool overlap = true;        // buckets start when they are full; else in wait()
    bool bucket_views = false;  // as DistributedDataParallel's gradient_as_bucket_view
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

  // The place of a gradient that is a view of its bucket; null for an empty parameter.
  void* bucket_view(size_t parameter) const;

  // INVALID_STATE when it is marked already.
  void mark_ready(size_t parameter);
  // The parameter took no part on this rank: zeros.
  void mark_unused(size_t parameter);
  // In this step: after a call that was rejected, or a loss, whatever comes begins another.
  bool is_marked(size_t parameter) const { return marked_[parameter] != 0 && !is_over(); }
  // This step's reduction has read the parameter's gradient, or may read or write it from now on.
  // Its owner may move any other.
  bool uses(size_t parameter) const;
  // It uses one of them at least.
  bool under_way() const;

  // Starts the buckets that have not started, so that all ranks are at the same place among the
  // group's collectives. Before wait(), when there are others to call in between.
  void start_rest();
  // Takes the memory that wait() needs, as ranks do before they agree on the end of a step. It is
  // let go when the step ends, or stays open.
  void reserve();

  // After a call that was rejected, on all ranks: what is under way ends, and the step stays open.
  // Another call goes on with its gradients as they are now, which may be reduced. A mark, or a
  // gradient that was written or moved since, begins a new step. Ranks may see that differently, so
  // that no bucket of the new step starts before they have compared it.
  void keep_open() noexcept;
  // How far a step is that was kept open, for ranks to compare. After start_rest().
  int open_place() const;
  // Ends what keep_open() has begun: a new step for all ranks, where they are not alike or have
  // begun one.
  void settle(bool alike) noexcept;

  // Ends a step that is not to be completed: starts the buckets whose parameters are all marked, so
  // that ranks with the same marks have started the same ones, waits for these and forgets marks.
  void abandon() noexcept;
  // The step is lost on this rank, which may have started other buckets than its peers: it stays as
  // it is until its end, which fails on all ranks, or until another begins. Nothing is lost without
  // overlap, and of a step that was kept open only marks.
  void lose(const char* why) noexcept;
  // The same as another begins: rejects the buckets that have not started, so that ranks with other
  // marks are at the same place among the group's collectives, and ends the step.
  void drop(const char* why) noexcept;
  // "" unless it is lost.
  const std::string& why_lost() const { return lost_; }

  // A pass over all parameters has ended well, and no other is to come before the step's end.
  void set_passed() { passed_ = true; }
  bool passed() const { return passed_; }
  bool kept_open() const { return kept_open_; }

  // Completes the reduction of this step. Gives for each parameter whether it took part on any rank
  // of the data and tensor groups; those that did have gradients on every rank afterwards.
  // A failure leaves the reducer ready for a next step, as far as the group is.
  // same_used_map: ranks of these groups have agreed that they have the same used_map().
  const std::vector<char>& wait(bool same_used_map);
  // The rest of the step has ended well, too.
  void set_finished() { unfinished_ = false; }
  // True after a mark, and after a reduction or a step that has failed, until set_finished(): some
  // gradients may not be reduced, and no update may use them.
  bool unfinished() const { return unfinished_; }
  // By parameter: this rank has a gradient in this step so far.
  const std::vector<char>& used_map();

  // The outcome of wait() is for an update that comes later, until the next mark or wait().
  void keep_for_update() { kept_for_update_ = true; }
  // By parameter: such an update has a gradient for it.
  const std::vector<char>& used_by_update() { return kept_for_update_ ? present_ : used_map(); }

  uint64_t buffer_bytes() const;

 private:
  // A bucket whose reduction has begun.
  struct Flight {
    size_t bucket;
    char* data;  // of the bucket
    std::shared_ptr<Work> work;
  };

  // The marks are those of a step that was kept open, or is lost, and this rank has begun no other
  // since.
  bool is_over() const { return (kept_open_ && !begun_anew_) || !lost_.empty(); }
  bool alone() const { return !group_ || group_->size() == 1; }
  size_t bytes_of(size_t bucket, int64_t elements) const;
  // The one gradient of such a bucket is reduced where it lies.
  bool is_direct(size_t bucket) const;
  void make_buffers();
  void let_go_of_staging() noexcept;
  uint64_t hash_of_gradients();
  void begin_anew() noexcept;
  void mark(size_t parameter, bool used);
  void exchange_used_map();
  void make_missing_gradients();
  void start_full_buckets();
  void start_all_buckets();
  void reject_rest() noexcept;
  void start(size_t bucket);
  void fill(size_t bucket, char* data);
  Call call_for(size_t bucket, char* data) const;
  char* take_staging();
  void give_back_staging(size_t bucket, char* data);
  void land_first();
  void copy_out(size_t bucket, const char* data);
  void reset() noexcept;
  template <class Function>
  void or_reset(Function&& function);

  std::shared_ptr<ParameterSource> source_;
  Options options_;
  std::shared_ptr<ProcessGroup> group_;
  BucketPlan plan_;
  std::vector<ExchangedBuffer> buckets_;  // of each bucket, or none
  std::vector<ExchangedBuffer> staging_;
  std::vector<char*> free_staging_;

  std::vector<char> marked_, unused_;
  std::vector<size_t> unmarked_;  // of each bucket: how many are
  std::vector<char> own_;         // this rank has a gradient; known once the bucket is filled
  std::vector<char> present_;     // of the last wait()
  bool kept_for_update_ = false;  // present_ is
  bool unfinished_ = false;
  size_t next_ = 0;              // bucket to start
  bool kept_open_ = false;       // by a call that was rejected
  bool begun_anew_ = false;      // since then
  uint64_t left_gradients_ = 0;  // their hash then
  bool passed_ = false;
  std::string lost_;
  std::deque<Flight> flights_;
};

}  // namespace nxd
