// ZeRO stage 1 (Rajbhandari et al. 2020, arXiv:1910.02054): each rank keeps the optimizer's state
// of its part of the parameters, updates that part, and hands it to the others.
//
// A step: gradients are reduced and scattered by buckets (gradient_reducer.cpp); the norm is taken
// over all parts; every rank updates its part of each bucket; this file completes the values.
//
// Example: three ranks, one bucket of 96 elements.
//   after the reduction   rank 0 has the sums of elements 0 to 31, rank 1 of 32 to 63, rank 2 of
//                         64 to 95; Adam's two moments exist for these elements alone
//   update                each rank changes its 32 elements
//   gather                an all-gather gives every rank all 96
// On one host the values can lie in shared memory. Then each rank writes every updated element into
// the buckets of all three, in the pass that computes it, and gather() is a barrier: the values
// cross memory once less. begin() keeps a rank from writing while another still reads the old
// values.
#include "core/optim/parameter_gather.h"

#include <algorithm>
#include <cstring>

#include "core/base/dtype.h"
#include "core/base/profiler.h"
#include "core/comm/exchanged_buffer.h"
#include "core/comm/memory/arena.h"
#include "core/comm/take_for_call.h"
#include "core/kernels/copy.h"

namespace nxd {

struct ParameterGather::Impl {
  std::shared_ptr<ParameterSource> source;
  BucketPlan plan;
  std::shared_ptr<ProcessGroup> group;
  // One for each bucket, or one that all pass through.
  std::vector<ExchangedBuffer> buckets;
  ExchangedBuffer staging;
  std::vector<std::vector<void*>> peer_copies;

  bool alone() const { return !group || group->size() == 1; }
  size_t part_bytes(size_t bucket) const {
    return static_cast<size_t>(plan.part_size(bucket)) *
           dtype_size(plan.buckets()[bucket].value_dtype);
  }
  size_t bucket_bytes(size_t bucket) const {
    return part_bytes(bucket) * static_cast<size_t>(plan.ranks());
  }
  void find_peer_copies();
  void gather_through_staging(size_t bucket);
  // Copies segments between their owners and a bucket.
  void move(const std::vector<BucketPlan::Segment>& segments, size_t bucket, char* data,
            bool to_bucket);
};

// All ranks come to the same end: they look at the same places, and where one of them does not see
// what its peers have, no rank has peer copies.
void ParameterGather::Impl::find_peer_copies() {
  peer_copies.resize(plan.buckets().size());
  std::vector<int32_t> seen(peer_copies.size(), 1);
  const auto size = static_cast<size_t>(group->size());
  const std::shared_ptr<Arena> arena = group->arena();
  for (size_t bucket = 0; bucket < peer_copies.size(); ++bucket) {
    const ArenaPlace own =
        arena ? arena->find(buckets[bucket].data(), bucket_bytes(bucket)) : ArenaPlace{};
    std::vector<ArenaPlace> places(size);
    group->run(Call::all_gather(&own, places.data(), sizeof own, NXD_DTYPE_U8));
    const bool shared = std::all_of(places.begin(), places.end(),
                                    [](const ArenaPlace& place) { return place.inode != 0; });
    if (!shared) continue;
    for (int rank = 0; rank < group->size(); ++rank) {
      if (rank == group->rank()) continue;
      void* memory = group->peer_memory(rank, places[static_cast<size_t>(rank)]);
      if (!memory) seen[bucket] = 0;
      peer_copies[bucket].push_back(memory);
    }
  }
  group->run(
      Call::all_reduce(seen.data(), seen.data(), seen.size(), NXD_DTYPE_I32, NXD_REDUCE_MIN));
  for (size_t bucket = 0; bucket < peer_copies.size(); ++bucket) {
    if (!seen[bucket]) peer_copies[bucket].clear();
  }
}

void ParameterGather::Impl::move(const std::vector<BucketPlan::Segment>& segments, size_t bucket,
                                 char* data, bool to_bucket) {
  const size_t size = dtype_size(plan.buckets()[bucket].value_dtype);
  for (const auto& segment : segments) {
    char* value = static_cast<char*>(source->buffers(segment.parameter).value) +
                  static_cast<size_t>(segment.parameter_offset) * size;
    char* place = data + static_cast<size_t>(segment.bucket_offset) * size;
    const size_t bytes = static_cast<size_t>(segment.count) * size;
    if (to_bucket) {
      std::memcpy(place, value, bytes);
    } else {
      std::memcpy(value, place, bytes);
    }
  }
}

void ParameterGather::Impl::gather_through_staging(size_t bucket) {
  const int own = group->rank();
  char* data = staging.data();
  move(plan.part(bucket, own), bucket, data, true);
  const auto part = static_cast<size_t>(plan.part_size(bucket));
  group->run(Call::all_gather(data + static_cast<size_t>(own) * part_bytes(bucket), data, part,
                              plan.buckets()[bucket].value_dtype));
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    if (rank != own) move(plan.part(bucket, rank), bucket, data, false);
  }
}

