// Data parallelism by buckets, as in PyTorch's DDP (Li et al. 2020, PVLDB 13:12).
//
// A bucket is a flat buffer of the gradients of several parameters. It is reduced as one call,
// while the backward pass goes on to make the gradients of the next. Parameters fill the buckets
// from the last to the first, since a backward pass ends with the first. Every rank starts the
// buckets in the same order, whatever the order in which its gradients become complete: calls of a
// group must match.
//
// Example: three ranks; parameters p0, p1, p2 of 40, 24 and 64 elements; room for 70 in a bucket.
//   bucket 0: p2         bucket 1: p1, p0         padded to 96 elements each
//   rank 0 marks p2, p0, p1     bucket 0 starts with the first mark, bucket 1 with the third
//   rank 1 marks p1, p2, p0     bucket 0 starts with the second mark, bucket 1 with the third
//   rank 2 marks p2, p1         p0 had no part in its loss: zeros; wait() starts bucket 1
// A bucket's size divides by three into parts of whole cache lines. With scatter, rank r keeps the
// sum of part r alone, which is what ZeRO-1 needs: see parameter_gather.cpp.
#include "core/optim/gradient_reducer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/hash.h"
#include "core/comm/take_for_call.h"
#include "core/kernels/parallel.h"
#include "core/optim/step_outcome.h"

namespace nxd {
namespace {

constexpr size_t kStagingBuckets = 2;

// Tensor-parallel ranks that have the same elements of a parameter: they sum their parts of its
// gradient, or one of them writes its parts of the state. None where this rank has them alone.
std::vector<int> ranks_alike(const ParameterSource& source, const ParameterInfo& info) {
  const ProcessGroup* group = info.gradient_group.get();
  if (!group && info.is_whole) group = source.groups().tensor.get();
  return group && group->size() > 1 ? group->ranks() : std::vector<int>{};
}

// Parts must be the same on ranks that have the same elements, whose other parameters may differ in
// size, as those of unequal heads do: their buckets have no other parameters.
std::vector<BucketPlan::Parameter> sizes_of(const ParameterSource& source, bool scatter) {
  std::vector<BucketPlan::Parameter> sizes;
  std::map<std::vector<int>, int> replica_groups{{{}, 0}};
  for (size_t i = 0; i < source.size(); ++i) {
    const ParameterInfo& info = source.info(i);
    const auto next = static_cast<int>(replica_groups.size());
    const std::vector<int> ranks = scatter ? ranks_alike(source, info) : std::vector<int>{};
    const int replica_group = replica_groups.emplace(ranks, next).first->second;
    sizes.push_back({info.count(), info.grad_dtype, info.dtype, replica_group});
  }
  return sizes;
}

int ranks_of(const ParameterSource& source) {
  const auto& group = source.groups().data;
  return group ? group->size() : 1;
}

void copy(void* to, const void* from, size_t bytes) {
  kernels::parallel_ranges(static_cast<int64_t>(bytes), 1, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                static_cast<size_t>(end - begin));
  });
}

void clear(void* data, size_t bytes) {
  kernels::parallel_ranges(static_cast<int64_t>(bytes), 1, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(data) + begin, 0, static_cast<size_t>(end - begin));
  });
}

}  // namespace

GradientReducer::GradientReducer(std::shared_ptr<ParameterSource> source, const Options& options)
    : source_(std::move(source)),
      options_(options),
      group_(source_->groups().data),
      plan_(sizes_of(*source_, options.scatter), options.bucket_bytes, ranks_of(*source_),
            options.scatter && source_->wants_parts_alike() ? BucketPlan::Parts::kAlike
                                                            : BucketPlan::Parts::kWholeLines),
      marked_(source_->size()),
      unused_(source_->size()),
      unmarked_(plan_.buckets().size()),
      own_(source_->size()),
      present_(source_->size()) {
  if (options_.bucket_views || options_.overlap) make_buffers();
  reset();
}

