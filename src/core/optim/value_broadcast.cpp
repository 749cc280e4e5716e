#include "core/optim/value_broadcast.h"

#include <algorithm>
#include <cstring>

#include "core/base/dtype.h"
#include "core/base/profiler.h"
#include "core/comm/exchanged_buffer.h"
#include "core/comm/take_for_call.h"
#include "core/optim/bucket_plan.h"

namespace nxd {
namespace {

// Large enough that latency does not count, small beside a model.
constexpr int64_t kBucketBytes = int64_t{4} << 20;

// Copies values to their places in a bucket, or from there.
void move(ParameterSource& source, const BucketPlan::Bucket& bucket, char* data, bool to_bucket) {
  const size_t size = dtype_size(bucket.dtype);
  for (const BucketPlan::Item& item : bucket.items) {
    void* value = source.buffers(item.parameter).value;
    char* place = data + static_cast<size_t>(item.offset) * size;
    const size_t bytes = static_cast<size_t>(item.count) * size;
    if (to_bucket) {
      std::memcpy(place, value, bytes);
    } else {
      std::memcpy(value, place, bytes);
    }
  }
}

}  // namespace

void broadcast_values(ParameterSource& source, ProcessGroup& group) {
  if (group.size() == 1) return;
  const PhaseScope phase(NXD_PHASE_COMMUNICATION);
  std::vector<BucketPlan::Parameter> sizes;
  for (size_t i = 0; i < source.size(); ++i) {
    sizes.push_back({source.info(i).count(), source.info(i).dtype});
  }
  const BucketPlan plan(sizes, kBucketBytes, 1);
  size_t most = 0;
  for (const BucketPlan::Bucket& bucket : plan.buckets()) {
    if (bucket.items.size() == 1) continue;
    most = std::max(most, static_cast<size_t>(bucket.used) * dtype_size(bucket.dtype));
  }
  ExchangedBuffer buffer;
  take_for_call(&group, "broadcast", [&] { buffer = ExchangedBuffer(group, most); });
  for (const BucketPlan::Bucket& bucket : plan.buckets()) {
    const bool direct = bucket.items.size() == 1;
    void* data = direct ? source.buffers(bucket.items[0].parameter).value
                        : static_cast<void*>(buffer.data());
    if (!direct && group.rank() == 0) move(source, bucket, buffer.data(), true);
    group.run(Call::broadcast(data, static_cast<size_t>(bucket.used), bucket.dtype, 0));
    if (!direct && group.rank() != 0) move(source, bucket, buffer.data(), false);
    for (const BucketPlan::Item& item : bucket.items) source.value_changed(item.parameter);
  }
}

}  // namespace nxd