ParameterGather::ParameterGather(std::shared_ptr<ParameterSource> source, const BucketPlan& plan,
                                 bool bucket_views)
    : impl_(new Impl{std::move(source), plan, nullptr, {}, {}, {}}) {
  impl_->group = impl_->source->groups().data;
  const size_t buckets = plan.buckets().size();
  impl_->peer_copies.resize(buckets);
  if (bucket_views) {
    check_internal(impl_->group != nullptr, "values in buckets need a group");
    take_for_call(impl_->group.get(), "all_gather", [&] {
      for (size_t bucket = 0; bucket < buckets; ++bucket) {
        impl_->buckets.emplace_back(*impl_->group, impl_->bucket_bytes(bucket));
        std::memset(impl_->buckets[bucket].data(), 0, impl_->bucket_bytes(bucket));
      }
    });
  }
  if (impl_->alone()) return;
  if (bucket_views) {
    impl_->find_peer_copies();
    return;
  }
  size_t most = 0;
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    most = std::max(most, impl_->bucket_bytes(bucket));
  }
  impl_->staging = ExchangedBuffer(*impl_->group, most);
  std::memset(impl_->staging.data(), 0, most);
}

ParameterGather::~ParameterGather() = default;

void* ParameterGather::bucket_view(size_t parameter) const {
  const int bucket = impl_->plan.bucket_of(parameter);
  if (impl_->buckets.empty() || bucket < 0) return nullptr;
  const auto b = static_cast<size_t>(bucket);
  return impl_->buckets[b].data() + static_cast<size_t>(impl_->plan.offset_of(parameter)) *
                                        dtype_size(impl_->plan.buckets()[b].value_dtype);
}

void ParameterGather::begin() {
  if (!impl_->alone()) impl_->group->run(Call::barrier());
}

bool ParameterGather::has_peer_copies() const {
  return std::any_of(impl_->peer_copies.begin(), impl_->peer_copies.end(),
                     [](const std::vector<void*>& of_bucket) { return !of_bucket.empty(); });
}

const std::vector<void*>& ParameterGather::peer_copies(size_t bucket) const {
  return impl_->peer_copies[bucket];
}

void ParameterGather::gather() {
  if (impl_->alone()) return;
  const PhaseScope phase(NXD_PHASE_COMMUNICATION);
  bool has_copies = false;
  for (size_t bucket = 0; bucket < impl_->peer_copies.size(); ++bucket) {
    if (!impl_->peer_copies[bucket].empty()) {
      has_copies = true;
    } else if (impl_->buckets.empty()) {
      impl_->gather_through_staging(bucket);
    } else {
      char* data = impl_->buckets[bucket].data();
      const auto part = static_cast<size_t>(impl_->plan.part_size(bucket));
      const char* own =
          data + static_cast<size_t>(impl_->group->rank()) * impl_->part_bytes(bucket);
      impl_->group->run(
          Call::all_gather(own, data, part, impl_->plan.buckets()[bucket].value_dtype));
    }
  }
  // Writes of the others are complete once all have come here.
  if (has_copies) impl_->group->run(Call::barrier());
}

void ParameterGather::reject(const char* reason) noexcept {
  if (impl_->alone()) return;
  try {
    impl_->group->reject(Call::named("optimizer step"), reason);
  } catch (const std::exception&) {
    // A rejection fails on its own rank as well; the caller has the reason at hand.
  }
}

uint64_t ParameterGather::buffer_bytes() const { return impl_->staging.bytes(); }

}  // namespace nxd