GradientReducer::~GradientReducer() { abandon(); }

int GradientReducer::part() const { return alone() ? 0 : group_->rank(); }

size_t GradientReducer::bytes_of(size_t bucket, int64_t elements) const {
  return static_cast<size_t>(elements) * dtype_size(plan_.buckets()[bucket].dtype);
}

bool GradientReducer::is_direct(size_t bucket) const {
  return !options_.bucket_views && !options_.scatter && plan_.buckets()[bucket].items.size() == 1;
}

void GradientReducer::make_buffers() {
  size_t staged = 0, most = 0;
  for (size_t bucket = 0; bucket < plan_.buckets().size(); ++bucket) {
    const size_t bytes = bytes_of(bucket, plan_.buckets()[bucket].size);
    if (options_.bucket_views) {
      check_internal(group_ != nullptr, "gradients in buckets need a group");
      buckets_.emplace_back(*group_, bytes);
      clear(buckets_.back().data(), bytes);
    } else if (!alone() && !is_direct(bucket)) {
      ++staged;
      most = std::max(most, bytes);
    }
  }
  staged = std::min(staged, options_.overlap ? kStagingBuckets : 1);
  free_staging_.reserve(staged);  // so that a bucket that comes back takes no memory
  while (staging_.size() < staged) {
    staging_.emplace_back(*group_, most);
    free_staging_.push_back(staging_.back().data());
  }
}

void* GradientReducer::bucket_view(size_t parameter) const {
  const int bucket = plan_.bucket_of(parameter);
  if (buckets_.empty() || bucket < 0) return nullptr;
  const auto b = static_cast<size_t>(bucket);
  return buckets_[b].data() + bytes_of(b, plan_.offset_of(parameter));
}

uint64_t GradientReducer::buffer_bytes() const {
  uint64_t bytes = 0;
  for (const auto* buffers : {&buckets_, &staging_}) {
    for (const ExchangedBuffer& buffer : *buffers) bytes += buffer.bytes();
  }
  return bytes;
}

void GradientReducer::reserve() {
  const bool comes_late = !options_.overlap && !options_.bucket_views;
  if (!comes_late || alone() || !staging_.empty()) return;
  try {
    make_buffers();
  } catch (...) {
    let_go_of_staging();  // some of it would pass for all
    throw;
  }
}

// With overlap it was taken for good.
void GradientReducer::let_go_of_staging() noexcept {
  free_staging_.clear();
  if (!options_.overlap) staging_.clear();
}

// Ends works, and forgets marks. Buffers are the caller's again afterwards: works that have not
// begun are cancelled, the last first, so that none begins meanwhile.
void GradientReducer::reset() noexcept {
  while (!flights_.empty()) {
    flights_.back().work->release();
    flights_.pop_back();
  }
  let_go_of_staging();
  for (const ExchangedBuffer& buffer : staging_) free_staging_.push_back(buffer.data());
  std::fill(marked_.begin(), marked_.end(), char{0});
  std::fill(unused_.begin(), unused_.end(), char{0});
  for (size_t bucket = 0; bucket < unmarked_.size(); ++bucket) {
    unmarked_[bucket] = plan_.buckets()[bucket].items.size();
  }
  next_ = 0;
  kept_open_ = begun_anew_ = passed_ = false;
  lost_.clear();
}

// It follows from their values, and from where they lie.
uint64_t GradientReducer::hash_of_gradients() {
  Hash hash;
  for (size_t i = 0; i < source_->size(); ++i) {
    const ParameterInfo& info = source_->info(i);
    const auto* grad = static_cast<const char*>(source_->buffers(i).grad);
    hash.add(reinterpret_cast<uintptr_t>(grad));
    const size_t bytes = static_cast<size_t>(info.count()) * dtype_size(info.grad_dtype);
    for (size_t at = 0; grad && at < bytes; at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, grad + at, std::min(sizeof word, bytes - at));
      hash.add(word);
    }
  }
  return hash.value();
}

