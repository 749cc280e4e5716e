#include "core/optim/bucket_plan.h"

#include <algorithm>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/round_up.h"

namespace nxd {
namespace {

constexpr int64_t kLineBytes = 64;

}  // namespace

BucketPlan::BucketPlan(const std::vector<Parameter>& parameters, int64_t bucket_bytes, int ranks,
                       Parts parts)
    : ranks_(ranks),
      parts_(parts),
      bucket_of_(parameters.size(), -1),
      offset_of_(parameters.size(), 0) {
  check_internal(ranks >= 1 && bucket_bytes > 0, "bucket plan: ", ranks, " ranks, ", bucket_bytes,
                 " bytes");
  // The bucket of each kind that still takes parameters.
  std::vector<size_t> open;
  for (size_t i = parameters.size(); i-- > 0;) {
    const Parameter& parameter = parameters[i];
    if (parameter.count == 0) continue;
    const auto size = static_cast<int64_t>(dtype_size(parameter.dtype));
    auto found = std::find_if(open.begin(), open.end(), [&](size_t bucket) {
      return buckets_[bucket].dtype == parameter.dtype &&
             buckets_[bucket].value_dtype == parameter.value_dtype &&
             buckets_[bucket].replica_group == parameter.replica_group;
    });
    const bool is_full =
        found != open.end() &&
        (has_parts_alike() || (buckets_[*found].used + parameter.count) * size > bucket_bytes);
    if (is_full) {
      open.erase(found);
      found = open.end();
    }
    if (found == open.end()) {
      open.push_back(buckets_.size());
      found = open.end() - 1;
      buckets_.push_back(
          {parameter.dtype, 0, 0, {}, parameter.value_dtype, parameter.replica_group});
    }
    Bucket& bucket = buckets_[*found];
    offset_of_[i] = bucket.used;
    bucket.items.push_back({i, bucket.used, parameter.count});
    bucket.used += parameter.count;
  }
  std::sort(buckets_.begin(), buckets_.end(), [](const Bucket& a, const Bucket& b) {
    return a.items.back().parameter > b.items.back().parameter;
  });
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (const Item& item : buckets_[bucket].items) {
      bucket_of_[item.parameter] = static_cast<int>(bucket);
    }
  }
  for (Bucket& bucket : buckets_) {
    const int64_t line = kLineBytes / static_cast<int64_t>(dtype_size(bucket.dtype));
    bucket.size = round_up(bucket.used, has_parts_alike() ? ranks : line * ranks);
  }
}

std::vector<BucketPlan::Segment> BucketPlan::part(size_t bucket, int rank) const {
  const int64_t size = part_size(bucket);
  return segments_between(bucket, rank * size, (rank + 1) * size);
}

std::vector<BucketPlan::Segment> BucketPlan::full(size_t bucket) const {
  return segments_between(bucket, 0, buckets_[bucket].size);
}

std::vector<BucketPlan::Segment> BucketPlan::segments_between(size_t bucket, int64_t begin,
                                                              int64_t end) const {
  std::vector<Segment> segments;
  for (const Item& item : buckets_[bucket].items) {
    const int64_t first = std::max(begin, item.offset);
    const int64_t last = std::min(end, item.offset + item.count);
    if (first < last)
      segments.push_back({item.parameter, first - item.offset, first, last - first});
  }
  return segments;
}

}  // namespace nxd
