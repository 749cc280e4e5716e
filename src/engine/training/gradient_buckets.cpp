#include "engine/training/gradient_buckets.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "engine/device/dtype_map.h"
#include "engine/device/pooled_tensor.h"

namespace nxd {
namespace {

// Large enough that latency does not count, small beside a model.
constexpr int64_t kBucketBytes = int64_t{32} << 20;

void reduce_bucket(ProcessGroup& group, const std::vector<at::Tensor>& bucket, int64_t elements,
                   nxd_reduce_t reduce) {
  const at::ScalarType type = bucket.front().scalar_type();
  const nxd_dtype_t dtype = to_nxd_dtype(type);
  if (bucket.size() == 1) {
    void* data = bucket.front().data_ptr();
    group.all_reduce(data, data, static_cast<size_t>(elements), dtype, reduce);
    return;
  }
  at::Tensor buffer = exchanged_empty(group, {elements}, type);
  int64_t at = 0;
  for (const at::Tensor& tensor : bucket) {
    buffer.narrow(0, at, tensor.numel()).copy_(tensor.reshape({-1}));
    at += tensor.numel();
  }
  group.all_reduce(buffer.data_ptr(), buffer.data_ptr(), static_cast<size_t>(elements), dtype,
                   reduce);
  at = 0;
  for (const at::Tensor& tensor : bucket) {
    at::Tensor(tensor).copy_(buffer.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

}  // namespace

void reduce_in_buckets(ProcessGroup& group, const std::vector<at::Tensor>& tensors,
                       nxd_reduce_t reduce) {
  if (group.size() == 1) return;
  std::vector<at::ScalarType> types;
  for (const at::Tensor& tensor : tensors) {
    if (std::find(types.begin(), types.end(), tensor.scalar_type()) == types.end()) {
      types.push_back(tensor.scalar_type());
    }
  }
  for (const at::ScalarType type : types) {
    const int64_t limit = kBucketBytes / static_cast<int64_t>(c10::elementSize(type));
    std::vector<at::Tensor> bucket;
    int64_t elements = 0;
    const auto flush = [&] {
      if (elements > 0) reduce_bucket(group, bucket, elements, reduce);
      bucket.clear();
      elements = 0;
    };
    for (const at::Tensor& tensor : tensors) {
      if (tensor.scalar_type() != type || tensor.numel() == 0) continue;
      if (elements + tensor.numel() > limit) flush();
      bucket.push_back(tensor);
      elements += tensor.numel();
    }
    flush();
  }
}

}  // namespace nxd