void GradientReducer::keep_open() noexcept {
  try {
    while (!flights_.empty()) land_first();
    if (!options_.overlap) let_go_of_staging();
    left_gradients_ = hash_of_gradients();
    kept_open_ = true;
    begun_anew_ = false;
  } catch (...) {
    unfinished_ = true;
    reset();
  }
}

void GradientReducer::begin_anew() noexcept {
  reset();
  kept_open_ = begun_anew_ = true;
}

// A rank that had begun anew has not reduced, if that call was rejected too, what another has.
int GradientReducer::open_place() const {
  if (!kept_open_) return 0;
  return begun_anew_ ? 1 : next_ == 0 ? 2 : 3;
}

void GradientReducer::settle(bool alike) noexcept {
  if (!alike && !begun_anew_) reset();
  kept_open_ = begun_anew_ = false;
}

void GradientReducer::abandon() noexcept {
  unfinished_ = true;
  try {
    // Peers may have had the staging buckets in time that this rank has had to wait for.
    const bool may_start = options_.overlap && !alone() && !kept_open_;
    while (may_start && next_ < unmarked_.size() && unmarked_[next_] == 0) start(next_++);
  } catch (...) {
    // The group has failed, and no peer waits for more.
  }
  for (const Flight& flight : flights_) {
    try {
      flight.work->wait(-1);
    } catch (...) {
      // reset() ends what an interrupt has left.
    }
  }
  reset();
}

// Does not wait in between: a peer may be elsewhere, and come to all of them at once.
void GradientReducer::reject_rest() noexcept {
  try {
    const Call call =
        Call::named(options_.scatter ? "reduce_scatter" : "all_reduce").rejected_for(lost_);
    for (; next_ < unmarked_.size(); ++next_) {
      flights_.push_back({next_, nullptr, nullptr});
      flights_.back().work = group_->start(call, Work::Bound::kFromWait);
    }
  } catch (...) {
    // Without a thread for them there is only the group's end to tell the peers.
    if (!flights_.empty() && !flights_.back().work) flights_.pop_back();
    group_->abort();
    next_ = unmarked_.size();
  }
}

void GradientReducer::lose(const char* why) noexcept {
  unfinished_ = true;
  if (kept_open_) return begin_anew();
  if (!options_.overlap || alone() || !lost_.empty()) return;
  try {
    lost_ = text("the gradients of this step are lost: ", why);
  } catch (const std::bad_alloc&) {
    lost_ = "no memory";  // which needs none
  }
}

void GradientReducer::drop(const char* why) noexcept {
  lose(why);
  if (kept_open_) return;
  if (!lost_.empty()) reject_rest();
  abandon();
}

template <class Function>
void GradientReducer::or_reset(Function&& function) {
  try {
    function();
  } catch (...) {
    unfinished_ = true;
    reset();
    rethrow_with_parameters(source_->step(), NXD_PARAMETER_STATE_OLD);
  }
}

void GradientReducer::mark_ready(size_t parameter) { mark(parameter, true); }

void GradientReducer::mark_unused(size_t parameter) { mark(parameter, false); }

void GradientReducer::mark(size_t parameter, bool used) {
  check_argument(parameter < marked_.size(), "index: expected less than ", marked_.size(),
                 " parameters, got ", parameter);
  if (!lost_.empty()) drop("another step begins");
  if (is_over()) begin_anew();
  check_state(!marked_[parameter], "parameter ", source_->info(parameter).name,
              ": its gradient was marked in this step already");
  kept_for_update_ = false;
  unfinished_ = true;
  marked_[parameter] = 1;
  unused_[parameter] = used ? 0 : 1;
  const int bucket = plan_.bucket_of(parameter);
  if (bucket >= 0) --unmarked_[static_cast<size_t>(bucket)];
  if (!options_.overlap || alone() || kept_open_) return;
  or_reset([&] { start_full_buckets(); });
}

bool GradientReducer::uses(size_t parameter) const {
  if (kept_open_ && !begun_anew_) return false;
  const int bucket = plan_.bucket_of(parameter);
  return marked_[parameter] || (bucket >= 0 && static_cast<size_t>(bucket) < next_);
}

bool GradientReducer::under_way() const {
  return next_ > 0 || std::find(marked_.begin(), marked_.end(), 1) != marked_.end();
}

// Buckets with a place of their own may end as late as in wait(): a peer that has rejected one does
// not end a pass that is good here.
void GradientReducer::start_full_buckets() {
  const bool may_land = !options_.bucket_views;
  while (may_land && !flights_.empty() && flights_.front().work->is_done()) land_first();
  while (next_ < unmarked_.size() && unmarked_[next_] == 0) {
    // Rather than to wait here for a staging bucket, this one starts at a later mark.
    if (!options_.bucket_views && !is_direct(next_) && free_staging_.empty()) return;
    start(next_++);
  }
}

void GradientReducer::start_all_buckets() {
  while (next_ < unmarked_.size()) start(next_++);
}

void GradientReducer::start_rest() {
  if (!lost_.empty()) return reject_rest();
  if (is_over() && hash_of_gradients() != left_gradients_) begin_anew();
  if (!options_.overlap || alone() || kept_open_) return;
  or_reset([&] { start_all_buckets(); });
}

const std::vector<char>& GradientReducer::wait(bool same_used_map) {
  kept_for_update_ = false;
  unfinished_ = true;
  or_reset([&] {
    const bool overlaps = options_.overlap && !alone();
    // The used map comes behind them: ranks have started different numbers before they came here.
    if (overlaps) start_all_buckets();
    present_ = used_map();
    if (!same_used_map) exchange_used_map();
    if (overlaps) {
      while (!flights_.empty()) land_first();
      make_missing_gradients();
      return;
    }
    if (!options_.bucket_views) {
      const bool is_reduced = !alone() && !plan_.buckets().empty();
      take_for_call(is_reduced ? group_.get() : nullptr, "reduction of gradients", [&] {
        make_missing_gradients();
        if (is_reduced) reserve();
      });
    }
    start_all_buckets();
    // Not before: an owner of gradients takes what lies in the bucket for one.
    if (options_.bucket_views) make_missing_gradients();
  });
  reset();
  return present_;
}

const std::vector<char>& GradientReducer::used_map() {
  for (size_t i = 0; i < own_.size(); ++i) {
    const int bucket = plan_.bucket_of(i);
    const bool filled = bucket >= 0 && static_cast<size_t>(bucket) < next_;
    // One whose bucket has started may have been frozen, or forgotten, since.
    const bool had_one = filled ? own_[i] != 0 : unused_[i] == 0;
    own_[i] = had_one && source_->buffers(i).grad ? 1 : 0;
  }
  return own_;
}

void GradientReducer::exchange_used_map() {
  std::vector<int32_t> present(own_.begin(), own_.end());
  const OptimizerGroups& groups = source_->groups();
  for (ProcessGroup* group : {groups.tensor.get(), groups.data.get()}) {
    if (!group || group->size() == 1) continue;
    group->run(Call::all_reduce(present.data(), present.data(), present.size(), NXD_DTYPE_I32,
                                NXD_REDUCE_MAX));
  }
  present_.assign(present.begin(), present.end());
}

// A rank alone has no bucket that takes zeros in the place of a gradient that does not count.
void GradientReducer::make_missing_gradients() {
  for (size_t i = 0; i < present_.size(); ++i) {
    const bool is_ignored = alone() && unused_[i] != 0;
    if (present_[i] && (is_ignored || !source_->buffers(i).grad)) source_->make_zero_gradient(i);
  }
}

// The group's call for a bucket. A scattered one leaves this rank's part in place.
Call GradientReducer::call_for(size_t bucket, char* data) const {
  const BucketPlan::Bucket& b = plan_.buckets()[bucket];
  if (!options_.scatter) {
    return {Operation::kAllReduce,       data,    data,
            static_cast<size_t>(b.used), b.dtype, options_.reduce};
  }
  const int64_t size = plan_.part_size(bucket);
  return {Operation::kReduceScatter, data,    data + bytes_of(bucket, part() * size),
          static_cast<size_t>(size), b.dtype, options_.reduce};
}

void GradientReducer::start(size_t bucket) {
  if (alone()) {
    if (options_.bucket_views) fill(bucket, buckets_[bucket].data());
    return;
  }
  char* data = nullptr;
  if (options_.bucket_views) {
    data = buckets_[bucket].data();
  } else if (is_direct(bucket)) {
    data = static_cast<char*>(source_->buffers(plan_.buckets()[bucket].items[0].parameter).grad);
    check_internal(data || !options_.overlap, "a gradient is missing");
    if (!data) return;  // no rank has one, or it would have been made
  } else {
    data = take_staging();
  }
  fill(bucket, data);
  const Call call = call_for(bucket, data);
  if (options_.overlap) {
    // Its place comes first: a work that is not kept could not be waited for.
    flights_.push_back({bucket, data, nullptr});
    try {
      flights_.back().work = group_->start(call);
    } catch (...) {
      flights_.pop_back();
      throw;
    }
    return;
  }
  group_->run(call);
  copy_out(bucket, data);
  give_back_staging(bucket, data);
}

char* GradientReducer::take_staging() {
  while (free_staging_.empty()) land_first();
  char* data = free_staging_.back();
  free_staging_.pop_back();
  return data;
}

void GradientReducer::give_back_staging(size_t bucket, char* data) {
  if (!options_.bucket_views && !is_direct(bucket)) free_staging_.push_back(data);
}

void GradientReducer::fill(size_t bucket, char* data) {
  const BucketPlan::Bucket& b = plan_.buckets()[bucket];
  for (const BucketPlan::Item& item : b.items) {
    const size_t i = item.parameter, bytes = bytes_of(bucket, item.count);
    const void* grad = source_->buffers(i).grad;
    own_[i] = grad && !unused_[i] ? 1 : 0;
    char* to = data + bytes_of(bucket, item.offset);
    if (!own_[i]) {
      clear(to, bytes);
    } else if (grad != to) {
      check_internal(!options_.bucket_views, source_->info(i).name,
                     ": its gradient is not in its bucket");
      copy(to, grad, bytes);
    }
  }
  if (options_.bucket_views || !options_.scatter) return;
  clear(data + bytes_of(bucket, b.used), bytes_of(bucket, b.size - b.used));
}

// Waits for the first bucket that is under way, and takes its result.
void GradientReducer::land_first() {
  const Flight flight = flights_.front();
  try {
    flight.work->wait(-1);
  } catch (...) {
    // An interrupt leaves the work as it is, and no thread would wait for it any more.
    if (!flight.work->is_done()) group_->end_works();
    throw;
  }
  flights_.pop_front();
  copy_out(flight.bucket, flight.data);
  give_back_staging(flight.bucket, flight.data);
}

void GradientReducer::copy_out(size_t bucket, const char* data) {
  if (options_.bucket_views || is_direct(bucket)) return;
  const auto segments = options_.scatter ? plan_.part(bucket, part()) : plan_.full(bucket);
  for (const BucketPlan::Segment& segment : segments) {
    char* grad = static_cast<char*>(source_->buffers(segment.parameter).grad);
    if (!grad) {
      check_internal(!options_.overlap, source_->info(segment.parameter).name, ": no gradient");
      continue;  // no rank has one
    }
    copy(grad + bytes_of(bucket, segment.parameter_offset),
         data + bytes_of(bucket, segment.bucket_offset), bytes_of(bucket, segment.count));
  }
}

}  // namespace nxd
